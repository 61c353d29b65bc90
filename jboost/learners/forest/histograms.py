"""The histograms of the nodes that are being split, filled row by row."""

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core.places import at


def with_rows(
    histogram: Array, node: Array, bins: Array, start: Array, columns: Array, sums: Array
) -> Array:
    """Return the histogram with the sums of some rows added, in each column at the row's bin.

    ``node`` and ``sums`` have an entry for each of these rows. ``bins`` has more rows, these from
    ``start`` on: they are read where they are, as a copy takes a third of the time of the sums.
    ``columns`` are the columns of ``bins`` that the histogram has.
    """
    zero = jnp.zeros((), jnp.int32)

    def add_row(i: Array, histogram: Array) -> Array:
        new = at(sums, i)[None, None, None]
        for j in range(len(columns)):
            bin = at(bins, start + i, columns[j]).astype(jnp.int32)
            place = at(node, i), bin, jnp.int32(j), zero
            old = jax.lax.dynamic_slice(histogram, place, new.shape, allow_negative_indices=False)
            histogram = jax.lax.dynamic_update_slice(
                histogram, old + new, place, allow_negative_indices=False
            )
        return histogram

    return jax.lax.fori_loop(0, len(node), add_row, histogram)
