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
    them; N and G are those of all rows of the node. Both sides must weigh at least ``least``. Of
    equal gains the lowest bin counts, then the first column.

    Args:
      histograms: for each bin and column, the sums of w·residual, of w·old and of w, where w is the
        weight of a row and residual + old what the tree is to learn: (bins, nodes, columns, 3). Bin
        0 holds the missing values.
    """
    bins, nodes, columns = histograms.shape[:3]
    # The columns of all nodes lie in one row, which a loop over bins takes in whole vectors.
    sums = histograms.reshape(bins, nodes * columns, 3)
    of_node = jnp.sum(histograms[:, :, 0], axis=0)
    absent, total = sums[0], jnp.repeat(of_node, columns, axis=0)

    def best(start: Array, among: Array) -> tuple[Array, Array, Array]:
        """Return the best split among some columns, where the sums on the left begin at a start.

        These are the largest gain, the number of the split that has it, and all sums on the left.
        """

        def add(i: Array, seen: tuple[Array, Array]) -> tuple[Array, Array]:
            left, lefts = seen
            left = left + rows(sums, i, 1)
            return left, put_rows(lefts, left, i)

        def weigh(i: Array, gains: Array) -> Array:
            gain = _gains(rows(lefts, i, 1)[0], total, ridge, least)
            return put_rows(gains, jnp.where(among, gain, 0)[None], i)

        # What a loop has written is not computed again, with other rounding, where it is compared.
        def compare(i: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
            most, bin = found
            gain = rows(gains, i, 1)[0]
            return jnp.where(gain > most, gain, most), jnp.where(gain > most, i, bin)

        nothing = jnp.zeros(sums.shape[:2], sums.dtype)
        _, lefts = jax.lax.fori_loop(0, bins, add, (start[None], jnp.zeros_like(sums)))
        gains = jax.lax.fori_loop(0, bins, weigh, nothing)
        none = nothing[0], jnp.zeros(nodes * columns, jnp.int32)
        most, bin = (a.reshape(nodes, -1) for a in jax.lax.fori_loop(0, bins, compare, none))
        gain, number = jnp.max(most, axis=1), jnp.arange(columns, dtype=jnp.int32)
        split = jnp.where(most == gain[:, None], bin * columns + number[None], bins * columns)
        return gain, jnp.min(split, axis=1), lefts

    # A column without a number in any row cannot be split.
    has_gaps = jnp.any(absent != 0, axis=1) & (absent[:, 2] < total[:, 2])
    gain, split, lefts = best(jnp.zeros_like(absent), jnp.ones_like(has_gaps))
    nothing = jnp.zeros_like(gain), split, lefts
    other = jax.lax.cond(jnp.any(has_gaps), lambda: best(-absent, has_gaps), lambda: nothing)
    # Some splits part the rows alike either way. Rounding must not choose between them.
    missing = (other[0] > CLEARLY * gain).astype(jnp.int32)
    gain = jnp.where(missing > 0, other[0], gain)
    split = jnp.where(missing > 0, other[1], split)

    bin, column = jax.lax.div(split, jnp.int32(columns)), jax.lax.rem(split, jnp.int32(columns))
    place = jnp.arange(nodes, dtype=jnp.int32) * columns + column
    chosen = bin[:, None], place[:, None], jnp.arange(3, dtype=jnp.int32)[None]
    left = jnp.where(missing[:, None] > 0, at(other[2], *chosen), at(lefts, *chosen))
    splits = gain > 0
    left = jnp.where(splits[:, None], left, of_node)
    sums = jnp.stack([left, of_node - left], axis=1)
    return Split(column, jnp.where(splits, bin, bins - 1), missing, gain, sums)


def _gains(left: Array, total: Array, ridge: Array, least: Array) -> Array:
    g, n, G, N = left[:, 0] + left[:, 1], left[:, 2], total[:, 0] + total[:, 1], total[:, 2]
    gain = g * (g / (n + ridge)) + (G - g) * ((G - g) / (N - n + ridge)) - G * (G / (N + ridge))
    allowed = jnp.minimum(n, N - n) >= least
    return jnp.where(allowed, jnp.clip(gain, 0, LARGEST_GAIN), 0)
