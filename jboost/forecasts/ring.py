"""Rings: what was stored at the last H rows, newest first.

A ring has 2H rows and holds every entry twice, H rows apart, so that the last H entries always lie
next to each other. ``at`` is the row of the newest entry.
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jboost.core import places


def empty(horizon: int, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Return a ring for entries of a shape, filled with zeros."""
    return jnp.zeros((2 * horizon, *shape), dtype)


def newest_first(ring: Array, at: Array) -> Array:
    """Return the last H entries."""
    return places.rows(ring, at, ring.shape[0] // 2)


def by_age(ring: Array, at: Array) -> Array:
    """Return, of the entry h rows back, item h − 1, for h = 1 … H: what was said of the next row.

    >>> ring = jnp.arange(8.0).reshape(4, 2)  # H = 2, entries of two items
    >>> by_age(ring, jnp.array(1)).tolist()
    [2.0, 5.0]
    """
    order = jnp.arange(ring.shape[0] // 2, dtype=jnp.int32)
    return places.at(ring, at + order, order)


def pushed(ring: Array, at: Array, entry: Array, counts: Array) -> Array:
    """Return the ring with a newest entry at ``at``; as it was where nothing counts."""
    for row in (at, at + ring.shape[0] // 2):
        old = places.rows(ring, row, 1)
        ring = places.put_rows(ring, jnp.where(counts, entry[None], old), row)
    return ring


def advanced(at: Array, rows: Array, horizon: int) -> Array:
    """Return where the newest entry lies after so many rows more."""
    return jnp.remainder(at - rows, jnp.asarray(horizon, at.dtype))


def aged(valid: Array, rows: Array) -> Array:
    """Return the flags of the last H rows, newest first, after ``rows`` rows without an entry."""
    order = jnp.arange(valid.shape[0], dtype=jnp.int32) - rows
    return jnp.where(order >= 0, valid[jnp.maximum(order, 0)], jnp.zeros((), bool))


def filled(values: Array, forecast: Array, rows: Array) -> Array:
    """Return the latest values, newest first, after ``rows`` rows without a value.

    Each of these rows gets what was forecast for it; rows beyond the horizon get the last forecast.
    """
    both = jnp.concatenate([forecast[::-1], values])
    order = forecast.shape[0] + jnp.arange(values.shape[0], dtype=jnp.int32) - rows
    return both[jnp.maximum(order, 0)]
