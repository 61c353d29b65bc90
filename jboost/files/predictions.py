"""Predictions written as they are made: one line each, whole lines only, whatever happens.

    row,target,prediction
    1,0.5,0
    2,,0.31

``row`` counts the rows of the stream from 1; where there was no answer the target is empty. With
intervals there are two more columns, lower and upper: −inf and inf before the first answer. Numbers
are the shortest that read as the same float.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, BinaryIO

import numpy as np

from jboost.checkpoints.atomic import PathLike
from jboost.core import extras

COLUMNS = ("row", "target", "prediction")
BOUNDS = ("lower", "upper")
LONGEST_LINE = 256  # bytes: five numbers of at most 24 characters each, and what is between them


class Predictions:
    """A file of predictions, or standard output for ``-``: a context manager.

    ``length`` is how many bytes are whole and safely handed to the system: what a checkpoint keeps.
    A file that is gone on with is cut back to that, since what follows will be made again; one that
    does not hold the rows up to there is left alone.

    Args:
      path: the file, or ``-``.
      length: how many bytes of it to keep; None for a new file.
      rows: how many rows these bytes are the predictions of.
      intervals: whether there are bounds to write.
    """

    def __init__(
        self, path: PathLike, length: int | None = None, rows: int = 0, *, intervals: bool = False
    ):
        self.path = os.fspath(path)
        columns = COLUMNS + (BOUNDS if intervals else ())
        self._columns, self._head = columns, f"{','.join(columns)}\n".encode()
        self._standard = self.path == "-"
        self.length = length or 0
        self._file: BinaryIO = self._open(length, rows)
        if not self.length:
            try:
                self._put(self._head)
            except OSError:
                self.close()
                raise

    def write(self, start: int, targets: np.ndarray, *made: np.ndarray) -> None:
        """Write what was made of the rows after the first ``start``: predictions, and bounds."""
        pa, text = extras.need("pyarrow", "io"), extras.need("pyarrow.csv", "io")
        numbers = np.arange(start + 1, start + 1 + len(targets))
        answers = pa.array(targets, mask=~np.isfinite(targets))
        rows = pa.table([numbers, answers, *made], names=list(self._columns))
        sink = pa.BufferOutputStream()
        text.write_csv(rows, sink, text.WriteOptions(include_header=False))
        self._put(sink.getvalue())

    def sync(self) -> None:
        """See to it that what was written outlasts a power failure."""
        if not self._standard:
            os.fsync(self._file.fileno())

    def __enter__(self) -> Predictions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if not self._standard:
            self._file.close()

    def _open(self, length: int | None, rows: int) -> Any:
        if self._standard:
            return sys.stdout.buffer
        if length is None:
            return open(self.path, "wb", buffering=0)
        self._check(length, rows)
        os.truncate(self.path, length)
        return open(self.path, "ab", buffering=0)

    def _check(self, length: int, rows: int) -> None:
        """Refuse a file whose first bytes are not the predictions of so many rows."""
        try:
            with open(self.path, "rb") as file:
                head = file.read(len(self._head))
                file.seek(max(length - LONGEST_LINE, 0))
                tail = file.read(min(length, LONGEST_LINE))
                size = file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            advice = "name the file that the run to go on with has written"
            raise ValueError(f"{self.path} is not there: {advice}") from None
        *_, last, end = (b"\n" + tail).split(b"\n")
        up_to_here = last.startswith(b"%d," % rows) if rows else last + b"\n" == self._head
        if size < length or head != self._head or end or not up_to_here:
            raise ValueError(
                f"{self.path} does not hold the {rows:,} predictions that the run to go on with "
                "had written: it is another file, or was changed. Name the right one, or none"
            )

    def _put(self, lines: Any) -> None:
        """Write whole lines, or none of them."""
        left = memoryview(lines)
        try:
            while left:
                left = left[self._file.write(left) :]
            self._file.flush()
        except OSError:
            if not self._standard:
                with contextlib.suppress(OSError):
                    self._file.truncate(self.length)
            raise
        self.length += len(lines)
