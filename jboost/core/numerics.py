"""What keeps long float32 runs right: bad samples, compensated sums, repeats in closed form."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core.pytree import DType

# Larger numbers than this count as damage. The square of 1e15 times a variance of 1e4 (the largest
# cap of a Newton learner) and thousands of features still fits float32's 3e38.
LARGEST = 1e15

HIGHEST = jax.lax.Precision.HIGHEST  # bfloat16 products would ruin a matrix in P form

LARGEST_TABLE = 7  # repeats up to which a table of all powers is faster than doubling


def dtype_of(dtype: DType) -> jnp.dtype:
    """Return the dtype of a state: the one asked for, or JAX's default float."""
    chosen = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    if not jnp.issubdtype(chosen, jnp.floating):
        raise TypeError(f"dtype must be one of real numbers, such as float32; got {chosen}")
    return chosen


def usable(values: Array) -> Array:
    """Return True where a number is neither NaN, infinite nor absurdly large."""
    return jnp.abs(values) < LARGEST  # a comparison with NaN is False


def known(x: ArrayLike, dtype: DTypeLike) -> Array:
    """Return x with its unusable entries at zero, so that a prediction is always finite."""
    x = jnp.asarray(x, dtype)
    return jnp.where(usable(x), x, jnp.zeros((), dtype))


class Sum(NamedTuple):
    """A running sum with Kahan's compensation: 1e8 float32 terms keep seven digits.

    total: the sum, 0 at the start.
    lost: what rounding has added to the total so far beyond the true sum, 0 at the start.
    """

    total: Array
    lost: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Sum:
        """Return an empty sum of numbers, or of arrays."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def add(self, term: Array) -> Sum:
        """Return the sum with one more term."""
        term = term - self.lost
        total = self.total + term
        return Sum(total, (total - self.total) - term)


def geometric(p: Array, n: ArrayLike, most: int | None = None) -> tuple[Array, Array]:
    """Return (q^n, 1 + q + … + q^(n−1)) for q = 1 − p: what n repeats of one update add up to.

    ``n`` is the Python number 1, a boolean array (none or one repeat) or an array of whole numbers.
    ``most`` is the largest that n can be, where that is known: it bounds the work. Few repeats are
    looked up among all powers up to ``most``; else the powers q^(2^j) and their sums are multiplied
    together where bit j of n is set. Nothing cancels, neither for small p nor for negative q (an
    overshooting step).
    """
    if isinstance(n, int) and n == 1:
        return 1 - p, jnp.ones_like(p)
    n = jnp.asarray(n)
    if n.dtype == bool:
        return jnp.where(n, 1 - p, 1), n.astype(p.dtype)
    shape = jnp.broadcast_shapes(p.shape, n.shape)
    power, total = jnp.ones(shape, p.dtype), jnp.zeros(shape, p.dtype)
    q, sum_q = 1 - p, jnp.ones_like(p)  # q^(2^j), and the sum of the powers below it
    if most is not None and most <= LARGEST_TABLE:
        count = n.astype(p.dtype)  # compared as floats they stay in vector code
        q_j, sum_j = jnp.ones_like(p), jnp.zeros_like(p)
        for j in range(most):
            q_j, sum_j = q * q_j, 1 + q * sum_j
            power, total = jnp.where(count > j, q_j, power), jnp.where(count > j, sum_j, total)
        return power, total
    bits = jnp.iinfo(n.dtype).bits - 1 if most is None else most.bit_length()
    n = n.astype(jnp.int32)  # as wide as the numbers it selects
    for j in range(bits):
        bit = (n >> j) & 1 == 1
        total = jnp.where(bit, total + power * sum_q, total)
        power = jnp.where(bit, power * q, power)
        q, sum_q = q * q, sum_q * (1 + q)
    return power, total
