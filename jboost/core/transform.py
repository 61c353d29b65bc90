"""What stands before a learner: a Transform turns the input x into the x′ that the learner sees.

Like a learner it is a frozen pytree of hyperparameters, and what it has seen is its state:

    init(num_features, dtype)    -> state
    width(num_features)          -> how many columns x′ has
    apply(state, x)              -> x′
    learn(state, x, d)           -> state

All are pure and unbatched. ``apply`` may use all of the x that it is given, which is known before
the prediction; of the targets it knows those that ``learn`` has seen.
"""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core.arrays import real as real
from jboost.core.learner import Number, State


class Transform(abc.ABC):
    """The protocol. Subclasses are final and decorated with :func:`jboost.core.learner.model`.

    What is not overridden is right for a fixed map that keeps the number of columns.
    """

    @property
    def needs_key(self) -> bool:
        """Whether ``init`` draws at random."""
        return False

    @property
    def passes_missing(self) -> bool:
        """Whether an unusable entry of x spoils nothing but its own place in x′."""
        return False

    @property
    def fills_missing(self) -> bool:
        """Whether x′ is usable whatever x holds."""
        return False

    def width(self, num_features: int) -> int:
        """The number of columns of x′."""
        return num_features

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> State:
        """The state before any data."""
        del num_features, dtype, key
        return ()

    @abc.abstractmethod
    def apply(self, state: State, x: Any) -> Array:
        """x′, finite or NaN whatever x holds."""

    def learn(self, state: State, x: Any, d: Any) -> State:
        """The state after a sample (x, d), whose d is usable; of its x, what need be."""
        del x, d
        return state


def given(key: Any) -> Any:
    """The key that ``init`` draws from."""
    if key is None:
        raise ValueError("key is missing: this model draws at random; pass key=jax.random.key(0)")
    return key


def kept(ok: Array, weight: Number, repeats: Any, after: State, before: State) -> State:
    """``after`` where a sample is learned, ``before`` bit for bit where not.

    It is learned once, whatever its weight and however often the learner repeats it, but not where
    either of these is zero: what a booster does not draw must stay as it is.
    """
    for told in (weight, repeats):
        if not isinstance(told, (int, float)) or told == 0:
            ok = ok & jnp.asarray(told).astype(bool)
    return jax.tree.map(
        lambda new, old: old if new is old else jnp.where(ok, new, old), after, before
    )
