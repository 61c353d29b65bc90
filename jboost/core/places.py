"""Writes into one place of large arrays, without a copy of them."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

_Arrays = TypeVar("_Arrays")


def put(arrays: _Arrays, place: Array, values: _Arrays, counts: Array, axis: int = 0) -> _Arrays:
    """Return arrays with values in one place along an axis, or as they are if nothing counts.

    A loop of one step or none lets the compiler change the arrays in place. A choice between the
    old and the new arrays would copy them.
    """

    def write(_: Array, arrays: _Arrays) -> _Arrays:
        def at(array: Array, value: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(array, value, place, axis)

        return jax.tree.map(at, arrays, values)

    return jax.lax.fori_loop(0, counts.astype(jnp.int32), write, arrays)
