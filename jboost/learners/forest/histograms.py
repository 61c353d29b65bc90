"""The histograms of the nodes that are being split, filled row by row."""

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core.places import at


def with_rows(histogram: Array, node: Array, bins: Array, columns: Array, sums: Array) -> Array:
    """Return the histogram with the sums of each row added, in each column at the row's bin.

    ``columns`` are the columns of ``bins`` that the histogram has.
    """
    zero = jnp.zeros((), jnp.int32)

    def add_row(i: Array, histogram: Array) -> Array:
        new = at(sums, i)[None, None, None]
        for j in range(len(columns)):
            bin = at(bins, i, columns[j]).astype(jnp.int32)
            place = at(node, i), bin, jnp.int32(j), zero
            old = jax.lax.dynamic_slice(histogram, place, new.shape, allow_negative_indices=False)
            histogram = jax.lax.dynamic_update_slice(
                histogram, old + new, place, allow_negative_indices=False
            )
        return histogram

    return jax.lax.fori_loop(0, len(node), add_row, histogram)
