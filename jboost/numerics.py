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
    return jnp.dtype(jnp.result_type(float) if dtype is None else dtype)


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

    Takes p, not q, because p is what the callers know to full precision. ``n`` is the Python
    number 1, a boolean array (none or one) or an int32 array; any real q works, negative ones (an
    overshooting step) included.
    """
    if isinstance(n, int) and n == 1:
        return 1 - p, jnp.ones_like(p)
    n = jnp.asarray(n)
    if n.dtype == bool:
        return jnp.where(n, 1 - p, 1), n.astype(p.dtype)
    count = n.astype(p.dtype)
    small = p < 0.5  # log1p keeps the digits of a small p; beyond, 1 − p is exact
    q = 1 - p
    size = jnp.maximum(jnp.abs(q), jnp.finfo(p.dtype).tiny)
    log_q = jnp.where(small, jnp.log1p(-jnp.where(small, p, 0)), jnp.log(size))
    shrink = jnp.expm1(count * log_q)  # |q|^n − 1
    flip = (q < 0) & (n % 2 == 1)
    power = jnp.where(flip, -1 - shrink, 1 + shrink)
    one_minus_power = jnp.where(flip, 2 + shrink, -shrink)
    moving = p != 0
    total = jnp.where(moving, one_minus_power / jnp.where(moving, p, 1), count)
    return power, total
