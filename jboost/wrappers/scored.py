"""Scored: a learner that keeps its own score while it runs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jboost.core import DType, Key, Learner, Sample, State, Wrapper, checks, metrics, model
from jboost.core.learner import instance
from jboost.core.metrics import Metric
from jboost.wrappers.intervals import Intervals, interval


class ScoredState(NamedTuple):
    """The state of a scored learner."""

    metrics: State
    learner: State


@model
class Scored(Wrapper):
    """A learner, and metrics of the predictions that it made before it learned.

    ``scores(state)`` has their values; ``info`` reports those before the sample, as ``scores``. The
    metrics are part of the state, so they go on where a run was cut. A sample that is not learned,
    because of its x or d or because its weight or repeats are 0, does not count; a repeated sample
    counts once.

    Args:
      learner: any learner; for ``Coverage`` one with ``Intervals``.
      metrics: a metric, or a pytree of metrics.

    >>> import jboost as jb
    >>> from jboost.core.metrics import MSE, R2
    >>> xs, ds = jb.streams.duffing(1000)
    >>> model = Scored(jb.Newton(0.99), {"late": MSE(window=100), "all": R2()})
    >>> state, _ = jb.run(model, xs, ds)
    >>> sorted((name, round(float(score), 3)) for name, score in model.scores(state).items())
    [('all', 0.877), ('late', 0.22)]
    """

    learner: Learner
    metrics: Any = metrics.MSE()

    def __post_init__(self) -> None:
        checks.fields(self, learner=instance)
        metrics.check(self.metrics)
        if self._uses_intervals and not isinstance(self.learner, Intervals):
            raise TypeError(
                "a metric of intervals wants a learner that has some, jboost.Intervals(learner); "
                f"got {self.learner!r}"
            )

    @property
    def _metrics(self) -> list[Metric]:
        return jax.tree.leaves(self.metrics, is_leaf=metrics.is_metric)

    @property
    def _uses_intervals(self) -> bool:
        return any(metric.of_intervals for metric in self._metrics)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ScoredState:
        learner = self.learner.init(num_features, dtype, key=key)
        return ScoredState(metrics.init(self.metrics, dtype), learner)

    def learn(self, state: ScoredState, sample: Sample) -> ScoredState:
        # NaN marks a sample that does not count. A choice between the states of the metrics before
        # and after would copy their windows at every step.
        d = jnp.where(sample.counts, sample.d, jnp.nan)
        x, prediction = sample.raw, self.predict(state, sample.raw)
        bounds = interval(self.learner, state.learner, x) if self._uses_intervals else ()
        scored = metrics.update(self.metrics, state.metrics, d, prediction, *bounds)
        return ScoredState(scored, self.learner.learn(state.learner, sample))

    def scores(self, state: ScoredState) -> Any:
        """Return the value of every metric so far."""
        return metrics.value(self.metrics, state.metrics)

    def info(self, state: ScoredState, sample: Sample) -> dict[str, Any]:
        return super().info(state, sample) | {"scores": self.scores(state)}
