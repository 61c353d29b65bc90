"""The products of the inner loop, in full precision whatever the device prefers.

Small matrices are summed row by row, which the compiler turns into vector code inside the one
kernel of a run; from about 32 columns on a real product is faster.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jboost.numerics import HIGHEST

LARGEST_SUM = 32


def dot(a: Array, b: Array) -> Array:
    """aᵀb."""
    return jnp.dot(a, b, precision=HIGHEST)


def matvec(A: Array, x: Array) -> Array:
    """A x."""
    return jnp.dot(A, x, precision=HIGHEST)


def vecmat(x: Array, A: Array) -> Array:
    """Aᵀx, as a row times a matrix."""
    if A.shape[0] <= LARGEST_SUM:
        return jnp.sum(A * x[:, None], axis=0)
    return jnp.dot(x, A, precision=HIGHEST)


def symmetric_matvec(P: Array, x: Array) -> Array:
    """P x of a symmetric P."""
    return vecmat(x, P) if P.shape[0] <= LARGEST_SUM else matvec(P, x)
