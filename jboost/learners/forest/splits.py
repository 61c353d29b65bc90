"""The best split of a node, found in the histogram of its rows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core.places import at, put_rows, rows

CLEARLY = 1.0001  # times the gain: by so much it must be better that missing values go right
LARGEST_GAIN = 1e30  # sums of absurd targets overflow when they are squared


class Split(NamedTuple):
    """The best splits of some nodes; every field has an entry for each node."""

    column: Array  # the number of the column among those of the histogram
    bin: Array  # rows in the bins above this one go right; the last bin where all go left
    missing: Array  # 1 where missing values go right, 0 where they go left
    gain: Array  # 0 where no split is better than none
    sums: Array  # of the rows that go left and of those that go right, (…, 2, 3)


def best_splits(histograms: Array, ridge: Array, least: Array) -> Split:
    """Return the best split of each node.

        gain = g²/(n + ridge) + (G − g)²/(N − n + ridge) − G²/(N + ridge)

    Here n is the weight of the rows that go left and g the sum of what the tree is to learn of
    them; N and G are those of all rows of the node. Both sides must weigh at least ``least``.

    Args:
      histograms: for each bin and column, the sums of w·residual, of w·old and of w, where w is the
        weight of a row and residual + old what the tree is to learn: (nodes, bins, columns, 3). Bin
        0 holds the missing values.
    """
    _, bins, columns, _ = histograms.shape
    sums = jnp.moveaxis(histograms, (1, 3), (0, 1))  # (bins, 3, nodes, columns)
    below, absent = _summed_up(sums), sums[0]
    total = below[-1, :, :, 0]
    numbers = jnp.arange(bins * columns, dtype=jnp.int32).reshape(bins, 1, columns)

    def best(left: Array, among: Array) -> tuple[Array, Array]:
        """Return the largest gain among some columns, and the number of the split that has it."""
        gains = jnp.where(among[None], _gains(left, total, ridge, least), 0)
        # Without the barrier the compiler may compute them twice, and round them otherwise, so that
        # none is equal to the largest.
        gains = jax.lax.optimization_barrier(gains)
        gain = jnp.max(jnp.max(gains, axis=0), axis=1)
        equal = jnp.where(gains == gain[None, :, None], numbers, bins * columns)
        return gain, jnp.min(jnp.min(equal, axis=0), axis=1)

    # A column without a number in any row cannot be split.
    has_gaps = jnp.any(absent != 0, axis=0) & (absent[2] < total[2][:, None])
    gain, split = best(below, jnp.ones_like(has_gaps))  # missing values go left
    nothing = jnp.zeros_like(gain), jnp.zeros_like(split)
    other = jax.lax.cond(
        jnp.any(has_gaps), lambda: best(below - absent[None], has_gaps), lambda: nothing
    )
    # Some splits part the rows alike either way. Rounding must not choose between them.
    missing = (other[0] > CLEARLY * gain).astype(jnp.int32)
    gain = jnp.where(missing > 0, other[0], gain)
    split = jnp.where(missing > 0, other[1], split)

    number, column = jax.lax.div(split, jnp.int32(columns)), jax.lax.rem(split, jnp.int32(columns))
    node, total = jnp.arange(len(split), dtype=jnp.int32), total.T
    right = missing[:, None].astype(gain.dtype)
    kind = jnp.arange(3, dtype=jnp.int32)
    chosen = kind[None], node[:, None], column[:, None]
    left = at(below, number[:, None], *chosen) - right * at(absent, *chosen)
    splits = gain > 0
    left = jnp.where(splits[:, None], left, total)
    sums = jnp.stack([left, total - left], axis=1)
    return Split(column, jnp.where(splits, number, bins - 1), missing, gain, sums)


def _summed_up(sums: Array) -> Array:
    """Return, for each bin, the sums of all bins up to it."""

    def add(i: Array, sums: Array) -> Array:
        return put_rows(sums, rows(sums, i, 1) + rows(sums, i + 1, 1), i + 1)

    return jax.lax.fori_loop(0, len(sums) - 1, add, sums)


def _gains(left: Array, total: Array, ridge: Array, least: Array) -> Array:
    g, n = left[:, 0] + left[:, 1], left[:, 2]
    G, N = (total[0] + total[1])[None, :, None], total[2][None, :, None]
    gain = g * (g / (n + ridge)) + (G - g) * ((G - g) / (N - n + ridge)) - G * (G / (N + ridge))
    allowed = jnp.minimum(n, N - n) >= least
    return jnp.where(allowed, jnp.clip(gain, 0, LARGEST_GAIN), 0)
