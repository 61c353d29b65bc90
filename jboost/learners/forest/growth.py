"""How a tree is walked, and how the best splits of nodes are found in their histograms."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

LARGEST_GAIN = 1e30  # sums of absurd targets overflow when they are squared


class Trees(NamedTuple):
    """Trees of depth D in arrays, along any leading axes. Children of node i are 2i + 1, 2i + 2."""

    codes: Array  # 2j where a node looks at column j, one more if missing values go right, int32
    thresholds: Array  # values above go right, (…, 2^D − 1); +∞ where a node does not split
    values: Array  # of the leaves, (…, 2^D)


def right_of(codes: Array, thresholds: Array, x: Array) -> Array:
    """Return 1 where values x of the columns that nodes look at go right, 0 where they go left."""
    return jnp.where(jnp.isnan(x), codes % 2, (x > thresholds).astype(jnp.int32))


def leaves(trees: Trees, x: Array) -> Array:
    """Return the number of the leaf into which x falls, in each tree."""
    count, nodes = trees.thresholds.shape
    first = jnp.arange(count, dtype=jnp.int32) * nodes  # a tree's root among the nodes of all
    codes, thresholds = trees.codes.ravel(), trees.thresholds.ravel()

    def down(_: int, node: Array) -> Array:
        code = codes[first + node]
        return 2 * node + 1 + right_of(code, thresholds[first + node], x[code // 2])

    start = jnp.zeros(count, jnp.int32)
    return jax.lax.fori_loop(0, nodes.bit_length(), down, start) - nodes


class Split(NamedTuple):
    """The best splits of some nodes; every field has an entry for each."""

    column: Array  # its number among the columns of the histogram
    bin: Array  # bins above this one go right
    missing: Array  # 1 where missing values go right
    gain: Array  # 0 where no split is better than none
    sums: Array  # of the rows that go left and of those that go right, (…, 2, 3)


def best_splits(histograms: Array, ridge: Array, least: Array) -> Split:
    """Return the best split of each node.

    ``histograms`` holds, for each bin and column, Σw·res, Σw·old and Σw: (nodes, bins, columns, 3).
    The score of a set of rows is (Σw·(res + old))²/(Σw + ridge). A side must weigh at least
    ``least``. Where no split gains anything, all rows go left.
    """
    nodes, bins, columns, _ = histograms.shape
    until = jnp.tril(jnp.ones((bins, bins), histograms.dtype))
    below = jnp.matmul(until, histograms.reshape(nodes, bins, columns * 3))
    below = below.reshape(histograms.shape)
    total, absent = below[:, -1, 0], histograms[:, 0]
    g, n = below[..., 0] + below[..., 1], below[..., 2]
    a, a_n = absent[..., 0] + absent[..., 1], absent[..., 2]

    def best(g: Array, n: Array) -> tuple[Array, Array]:
        """Return the largest gain, and which of the splits has it."""
        gain = _gain(g, n, total, ridge, least).reshape(nodes, -1)
        most = jnp.max(gain, axis=1)
        numbers = jnp.arange(bins * columns, dtype=jnp.int32)
        # Quicker than argmax.
        return most, jnp.min(jnp.where(gain == most[:, None], numbers, bins * columns - 1), axis=1)

    gain, where = best(g, n)  # missing values go left
    other, there = jax.lax.cond(
        jnp.any(a_n > 0),
        lambda: best(g - a[:, None], n - a_n[:, None]),  # they go right
        lambda: (jnp.zeros_like(gain), jnp.zeros_like(where)),
    )
    missing = (other > gain).astype(jnp.int32)
    gain, where = jnp.maximum(gain, other), jnp.where(missing > 0, there, where)
    node = jnp.arange(nodes, dtype=jnp.int32)
    number, column = where // columns, where % columns
    left = below[node, number, column] - missing[:, None] * absent[node, column]
    left = jnp.where(gain[:, None] > 0, left, total)
    return Split(
        column=column,
        bin=jnp.where(gain > 0, number, bins),
        missing=missing,
        gain=gain,
        sums=jnp.stack([left, total - left], axis=1),
    )


def _gain(g: Array, n: Array, total: Array, ridge: Array, least: Array) -> Array:
    G, N = (total[:, 0] + total[:, 1])[:, None, None], total[:, 2][:, None, None]
    gain = g * (g / (n + ridge)) + (G - g) * ((G - g) / (N - n + ridge)) - G * (G / (N + ridge))
    allowed = jnp.minimum(n, N - n) >= least
    return jnp.where(allowed, jnp.clip(gain, 0, LARGEST_GAIN), 0)
