"""Quantile bins: where the columns of buffered rows are cut, and which bin a value falls into.

Bin 0 holds missing values. Bin 1 + i holds the values that lie above i of the column's edges.
"""

import jax.numpy as jnp
from jax import Array
from jax.lax import div

from jboost.core.places import at
from jboost.learners.forest.trees import ABSENT, BEYOND

SAMPLE = 512  # buffered rows whose values decide where a column is cut


def bins_of(values: Array, edges: Array) -> Array:
    """Return the bin of each value of a column, given its edges, or of each column of a row.

    ``edges`` has the edges along its last axis, one row for each value or one for all.
    """
    above = jnp.sum(values[..., None] > edges, axis=-1, dtype=jnp.int32)
    return jnp.where(values != ABSENT, 1 + above, 0).astype(jnp.uint8)


def edges_of(column: Array, filled: Array, count: int) -> Array:
    """Return ``count`` edges of a column, of which the first ``filled`` values count.

    Edges lie halfway between neighbouring values, at the quantiles of a sample of them. A value
    that fills more than a bin counts as one that fills a bin. So a column of few values has a bin
    for each of them. Edges that are left over repeat others, or lie
    below all values.
    """
    n = min(SAMPLE, len(column))
    numbers = jnp.arange(n, dtype=jnp.int32)
    rows = div(numbers * jnp.maximum(filled, n), jnp.int32(n))  # spread over all rows
    v = at(column, rows)
    valid = (v != ABSENT) & (rows < filled)
    v = jnp.where(valid, v, BEYOND)
    # All pairs are compared: that compiles in a third of the time of a sort.
    most = div(jnp.sum(valid, dtype=jnp.int32), jnp.int32(count + 1))
    equals_before = (v[None, :] == v[:, None]) & (rows[None, :] < rows[:, None])
    counted = valid & (jnp.sum(equals_before, axis=1, dtype=jnp.int32) <= most)
    up_to = counted[None, :] & (v[None, :] <= v[:, None])
    mass = jnp.sum(up_to, axis=1, dtype=jnp.int32)  # the values up to this one that are counted
    shares = jnp.arange(1, count + 1, dtype=jnp.int32)
    quantiles = div(shares * jnp.max(mass), jnp.int32(count + 1))
    above = jnp.min(jnp.where(mass[None, :] > quantiles[:, None], v[None, :], BEYOND), axis=1)
    below = jnp.max(jnp.where(v[None, :] < above[:, None], v[None, :], ABSENT), axis=1)
    middle = below + (above - below) / 2
    middle = jnp.where(middle < above, middle, below)
    return jnp.where((above < BEYOND) & (below > ABSENT), middle, ABSENT)
