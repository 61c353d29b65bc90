"""The products of the inner loop, in full precision whatever the device prefers.

How a small product is written decides how the compiler turns it into vector code. Where the copies
of a learner lie side by side in memory, a sum over an axis takes one vector instruction per term
for all copies at once. Elsewhere a matrix product is mostly better. The engine says where, with the
functions of :mod:`jboost.core.surroundings`. It may fill up the rows of a square matrix with zeros:
the product of a vector and such a matrix is as long as the rows.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import places
from jboost.core.numerics import HIGHEST, root
from jboost.core.surroundings import stage, surroundings

LARGEST_SUM = 24  # columns; beyond, a matrix product is faster in every layout
# To find a shorter column in every copy takes less than to see whether all copies agree on it.
SMALLEST_COLUMN = 12  # entries
LARGEST_TRIANGLE = 64  # entries of a running sum; beyond, cumsum is faster than a masked triangle

LARGEST_CHOICE = 128  # columns; beyond, all copies are changed in one pass where none needs it
AT_ONCE = 4  # columns of a matrix that a step of a matrix product takes

_Tree = TypeVar("_Tree")


def _summed(x: Array) -> bool:
    """Return whether a product with x is written as a sum over an axis."""
    return surroundings() == "side by side" and x.shape[0] <= LARGEST_SUM


def multiplied_late(A: Array) -> bool:
    """Return whether a product with A is better made again after a change of A than brought along.

    It is where a kernel holds A once and A is small: the product then becomes part of the loop that
    uses it. Measured in BSGD-WU and BNM-WU, whose combiner has A of 20 columns: 5 % of a step.
    """
    return surroundings() == "kernel" and A.shape[1] <= LARGEST_SUM


def dot(a: Array, b: Array) -> Array:
    """Return aᵀb."""
    return jnp.sum(a * b) if _summed(a) else jnp.dot(a, b, precision=HIGHEST)


def matvec(A: Array, x: Array) -> Array:
    """Return A x."""
    if _summed(x):
        return jnp.sum(A * x[None, :], axis=1)
    return jnp.dot(A, _as_long_as_rows(x, A), precision=HIGHEST)


def vecmat(x: Array, A: Array) -> Array:
    """Return Aᵀx, as a row times a matrix."""
    if A.shape[0] <= LARGEST_SUM:
        return jnp.sum(A * x[:, None], axis=0)
    return jnp.dot(x, A, precision=HIGHEST)


def matmul(A: Array, B: Array) -> Array:
    """Return A B.

    A kernel adds up products of a column of A and a row of B, a few at a time: vector code for all
    columns of B at once, in place of the sums of single numbers that it would make.
    """
    if surroundings() in ("anywhere", "stages"):
        return jnp.matmul(A, B, precision=HIGHEST)

    def add(C: Array, columns: Array, rows: Array) -> Array:
        for a, b in zip(columns, rows, strict=True):
            C = C + a[:, None] * b[None]
        return C

    def add_next(i: Array, C: Array) -> Array:
        return add(C, *(places.rows(M, AT_ONCE * i, AT_ONCE) for M in (A.T, B)))

    count = B.shape[0] // AT_ONCE
    C = jnp.zeros((A.shape[0], B.shape[1]), B.dtype)
    if count:
        C = jax.lax.fori_loop(0, count, add_next, C)
    return add(C, A.T[count * AT_ONCE :], B[count * AT_ONCE :])


def where_needed(needed: Array, f: Callable[..., _Tree], *operands: _Tree) -> _Tree:
    """Return ``f(*operands)``, which must be ``operands[0]`` where it is not needed.

    A kernel computes it only where at least one of the copies needs it. For large matrices it
    always does: there a pass over them takes longer than the work, and a change that is left out
    now and then could not be made in the same pass as others.
    """
    large = any(jnp.shape(leaf)[-1:] > (LARGEST_CHOICE,) for leaf in jax.tree.leaves(operands[0]))
    if large or surroundings() in ("anywhere", "stages"):
        return f(*operands)

    @jax.custom_batching.custom_vmap
    def chosen(needed: Array, *operands: _Tree) -> _Tree:
        return jax.lax.cond(needed, f, lambda first, *_: first, *operands)

    # Without this rule vmap would compute both cases and choose between them.
    @chosen.def_vmap
    def _(size: int, batched: list[Any], *arguments: Any) -> tuple[Any, Any]:
        def stack(leaf: Array, has: bool) -> Array:
            return leaf if has else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf)))

        needed, *operands = jax.tree.map(stack, list(arguments), list(batched))
        first = jax.tree.map(lambda _: True, operands[0])
        any_needed = jnp.any(needed)
        return jax.lax.cond(any_needed, jax.vmap(f), lambda first, *_: first, *operands), first

    # The derivatives that JAX has of `custom_vmap` can be neither mapped nor transposed.
    differentiable = jax.custom_jvp(chosen)

    @differentiable.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[_Tree, _Tree]:
        return jax.jvp(f, primals[1:], tangents[1:])

    return differentiable(needed, *operands)


def _as_long_as_rows(x: Array, A: Array) -> Array:
    """Return x with zeros for the entries that the rows of A have beyond it."""
    beyond = A.shape[1] - x.shape[0]
    return jnp.pad(x, (0, beyond)) if beyond else x


def symmetric_matvec(P: Array, x: Array) -> Array:
    """Return P x for a symmetric P."""
    return vecmat(x, P) if P.shape[0] <= LARGEST_SUM else matvec(P, x)


def symmetric_column(P: Array, j: Array) -> Array:
    """Return column j of a symmetric P."""
    if _summed(P):
        return entry(P, j)
    row = jax.lax.dynamic_index_in_dim(P, j, keepdims=False)  # its entries are neighbours in memory
    return row[: P.shape[0]]


def minus_square(P: Array, g: Array, k: Array) -> Array:
    """Return P − g k kᵀ for g ≥ 0; a symmetric P stays exactly symmetric."""
    if k.shape[0] <= LARGEST_SUM:
        return P - g * (k[:, None] * k[None, :])
    u = root(g) * k  # u uᵀ takes a multiplication less per entry than g k kᵀ
    return P - u[:, None] * _as_long_as_rows(u, P)[None, :]


def sums_before(x: Array) -> Array:
    """Return, for each entry, the sum of the entries before it.

    In a kernel the sums are made by doubling: after j steps an entry holds the sum of the 2^j
    entries before it. Elsewhere each of these steps would be a separate operation, so the product
    with a triangle of ones is faster, up to the size where its m² terms take longer than cumsum.

    >>> [int(total) for total in sums_before(jnp.array([3.0, 1.0, 4.0]))]
    [0, 3, 4]
    """
    m = x.shape[0]
    # Not cumsum(x) − x, in which a large entry would drown the sum of those before it.
    before = jnp.pad(x[:-1], (1, 0))
    if surroundings() == "kernel":
        reach = 1
        while reach < m:
            before = before + jnp.pad(before[:-reach], (reach, 0))
            reach *= 2
        return before
    if m > LARGEST_TRIANGLE:
        return jnp.cumsum(before)
    return matvec(jnp.tri(m, k=-1, dtype=x.dtype), x)


def entry(A: Array, j: Array) -> Array:
    """Return entry j of a vector, or column j of a matrix, for a traced j."""
    if not _summed(A):
        return _column(A, j)
    return _column_by_mask(A, j) if A.shape[-1] < SMALLEST_COLUMN else _column_of_copies(A, j)


def _column(A: Array, j: Array) -> Array:
    def column() -> Array:
        return jax.lax.dynamic_index_in_dim(A, j, axis=-1, keepdims=False)

    if A.ndim == 2 and A.shape[-1] > LARGEST_CHOICE and surroundings() == "kernel":
        return stage(column)
    return column()


def _column_by_mask(A: Array, j: Array) -> Array:
    hot = jax.lax.broadcasted_iota(j.dtype, A.shape, A.ndim - 1) == j
    return jnp.sum(jnp.where(hot, A, 0), axis=-1)


@jax.custom_jvp
def _column_of_copies(A: Array, j: Array) -> Array:
    return _column_agreed_on(A, j)


@_column_of_copies.defjvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    return _column_of_copies(*primals), _column_by_mask(tangents[0], primals[1])


@jax.custom_batching.custom_vmap
def _column_agreed_on(A: Array, j: Array) -> Array:
    return _column(A, j)


@_column_agreed_on.def_vmap
def _(size: int, batched: list[bool], A: Array, j: Array) -> tuple[Array, bool]:
    if not batched[0]:
        A = jnp.broadcast_to(A, (size, *A.shape))
    if not batched[1]:
        return _column(A, j), True

    def apart(A: Array) -> Array:
        return jax.vmap(_column_by_mask)(A, j)

    # All copies mostly take the same column, which can then be read where it is.
    return jax.lax.cond(jnp.all(j == j[0]), lambda A: _column(A, j[0]), apart, A), True
