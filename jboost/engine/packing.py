"""A state as one row of 32-bit words, bit for bit.

A loop that changes one row of one array can do so in place; one that changes a row in each of many
arrays makes XLA copy all of them at every step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import State

BITS = {1: jnp.uint8, 2: jnp.uint16}


class Packing(NamedTuple):
    """The structure of a state, and the shape and dtype of each of its arrays."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]

    @classmethod
    def of(cls, state: State) -> Packing:
        """Return how states like this one, or like this template, are packed."""
        leaves, structure = jax.tree.flatten(state)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state):
            if not _packable(leaf.dtype):
                raise TypeError(
                    "a state must hold real numbers of 8 bits or more; "
                    f"state{jax.tree_util.keystr(path)} is of dtype {leaf.dtype}: "
                    "keep a complex number as two real ones, an int4 as an int8"
                )
        return cls(structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))

    @property
    def width(self) -> int:
        """How many words a state takes."""
        return sum(math.prod(shape) * _words_of(dtype) for shape, dtype in self.leaves)

    def pack(self, state: State) -> Array:
        """Return (width,) words.

        >>> packing = Packing.of((jnp.zeros(2), jnp.zeros((), bool)))
        >>> packing.pack((jnp.array([1.0, -2.0]), jnp.array(True))).tolist()
        [1065353216, 3221225472, 1]
        """
        parts = [_to_words(jnp.asarray(leaf)) for leaf in jax.tree.leaves(state)]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, jnp.uint32)

    def unpack(self, words: Array) -> State:
        """Return the state that was packed."""
        leaves, start = [], 0
        for shape, dtype in self.leaves:
            size = math.prod(shape) * _words_of(dtype)
            leaves.append(_from_words(words[start : start + size], shape, dtype))
            start += size
        return self.structure.unflatten(leaves)


def _packable(dtype: Any) -> bool:
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.finfo(dtype).bits >= 8
    return getattr(dtype, "kind", None) in ("b", "i", "u")  # the kind of an int4 is V, as of bytes


def _words_of(dtype: Any) -> int:
    return max(dtype.itemsize // 4, 1)


def _to_words(leaf: Array) -> Array:
    if leaf.dtype.kind == "b":
        return leaf.ravel().astype(jnp.uint32)
    if leaf.dtype.itemsize < 4:
        small = jax.lax.bitcast_convert_type(leaf, BITS[leaf.dtype.itemsize])
        return small.ravel().astype(jnp.uint32)
    return jax.lax.bitcast_convert_type(leaf, jnp.uint32).ravel()


def _from_words(words: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    if dtype.kind == "b":
        return words.reshape(shape).astype(bool)
    if dtype.itemsize < 4:
        small = words.reshape(shape).astype(BITS[dtype.itemsize])
        return jax.lax.bitcast_convert_type(small, dtype)
    if dtype.itemsize > 4:
        return jax.lax.bitcast_convert_type(words.reshape(*shape, -1), dtype)
    return jax.lax.bitcast_convert_type(words.reshape(shape), dtype)
