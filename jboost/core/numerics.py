"""What keeps long float32 runs right: bad samples, compensated sums, repeats in closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

# Larger numbers than this count as damage. The square of 1e15 times a variance of 1e4 (the largest
# cap of a Newton learner) and thousands of features still fits float32's 3e38.
LARGEST = 1e15

HIGHEST = jax.lax.Precision.HIGHEST  # bfloat16 products would ruin a matrix in P form


def dtype_of(dtype: Any) -> Any:
    """The dtype of a state: the one asked for, or JAX's default float."""
    chosen = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    if not jnp.issubdtype(chosen, jnp.floating):
        raise TypeError(f"dtype must be one of real numbers, such as float32; got {chosen}")
    return chosen


def usable(values: Any) -> Array:
    """True where a number is neither NaN, infinite nor absurdly large."""
    return jnp.abs(values) < LARGEST  # a comparison with NaN is False


def known(x: Any, dtype: Any) -> Array:
    """x with its unusable entries at zero, so that a prediction is always finite."""
    x = jnp.asarray(x, dtype)
    return jnp.where(usable(x), x, jnp.zeros((), dtype))


def sanitize(x: Any, d: Any, dtype: Any) -> tuple[Array, Array, Array]:
    """(x, d, ok): what is unusable of a sample at zero, and whether it is one to learn from.

    x is the one that a prediction saw, so that wᵀx is computed once for both.
    """
    x, d = jnp.asarray(x, dtype), jnp.asarray(d, dtype)
    ok = jnp.all(usable(x)) & usable(d)
    return known(x, dtype), jnp.where(ok, d, jnp.zeros((), dtype)), ok


class Sum(NamedTuple):
    """A running sum with Kahan's compensation: 1e8 float32 terms keep seven digits."""

    total: Array
    lost: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Sum:
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def add(self, term: Array) -> Sum:
        term = term - self.lost
        total = self.total + term
        return Sum(total, (total - self.total) - term)


def geometric(p: Array, n: Any) -> tuple[Array, Array]:
    """(q^n, 1 + q + … + q^(n−1)) for q = 1 − p: what n repeats of one update add up to.

    ``n`` is the Python number 1, a boolean array (none or one) or an integer array, whose type
    bounds the work: the powers q^(2^j) and their sums are multiplied together where bit j of n is
    set, or of an int4 the right one of seven is taken (copies that share p share those). Nothing
    cancels, for small p and for negative q (an overshooting step) alike.
    """
    if isinstance(n, int) and n == 1:
        return 1 - p, jnp.ones_like(p)
    n = jnp.asarray(n)
    if n.dtype == bool:
        return jnp.where(n, 1 - p, 1), n.astype(p.dtype)
    shape = jnp.broadcast_shapes(p.shape, n.shape)
    power, total = jnp.ones(shape, p.dtype), jnp.zeros(shape, p.dtype)
    q, sum_q = 1 - p, jnp.ones_like(p)  # q^(2^j), and the sum of the powers below it
    bits = jnp.iinfo(n.dtype).bits - 1
    if bits < 4:
        count = n.astype(p.dtype)  # compared as floats they stay in vector code
        q_j, sum_j = jnp.ones_like(p), jnp.zeros_like(p)
        for j in range(2**bits - 1):
            q_j, sum_j = q * q_j, 1 + q * sum_j
            power, total = jnp.where(count > j, q_j, power), jnp.where(count > j, sum_j, total)
        return power, total
    n = n.astype(jnp.int32)  # as wide as the numbers it selects
    for j in range(bits):
        bit = (n >> j) & 1 == 1
        total = jnp.where(bit, total + power * sum_q, total)
        power = jnp.where(bit, power * q, power)
        q, sum_q = q * q, sum_q * (1 + q)
    return power, total
