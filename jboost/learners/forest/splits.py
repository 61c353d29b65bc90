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
    bins, columns = histograms.shape[1:3]
    sums = jnp.moveaxis(histograms, (1, 3), (0, 1))  # (bins, 3, nodes, columns)
    absent, total = sums[0], jnp.sum(sums[..., 0], axis=0)
    number = jnp.arange(bins * columns, dtype=jnp.int32).reshape(bins, 1, columns)

    def best(start: Array, among: Array) -> tuple[Array, Array, Array]:
        """Return the best split among some columns, where the sums on the left begin at a start.

        These are the largest gain, the number of the split that has it, and all sums on the left.
        """

        def visit(i: Array, seen: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            left, lefts, gains = seen
            left = left + rows(sums, i, 1)
            gain = jnp.where(among[None], _gains(left, total, ridge, least), 0)
            return left, put_rows(lefts, left, i), put_rows(gains, gain, i)

        # What a loop has written is not computed again, with other rounding, where it is compared.
        _, lefts, gains = jax.lax.fori_loop(0, bins, visit, (start[None], sums, sums[:, 0]))
        gain = jnp.max(jnp.max(gains, axis=0), axis=1)
        equal = jnp.where(gains == gain[None, :, None], number, bins * columns)
        return gain, jnp.min(jnp.min(equal, axis=0), axis=1), lefts

    # A column without a number in any row cannot be split.
    has_gaps = jnp.any(absent != 0, axis=0) & (absent[2] < total[2][:, None])
    gain, split, lefts = best(jnp.zeros_like(absent), jnp.ones_like(has_gaps))
    nothing = jnp.zeros_like(gain), split, lefts
    other = jax.lax.cond(jnp.any(has_gaps), lambda: best(-absent, has_gaps), lambda: nothing)
    # Some splits part the rows alike either way. Rounding must not choose between them.
    missing = (other[0] > CLEARLY * gain).astype(jnp.int32)
    gain = jnp.where(missing > 0, other[0], gain)
    split = jnp.where(missing > 0, other[1], split)

    bin, column = jax.lax.div(split, jnp.int32(columns)), jax.lax.rem(split, jnp.int32(columns))
    kind, node = jnp.arange(3, dtype=jnp.int32), jnp.arange(len(split), dtype=jnp.int32)
    chosen = bin[:, None], kind[None], node[:, None], column[:, None]
    left = jnp.where(missing[:, None] > 0, at(other[2], *chosen), at(lefts, *chosen))
    total = total.T
    splits = gain > 0
    left = jnp.where(splits[:, None], left, total)
    sums = jnp.stack([left, total - left], axis=1)
    return Split(column, jnp.where(splits, bin, bins - 1), missing, gain, sums)


def _gains(left: Array, total: Array, ridge: Array, least: Array) -> Array:
    g, n = left[:, 0] + left[:, 1], left[:, 2]
    G, N = (total[0] + total[1])[None, :, None], total[2][None, :, None]
    gain = g * (g / (n + ridge)) + (G - g) * ((G - g) / (N - n + ridge)) - G * (G / (N + ridge))
    allowed = jnp.minimum(n, N - n) >= least
    return jnp.where(allowed, jnp.clip(gain, 0, LARGEST_GAIN), 0)
