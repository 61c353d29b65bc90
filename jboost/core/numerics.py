"""Numbers: arrays that a caller passes, checked and cast, and what keeps long float32 runs right.

The latter are: unusable numbers set to zero, sums that keep their digits, repeats in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import checks
from jboost.core.pytree import DType
from jboost.core.rows import row_of, with_row

# Larger numbers than this count as damage. The square of 1e15 times a variance of 1e4 (the largest
# cap of a Newton learner) and thousands of features still fits float32's 3e38.
LARGEST = 1e15

HIGHEST = jax.lax.Precision.HIGHEST  # bfloat16 products would ruin the matrix P of a Newton
WIDTH = 4096  # terms that a long sum adds up first: about √T round least, here for T = 1.7e7
LARGEST_TABLE = 7  # repeats up to which a table of all powers is faster than doubling


def dtype_of(dtype: DType) -> jnp.dtype:
    """Return the dtype of a state: the one asked for, or JAX's default float."""
    try:
        chosen = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    except (TypeError, ValueError):
        chosen = None
    if chosen is None or not jnp.issubdtype(chosen, jnp.floating):
        got = chosen or checks.shown(dtype)
        raise TypeError(f"dtype must be one of real numbers, such as float32; got {got}")
    return chosen


def as_array(name: str, values: Any, shape: str) -> Array | np.ndarray:
    """Return real numbers as an array of their own dtype; masked entries become NaN.

    ``name`` and ``shape``, such as "(T, r)", only serve the message of an error.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(float), np.nan)
    try:
        array = values if isinstance(values, jax.Array) else np.asarray(values)
    except ValueError as error:
        raise TypeError(f"{name} must be an array of shape {shape}; got {error}") from None
    checks.real_dtype(name, array, f"shape {shape}")
    return array


def real(values: ArrayLike) -> Array:
    """Return an array of floats: floats keep their dtype, other numbers get JAX's default one."""
    array = jnp.asarray(values)
    floats = jnp.issubdtype(array.dtype, jnp.floating)
    return array if floats else array.astype(jnp.result_type(float))


def floats(name: str, values: Any, shape: str) -> Array:
    """Return real numbers that a caller passed as floats; the arguments are as for `as_array`."""
    with np.errstate(all="ignore"):  # beyond float32 is infinite
        return real(as_array(name, values, shape))


def cast(array: Array | np.ndarray, dtype: DTypeLike) -> Array:
    """Return the array in a dtype, on JAX's default device."""
    if isinstance(array, jax.Array):
        return array if array.dtype == dtype else array.astype(dtype)
    # NumPy casts: a stream may hold NaN, which a cast of JAX refuses under jax_debug_nans.
    with np.errstate(all="ignore"):  # beyond float32 is infinite, and so a sample to skip
        return jnp.asarray(array.astype(dtype, copy=False), dtype)


def usable(values: Array) -> Array:
    """Return True where a number is neither NaN, infinite nor absurdly large."""
    return jnp.abs(values) < LARGEST  # a comparison with NaN is False


class Cleaned(NamedTuple):
    """An input, what :func:`known` makes of it, and whether all of its entries are usable."""

    raw: Array
    x: Array
    good: Array


_cleaned: ContextVar[Cleaned | None] = ContextVar("cleaned", default=None)


@contextmanager
def already_cleaned(cleaned: Cleaned) -> Iterator[None]:
    """Let :func:`known` and :func:`all_usable` look up what they would compute of this input."""
    token = _cleaned.set(cleaned)
    try:
        yield
    finally:
        _cleaned.reset(token)


def all_usable(x: Array) -> Array:
    """Return whether all entries of an input are usable."""
    cleaned = _cleaned.get()
    return cleaned.good if cleaned is not None and x is cleaned.raw else jnp.all(usable(x))


def known(x: ArrayLike, dtype: DTypeLike) -> Array:
    """Return x with its unusable entries at zero, so that a prediction is always finite."""
    cleaned = _cleaned.get()
    if cleaned is not None and x is cleaned.raw and cleaned.x.dtype == dtype:
        return cleaned.x
    x = jnp.asarray(x, dtype)
    return jnp.where(usable(x), x, jnp.zeros((), dtype))


def root(values: Array) -> Array:
    """Return √, and 0 with a derivative of 0 where a value is not positive."""
    positive = values > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, values, 1)), 0)


def rounded(product: Array) -> Array:
    """Return a product, rounded before anything is added to it.

    A CPU can multiply and add with a single rounding. Whether the compiler makes use of that
    depends on the program around, so that the same step would have other digits in a run than by
    itself. A choice between the product and something else keeps it from it.
    """
    return jnp.where(jnp.isnan(product), 0, product)


class Sum(NamedTuple):
    """A running sum with Kahan's compensation: 1e8 float32 terms keep seven digits."""

    total: Array  # the sum, 0 at the start
    lost: Array  # what rounding has added to the total beyond the true sum, 0 at the start

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Sum:
        """Return an empty sum of numbers, or of arrays."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def add(self, term: Array) -> Sum:
        """Return the sum with one more term."""
        term = term - self.lost
        total = self.total + term
        return Sum(total, (total - self.total) - term)


def in_rows(terms: Array) -> Array:
    """Fold (T,) terms into rows of ``WIDTH``, the last one filled up with zeros."""
    return jnp.pad(terms, (0, -terms.shape[0] % WIDTH)).reshape(-1, WIDTH)


def long_sum(terms: Array) -> Array:
    """Sum (T,) terms row by row: two levels keep seven digits of 1e7 float32 terms."""
    return in_rows(terms).sum(axis=1).sum()


class Ring(NamedTuple):
    """The terms of the last samples, whose sum is computed when asked for."""

    terms: Array  # (window, size), a row per sample; zeros at the start
    row: Array  # the row that the next sample replaces; 0 at the start

    def add(self, terms: Array, counts: Array) -> Ring:
        """Replace the oldest row, if the sample counts."""
        # Chosen by row, so that a step copies no window.
        new = jnp.where(counts, terms, row_of(self.terms, self.row))
        rows = with_row(self.terms, self.row, new)
        return Ring(rows, jnp.where(counts, (self.row + 1) % self.terms.shape[0], self.row))

    @property
    def total(self) -> Array:
        """The sums of the terms, (size,)."""
        return jax.vmap(long_sum, in_axes=1)(self.terms)


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
