"""A combiner that starts as a safe convex mix and grows into the best linear one."""

from functools import partial
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.combiners.convex import BOA, MLPoly
from jboost.combiners.mean import from_mean
from jboost.core import DType, Key, Learner, Sample, State, checks, model
from jboost.core.learner import instance
from jboost.learners.newton import Newton


class RefinedState(NamedTuple):
    """The state of a refined combiner.

    mix: the state of the convex mix, as that starts.
    correction: the state of the learner that corrects the mix, as that starts.
    judge: the state of the combiner of the two, as that starts.
    """

    mix: State
    correction: State
    judge: State


@model
class Refined(Learner):
    """A convex mix p of the estimates y, corrected by least squares, and a judge between the two.

        q = p + wᵀ(y − p),    d̂ = a p + (1 − a) q

    The convex mix is almost at once as good as the best of the estimates. Least squares over the
    estimates is better in the end and worse at first, the more so the more estimates there are. As
    w starts at 0, q starts as p. The judge mixes p and q with a regret bound, so d̂ is hardly worse
    than either.

    It is the combiner of :func:`jboost.auto`. ``experiments/bench/accuracy.py`` shows its errors
    beside those of the best expert and of the best fixed mix in hindsight.

    Args:
      mix: the combiner that makes p; its weights should add up to 1.
      correction: a linear learner with the inputs y − p and the target d − p.
      judge: the combiner of p and q.

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
        checks.fields(
            self,
            mix=partial(instance, example="BOA()"),
            correction=partial(instance, example="Newton()"),
            judge=partial(instance, example="MLPoly()"),
        )
        # The correction starts at w = 0 and not at a mean: its inputs are deviations from p.
        checks.assign(self, mix=from_mean(self.mix), judge=from_mean(self.judge))

    @property
    def needs_key(self) -> bool:
        return any(learner.needs_key for learner in (self.mix, self.correction, self.judge))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> RefinedState:
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
        """Return p and q."""
        x = jnp.asarray(x)
        p = self.mix.predict(state.mix, x)
        return jnp.stack([p, p + self.correction.predict(state.correction, x - p)])
