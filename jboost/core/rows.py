"""One row of stacked arrays, read or replaced inside a compiled loop."""

from typing import TypeVar

import jax
from jax import Array

_Tree = TypeVar("_Tree")


def row_of(tree: _Tree, i: Array | int) -> _Tree:
    """Return row i of every array."""
    if isinstance(i, int):
        return jax.tree.map(lambda a: a[i], tree)
    return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), tree)


def with_row(tree: _Tree, i: Array, values: _Tree) -> _Tree:
    """Return the arrays with other values in row i."""
    replace = jax.lax.dynamic_update_index_in_dim
    return jax.tree.map(lambda a, new: replace(a, new, i, 0), tree, values)
