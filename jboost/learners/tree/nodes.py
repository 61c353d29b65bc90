"""What a tree of regions has learned, and the nodes that an input passes on its way through it.

Nodes are numbered as in a heap: 1 is the root, 2i and 2i + 1 are the children of i, and node 0
stands above the root. All arrays are as large as the whole tree from the start. A path consists of
node 0, the root, and a node of each deeper level, whether the tree has grown that far or not. The
letters are those of :class:`jboost.PiecewiseLinear`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import Learner, State
from jboost.core.numerics import known
from jboost.core.rows import row_of
from jboost.learners.tree import shares, splits

REACH = 3.0  # standard deviations of the parent's error; a child corrects by no more


class TreeState(NamedTuple):
    """The state of a tree: arrays with a row for each of its N = 2^(depth + 1) nodes.

    The deepest level is never split, so that what concerns splits has N/2 rows.
    """

    learners: State  # (N, …), the states of the learners, as the learner starts
    mass: Array  # (N,), the weight of all samples that a node has learned, 0 at the start
    error: Array  # (N,), the recent mean absolute error of a node's estimate, 0 at the start
    choice: Array  # (N/2,), `Cut.number` of the cut that splits a node; −1 in a leaf, as all start
    threshold: Array  # (N/2,), samples above it go to the right child, 0 at the start
    centre: Array  # (N/2, r), what is subtracted from the inputs of a node's children, first 0
    scale: Array  # (N/2, r), what these are then multiplied by, 1 at the start
    subtree_odds: Array  # (N/2,), of a node's subtree against the node alone, 0 at the start
    input_odds: Array  # (N, r + 1), of each input and of leaving inputs out, first `shares.START`
    search: splits.Search  # (N/2, …), the evidence for the cuts of a node


class Path(NamedTuple):
    """The path of one input: arrays with a row for each of its depth + 2 nodes."""

    nodes: Array  # the numbers of the nodes
    grown: Array  # whether the tree has grown that far
    inputs: Array  # (…, r + 1) what the learners learn from; the last column is 1
    reduced: Array  # (…, r + 1) what they estimate from: inputs of which the shares t are taken
    effects: Array  # (…, r) what each input adds to the estimate of its learner if taken whole
    learners: State  # the states of the learners
    f: Array  # f_0 … f_(depth+1), the estimates of the nodes alone
    g: Array  # g_1 … g_(depth+1), the estimates of the nodes mixed with their subtrees
    estimate: Array  # g_0, the estimate of the tree
    w: Array  # w_0 … w_depth, the shares of the subtrees
    limit: Array  # the largest correction that a child of the nodes 0 … depth may make


def with_path(values: Array, nodes: Array, new: Array) -> Array:
    """Return ``values``, one per node, with new ones at the nodes of a path, one per level."""

    def spread(on_path: Array) -> Array:
        levels = range(1, len(nodes))
        repeated = (jnp.broadcast_to(on_path[k], (2 ** (k - 1),)) for k in levels)
        return jnp.concatenate([on_path[:1], *repeated])

    # A choice for every node, as a scatter takes longer.
    on_path = jnp.arange(values.shape[0], dtype=jnp.int32) == spread(nodes)
    return jnp.where(on_path, spread(new), values)


def nodes_of(state: TreeState, x: Array) -> tuple[Array, Array]:
    """Return the nodes of the path of x, and whether the tree has grown to each of them."""
    cuts = state.search.cuts.shape[-1]
    depth = state.choice.shape[0].bit_length() - 1
    right = x[jnp.maximum(state.choice, 0) // cuts] > state.threshold
    node, exists = jnp.ones((), jnp.int32), jnp.ones((), bool)
    nodes, grown = [jnp.zeros((), jnp.int32), node], [exists, exists]
    for _ in range(depth):
        exists = exists & (row_of(state.choice, node) >= 0)
        node = 2 * node + row_of(right, node).astype(jnp.int32)
        nodes.append(node)
        grown.append(exists)
    return jnp.stack(nodes), jnp.stack(grown)


def follow(state: TreeState, learner: Learner, x: Array) -> Path:
    """Return the path of an input."""
    dtype = x.dtype
    nodes, grown = nodes_of(state, known(x, dtype))
    above = nodes[:-1]
    inputs, reduced, deviations = _inputs(state, nodes, x)
    learners = jax.tree.map(lambda a: a[nodes], state.learners)
    h, slopes = jax.vmap(jax.value_and_grad(learner.predict, 1))(learners, reduced)
    limit = REACH * splits.SIGMA * state.error[above]
    corrections = jnp.concatenate([h[1:2], jnp.clip(h[2:], -limit[1:], limit[1:])])
    f = jnp.concatenate([h[:1], jnp.cumsum(jnp.where(grown[1:], corrections, 0))])
    w = jnp.where(grown[1:], jax.nn.sigmoid(state.subtree_odds[above]), 0)
    g, estimate = [], f[-1]
    for k in reversed(range(len(above))):
        g.append(estimate)
        estimate = f[k] + w[k] * (estimate - f[k])
    g = jnp.stack(g[::-1])
    effects = slopes[:, :-1] * known(deviations, dtype)
    return Path(nodes, grown, inputs, reduced, effects, learners, f, g, estimate, w, limit)


def _inputs(state: TreeState, nodes: Array, x: Array) -> tuple[Array, Array, Array]:
    """Return what the learners of a path learn from, what they estimate from, and z − μ.

    z is 0.03 x above the root, x at the root, and below it what the parent's centre and scale make
    of x. μ is the mean of z, which below the root is 0.
    """
    above = nodes[:-1]
    z = state.scale[above] * (x[None, :] - state.centre[above])
    z = jnp.concatenate([splits.SMALLEST_SCALE * x[None, :], z])
    mean = state.search.mean[1]
    below_root = [jnp.zeros_like(mean)] * (len(nodes) - 2)
    middle = jnp.stack([splits.SMALLEST_SCALE * mean, mean, *below_root])
    _, t = shares.of_inputs(state.input_odds[nodes])
    reduced = middle + t * (z - middle)
    level = jnp.ones((len(nodes), 1), x.dtype)
    inputs, reduced = (jnp.concatenate([a, level], axis=1) for a in (z, reduced))
    return inputs, reduced, z - middle
