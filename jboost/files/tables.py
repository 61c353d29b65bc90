"""Reads tables in memory, and rows of any iterable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jboost.core import extras
from jboost.files.columns import Columns, DataError, RawBlock, refuse_unknown
from jboost.files.kinds import NUMERIC, refuse_other_columns
from jboost.files.reader import Reader, first_line, row_numbers

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 65_536  # of a table
GATHERED_ROWS = 1024  # of an iterable of rows: so many are waited for before they make a block


def is_table(value: object) -> bool:
    """Whether a value is a table of pandas, polars, pyarrow or the like."""
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


class Tables(Reader):
    """Reads tables of pandas, polars, pyarrow or the like."""

    label = "the table"

    def __init__(self, tables: Peeked, block: int | None):
        self._block, self._tables = block or BLOCK_ROWS, tables

    def sample(self) -> RawBlock:
        return RawBlock(self._arrow(self._tables.head[0], 0), row_numbers(self.label, 0))

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        return self.from_position(self._read(columns), position)

    def _read(self, columns: Columns) -> Iterator[RawBlock]:
        row = 0
        for table in self._tables:
            for start in range(0, len(table), self._block):
                arrow = self._arrow(table, start)
                refuse_other_columns(columns, arrow.schema, self.label)
                yield RawBlock(arrow, row_numbers(self.label, row))
                row += arrow.num_rows

    def _arrow(self, table: Any, start: int) -> pa.Table:
        pa, nw = extras.need("pyarrow", "io"), extras.need("narwhals", "io")
        try:
            return nw.from_native(table, eager_only=True)[start : start + self._block].to_arrow()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"{self.label} cannot be read: {first_line(error)}") from None


class Rows(Reader):
    """Reads rows: sequences of one length, or dicts, in which a missing key is a missing value."""

    label = "the stream"

    def __init__(self, rows: Peeked, names: Sequence[str] | None, block: int | None):
        self._block, self._rows = block or GATHERED_ROWS, rows
        first = rows.head[0]
        self._dicts = isinstance(first, Mapping)
        if self._dicts:
            self._names = list(dict.fromkeys(key for row in rows.head for key in row))
        else:
            self._names = list(names or (str(i) for i in range(1, len(first) + 1)))

    def sample(self) -> RawBlock:
        pa, arrays = extras.need("pyarrow", "io"), {}
        place_of = row_numbers(self.label, 0)
        for name, values in self._by_name(self._rows.head, place_of).items():
            try:
                arrays[name] = pa.array(values)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise DataError(
                    f"the first rows of {self.label} have values of several kinds in {name!r}: "
                    f"{first_line(error)}"
                ) from None
        return RawBlock(pa.table(arrays), place_of)

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        refuse_unknown(columns.kinds, self._names, self.label)
        return self.from_position(self._read(columns), position)

    def _read(self, columns: Columns) -> Iterator[RawBlock]:
        pa = extras.need("pyarrow", "io")
        rows, row = iter(self._rows), 0
        while block := list(itertools.islice(rows, self._block)):
            place_of = row_numbers(self.label, row)
            values, arrays = self._by_name(block, place_of), {}
            for name, kind in columns.kinds.items():
                if kind in NUMERIC:
                    arrays[name] = _numbers(name, values[name], place_of)
                else:
                    texts = (None if value is None else str(value) for value in values[name])
                    arrays[name] = pa.array(texts, pa.string())
            yield RawBlock(pa.table(arrays), place_of)
            row += len(block)

    def _by_name(
        self, rows: Sequence[Any], place_of: Callable[[int], str]
    ) -> dict[str, list[object]]:
        """The values of each column; rows that differ from the first ones are refused."""
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


def _numbers(name: str, values: list[Any], place_of: Callable[[int], str]) -> np.ndarray:
    numbers = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if hasattr(value, "__float__"):
            try:
                numbers[i] = float(value)
            except OverflowError:  # as in a file, a number beyond any float is infinite
                numbers[i] = np.inf
        elif value is not None:
            raise DataError(f"{place_of(i)}: {value!r:.60} in the column {name!r} is not a number")
    return numbers
