"""Writes predictions as they are made, a line each; the file has whole lines only.

    row,target,prediction
    1,0.5,0
    2,,0.31

``row`` counts from 1. A missing target is empty. With intervals there are two more columns, lower
and upper: −inf and inf before the first answer. Each number has the fewest digits that read as the
same float.
"""

import contextlib
import os
import stat
import sys
from typing import BinaryIO, cast

import numpy as np

from jboost.checkpoints.atomic import PathLike, claim
from jboost.core import checks, extras

LONGEST_LINE = 256  # bytes: five numbers of at most 24 characters each, and the commas between


class Predictions(contextlib.AbstractContextManager["Predictions"]):
    """A file of predictions, or standard output for ``-``: a context manager.

    ``self.length`` is how many bytes were written, all of them whole lines; a checkpoint keeps it.
    When a run goes on, the file is cut back to the ``length`` of its checkpoint, where it has the
    predictions of ``rows`` rows: the lines after that will be written again. A file that has not is
    refused and left alone, and so is a file that another process writes. ``length`` is None for a
    new file.
    """

    def __init__(
        self, path: PathLike, length: int | None = None, rows: int = 0, *, intervals: bool = False
    ):
        self.path = checks.path("path", path)
        bounds = ("lower", "upper") if intervals else ()
        self._columns = ["row", "target", "prediction", *bounds]
        self._header = f"{','.join(self._columns)}\n".encode()
        self._standard = self.path == "-"
        self.length = length or 0
        self._file = self._open(length, rows)
        if not self.length:
            try:
                self._append(self._header)
            except OSError:
                self.close()
                raise

    def write(self, start: int, targets: np.ndarray, *estimates: np.ndarray) -> None:
        """Write the rows after the first ``start``: targets, then predictions, then bounds."""
        pa, arrow_csv = extras.need("pyarrow", "io"), extras.need("pyarrow.csv", "io")
        numbers = np.arange(start + 1, start + 1 + len(targets))
        answers = pa.array(targets, mask=~np.isfinite(targets))
        lines = pa.BufferOutputStream()
        table = pa.table([numbers, answers, *estimates], names=self._columns)
        arrow_csv.write_csv(table, lines, arrow_csv.WriteOptions(include_header=False))
        self._append(lines.getvalue())

    def sync(self) -> None:
        """Make what was written outlast a power failure."""
        if self._is_regular():
            os.fsync(self._file.fileno())

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; standard output stays open."""
        if not self._standard:
            self._file.close()

    def _open(self, length: int | None, rows: int) -> BinaryIO:
        if self._standard:
            return sys.stdout.buffer
        if length is not None:
            self._check(length, rows)
        # Unbuffered: after an error it is known how much of a line was written. What is in the file
        # is cut off when the file is claimed: another process may be writing it.
        self._file = cast("BinaryIO", open(self.path, "ab", buffering=0))  # noqa: SIM115
        try:
            if self._is_regular():
                claim(self._file.fileno(), self.path)
                self._file.truncate(self.length)
        except BaseException:
            self._file.close()
            raise
        return self._file

    def _is_regular(self) -> bool:
        """Whether predictions go to a file, and not to a pipe or a device."""
        return not self._standard and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)

    def _check(self, length: int, rows: int) -> None:
        """Refuse a file whose first ``length`` bytes are not the predictions of ``rows`` rows."""
        try:
            with open(self.path, "rb") as file:
                header = file.read(len(self._header))
                file.seek(max(length - LONGEST_LINE, 0))
                tail = file.read(min(length, LONGEST_LINE))
                size = file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            advice = "name the file that the run to go on with has written"
            raise ValueError(f"{self.path} is not there: {advice}") from None
        *_, last, rest = (b"\n" + tail).split(b"\n")
        ends_there = last.startswith(b"%d," % rows) if rows else last + b"\n" == self._header
        if size < length or header != self._header or rest or not ends_there:
            raise ValueError(
                f"{self.path} does not hold the {rows:,} predictions that the run to go on with "
                "had written: it is another file, or was changed. Name the right one, or none"
            )

    def _append(self, lines: bytes) -> None:
        """Write whole lines, or none of them."""
        unwritten = memoryview(lines)
        try:
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) :]
            self._file.flush()
        except OSError:
            if not self._standard:
                with contextlib.suppress(OSError):
                    self._file.truncate(self.length)
            raise
        self.length += len(lines)
