"""The products of the inner loop, in full precision whatever the device prefers."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jboost.numerics import HIGHEST


def dot(a: Array, b: Array) -> Array:
    """aᵀb."""
    return jnp.dot(a, b, precision=HIGHEST)


def matvec(A: Array, x: Array) -> Array:
    """A x."""
    return jnp.dot(A, x, precision=HIGHEST)


def vecmat(x: Array, A: Array) -> Array:
    """Aᵀ x, as a row times a matrix."""
    return jnp.dot(x, A, precision=HIGHEST)
