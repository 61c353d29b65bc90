"""A stream of any length through one program: cut into pieces of a fixed length.

A program has room for a *piece* of a fixed number of rows, and takes as an argument how many of
them to run. It runs them in chunks, each of which is a ``lax.scan`` over a few rows. Only the last
chunk may have rows that are none: their target is NaN, which leaves every state as it was.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.core import Key, Learner, State
from jboost.core.step import Observe, Trace, step
from jboost.engine.plan import bytes_of

CHUNK = 32  # rows; a longer chunk wastes more at the end, a shorter one costs time at each start
SHORTEST, LONGEST = 1024, 65536  # rows of a piece
LARGEST = 2**21  # bytes of the rows of a piece and of their trace
CALLS = 16  # a piece takes about as long as so many calls of the program by themselves


class PieceTrace(NamedTuple):
    """What one piece of a run leaves behind."""

    trace: Trace  # with room for the whole piece
    n: int  # how many rows were run


def samples_per_call(state: State) -> int:
    """Return how many samples take as long as one more call of a compiled loop.

    Measured: a call takes 300 µs. A sample takes 0.15 µs and one pass over the state at 8 GB/s.
    """
    return int(300 / (0.15 + bytes_of(state) / 8000))


def length(
    model: Learner,
    state: State,
    xs: Array | np.ndarray,
    ds: Array | np.ndarray,
    key: Key,
    observe: Observe | None,
) -> int:
    """Return the rows of a piece: a power of two, such that a call costs little beside it."""
    bytes_of_a_row = (math.prod(xs.shape[1:]) + 2 * math.prod(ds.shape[1:])) * xs.dtype.itemsize
    if observe is not None:
        row = [jax.ShapeDtypeStruct(a.shape[1:], xs.dtype) for a in (xs, ds)]
        one_step = partial(step, model, key=key, observe=observe)
        _, trace = jax.eval_shape(one_step, state, *row)
        bytes_of_a_row += sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(trace))
    rows = min(max(CALLS * samples_per_call(state), SHORTEST), LONGEST, LARGEST // bytes_of_a_row)
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

    # Rows are read, and results written, where they are: to copy chunks takes a tenth of a step.
    def run_row(run: tuple[State, Trace], row: Array) -> tuple[tuple[State, Trace], None]:
        state, trace = run
        x, d = (jax.lax.dynamic_index_in_dim(rows, row, keepdims=False) for rows in (xs, ds))
        state, result = one_step(state, x, d)
        write = partial(jax.lax.dynamic_update_index_in_dim, index=row, axis=0)
        return (state, jax.tree.map(write, trace, result)), None

    # With a jit of its own JAX traces it once, for the shapes and for the loop.
    @jax.jit
    def one_step(state: State, x: Array, d: Array) -> tuple[State, Trace]:
        return step(model, state, x, d, key, observe)

    def run_chunk(number: Array, run: tuple[State, Trace]) -> tuple[State, Trace]:
        return jax.lax.scan(run_row, run, number * CHUNK + jnp.arange(CHUNK, dtype=jnp.int32))[0]

    _, result = jax.eval_shape(one_step, state, xs[0], ds[0])
    trace = jax.tree.map(lambda a: jnp.zeros((xs.shape[0], *a.shape), a.dtype), result)
    return jax.lax.fori_loop(0, chunks, run_chunk, (state, trace))


def cut(
    xs: Array | np.ndarray, ds: Array | np.ndarray, rows: int
) -> Iterator[tuple[Array | np.ndarray, Array | np.ndarray, np.int32, int]]:
    """Yield the pieces of a stream: x, d, the number of chunks and the number of rows."""
    inputs, targets, device = np.asarray(xs), np.asarray(ds), _other_device(xs)
    for start in range(0, len(inputs), rows):
        x, d = (array[start : start + rows] for array in (inputs, targets))
        n, piece = len(x), (_filled(x, rows, 0), _filled(d, rows, np.nan))
        # A program takes arrays of NumPy faster than they could be put on the default device.
        x, d = piece if device is None else jax.device_put(piece, device)
        yield x, d, np.int32(-(-n // CHUNK)), n


def joined(traces: list[PieceTrace]) -> Any:
    """Return the trace of all pieces, as NumPy arrays."""

    def join(*arrays: Array) -> np.ndarray:
        parts = [np.asarray(a)[: piece.n] for a, piece in zip(arrays, traces, strict=True)]
        return np.concatenate(parts)

    return jax.tree.map(join, *(piece.trace for piece in traces))


def put(arrays: Any, beside: Array) -> Any:
    """Return NumPy arrays as arrays of JAX, on the device of another one."""
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
    rows = xs if isinstance(xs, Array) else jnp.zeros(())
    return {device.platform for device in rows.devices()}


def _filled(array: np.ndarray, rows: int, filler: float) -> np.ndarray:
    if len(array) == rows:
        return array
    # Rows behind the last chunk are never read: to leave them as they are saves most of the time.
    longer, n = np.empty((rows, *array.shape[1:]), array.dtype), len(array)
    longer[:n], longer[n : n + CHUNK] = array, filler
    return longer
