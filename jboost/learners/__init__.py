"""Base learners, one file per family, and the networks that some of them train.

`sgd` and `newton` are the paper's linear learners, `filters` those of signal processing. `trainers`
and `replay` train a network of `networks`, `tree` grows regions with a learner in each, and
`forest` boosts trees. May import from `core`.
"""

from jboost.core import Learner
from jboost.learners.filters import AffineProjection, SignSignLMS, VariableStepLMS
from jboost.learners.forest.boosted import BoostedTrees
from jboost.learners.newton import ForwardNewton, Newton
from jboost.learners.replay import Replay
from jboost.learners.sgd import NLMS, SGD
from jboost.learners.trainers import GaussNewton, Gradient
from jboost.learners.tree.piecewise import PiecewiseLinear

__all__ = ["NLMS", "SGD", "AffineProjection", "BoostedTrees", "ForwardNewton", "GaussNewton"]
__all__ += ["Gradient", "Learner", "Newton", "PiecewiseLinear", "Replay", "SignSignLMS"]
__all__ += ["VariableStepLMS"]
