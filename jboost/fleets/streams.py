"""The packed states of all streams of a fleet: in memory, or beyond a bound in a file.

Without a bound the state of stream i is row i of one array in memory. With a bound the array has
that many rows, each for one stream. A stream that needs a row takes a free one, or that of the
stream which has been silent the longest, whose state moves to the file.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref

import numpy as np

from jboost.engine.packing import Packing
from jboost.fleets.versions import Arrays, Change

_FIRST_ROWS = 64  # of an array that is new


class Streams:
    """The states of streams, by the numbers of their names."""

    def __init__(self, packing: Packing, bound: int | None, folder: str | None) -> None:
        def zeros(dtype: type[np.generic], *shape: int) -> np.ndarray:
            return np.zeros((_FIRST_ROWS, *shape), dtype)

        width = packing.width
        self.packing, self.width, self.bound = packing, width, bound
        arrays = {"words": zeros(np.uint32, width)}
        if bound is not None:
            self._file = SpillFile(width, folder)
            arrays |= {
                "row": zeros(np.int32),  # of a stream, its row in memory + 1; 0 if it has none
                "stream": zeros(np.int64),  # of a row in memory, its stream + 1; 0 if it is free
                "last": zeros(np.int64),  # of a row in memory, when its stream was last heard of
                "spilled": self._file.array,  # of a stream without a row, its state
            }
        self.arrays = Arrays(**arrays)
        if bound is not None:
            self.arrays.grow_by("spilled", self._file.grow)

    def read(self, streams: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return the states of streams, (n, width); the caller holds the version."""
        arrays = self.arrays
        if self.bound is None:
            return np.take(arrays["words"], streams, axis=0, out=out, mode="clip")
        rows = np.take(arrays["row"], streams, mode="clip") - 1
        states = np.take(arrays["words"], np.maximum(rows, 0), axis=0, out=out, mode="clip")
        away = np.flatnonzero(rows < 0)
        states[away] = arrays["spilled"].take(streams[away], axis=0, mode="clip")
        return states

    def write(
        self, change: Change, streams: np.ndarray, states: np.ndarray, now: int,
        before: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Write the states of streams, all different, at most ``bound``.

        ``now`` is the number of the first row. ``before`` is what :meth:`read` returned of the
        streams; of streams that no state ever had it may be anything.
        """
        if self.bound is None:
            change.write("words", streams, states, before)
            return
        self.arrays.extend("row", int(streams.max(initial=0)) + 1)
        rows = self.arrays["row"].take(streams).astype(np.int64) - 1
        away = np.flatnonzero(rows < 0)
        change.write("last", rows[rows >= 0], np.asarray(now))
        if len(away):
            rows[away] = self._free_rows(change, len(away), now)
            change.write("row", streams[away], (rows[away] + 1).astype(np.int32))
            change.write("stream", rows[away], streams[away] + 1)
            change.write("last", rows[away], np.asarray(now))
        change.write("words", rows, states)

    def _free_rows(self, change: Change, count: int, now: int) -> np.ndarray:
        """Return rows without a stream; streams that were silent the longest give theirs up."""
        assert self.bound is not None
        used = self.arrays.used["stream"]
        rows = np.arange(used, min(used + count, self.bound))  # no version has used these
        if len(rows) == count:
            return rows
        for name in ("stream", "last", "words"):
            self.arrays.extend(name, self.bound)
        holder = self.arrays["stream"][:used]
        rows = np.append(rows, np.flatnonzero(holder == 0)[: count - len(rows)])
        if len(rows) == count:
            return rows
        last = np.where(holder == 0, np.iinfo(np.int64).max, self.arrays["last"][:used])
        silent = np.argpartition(last, count - len(rows) - 1)[: count - len(rows)]
        streams = holder[silent] - 1
        change.write("spilled", streams, self.arrays["words"].take(silent, axis=0))
        change.write("row", streams, np.asarray(0, np.int32))
        self._file.let_go()
        return np.concatenate([rows, silent])

    @property
    def used(self) -> int:
        """From which number on no version has a stream."""
        return self.arrays.used["words" if self.bound is None else "row"]


class SpillFile:
    """A file that no other process sees, as an array with a row for each stream."""

    def __init__(self, width: int, folder: str | None) -> None:
        file = tempfile.TemporaryFile(prefix="jboost-", suffix=".spill", dir=folder)  # noqa: SIM115
        weakref.finalize(self, file.close)  # the system then removes it
        self._file = file
        self._width = width
        self.array = self.grow(np.zeros((0, width), np.uint32), 0, _FIRST_ROWS)

    def grow(self, array: np.ndarray, used: int, rows: int) -> np.ndarray:
        """Return the array with more rows; what the file holds stays."""
        del array, used
        rows = 1 << (rows - 1).bit_length()
        self._file.truncate(max(4 * rows * self._width, 1))
        self._map = mmap.mmap(self._file.fileno(), 0)
        self.array = np.frombuffer(self._map, np.uint32, rows * self._width).reshape(rows, -1)
        return self.array

    def let_go(self) -> None:
        """Let the system take the memory of what was written; the file has it."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
