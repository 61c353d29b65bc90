"""Reads Parquet files of any size, tables in memory, and rows of any iterable."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jboost.checkpoints.atomic import PathLike
from jboost.core import extras
from jboost.files import columns as table_columns
from jboost.files import reader
from jboost.files.columns import NUMERIC, Columns, DataError, PlaceOf, RawBlock
from jboost.files.numerals import PARTS
from jboost.files.reader import (
    LONGEST_ROW,
    Reader,
    first_line,
    kinds_in,
    refuse_other_columns,
    row_numbers,
)

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 65_536  # of a table or a file
BLOCK_NUMBERS, BLOCK_BYTES = 2**23, 2**25  # of a file, if that is fewer rows
KEPT_NUMBERS, KEPT_BYTES = 2**20, 2**23  # of a file that is read only once
SAMPLE_ROWS = 1000  # of a file
GATHERED_ROWS = 1024  # of an iterable of rows: so many are waited for before they make a block


def is_table(value: object) -> bool:
    """Return whether a value is a table of pandas, polars, pyarrow or the like."""
    return hasattr(value, "columns") and hasattr(value, "shape")


class Peeked:
    """An iterable whose first items, ``head``, were looked at."""

    def __init__(self, items: Iterable[Any], count: int = 1):
        self._items, self._rest, self._spent = items, iter(items), False
        self.head = list(itertools.islice(self._rest, count))

    def __iter__(self) -> Iterator[Any]:
        if self._rest is not self._items:
            return iter(self._items)
        if self._spent:
            raise ValueError("the stream is an iterator, which can be gone through only once")
        self._spent = True
        return itertools.chain(self.head, self._rest)


class Parquet(Reader):
    """Reads a Parquet file. The file stays open; each pass reads its row groups from the start.

    To read a few rows takes a good part of the time of a whole block. So a small file is read once,
    for the sample, and kept.

    Args:
      path: that of the file.
      unread: columns whose values are not needed; they are missing in the sample.
    """

    def __init__(self, path: PathLike, unread: Collection[str] = ()):
        self.label, self._unread = os.fspath(path), {*unread}
        self._kept: list[pa.Table] = []  # the rows of a small file
        pa, parquet = extras.need("pyarrow", "io"), extras.need("pyarrow.parquet", "io")
        self._errors = (pa.ArrowException, OSError, UnicodeDecodeError)
        try:
            # What is buffered ahead would all be held until the end of the file.
            options = {"page_checksum_verification": True, "pre_buffer": False}
            self._file = parquet.ParquetFile(path, **options)
            schema = self._schema = self._file.schema_arrow
            self._names: list[str] = schema.names
            # A text that is repeated is read once: a small file could otherwise fill any memory.
            if texts := [field.name for field in schema if reader.holds_text(field.type)]:
                with self._file as opened:
                    self._file = parquet.ParquetFile(
                        path, metadata=opened.metadata, read_dictionary=texts, **options
                    )
        except self._errors as error:
            raise self._damaged(error) from None
        table_columns.refuse_names(self._names, self.label)
        metadata = self._file.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self._group_rows = [group.num_rows for group in groups]
        self.total = metadata.num_rows
        if not (self._names and metadata.num_rows):
            raise DataError(f"{self.label} has no {'rows' if self._names else 'columns'}")
        # The size of a row after decompression, as the file itself claims it.
        longest = max((g.total_byte_size // max(g.num_rows, 1) for g in groups), default=0)
        if longest > LONGEST_ROW:
            sizes = f"{longest // 2**20:,} MB; at most {LONGEST_ROW // 2**20} are read"
            raise DataError(f"{self.label} has rows of {sizes}")
        self._fitting_rows, self._kept_rows = (
            size // max(longest, 1) for size in (BLOCK_BYTES, KEPT_BYTES)
        )

    def sample(self) -> RawBlock:
        pa = extras.need("pyarrow", "io")
        names = [name for name in self._names if name not in self._unread] or self._names
        rows = min(SAMPLE_ROWS, BLOCK_NUMBERS // len(self._names), self._fitting_rows)
        self._kept = self._whole(names)
        first = (self._kept[0] if self._kept else next(self._read(names, rows)))[:rows]
        columns = dict.fromkeys(self._names, pa.nulls(first.num_rows))
        columns |= zip(first.column_names, first.columns, strict=True)
        return RawBlock(pa.table(columns), row_numbers(self.label, 0))

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        refuse_other_columns(columns, self._schema, self.label)
        rows = max(min(BLOCK_ROWS, BLOCK_NUMBERS // columns.width, self._fitting_rows), 1)
        names, kept = [*kinds_in(columns, self._names, self.label)], self._kept
        if kept and {*names} <= {*kept[0].column_names}:
            tables = (t[at : at + rows] for t in kept for at in range(0, t.num_rows, rows))
            return self.from_position(tables, position)
        ends = np.cumsum(self._group_rows)
        skipped = int(np.searchsorted(ends, position, side="right"))  # row groups before it
        tables = self._read(names, rows, skipped)
        return self.from_position(tables, position, start=sum(self._group_rows[:skipped]))

    def _whole(self, names: list[str]) -> list[pa.Table]:
        """Return all rows of a file that is small and not damaged, else none."""
        kinds = [reader.likely_kind(self._schema.field(name).type) for name in names]
        most = min(BLOCK_ROWS, KEPT_NUMBERS // len(names), self._kept_rows)
        left, pieces = sum(self._group_rows), []
        if None in kinds or not 0 < left <= most:
            return []
        with contextlib.suppress(DataError):  # which a pass raises when it comes to the damage
            for piece in self._read(names, most):
                pieces.append(piece)
                left -= piece.num_rows
                if left < 0:  # they could be too many to keep
                    return []
            return pieces
        return []

    def _read(self, names: list[str], size: int, skipped: int = 0) -> Iterator[pa.Table]:
        """Yield the rows after the row groups that are skipped, ``size`` at a time."""
        pa = extras.need("pyarrow", "io")
        row, total = sum(self._group_rows[:skipped]), sum(self._group_rows)
        groups = [*range(skipped, len(self._group_rows))]
        try:
            for batch in self._file.iter_batches(max(size, 1), row_groups=groups, columns=names):
                batch.validate(full=True)  # text may not be in UTF-8
                yield pa.Table.from_batches([batch])
                row += batch.num_rows
        except self._errors as error:
            raise self._damaged(error, f", from row {row + 1} on") from None
        if row != total:
            raise self._damaged(f"it claims {total} rows and holds {row}")

    def _damaged(self, error: object, where: str = "") -> DataError:
        return DataError(f"{self.label}{where} is a damaged Parquet file: {first_line(error)}")


class Tables(Reader):
    """Reads tables of pandas, polars, pyarrow or the like."""

    label = "the table"

    def __init__(self, tables: Peeked, block: int | None):
        self._block, self._tables = block or BLOCK_ROWS, tables

    def sample(self) -> RawBlock:
        return RawBlock(self._arrow(self._tables.head[0], 0), row_numbers(self.label, 0))

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        return self.from_position(self._read(columns), position)

    def _read(self, columns: Columns) -> Iterator[pa.Table]:
        for table in self._tables:
            for start in range(0, len(table), self._block):
                arrow = self._arrow(table, start)
                refuse_other_columns(columns, arrow.schema, self.label)
                yield arrow

    def _arrow(self, table: Any, start: int) -> pa.Table:
        pa, nw = extras.need("pyarrow", "io"), extras.need("narwhals", "io")
        try:
            rows = nw.from_native(table, eager_only=True)[start : start + self._block]
            arrow = rows.to_arrow()
        except (pa.ArrowException, TypeError, ValueError) as error:
            for name in getattr(table, "columns", ()):
                if getattr(getattr(table[name], "dtype", None), "kind", "") == "c":
                    raise DataError(
                        f"{self.label} has complex numbers in {name!r}; {PARTS}"
                    ) from None
            raise DataError(f"{self.label} cannot be read: {first_line(error)}") from None
        for i, field in enumerate(arrow.schema):
            # Of Python objects polars hands on the places in memory.
            if pa.types.is_fixed_size_binary(field.type) and rows[field.name].dtype == nw.Object:
                arrow = arrow.set_column(i, field.name, reader.objects(arrow.num_rows))
        return arrow


class Rows(Reader):
    """Reads rows: sequences of one length, or dicts, in which a missing key is a missing value."""

    label = "the stream"

    def __init__(self, rows: Peeked, names: Sequence[str] | None, block: int | None):
        self._block, self._rows = block or GATHERED_ROWS, rows
        self._dicts = isinstance(rows.head[0], Mapping)
        if self._dicts:
            self._names = list(dict.fromkeys(key for row in rows.head for key in row))
        else:
            self._names = list(names or (str(i + 1) for i in range(len(rows.head[0]))))

    def sample(self) -> RawBlock:
        pa, arrays = extras.need("pyarrow", "io"), {}
        place_of = row_numbers(self.label, 0)
        for name, values in self._by_name(self._rows.head, place_of).items():
            try:
                arrays[name] = pa.array(values)
            except (pa.ArrowException, TypeError, ValueError) as error:
                problem = f"have values of several kinds in {name!r}: {first_line(error)}"
                if any(isinstance(value, (complex, np.complexfloating)) for value in values):
                    problem = f"have complex numbers in {name!r}; {PARTS}"
                raise DataError(f"the first rows of {self.label} {problem}") from None
        return RawBlock(pa.table(arrays), place_of)

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        kinds_in(columns, self._names, self.label)
        return self.from_position(self._read(columns), position)

    def _read(self, columns: Columns) -> Iterator[pa.Table]:
        pa = extras.need("pyarrow", "io")
        rows, row = iter(self._rows), 0
        while block := list(itertools.islice(rows, self._block)):
            place_of = row_numbers(self.label, row)
            values, arrays = self._by_name(block, place_of), {}
            for name, kind in kinds_in(columns, self._names, self.label).items():
                if kind in NUMERIC:
                    arrays[name] = _numbers(name, values[name], place_of)
                elif kind == "time":
                    arrays[name] = _times(name, values[name], place_of)
                else:
                    texts = (None if value is None else str(value) for value in values[name])
                    arrays[name] = pa.array(texts, pa.string())
            yield pa.table(arrays)
            row += len(block)

    def _by_name(self, rows: Sequence[Any], place_of: PlaceOf) -> dict[str, list[object]]:
        """Return the values of each column; rows that differ from the first ones are refused."""
        names = set(self._names)
        for i, row in enumerate(rows):
            if isinstance(row, Mapping) != self._dicts:
                raise DataError(f"{place_of(i)} is of another kind than the first: {row!r:.60}")
            if not self._dicts and len(row) != len(self._names):
                count = f"{len(row)} values where the first has {len(self._names)}"
                raise DataError(f"{place_of(i)} has {count}")
            if self._dicts and not names.issuperset(row):
                new = next(key for key in row if key not in names)
                raise DataError(f"{place_of(i)} has a column {new!r}, which the first rows lack")
        if self._dicts:
            return {name: [row.get(name) for row in rows] for name in self._names}
        return {name: [row[i] for row in rows] for i, name in enumerate(self._names)}


def _times(name: str, values: list[Any], place_of: PlaceOf) -> pa.Array:
    pa = extras.need("pyarrow", "io")
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        problem = f"times of several kinds in {name!r}: {first_line(error)}"
        raise DataError(f"the rows from {place_of(0)} on have {problem}") from None


def _numbers(name: str, values: list[Any], place_of: PlaceOf) -> np.ndarray:
    numbers = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if isinstance(value, (datetime.timedelta, np.timedelta64)):
            numbers[i] = np.timedelta64(value) / np.timedelta64(1, "s")  # NaN for NaT
        elif hasattr(value, "__float__"):
            try:
                numbers[i] = float(value)
            except OverflowError:  # as in a file, a number beyond any float is infinite
                numbers[i] = np.inf
        elif value is not None:
            raise DataError(f"{place_of(i)}: {value!r:.60} in the column {name!r} is not a number")
    return numbers
