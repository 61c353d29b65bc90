"""Tables in memory and rows of any iterable, as Arrow tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jboost.core import extras
from jboost.files.columns import Columns, DataError, find, refuse_other_kinds
from jboost.files.pieces import Piece, brief, refuse_short

BLOCK = 65_536  # rows of a table handed on at once
GATHERED = 1024  # rows of an iterable gathered before they are


def is_table(value: Any) -> bool:
    """Whether a value is a table of pandas, polars, pyarrow or the like."""
    return hasattr(value, "columns") and hasattr(value, "shape")


class Peeked:
    """An iterable whose first items are known; it can be gone through again if the iterable can."""

    def __init__(self, items: Iterable[Any], count: int = 1):
        self._items, self._rest = items, iter(items)
        self.head = list(itertools.islice(self._rest, count))
        self._spent = False

    def __iter__(self) -> Iterator[Any]:
        if self._rest is not self._items:
            return iter(self._items)
        if self._spent:
            raise ValueError("the stream is an iterator, which can be gone through only once")
        self._spent = True
        return itertools.chain(self.head, self._rest)


class Tables:
    """A reader of a table of pandas, polars, pyarrow or the like, or of an iterable of them."""

    live = False

    def __init__(self, tables: Peeked, block: int | None):
        self.label = "the table"
        self._block, self._tables = block or BLOCK, tables
        self.names: list[str] = self._arrow(tables.head[0]).schema.names

    def sample(self) -> Piece:
        """The first rows."""
        return Piece(self._arrow(self._tables.head[0]), _numbered(self.label, 0))

    def tables(self, columns: Columns, position: int) -> Iterator[Piece]:
        """The columns used, from a row on."""
        row = 0
        for table in self._tables:
            for start in range(0, len(table), self._block):
                piece = Piece(self._arrow(table, start), _numbered(self.label, row))
                find(columns.used, piece.table.schema.names, self.label)
                refuse_other_kinds(columns, piece.table.schema, self.label)
                before, row = row, row + piece.table.num_rows
                if row > position:
                    yield piece.without(max(position - before, 0))
        refuse_short(self.label, row, position)

    def _arrow(self, table: Any, start: int = 0) -> Any:
        pa, nw = extras.need("pyarrow", "io"), extras.need("narwhals", "io")
        try:
            return nw.from_native(table, eager_only=True)[start : start + self._block].to_arrow()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"{self.label} cannot be read: {brief(error)}") from None


class Rows:
    """A reader of an iterable of rows: dicts, or sequences of one length.

    The keys of the first rows are the columns; a row without one of them has a missing value there.
    """

    live = False

    def __init__(self, rows: Peeked, names: Sequence[str] | None, block: int | None):
        self.label = "the stream"
        self._block, self._rows = block or GATHERED, rows
        first = rows.head[0]
        self._dicts = isinstance(first, Mapping)
        if self._dicts:
            self.names = list(dict.fromkeys(key for row in rows.head for key in row))
        else:
            self.names = list(names or (str(i) for i in range(1, len(first) + 1)))

    def sample(self) -> Piece:
        """The first rows, with types as they look."""
        pa = extras.need("pyarrow", "io")
        where = _numbered(self.label, 0)
        table = {}
        for name, values in self._by_name(self._rows.head, where).items():
            try:
                table[name] = pa.array(values)
            except (pa.ArrowException, TypeError, ValueError) as error:
                text = f"the first rows of {self.label} have values of several kinds in {name!r}"
                raise DataError(f"{text}: {brief(error)}") from None
        return Piece(pa.table(table), where)

    def tables(self, columns: Columns, position: int) -> Iterator[Piece]:
        """The columns used, from a row on."""
        pa = extras.need("pyarrow", "io")
        find(columns.used, self.names, self.label)
        kinds = {column.name: column.kind for column in columns.inputs}
        rows, row = iter(self._rows), 0
        while block := list(itertools.islice(rows, self._block)):
            where = _numbered(self.label, row)
            by_name = self._by_name(block, where)
            table = {}
            for name in columns.used:
                read = _numbers if kinds.get(name, "number") in ("number", "boolean") else _texts
                table[name] = read(name, by_name[name], where)
            before, row = row, row + len(block)
            if row > position:
                yield Piece(pa.table(table), where).without(max(position - before, 0))
        refuse_short(self.label, row, position)

    def _by_name(self, rows: Sequence[Any], where: Callable[[int], str]) -> dict[str, list[Any]]:
        known = set(self.names)
        for i, row in enumerate(rows):
            if isinstance(row, Mapping) != self._dicts:
                raise DataError(f"{where(i)} is of another kind than the first: {row!r:.60}")
            if not self._dicts and len(row) != len(known):
                raise DataError(
                    f"{where(i)} has {len(row)} values where the first has {len(known)}"
                )
            new = next((key for key in row if key not in known), None) if self._dicts else None
            if new is not None:
                raise DataError(f"{where(i)} has a column {new!r}, which the first rows lack")
        if self._dicts:
            return {name: [row.get(name) for row in rows] for name in self.names}
        return {name: [row[i] for row in rows] for i, name in enumerate(self.names)}


def _numbers(name: str, values: list[Any], where: Callable[[int], str]) -> np.ndarray:
    numbers = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if hasattr(value, "__float__"):
            try:
                numbers[i] = float(value)
            except OverflowError:  # beyond what a float can hold, as in a file
                numbers[i] = np.inf
        elif value is not None:
            raise DataError(f"{where(i)}: {value!r:.60} in the column {name!r} is not a number")
    return numbers


def _texts(name: str, values: list[Any], where: Callable[[int], str]) -> Any:
    del name, where
    pa = extras.need("pyarrow", "io")
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _numbered(label: str, start: int) -> Callable[[int], str]:
    return lambda row: f"row {start + row + 1} of {label}"
