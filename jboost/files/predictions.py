"""Writes predictions as they are made, a line each; the file has whole lines only.

    row,date,target,prediction
    1,2024-01-01,0.5,0
    2,2024-01-02,,0.31

``row`` counts from 1. The time and the ids of a row, where there are any, follow. A missing target
is empty. With intervals there are two more columns, lower and upper: −inf and inf before the first
answer. Forecasts have a line for each row and horizon: row, its time and ids, horizon, the time
that the forecast is ``for`` where rows have times, prediction, lower and upper. More columns of
numbers can follow. Each number has the fewest digits that read as the same float. A file whose name
ends in .jsonl or .ndjson has JSON lines instead, in which what is missing or infinite is null.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from jboost.checkpoints.atomic import PathLike, claim
from jboost.core import checks, extras

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_LINE = 2**20  # bytes: five numbers of at most 24 characters each, and the labels
JSON_ENDINGS = (".jsonl", ".ndjson")
ZIPPED = (".gz", ".zst", ".zstd", ".bz2")


class Predictions(contextlib.AbstractContextManager["Predictions"]):
    """A file of predictions, or standard output for ``-``: a context manager.

    ``self.length`` is how many bytes were written, all of them whole lines; a checkpoint keeps it.
    When a run goes on, the file is cut back to the ``length`` of its checkpoint, where it has the
    predictions of ``rows`` rows: the lines after that will be written again. A file that has not is
    refused and left alone, and so is a file that another process writes. ``length`` is None for a
    new file. ``labels`` are the names of the columns that label the rows. With ``ahead`` the lines
    are forecasts, and ``timed`` says whether they have times.
    """

    def __init__(
        self,
        path: PathLike,
        length: int | None = None,
        rows: int = 0,
        *,
        intervals: bool = False,
        more: Sequence[str] = (),
        labels: Sequence[str] = (),
        as_json: bool = False,
        ahead: bool = False,
        timed: bool = False,
    ):
        self.path = checks.path("path", path)
        if self.path.endswith(ZIPPED):
            raise ValueError(f"predictions are written as plain text; got {self.path}")
        numbers = ["prediction", *(("lower", "upper") if intervals else ()), *more]
        numbers = (
            ["horizon", *(["for"] if timed else []), *numbers] if ahead else ["target", *numbers]
        )
        taken = {"row", *numbers}
        self._labels = {name: f"{name}_" if name in taken else name for name in labels}
        self._columns = ["row", *self._labels.values(), *numbers]
        self._standard = self.path == "-"
        self._json = self.path.endswith(JSON_ENDINGS) or (self._standard and as_json)
        self._header = b"" if self._json else self._csv_header()
        self.length = length or 0
        self._file = self._open(length, rows)
        if not self.length and self._header and not self._standard:
            try:
                self._append(self._header)
            except OSError:
                self.close()
                raise

    def write(
        self,
        start: int,
        targets: np.ndarray,
        *estimates: np.ndarray,
        labels: Mapping[str, pa.ChunkedArray | pa.Array] | None = None,
    ) -> None:
        """Write the rows after the first ``start``: targets, predictions, bounds, more columns."""
        pa = extras.need("pyarrow", "io")
        numbers = np.arange(start + 1, start + 1 + len(targets))
        answers = pa.array(targets, mask=~np.isfinite(targets))
        texts = [as_text((labels or {})[name]) for name in self._labels]
        table = pa.table([numbers, *texts, answers, *estimates], names=self._columns)
        self._append(_json_lines(table) if self._json else _csv(table, texts))

    def write_ahead(
        self,
        start: int,
        *estimates: np.ndarray,
        labels: Mapping[str, pa.ChunkedArray | pa.Array] | None = None,
        times: np.ndarray | None = None,
    ) -> None:
        """Write the forecasts of the rows after the first ``start``: estimates, bounds, all (n, H).

        ``times``, (n, H) as datetime64, are those that the forecasts are for.
        """
        pa = extras.need("pyarrow", "io")
        n, horizon = estimates[0].shape
        numbers = np.repeat(np.arange(start + 1, start + 1 + n), horizon)
        rows = pa.array(np.repeat(np.arange(n), horizon))
        texts = [as_text((labels or {})[name]).take(rows) for name in self._labels]
        columns = [numbers, *texts, np.tile(np.arange(1, horizon + 1), n)]
        if times is not None:
            columns.append(pa.array(times_as_text(times.ravel())))
        columns += [array.ravel() for array in estimates]
        table = pa.table(columns, names=self._columns)
        self._append(_json_lines(table) if self._json else _csv(table, texts))

    def _csv_header(self) -> bytes:
        special = set(',"\r\n')
        quoted = ('"' + n.replace('"', '""') + '"' if special & {*n} else n
                  for n in self._columns)  # fmt: skip
        return f"{','.join(quoted)}\n".encode()

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
        start = (b'{"row": %d,' if self._json else b"%d,") % rows
        ends_there = last.startswith(start) if rows else last + b"\n" == (self._header or b"\n")
        if size < length or header != self._header or rest or not ends_there:
            raise ValueError(
                f"{self.path} does not hold the {rows:,} predictions that the run to go on with "
                "had written: it is another file, or was changed. Name the right one, or none"
            )

    def _append(self, lines: bytes) -> None:
        """Write whole lines, or none of them; standard output gets its header with the first."""
        if self._standard and not self.length:
            lines = self._header + lines
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


def times_as_text(times: np.ndarray) -> list[str | None]:
    """Return times as ISO 8601, to the second where that is exact; None where one is missing.

    >>> times_as_text(np.array(["2024-01-01T06", "NaT"], "datetime64[us]"))
    ['2024-01-01T06:00:00', None]
    """
    seconds = times.astype("datetime64[s]")
    exact = bool((seconds.astype(times.dtype)[~np.isnat(times)] == times[~np.isnat(times)]).all())
    texts = np.datetime_as_string(seconds if exact else times)
    return [None if text == "NaT" else str(text) for text in texts]


def as_text(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return labels as they are written: text without line ends."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    texts = compute.cast(values, pa.string())
    return compute.replace_substring_regex(texts, r"[\r\n]+", " ")


def _csv(table: pa.Table, texts: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Buffer:
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    arrow_csv = extras.need("pyarrow.csv", "io")
    # Arrow would quote all texts, or none of them.
    quoted = any(compute.any(compute.match_substring_regex(t, '[",]')).as_py() for t in texts)
    style = "needed" if quoted or not texts else "none"
    lines = pa.BufferOutputStream()
    options = arrow_csv.WriteOptions(include_header=False, quoting_style=style)
    arrow_csv.write_csv(table, lines, options)
    return lines.getvalue()


def _json_lines(table: pa.Table) -> bytes:
    # As text, a float32 has the fewest digits that read as itself.
    pa = extras.need("pyarrow", "io")
    floats = [i for i, kind in enumerate(table.schema.types) if pa.types.is_floating(kind)]
    for i in floats:
        shown = table.column(i).cast(pa.string())
        table = table.set_column(i, table.schema.names[i], shown)
    names = [json.dumps(name, ensure_ascii=False) for name in table.schema.names]
    columns: list[list[Any]] = [column.to_pylist() for column in table.columns]
    for i in range(1, len(columns)):
        is_number = i in floats
        columns[i] = [
            "null" if value is None or (is_number and value in ("nan", "inf", "-inf"))
            else value if is_number
            else json.dumps(value, ensure_ascii=False)
            for value in columns[i]
        ]  # fmt: skip
    rows = zip(*columns, strict=True)
    lines = (
        ", ".join(f"{name}: {value}" for name, value in zip(names, row, strict=True))
        for row in rows
    )
    return "".join(f"{{{line}}}\n" for line in lines).encode()
