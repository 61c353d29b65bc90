"""GrowingMemory: a learner that forgets less and less."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of


class GrowingState(NamedTuple):
    """The state of a learner whose memory grows."""

    samples: Array  # t, how many samples were learned, 0 at the start
    learner: State


@model
class GrowingMemory(Wrapper):
    """A learner whose memory of 1/(1 − β) samples grows by ``rate`` with each sample.

        β_t = 1 − 1/(1/(1 − β) + rate · t)

    What a learner with many coefficients learned from its first samples is poor, and worth
    forgetting; later samples are worth keeping for longer. In float32 t ends at 2²⁴, from where on
    the memory stays as it is.

    Args:
      learner: a learner with a setting ``forgetting`` β < 1, such as ``Newton(0.995)``.
      rate: at least 0; the share of all samples so far that is remembered in the long run.

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.stationary(jax.random.key(0), 1000)
    >>> bool(jb.mse(GrowingMemory(jb.Newton(0.9)), xs, ds) < jb.mse(jb.Newton(0.9), xs, ds))
    True
    """

    learner: Learner
    rate: Number = 0.25

    def __post_init__(self) -> None:
        instance("learner", self.learner)
        if not hasattr(self.learner, "forgetting"):
            came = checks.shown(self.learner)
            raise TypeError(f"learner must have a forgetting, as Newton(0.995) has; got {came}")
        checks.fields(self, rate=checks.a_number(at_least=0))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> GrowingState:
        learner = self.learner.init(num_features, dtype, key=key)
        return GrowingState(jnp.zeros((), dtype_of(dtype)), learner)

    def learn(self, state: GrowingState, sample: Sample) -> GrowingState:
        t, dtype = state.samples, state.samples.dtype
        forgets = 1 - jnp.asarray(self.learner.forgetting, dtype)  # type: ignore[attr-defined]
        forgets = forgets / (1 + jnp.asarray(self.rate, dtype) * t * forgets)
        learner = dataclasses.replace(self.learner, forgetting=1 - forgets)  # type: ignore[type-var]
        t = sample.keep(t + 1, t)
        return GrowingState(t, learner.learn(state.learner, sample))
