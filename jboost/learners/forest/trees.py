"""Trees in arrays, and the way of an input down to a leaf."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jboost.core.places import at

# A state is finite: usable numbers lie within 1e15, and these stand for what is not one.
BEYOND = 1e30  # above all numbers
ABSENT = -1e30  # a missing entry, below all numbers


class Trees(NamedTuple):
    """Trees of depth D, along any leading axes. The children of node i are 2i + 1 and 2i + 2."""

    codes: Array  # 2j for a node that looks at column j, 2j + 1 if missing values go right, int32
    thresholds: Array  # values above go right, (…, 2^D − 1); BEYOND where all go left
    values: Array  # what each leaf adds to the estimate, (…, 2^D)

    @classmethod
    def zeros(cls, *axes: int, depth: int, dtype: DTypeLike) -> "Trees":
        """Return trees that add nothing."""
        nodes = 2**depth - 1
        return cls(
            jnp.zeros((*axes, nodes), jnp.int32),
            jnp.full((*axes, nodes), BEYOND, dtype),
            jnp.zeros((*axes, nodes + 1), dtype),
        )


def children(node: Array, codes: Array, thresholds: Array, values: Array) -> Array:
    """Return the child of each node to which a value of its column belongs."""
    above = (values > thresholds).astype(jnp.int32)
    right = jnp.where(values == ABSENT, codes & 1, above)
    return 2 * node + 1 + right


def leaves(trees: Trees, x: Array) -> Array:
    """Return the number of the leaf to which x belongs, in each tree."""
    count, nodes = trees.thresholds.shape
    tree = jnp.arange(count, dtype=jnp.int32)

    def down(_: Array, node: Array) -> Array:
        code = at(trees.codes, tree, node)
        return children(node, code, at(trees.thresholds, tree, node), at(x, code >> 1))

    start = jnp.zeros(count, jnp.int32)
    return jax.lax.fori_loop(0, nodes.bit_length(), down, start) - nodes


def node_of(tree: Trees, x: Array, depth: Array) -> Array:
    """Return the node of one tree that x reaches after ``depth`` steps down."""

    def down(_: Array, node: Array) -> Array:
        code = at(tree.codes, node)
        return children(node, code, at(tree.thresholds, node), at(x, code >> 1))

    return jax.lax.fori_loop(0, depth, down, jnp.zeros((), jnp.int32))


def followed(values: Array, leaf: Array, change: Array) -> Array:
    """Return the values of the leaves, that of one leaf in each tree changed."""

    def add(tree: Array, values: Array) -> Array:
        place = tree.astype(leaf.dtype), at(leaf, tree)
        new = (at(values, *place) + change)[None, None]
        return jax.lax.dynamic_update_slice(values, new, place, allow_negative_indices=False)

    return jax.lax.fori_loop(0, len(leaf), add, values)
