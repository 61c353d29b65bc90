"""Combiners: learners on the m predictions, starting at their mean.

Any learner combines: it learns d − mean(y) from y, so that it starts at z = 1/m and, where it is
linear, its coefficients are z − 1/m exactly.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.core.learner import Learner, Number, State, model
from jboost.core.numerics import dtype_of, known
from jboost.learners.sgd import NLMS

NSGD = NLMS  # the paper's name for it: z ← z + μ_z e y/‖y‖²


class UniformState(NamedTuple):
    """Nothing is learned; the dtype is remembered."""

    zero: Array


@model
class Uniform(Learner):
    """The plain mean of the predictions: z = 1/m for ever, as in the paper's Lemma 1.

    >>> combiner = Uniform()
    >>> float(combiner.predict(combiner.init(2), jnp.array([1.0, 3.0])))
    2.0
    """

    starts_at_mean: ClassVar[bool] = True

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> UniformState:
        del num_features, key
        return UniformState(jnp.zeros((), dtype_of(dtype)))

    def predict(self, state: UniformState, x: Any) -> Array:
        return jnp.mean(known(x, state.zero.dtype))

    def update(
        self,
        state: UniformState,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> UniformState:
        del x, d, weight, repeats, key
        return state


@model
class FromMean(Learner):
    """A learner of what the mean of the predictions leaves over."""

    learner: Learner

    starts_at_mean: ClassVar[bool] = True

    @property
    def needs_key(self) -> bool:
        return self.learner.needs_key

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> State:
        return self.learner.init(num_features, dtype, key=key)

    def predict(self, state: State, x: Any) -> Array:
        left = self.learner.predict(state, x)
        return jnp.mean(known(x, left.dtype)) + left

    def coefficients(self, state: State, x: Any) -> Array:
        left = self.learner.coefficients(state, x)
        return 1 / left.shape[0] + left

    def update(
        self,
        state: State,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> State:
        # Of what is known of x, as in `predict`, so that it is computed once for both.
        mean = jnp.mean(known(x, jnp.asarray(x).dtype))
        return self.learner.update(state, x, d - mean, weight=weight, repeats=repeats, key=key)


def from_mean(combiner: Learner) -> Learner:
    """The combiner itself where its class says ``starts_at_mean``, else a learner that does."""
    return combiner if getattr(combiner, "starts_at_mean", False) else FromMean(combiner)
