"""The products of the inner loop, in full precision whatever the device prefers.

How a small product is written decides how the compiler turns it into vector code. Where the copies
of a learner lie side by side in memory (see ``lanes``) a sum over an axis is one vector instruction
per term for all copies at once; elsewhere a real product is mostly better.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core.numerics import HIGHEST

LARGEST_SUM = 32  # columns; beyond, a real product is faster in every layout
LARGEST_TRIANGLE = 64  # entries of a running sum
VECTOR = 8  # float32 numbers that an instruction takes at once

# Where a learner is being traced: "anywhere", in the one "kernel" of a run (nothing differentiates
# that), or there with its copies "side by side".
_place: ContextVar[str] = ContextVar("place", default="anywhere")


@contextmanager
def written_for(place: str) -> Iterator[None]:
    """Products that are traced meanwhile suit that place."""
    before = _place.set(place)
    try:
        yield
    finally:
        _place.reset(before)


def _summed(x: Array) -> bool:
    return _place.get() == "side by side" and x.shape[0] <= LARGEST_SUM


def dot(a: Array, b: Array) -> Array:
    """aᵀb."""
    return jnp.sum(a * b) if _summed(a) else jnp.dot(a, b, precision=HIGHEST)


def matvec(A: Array, x: Array) -> Array:
    """A x."""
    return jnp.sum(A * x[None, :], axis=1) if _summed(x) else jnp.dot(A, x, precision=HIGHEST)


def vecmat(x: Array, A: Array) -> Array:
    """Aᵀx, as a row times a matrix."""
    if A.shape[0] <= LARGEST_SUM:
        return jnp.sum(A * x[:, None], axis=0)
    return jnp.dot(x, A, precision=HIGHEST)


def vecmat_where(needed: Array, x: Array, A: Array) -> Array:
    """Aᵀx where it is needed, anything elsewhere; large products are skipped if all copies can."""
    if _place.get() == "anywhere" or A.shape[0] <= LARGEST_SUM:
        return vecmat(x, A)
    return _vecmat_or_zero(needed, x, A)


@jax.custom_batching.custom_vmap
def _vecmat_or_zero(needed: Array, x: Array, A: Array) -> Array:
    return jax.lax.cond(needed, vecmat, _zero, x, A)


@_vecmat_or_zero.def_vmap
def _(size: int, batched: list[bool], *operands: Array) -> tuple[Array, bool]:
    # vmap alone would turn the condition into a choice between two computed values
    needed, x, A = (
        operand if has else jnp.broadcast_to(operand, (size, *operand.shape))
        for operand, has in zip(operands, batched, strict=True)
    )
    return jax.lax.cond(jnp.any(needed), jax.vmap(vecmat), _zero, x, A), True


def _zero(x: Array, A: Array) -> Array:
    return jnp.zeros((*x.shape[:-1], A.shape[-1]), A.dtype)


def whole_vectors(A: Array) -> Array:
    """A large matrix with columns of zeros behind its own, so that its rows are whole vectors."""
    columns = A.shape[1]
    return A if columns <= LARGEST_SUM else jnp.pad(A, ((0, 0), (0, -columns % VECTOR)))


def lengthened(x: Array, A: Array) -> Array:
    """x with zeros for the columns that A has beyond it."""
    return jnp.pad(x, (0, A.shape[1] - x.shape[0]))


def symmetric_matvec(P: Array, x: Array) -> Array:
    """P x of a symmetric P, which may be lengthened to whole vectors."""
    return vecmat(x, P) if P.shape[0] <= LARGEST_SUM else matvec(P, lengthened(x, P))


def symmetric_column(P: Array, j: Array) -> Array:
    """Column j of a symmetric P, which may be lengthened to whole vectors."""
    if _summed(P):
        return column(P, j)
    row = jax.lax.dynamic_index_in_dim(P, j, keepdims=False)  # neighbours in memory
    return row[: P.shape[0]]


def square(g: Array, k: Array) -> Array:
    """g k kᵀ for g ≥ 0, exactly symmetric, large ones lengthened to whole vectors."""
    if k.shape[0] <= LARGEST_SUM:
        return g * (k[:, None] * k[None, :])
    some = g > 0  # a root has no derivative at 0
    u = jnp.where(some, jnp.sqrt(jnp.where(some, g, 1)), 0) * k  # one product less per entry
    return u[:, None] * whole_vectors(u[None, :])


def sums_before(x: Array) -> Array:
    """The sum of the entries before each.

    In a kernel by doubling: after j steps an entry holds the 2^j entries before it. Elsewhere every
    step would be an operation of its own: a masked triangle sums in one, up to the size where its
    m² work passes cumsum's.

    >>> [int(total) for total in sums_before(jnp.array([3.0, 1.0, 4.0]))]
    [0, 3, 4]
    """
    m = x.shape[0]
    # Not cumsum(x) − x: beside a large entry of its own, the sum before it would be lost.
    before = jnp.pad(x[:-1], (1, 0))
    if _place.get() == "kernel":
        reach = 1
        while reach < m:
            before = before + jnp.pad(before[:-reach], (reach, 0))
            reach *= 2
        return before
    if m > LARGEST_TRIANGLE:
        return jnp.cumsum(before)
    return matvec(jnp.tri(m, k=-1, dtype=x.dtype), x)


def column(A: Array, j: Array) -> Array:
    """Column j of A, where j is computed."""
    if _summed(A):
        hot = jnp.arange(A.shape[1], dtype=j.dtype) == j
        return jnp.sum(jnp.where(hot[None, :], A, 0), axis=1)
    return jax.lax.dynamic_index_in_dim(A, j, axis=1, keepdims=False)


def entry(x: Array, j: Array) -> Array:
    """Entry j of x, where j is computed."""
    if _summed(x):
        hot = jnp.arange(x.shape[0], dtype=j.dtype) == j
        return jnp.sum(jnp.where(hot, x, 0))
    return jax.lax.dynamic_index_in_dim(x, j, keepdims=False)
