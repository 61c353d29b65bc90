"""What a boosted model is compared with: trivial predictions and the boosters of related work.

They are here to be measured against, not for use. May import from `core` to `boosting`.
"""

from jboost.baselines.controls import LastValue, RunningMean, bagging, poisson_boosting
from jboost.baselines.gradient_boosting import HullBoosting, SpanBoosting

__all__ = ["HullBoosting", "LastValue", "RunningMean", "SpanBoosting", "bagging"]
__all__ += ["poisson_boosting"]
