"""The data of a stream on its way to the compiled loop: pulled, checked, copied and cut to length.

Everything here is NumPy, so that a thread may do it: JAX's settings can differ between threads.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from jboost.running.run import check_shapes, checked_stream

Source = Iterable[Any] | tuple[Any, Any] | Callable[[int], Any]

LENGTHS = (16, 256, 4096, 65536)  # a program is compiled for each that is met, and no other
LARGEST_BLOCK = 2**24  # bytes


class Prepared(NamedTuple):
    """n rows of the stream, of which ``start`` came before.

    The arrays are longer: n rows are followed by zeros whose targets are NaN, as many as
    :func:`pieces` may need to fill up its last piece.
    """

    start: int
    n: int
    xs: np.ndarray
    ds: np.ndarray


def pieces(n: int, call: int) -> list[int]:
    """The lengths that n rows are run in; only the last is longer than what is left.

    Few calls and little padding: a call is worth ``call`` samples.

    >>> pieces(300, call=6), pieces(300, call=1000), pieces(3000, call=1000)
    ([256, 16, 16, 16], [256, 256], [4096])
    """
    longer = [length for length in LENGTHS if length >= n]
    shorter = [length for length in LENGTHS if length <= n]
    if not shorter:
        return longer[:1]
    count, rest = divmod(n, shorter[-1])
    several = [shorter[-1]] * count + (pieces(rest, call) if rest else [])
    one_is_better = longer and call + longer[0] <= len(several) * call + sum(several)
    return longer[:1] if one_is_better else several


def worth_of_a_call(state: Any) -> int:
    """How many samples take as long as the call of one more piece.

    Measured: 300 µs a call; 0.15 µs a sample, and what it takes to go over the state at 8 GB/s.
    """
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return int(300 / (0.15 + size / 8000))


def prepare(
    source: Source, rows: int | None, position: int, default: Any, targets: int | None = None
) -> Iterator[Prepared]:
    """The blocks of a source from ``position`` on, checked and copied; ``default`` is a dtype.

    With ``targets`` a block has so many, (n, targets).
    """
    begin = 0
    blocks: Any = source
    if callable(source):
        begin, blocks = position, source(position)
    if _is_pair(blocks):
        xs, ds = (np.asarray(array) if isinstance(array, jax.Array) else array for array in blocks)
        check_shapes(xs, ds, targets)
        begin, blocks = position, _slices(xs, ds, rows or _rows(xs), position - begin)
    if not isinstance(blocks, Iterable):
        wanted = "an iterable of (x, d) blocks, a pair of arrays, or a function that returns either"
        raise TypeError(f"blocks must be {wanted}; got {blocks!r:.200}")
    return _prepare(blocks, begin, position, default, targets)


def _is_pair(source: Any) -> bool:
    two = isinstance(source, (tuple, list)) and len(source) == 2
    return two and all(hasattr(array, "shape") for array in source)


def _rows(xs: Any) -> int:
    """How many rows make a block: a length that is compiled, fewer where rows are wide."""
    most = max(LARGEST_BLOCK // (4 * xs.shape[1]), 1)
    return max((length for length in LENGTHS if length <= most), default=most)


def _slices(xs: Any, ds: Any, rows: int, start: int) -> Iterator[tuple[Any, Any]]:
    if start > len(xs):
        raise _too_short(len(xs), start)
    for row in range(start, len(xs), rows):
        yield xs[row : row + rows], ds[row : row + rows]


def _too_short(rows: int, position: int) -> ValueError:
    return ValueError(
        f"the source ends after {rows} rows, and the run to go on with had seen {position}: "
        "it must be the same stream from its beginning, or a function of the position"
    )


def _prepare(
    source: Iterable[Any], row: int, position: int, default: Any, targets: int | None
) -> Iterator[Prepared]:
    width, dtype = None, None
    for number, block in enumerate(source):
        try:
            checked_block = _check(block, default, width, dtype, targets)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"block {number}, which begins at row {row}: {error}") from None
        if checked_block is None:
            continue
        xs, ds, dtype = checked_block
        width = xs.shape[1]
        first = max(position - row, 0)  # rows that were run before
        row += len(xs)
        if first < len(xs):
            # The copy is made before the next block is asked for: a source may reuse its arrays.
            start = row - len(xs) + first
            with fitting(start):
                prepared = _copy(start, xs[first:], ds[first:], dtype)
            yield prepared
    if row < position:
        raise _too_short(row, position)


@contextlib.contextmanager
def fitting(start: int) -> Iterator[None]:
    """Want of memory is one kind of error, wherever it is felt, and names the block."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(
            f"the block that begins at row {start} does not fit into memory ({error}); make blocks "
            "of fewer rows"
        ) from error


def _check(
    block: Any, default: Any, width: int | None, dtype: Any, targets: int | None
) -> tuple[Any, Any, Any] | None:
    """A block as arrays, with the dtype to cast to; None if it is empty."""
    try:
        xs, ds = block
    except (TypeError, ValueError):
        raise TypeError(f"a block must be a pair (x, d); got {block!r:.200}") from None
    if all(hasattr(part, "__len__") and len(part) == 0 for part in (xs, ds)):
        return None
    xs, ds, own = checked_stream(xs, ds, default, targets)
    if width is not None and xs.shape[1] != width:
        raise ValueError(f"xs must have {width} columns, as before; got shape {xs.shape}")
    if dtype is not None and own != dtype:
        raise TypeError(f"xs and ds must be of one dtype throughout; got {own} after {dtype}")
    return xs, ds, own


def _copy(start: int, xs: Any, ds: Any, dtype: Any) -> Prepared:
    n = len(xs)
    longer = min((length for length in LENGTHS if length >= n), default=n + LENGTHS[-1])
    inputs = np.zeros((longer, xs.shape[1]), dtype)  # pages that nobody writes to take no memory
    targets = np.full((longer, *ds.shape[1:]), np.nan, dtype)
    with np.errstate(all="ignore"):  # beyond float32 is infinite, and so a sample to skip
        inputs[:n] = xs
        targets[:n] = ds
    return Prepared(start, n, inputs, targets)


class Ahead:
    """The items of an iterator, made by a thread before they are asked for.

    With ``depth`` 0 there is no thread: an item is made when it is asked for.
    """

    def __init__(self, items: Iterator[Prepared], depth: int):
        self._items = items
        self._made: queue.SimpleQueue[Prepared | BaseException] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._threaded = depth > 0

    def take(self) -> Prepared | BaseException:
        """The next item, or the exception in its place: ``StopIteration`` is the end."""
        if not self._threaded:
            return self._make()
        if self._thread is None:
            # A source may wait for ever in a call that nothing interrupts: the process ends anyway.
            self._thread = threading.Thread(target=self._fill, name="jboost-blocks", daemon=True)
            self._thread.start()
        item = self._made.get()
        self._room.release()
        return item

    def poll(self) -> Prepared | BaseException | None:
        """As :meth:`take`, but None where that would have to wait."""
        return None if self._made.empty() else self.take()

    def stop(self) -> None:
        """End the thread, at once or when the source returns to it."""
        self._stopped = True
        self._room.release()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def _make(self) -> Prepared | BaseException:
        try:
            return next(self._items)
        except BaseException as error:
            return error

    def _fill(self) -> None:
        while True:
            self._room.acquire()
            if self._stopped:
                return
            item = self._make()
            self._made.put(item)
            if isinstance(item, BaseException):
                return
            del item  # while waiting, this thread holds no block
