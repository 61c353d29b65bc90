"""A mixture that begins as the safe one and grows into the best linear one."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.combiners.aggregate import BOA, MLPoly
from jboost.combiners.combine import from_mean
from jboost.core import checks
from jboost.core.learner import Learner, State
from jboost.core.pytree import model
from jboost.core.sample import Sample
from jboost.learners.newton import Newton


class RefinedState(NamedTuple):
    """What the mix, the correction and the judge between the two know."""

    mix: State
    correction: State
    judge: State


@model
class Refined(Learner):
    """A combiner: a convex mix p of the estimates, and what least squares makes of what it leaves.

        q = p + wᵀ(y − p),    d̂ = a p + (1 − a) q

    The convex mix is at once as good as the best of the estimates, and stays so; least squares over
    them is better in the end and worse at first, by as much as there are estimates. As w starts at
    0, q starts as p. The judge is a mix of the two with a regret bound, so d̂ is hardly worse than
    either.

    It is the combiner of :func:`jboost.auto`; ``experiments/bench/accuracy.py`` has its errors
    beside the best of the experts and the best fixed mix of them in hindsight.

    Args:
      mix: a combiner with weights that add up to 1.
      correction: a linear learner, of (y − p, d − p).
      judge: a combiner of two.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(1000)
    >>> experts = [jb.SGD(0.1), jb.SGD(0.5), jb.Newton(0.9)]
    >>> mixed = jb.boost(experts, target_mse=0.1, dependence=0.0, combiner=Refined())
    >>> bool(jb.mse(mixed, xs, ds) < min(jb.mse(one, xs, ds) for one in experts))
    True
    """

    mix: Learner = BOA()
    correction: Learner = Newton(forgetting=0.999, ridge=10.0)
    judge: Learner = MLPoly()

    starts_at_mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, example in (("mix", "BOA()"), ("correction", "Newton()"), ("judge", "MLPoly()")):
            part = checks.instance(
                name, getattr(self, name), Learner, f"a learner such as {example}"
            )
            # What is left over has no mean to start from: w starts at 0, whatever learns it.
            object.__setattr__(self, name, part if name == "correction" else from_mean(part))

    @property
    def needs_key(self) -> bool:
        return any(part.needs_key for part in (self.mix, self.correction, self.judge))

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> RefinedState:
        return RefinedState(
            self.mix.init(num_features, dtype, key=key),
            self.correction.init(num_features, dtype, key=key),
            self.judge.init(2, dtype, key=key),
        )

    def predict(self, state: RefinedState, x: ArrayLike) -> Array:
        return self.judge.predict(state.judge, self._both(state, x))

    def learn(self, state: RefinedState, sample: Sample) -> RefinedState:
        x, d = sample.x, sample.d
        both = self._both(state, x)
        p = both[0]
        return RefinedState(
            self.mix.learn(state.mix, sample),
            self.correction.learn(state.correction, sample.with_input(x - p).with_target(d - p)),
            self.judge.learn(state.judge, sample.with_input(both)),
        )

    def _both(self, state: RefinedState, x: ArrayLike) -> Array:
        """p and q."""
        x = jnp.asarray(x)
        p = self.mix.predict(state.mix, x)
        return jnp.stack([p, p + self.correction.predict(state.correction, x - p)])
