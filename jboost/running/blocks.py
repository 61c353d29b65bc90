"""Blocks of rows: prepared for the compiled loop on the way in, and with results on the way out.

Everything here is NumPy, so that a thread may do it: JAX's settings can differ between threads.
"""

import atexit
import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import DTypeLike
from numpy.typing import ArrayLike

from jboost.core import checks
from jboost.core.numerics import LARGEST
from jboost.running.run import check_shapes, checked_stream

Rows = jax.Array | np.ndarray
Pair = tuple[ArrayLike, ArrayLike]
StreamSource = Iterable[Pair] | Pair | Callable[[int], Iterable[Pair] | Pair]
LARGEST_BLOCK, LONGEST_BLOCK = 2**24, 65536  # bytes, rows


@dataclass(frozen=True, eq=False)
class Block:
    """The results of a run on one block of its source."""

    start: int  # how many rows of the stream came before the block
    targets: np.ndarray  # (n,), in the dtype of the run; (n, q) for a model of q targets
    prediction: np.ndarray  # like the targets; each was made before its target was seen
    skipped: np.ndarray  # like the targets; True where x or d was unusable and nothing was learned
    observed: Any = None  # what ``observe`` returned, stacked over the rows
    due: np.ndarray | None = None  # of a forecaster: what was forecast of each row, (n, H), or NaN

    @cached_property
    def scored(self) -> np.ndarray:
        """Where the target is usable; only there does the prediction count. Like the targets."""
        return np.abs(self.targets) < LARGEST  # a comparison with NaN is False

    @cached_property
    def squared_errors(self) -> np.ndarray:
        """The squared errors of the predictions that count, one after the other, in float64."""
        if self.due is not None:
            errors = self.due.astype(np.float64) - self.targets.astype(np.float64)[:, None]
            return np.square(errors[self.scored][~np.isnan(self.due[self.scored])])
        prediction = self.prediction[self.scored].astype(np.float64)
        return np.square(prediction - self.targets[self.scored].astype(np.float64))


class PreparedBlock(NamedTuple):
    """A block that is checked and copied."""

    start: int  # how many rows of the stream came before the block
    xs: np.ndarray  # (n, r) inputs
    ds: np.ndarray  # (n,) targets, or (n, q)


