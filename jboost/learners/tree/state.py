"""What a tree of regions has learned, and how rows of its arrays are read and replaced.

The nodes are numbered as in a heap: 1 is the root, and 2i and 2i + 1 are the children of i. Node 0
stands above the root. All arrays are as large as the whole tree from the start.
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import State
from jboost.learners.tree.splits import Search

_Tree = TypeVar("_Tree")


class TreeState(NamedTuple):
    """The state of a tree: arrays with a row for each of its N = 2^(depth + 1) nodes.

    The deepest level is never split, so that what concerns splits has N/2 rows.

    learners: the states of the learners, (N, …), as the learner starts.
    mass: the weight of all samples that a node has learned, (N,), 0 at the start.
    error: the mean absolute error of a node's estimate, (N,), 0 at the start. It is the mean of
      about the last half of the samples, later of about the last 500.
    choice: the cut that a node is split at, (N/2,): its input times the number of cuts, plus its
      number among the cuts of that input. −1 where the node is a leaf, as all are at the start.
    threshold: where a node is split, (N/2,): samples above it go to the right child. 0 at the
      start.
    centre: what is subtracted from the inputs of a node's children, (N/2, r), 0 at the start.
    scale: what these are then multiplied by, (N/2, r), 1 at the start.
    subtree_odds: the odds of a node's subtree against the node alone, (N/2,), in nats, 0 at the
      start.
    input_odds: the odds of each input of a node's learner, and in the last column those of leaving
      inputs out at all, (N, r + 1), in nats; `shares.START` at the start.
    search: the evidence for the cuts of a node, (N/2, …).
    """

    learners: State
    mass: Array
    error: Array
    choice: Array
    threshold: Array
    centre: Array
    scale: Array
    subtree_odds: Array
    input_odds: Array
    search: Search


def row(tree: _Tree, i: Array | int) -> _Tree:
    """Return row i of every array."""
    if isinstance(i, int):
        return jax.tree.map(lambda a: a[i], tree)
    return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), tree)


def with_row(tree: _Tree, i: Array, values: _Tree) -> _Tree:
    """Return the arrays with other values in row i."""
    return jax.tree.map(
        lambda a, new: jax.lax.dynamic_update_index_in_dim(a, new, i, 0), tree, values
    )


def with_path(values: Array, nodes: Array, new: Array) -> Array:
    """Return ``values``, one per node, with new ones at the nodes of a path, one per level.

    A choice for every node, as a scatter takes longer.
    """

    def spread(on_path: Array) -> Array:
        levels = range(1, len(nodes))
        repeated = (jnp.broadcast_to(on_path[k], (2 ** (k - 1),)) for k in levels)
        return jnp.concatenate([on_path[:1], *repeated])

    on_path = jnp.arange(values.shape[0], dtype=jnp.int32) == spread(nodes)
    return jnp.where(on_path, spread(new), values)
