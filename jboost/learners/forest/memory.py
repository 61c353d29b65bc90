"""What boosted trees remember: the latest rows, and the tree that is being grown."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jboost.core import places
from jboost.learners.forest import histograms
from jboost.learners.forest.trees import Trees


class Ring(NamedTuple):
    """The latest rows, each in its place; all 0 at the start."""

    x: Array  # (places, r), ABSENT where missing
    bins: Array  # the bins of x, (places, r), uint8
    target: Array  # d, (places,)
    weight: Array  # (places,); 0 where there is no row yet
    fitted: Array  # what all trees together say of the row, (places,)
    old: Array  # what the tree that is being replaced says of the row, (places,)
    node: Array  # the node of the row in the tree that is being grown, (places,), uint8
    leaf: Array  # the leaf of the row in each tree, (M, places), uint8

    @classmethod
    def zeros(cls, count: int, num_features: int, trees: int, dtype: DTypeLike) -> "Ring":
        numbers, columns = jnp.zeros(count, dtype), (count, num_features)
        return cls(
            jnp.zeros(columns, dtype),
            jnp.zeros(columns, jnp.uint8),
            numbers, numbers, numbers, numbers,
            jnp.zeros(count, jnp.uint8),
            jnp.zeros((trees, count), jnp.uint8),
        )  # fmt: skip

    def put(self, place: Array, row: "Ring", counts: Array) -> "Ring":
        """Return the ring with a row in a place, or as it is where the row does not count."""
        without = self._replace(leaf=()), row._replace(leaf=())
        leaf = places.put(self.leaf, place, row.leaf, counts, axis=1)
        return places.put(without[0], place, without[1], counts)._replace(leaf=leaf)

    def rows(self, start: Array, count: int, tree: Array) -> "Ring":
        """Return the rows of some neighbouring places; ``leaf`` is that of one tree alone."""
        slices = jax.tree.map(
            lambda array: places.rows(array, start, count), self._replace(leaf=())
        )
        return slices._replace(leaf=self.leaves(start, count, tree))

    def leaves(self, start: Array, count: int, tree: Array) -> Array:
        """Return the leaves in one tree of the rows of some neighbouring places."""
        starts, sizes = (tree, start), (1, count)
        return jax.lax.dynamic_slice(self.leaf, starts, sizes, allow_negative_indices=False)[0]


class Growth(NamedTuple):
    """The tree that is being grown, and how far its growth has come; all 0 at the start."""

    tree: Trees  # its nodes so far
    histogram: Array  # of the nodes of this level; see `histograms` and `best_splits`
    columns: Array  # the columns of x that the tree may look at
    level: Array  # the depth of the nodes whose histograms are being filled
    place: Array  # the first place in the ring that was not yet looked at on this level
    turn: Array  # the number of the tree that it will replace
    drawn: Array  # how often columns were drawn

    @classmethod
    def zeros(cls, depth: int, bins: int, columns: int, dtype: DTypeLike) -> "Growth":
        zero = jnp.zeros((), jnp.int32)
        histogram = histograms.empty(depth, bins, columns, dtype)
        tree = Trees.zeros(depth=depth, dtype=dtype)
        return cls(tree, histogram, jnp.arange(columns, dtype=jnp.int32), zero, zero, zero, zero)


class Schedule(NamedTuple):
    """When rows are replaced and columns are cut into bins; all 0 at the start but ``wait``."""

    place: Array  # where the next row is kept
    filled: Array  # how many rows are kept
    wait: Array  # how many rows are still to come before the columns are cut anew
    turn: Array  # which columns are cut next; beyond the last one where none are
