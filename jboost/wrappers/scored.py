"""A learner that keeps its own score while it runs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jboost.core import DType, Key, Learner, Sample, State, Wrapper, checks, metrics, model
from jboost.wrappers.intervals import Intervals


class ScoredState(NamedTuple):
    """The metrics so far, and the learner."""

    metrics: State
    learner: State


@model
class Scored(Wrapper):
    """A learner and metrics of the predictions that it made before it learned.

    ``scores(state)`` has their values; a run's ``info`` reports those before the sample, as
    ``scores``. Being part of the state, they go on where a run was cut. A sample that is not
    learned, because of its x or d, its weight or repeats of 0, does not count; one that is repeated
    counts once.

    Args:
      learner: any learner; for ``Coverage`` one with :class:`jboost.Intervals`.
      metrics: a metric, or a pytree of them.

    >>> import jboost as jb
    >>> from jboost.core.metrics import MSE, R2
    >>> xs, ds = jb.streams.duffing(1000)
    >>> model = Scored(jb.Newton(0.99), {"late": MSE(window=100), "all": R2()})
    >>> state, _ = jb.run(model, xs, ds)
    >>> sorted((name, round(float(one), 3)) for name, one in model.scores(state).items())
    [('all', 0.877), ('late', 0.22)]
    """

    learner: Any
    metrics: Any = metrics.MSE()

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        for one in self._all:
            checks.instance("metrics", one, metrics.Metric, "a metric such as MSE(), or several")
        if self._bounded and not isinstance(self.learner, Intervals):
            raise TypeError(
                "a metric of intervals wants a learner that has some, jboost.Intervals(learner); "
                f"got {self.learner!r}"
            )

    @property
    def _all(self) -> list[Any]:
        return jax.tree.leaves(self.metrics, is_leaf=metrics.is_metric)

    @property
    def _bounded(self) -> bool:
        """Whether a metric looks at the bounds of an interval."""
        return any(one.of_intervals for one in self._all)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ScoredState:
        learner = self.learner.init(num_features, dtype, key=key)
        return ScoredState(metrics.init(self.metrics, dtype), learner)

    def learn(self, state: ScoredState, sample: Sample) -> ScoredState:
        # By its target, not by a choice between states: a window would be copied at every step.
        scored = jnp.where(sample.counts, sample.d, jnp.nan)
        bounds = self.learner.interval(state.learner, sample.x) if self._bounded else ()
        prediction = self.predict(state, sample.x)
        return ScoredState(
            metrics.update(self.metrics, state.metrics, scored, prediction, *bounds),
            self.learner.learn(state.learner, sample),
        )

    def scores(self, state: ScoredState) -> Any:
        """The value of every metric so far."""
        return metrics.value(self.metrics, state.metrics)

    def info(self, state: ScoredState, sample: Sample) -> dict[str, Any]:
        return self.learner.info(state.learner, sample) | {"scores": self.scores(state)}
