"""Reads and writes of single places in arrays, with as few operations as can be.

An index in square brackets is first checked for being negative or beyond the end, which takes more
operations than the read itself. Here an index lies within the array; one that does not reads the
nearest place.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

_Arrays = TypeVar("_Arrays")


def at(array: Array, *indices: Array) -> Array:
    """Return ``array[indices]``."""
    return array.at[indices].get(mode="promise_in_bounds", wrap_negative_indices=False)


def rows(array: Array, start: Array, count: int) -> Array:
    """Return ``array[start : start + count]``."""
    return jax.lax.dynamic_slice_in_dim(array, start, count, allow_negative_indices=False)


def put_rows(array: Array, values: Array, start: Array) -> Array:
    """Return the array with values in the rows from ``start`` on."""
    starts = (start, *(jnp.zeros_like(start),) * (array.ndim - 1))
    return jax.lax.dynamic_update_slice(array, values, starts, allow_negative_indices=False)


def put(arrays: _Arrays, place: Array, values: _Arrays, counts: Array, axis: int = 0) -> _Arrays:
    """Return arrays with values in one place along an axis, or as they are if nothing counts.

    A loop of one step or none lets the compiler change the arrays in place. A choice between the
    old and the new arrays would copy them.
    """

    def write(_: Array, arrays: _Arrays) -> _Arrays:
        def into(array: Array, value: Array) -> Array:
            starts = [place if i == axis else jnp.zeros_like(place) for i in range(array.ndim)]
            value = jnp.expand_dims(value, axis)
            return jax.lax.dynamic_update_slice(array, value, starts, allow_negative_indices=False)

        return jax.tree.map(into, arrays, values)

    return jax.lax.fori_loop(0, counts.astype(jnp.int32), write, arrays)
