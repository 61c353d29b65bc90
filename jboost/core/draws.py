"""Uniform numbers as a function of (key, t, k), cheap enough to draw inside the loop.

Threefry would cost more than a whole step of a small booster. Here a 32-bit mixer hashes the words
of the caller's key, the step t and the learner k, one after the other. A draw depends on nothing
else, so a run cut anywhere and resumed draws the same numbers.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jboost.core.pytree import Key

GOLDEN = 0x9E3779B9  # 2³²/φ: spreads consecutive counters before they are mixed


def _mix(h: Array) -> Array:
    """Map 32-bit words one to one; each bit flips each output bit half of the time (lowbias32)."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x21F0AAAD)
    h = (h ^ (h >> 15)) * jnp.uint32(0x735A2D97)
    return h ^ (h >> 15)


def uniform(key: Array, t: tuple[Array, Array], m: int, dtype: DTypeLike) -> Array:
    """Return m numbers in [0, 1) on a grid of 2⁻²⁴, the same in every dtype.

    ``t`` is the step as two words, (low, high), so that it does not wrap at 2³² steps.
    """
    h = jnp.uint32(0)
    for word in [*jnp.ravel(jax.random.key_data(key)), t[1], t[0]]:
        h = _mix(h * jnp.uint32(GOLDEN) + word)
    k = jnp.arange(1, m + 1, dtype=jnp.uint32)
    bits = _mix(_mix(h + k * jnp.uint32(GOLDEN)) ^ h)
    return (bits >> 8).astype(dtype) * jnp.asarray(2.0**-24, dtype)


def keys(key: Key, numbers: Array) -> Array | None:
    """Return a key for each of the numbers, such as those of learners; None without a key."""
    return None if key is None else jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
