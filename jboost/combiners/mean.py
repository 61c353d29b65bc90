"""The plain mean of the predictions, and combiners that start at it.

Any learner can combine: it learns d − mean(y), so that a linear one has the coefficients z − 1/m.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Sample, State, model
from jboost.core.numerics import dtype_of, known
from jboost.learners.sgd import NLMS

NSGD = NLMS  # the paper's name for it as a combiner: z ← z + μ_z e y/‖y‖²


@model
class Uniform(Learner):
    """The plain mean of the predictions: z = 1/m for ever, as in the paper's Lemma 1.

    >>> combiner = Uniform()
    >>> float(combiner.predict(combiner.init(2), jnp.array([1.0, 3.0])))
    2.0
    """

    starts_at_mean: ClassVar[bool] = True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> Array:
        return jnp.zeros((), dtype_of(dtype))  # nothing is learned, but estimates have a dtype

    def predict(self, state: Array, x: ArrayLike) -> Array:
        return jnp.mean(known(x, state.dtype))

    def learn(self, state: Array, sample: Sample) -> Array:
        return state


@model
class FromMean(Learner):
    """A learner's estimate of d − mean(y), added to mean(y). The state is that of the learner."""

    learner: Learner

    starts_at_mean: ClassVar[bool] = True

    @property
    def needs_key(self) -> bool:
        return self.learner.needs_key

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return self.learner.init(num_features, dtype, key=key)

    def predict(self, state: State, x: ArrayLike) -> Array:
        correction = self.learner.predict(state, x)
        return jnp.mean(known(x, correction.dtype)) + correction

    def coefficients(self, state: State, x: ArrayLike) -> Array:
        w = self.learner.coefficients(state, x)
        return 1 / w.shape[0] + w

    def learn(self, state: State, sample: Sample) -> State:
        return self.learner.learn(state, sample.with_target(sample.d - jnp.mean(sample.x)))


def from_mean(combiner: Learner) -> Learner:
    """Return the combiner if it starts at the mean of its inputs, else one around it that does."""
    return combiner if combiner.starts_at_mean else FromMean(combiner)
