"""The histograms of the nodes that are being split, filled row by row."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jboost.core.places import at

DOUBLINGS = 2  # the histograms of so many doublings of a node lie together, for one search


def empty(depth: int, bins: int, columns: int, dtype: DTypeLike) -> Array:
    """Return histograms without rows: (groups of nodes, bins, nodes of a group, columns, 3).

    There is one for each node of the last level of a tree that is split.
    """
    together = 2 ** min(DOUBLINGS, depth - 1)
    return jnp.zeros((2 ** (depth - 1) // together, bins, together, columns, 3), dtype)


def with_rows(
    histogram: Array, node: Array, bins: Array, start: Array, count: Array, columns: Array,
    sums: Array,
) -> Array:  # fmt: skip
    """Return the histogram with the sums of some rows added, in each column at the row's bin.

    ``node`` and ``sums`` have an entry for each of these rows, of which the first ``count`` are
    added. ``bins`` has more rows, these from ``start`` on: they are read where they are, as a copy
    takes a third of the time of the sums. ``columns`` are the columns of ``bins`` that the
    histogram has.
    """
    zero, together = jnp.zeros((), jnp.int32), histogram.shape[2]

    def add_row(i: Array, histogram: Array) -> Array:
        new = at(sums, i)[None, None, None, None]
        group, number = at(node, i) >> (together.bit_length() - 1), at(node, i) & (together - 1)
        for j in range(len(columns)):
            bin = at(bins, start + i, columns[j]).astype(jnp.int32)
            place = group, bin, number, jnp.int32(j), zero
            old = jax.lax.dynamic_slice(histogram, place, new.shape, allow_negative_indices=False)
            histogram = jax.lax.dynamic_update_slice(
                histogram, old + new, place, allow_negative_indices=False
            )
        return histogram

    return jax.lax.fori_loop(0, count, add_row, histogram)
