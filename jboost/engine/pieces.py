"""A stream of any length through one program: cut into pieces of a fixed length.

A program has room for a *piece* of a fixed number of rows, and takes as an argument how many of
them to run. It runs them in chunks, each of which is a ``lax.scan`` over a few rows. Only the last
chunk may have rows that are none: their target is NaN, which leaves every state as it was.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.core import Key, Learner, State
from jboost.core.numerics import Cleaned, already_cleaned, usable
from jboost.core.products import LARGEST_SUM
from jboost.core.rows import row_of
from jboost.core.step import Observe, Trace, step
from jboost.engine.plan import DIVIDED

CHUNK = 32  # rows; a longer chunk wastes more at the end, a shorter one costs time at each start
LONGEST = 65536  # rows of a piece
LARGEST = 2**21  # bytes of the rows of a piece and of their trace
ALIGNMENT = 64  # bytes; a program reads an array of NumPy in place if it begins at a multiple


class PieceTrace(NamedTuple):
    """What one piece of a run leaves behind."""

    trace: Trace  # with room for the whole piece
    n: int  # how many rows were run


def samples_per_call(size: int) -> int:
    """Return how many samples take as long as one more call of a compiled loop.

    ``size`` is how many bytes the state takes. Measured: a call takes 300 µs. A sample takes
    0.15 µs and one pass over the state at 8 GB/s.
    """
    return int(300 / (0.15 + size / 8000))


def length(
    model: Learner,
    state: State,
    xs: Array | np.ndarray,
    ds: Array | np.ndarray,
    key: Key,
    observe: Observe | None,
) -> int:
    """Return the rows of a piece: a power of two, such that a call costs little beside it."""
    width = max(math.prod(ds.shape[1:]), 2 * model.ahead)  # of predictions
    bytes_of_a_row = (math.prod(xs.shape[1:]) + 2 * width) * xs.dtype.itemsize
    widest = width * xs.dtype.itemsize  # bytes of a row of the widest trace
    if observe is not None:
        row = [jax.ShapeDtypeStruct(a.shape[1:], xs.dtype) for a in (xs, ds)]
        one_step = partial(step, model, key=key, observe=observe)
        _, trace = jax.eval_shape(one_step, state, *row)
        traced = [a.size * a.dtype.itemsize for a in jax.tree.leaves(trace)]
        bytes_of_a_row, widest = bytes_of_a_row + sum(traced), max(traced)
    rows = min(LONGEST, LARGEST // bytes_of_a_row, (DIVIDED - 1) // widest)
    return 2 ** int(np.log2(max(rows, CHUNK)))


def over_chunks(
    model: Learner,
    state: State,
    xs: Array,
    ds: Array,
    chunks: Array,
    key: Key,
    observe: Observe | None,
) -> tuple[State, Trace]:
    """Return ``over_time`` of the first ``chunks`` chunks; the trace is 0 behind them."""

    # It is always 1, but XLA does not know: a feed, where samples have weights, rounds alike.
    weight = (chunks >= 0).astype(xs.dtype)

    # With a jit of its own JAX traces it once, for the shapes and for the loop.
    @jax.jit
    def one_step(state: State, x: Array, d: Array, cleaned: Any) -> tuple[State, Trace]:
        with using(x, cleaned):
            return step(model, state, x, d, key, observe, weight=weight)

    def run_chunk(number: Array, run: tuple[State, Trace]) -> tuple[State, Trace]:
        state, trace = run
        first = number * CHUNK
        x, d = (jax.lax.dynamic_slice_in_dim(rows, first, CHUNK) for rows in (xs, ds))

        # Wide inputs are read where they are.
        def run_row(state: State, row: tuple[Array, Array, Any]) -> tuple[State, Trace]:
            i, d, cleaned = row
            return one_step(state, row_of(xs, first + i), d, cleaned)

        rows = (jnp.arange(CHUNK, dtype=jnp.int32), d, clean(model, x))
        state, results = jax.lax.scan(run_row, state, rows)
        write = partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
        return state, jax.tree.map(write, trace, results)

    _, result = jax.eval_shape(one_step, state, xs[0], ds[0], row_of(clean(model, xs[:1]), 0))
    trace = jax.tree.map(lambda a: jnp.zeros((xs.shape[0], *a.shape), a.dtype), result)
    return jax.lax.fori_loop(0, chunks, run_chunk, (state, trace))


def clean(model: Learner, rows: Array) -> tuple[Array, Array] | None:
    """Return rows of inputs as :func:`using` wants them; None where the model had better do it.

    The rows of a chunk are cleaned together, before the loop over them. Inside it XLA would repeat
    that in every product that is written as a sum, for each copy of a learner.
    """
    if model.takes_missing or rows.shape[1] > LARGEST_SUM:
        return None
    good = usable(rows)
    return jnp.where(good, rows, 0), jnp.all(good, axis=1)


def using(x: Array, cleaned: tuple[Array, Array] | None) -> AbstractContextManager[None]:
    """Return a context in which x has been cleaned; ``cleaned`` is its row of :func:`clean`."""
    return nullcontext() if cleaned is None else already_cleaned(Cleaned(x, *cleaned))


def cut(
    xs: Array | np.ndarray, ds: Array | np.ndarray, rows: int
) -> Iterator[tuple[Array | np.ndarray, Array | np.ndarray, np.int32, int]]:
    """Yield the pieces of a stream: x, d, the number of chunks and the number of rows."""
    inputs, targets, device = np.asarray(xs), np.asarray(ds), _other_device(xs)
    for start in range(0, len(inputs), rows):
        n = min(rows, len(inputs) - start)
        arrays = ((inputs, 0), (targets, np.nan))
        piece = (_filled(a[start : start + n], rows, filler) for a, filler in arrays)
        # A program takes arrays of NumPy faster than they could be put on the default device.
        x, d = piece if device is None else jax.device_put((*piece,), device)
        yield x, d, np.int32(-(-n // CHUNK)), n


def joined(traces: list[PieceTrace]) -> Any:
    """Return the trace of all pieces, as NumPy arrays."""
    structure = jax.tree.structure(traces[0].trace)
    pieces = [[np.asarray(a)[:n] for a in jax.tree.leaves(trace)] for trace, n in traces]
    if len(pieces) == 1:
        return structure.unflatten(pieces[0])
    return structure.unflatten([np.concatenate(arrays) for arrays in zip(*pieces, strict=True)])


def put(arrays: Any, beside: Array) -> Any:
    """Return NumPy arrays as arrays of JAX, on the device of another one."""
    # Not by jnp.asarray, which takes half the time but compiles a program for each new length.
    return jax.device_put(arrays, _other_device(beside))


def _other_device(xs: Array | np.ndarray) -> Any:
    """Return the device of an array; None where it is the default one."""
    if not isinstance(xs, Array):
        return None
    default = jax.config.jax_default_device or jax.local_devices()[0]  # pyright: ignore[reportAttributeAccessIssue]
    device, *others = xs.devices()
    return None if others or default in (device, device.platform) else device


def platforms(xs: Array | np.ndarray) -> set[str]:
    """Return the kinds of devices that rows lie on, or will lie on."""
    rows = xs if isinstance(xs, Array) else jax.device_put(np.zeros((), np.float32))
    return {device.platform for device in rows.devices()}


def _filled(array: np.ndarray, rows: int, filler: float) -> np.ndarray:
    if len(array) == rows:
        return array
    # Rows behind the last chunk are never read: to leave them as they are saves most of the time.
    longer, n = aligned((rows, *array.shape[1:]), array.dtype), len(array)
    longer[:n], longer[n : n + CHUNK] = array, filler
    return longer


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array of NumPy with any content, which a program reads without a copy of it."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