def prepare(
    source: StreamSource,
    rows: int | None,
    position: int,
    default: DTypeLike,
    num_targets: int | None = None,
) -> Iterator[PreparedBlock]:
    """Prepare the blocks of a source, from row ``position`` on.

    A pair of arrays is cut into blocks of ``rows`` rows. ``default`` is JAX's default float. With
    ``num_targets`` the targets are (n, num_targets), without it (n,).
    """
    row = position if callable(source) else 0
    blocks: Any = source(position) if callable(source) else source
    if _is_pair(blocks):
        xs, ds = (np.asarray(array) if isinstance(array, jax.Array) else array for array in blocks)
        check_shapes(xs, ds, num_targets)
        n = rows or max(min(LARGEST_BLOCK // (4 * xs.shape[1]), LONGEST_BLOCK), 1)
        blocks = ((xs[i : i + n], ds[i : i + n]) for i in range(position - row, len(xs), n))
        row = min(position, row + len(xs))  # the row that the blocks begin at
    if not isinstance(blocks, Iterable):
        allowed = "an iterable of (x, d) blocks, a pair of arrays, or a function that returns one"
        raise TypeError(f"blocks must be {allowed}; got {checks.shown(blocks)}")
    return _prepared(blocks, row, position, default, num_targets)


def _is_pair(source: Any) -> bool:
    two = isinstance(source, (tuple, list)) and len(source) == 2
    return two and all(hasattr(array, "shape") for array in source)


def _prepared(
    source: Iterable[Pair], row: int, position: int, default: DTypeLike, num_targets: int | None
) -> Iterator[PreparedBlock]:
    """Check and copy the blocks of a source that begins at ``row``, from ``position`` on."""
    width, dtype = None, None
    for number, block in enumerate(source):
        try:
            if _is_empty(block):
                continue
            xs, ds, block_dtype = checked_stream(*block, default, num_targets)
            if xs.shape[1] != (width or xs.shape[1]):
                raise ValueError(f"xs must have {width} columns, as before; got shape {xs.shape}")
            if block_dtype != (dtype or block_dtype):
                problem = f"got {block_dtype} after {dtype}"
                raise TypeError(f"xs and ds must be of one dtype throughout; {problem}")
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"block {number}, which begins at row {row}: {error}") from None
        width, dtype = xs.shape[1], block_dtype
        seen = max(position - row, 0)  # rows of this block that were run before
        if seen < len(xs):
            # The copy is made before the next block is asked for: a source may reuse its arrays.
            with naming_the_block(row + seen):
                prepared = _copy(row + seen, xs[seen:], ds[seen:], dtype)
            yield prepared
        row += len(xs)
    if row < position:
        raise ValueError(
            f"the source ends after {row} rows, and the run to go on with had seen {position}: "
            "it must be the same stream from its beginning, or a function of the position"
        )


def _is_empty(block: Any) -> bool:
    """Return whether a block has no rows; an error if the block is no pair."""
    try:
        xs, ds = block
    except (TypeError, ValueError):
        got = checks.shown(block)
        raise TypeError(f"each of blocks must be a pair (x, d); got {got}") from None
    return all(hasattr(array, "__len__") and len(array) == 0 for array in (xs, ds))


@contextlib.contextmanager
def naming_the_block(start: int) -> Iterator[None]:
    """Turn every kind of error for want of memory into a MemoryError that names the block."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(
            f"the block that begins at row {start} does not fit into memory ({error}); make blocks "
            "of fewer rows"
        ) from error


def _copy(start: int, xs: Rows, ds: Rows, dtype: np.dtype) -> PreparedBlock:
    with np.errstate(all="ignore"):  # beyond float32 is infinite, and so a sample to skip
        return PreparedBlock(start, np.array(xs, dtype), np.array(ds, dtype))


class Ahead:
    """A thread that takes at most ``depth`` blocks from an iterator before they are asked for.

    With ``depth`` 0 there is no thread: a block is taken when it is asked for.
    """

    def __init__(self, blocks: Iterator[PreparedBlock], depth: int):
        self._blocks = blocks
        self._waiting: queue.SimpleQueue[PreparedBlock | BaseException] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._threaded = depth > 0

    def take(self) -> PreparedBlock | BaseException:
        """Return the next block, or the exception in its place: ``StopIteration`` at the end."""
        if not self._threaded:
            return self._next()
        if self._thread is None:
            # A source may wait for ever in a call that nothing interrupts: the process ends anyway.
            self._thread = threading.Thread(target=self._fill, name="jboost-blocks", daemon=True)
            self._thread.start()
            _started.add(self)
        item = self._waiting.get()
        self._room.release()
        return item

    def poll(self) -> PreparedBlock | BaseException | None:
        """As :meth:`take`, but None where :meth:`take` would have to wait."""
        return None if self._waiting.empty() else self.take()

    def stop(self, timeout: float = 1.0) -> None:
        """End the thread, at once or when the source returns to it, and wait so many seconds."""
        self._stopped = True
        self._room.release()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _next(self) -> PreparedBlock | BaseException:
        try:
            return next(self._blocks)
        except BaseException as error:
            return error

    def _fill(self) -> None:
        while True:
            self._room.acquire()
            if self._stopped:
                return
            item = self._next()
            self._waiting.put(item)
            if isinstance(item, BaseException):
                return
            del item  # while waiting, this thread holds no block


_started: weakref.WeakSet[Ahead] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End the threads of runs that were not closed.

    While Python ends, a thread that comes back to it from a library in C++ can abort the process.
    """
    for wait in (0.0, 1.0):  # first all are told, so that one second is enough for them
        until = time.monotonic() + wait
        for ahead in [*_started]:
            ahead.stop(max(until - time.monotonic(), 0.0))
