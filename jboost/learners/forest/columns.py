"""The columns that a tree may look at, where x has more than it can."""

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import draws


def drawn_columns(gains: Array, varies: Array, count: int, words: Array, drawn: Array) -> Array:
    """Return the columns of the next tree: half of them by their gain, half at random.

    Columns that do not vary come last.
    """
    best = _largest(gains, count // 2)
    key, t = jax.random.wrap_key_data(words), (drawn.astype(jnp.uint32), jnp.uint32(0))
    chance = draws.uniform(key, t, len(gains), gains.dtype)
    numbers = jnp.arange(len(gains), dtype=jnp.int32)
    among_best = jnp.any(numbers[None] == best[:, None], axis=0)
    chance = jnp.where(among_best, -2, jnp.where(varies, chance, -1))
    return jnp.concatenate([best, _largest(chance, count - count // 2)])


def _largest(values: Array, count: int) -> Array:
    """Return the numbers of the largest values, largest first; of equal ones the first."""
    numbers = jnp.arange(len(values), dtype=jnp.int32)
    equal = (values[:, None] == values[None]) & (numbers[:, None] < numbers[None])
    rank = jnp.sum((values[:, None] > values[None]) | equal, axis=0, dtype=jnp.int32)
    at_rank = rank[None] == jnp.arange(count, dtype=jnp.int32)[:, None]
    return jnp.sum(jnp.where(at_rank, numbers[None], 0), axis=1, dtype=jnp.int32)
