"""Makes numbers of the columns of a block: inputs x, targets d, and what labels the rows.

The texts of categories get their places here, in the order in which they appear, so that a stream
has the same numbers wherever it is cut. A checkpoint keeps the places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from jboost.core import extras
from jboost.files import cycles, times
from jboost.files.columns import (
    NUMERIC,
    Column,
    Columns,
    DataError,
    RawBlock,
    bucket,
    text_codes,
)

if TYPE_CHECKING:
    import pyarrow as pa


DURATIONS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # how many of a unit make a second


class BadRows:
    """What becomes of rows that cannot be read: the first is an error, or each is said.

    ``say`` is called with a sentence about each bad row; None makes the first one an error.
    """

    def __init__(self, say: Callable[[str], object] | None):
        self._say = say

    @property
    def allowed(self) -> bool:
        """Whether a stream may go on after a bad row."""
        return self._say is not None

    def add(self, error: DataError) -> None:
        """Raise the error, or say what was wrong with the row."""
        if self._say is None:
            raise error
        self._say(f"{error.problem}; the row is left out")


class Labels(NamedTuple):
    """What labels the rows of a block."""

    columns: dict[str, pa.ChunkedArray]  # the time, as it was written, and the ids, by name
    instants: np.ndarray | None  # times, datetime64[us], in UTC where zones are known
    bad: np.ndarray  # whether the row could not be read
    wall: np.ndarray | None = None  # the times as a clock on the wall shows them

    def cut(self, start: int, stop: int) -> Labels:
        """Return the labels of some of the rows."""
        columns = {name: values[start:stop] for name, values in self.columns.items()}
        instants = None if self.instants is None else self.instants[start:stop]
        wall = None if self.wall is None else self.wall[start:stop]
        return Labels(columns, instants, self.bad[start:stop], wall)


class Encoded(NamedTuple):
    """A block of rows as numbers."""

    x: np.ndarray  # (n, width)
    d: np.ndarray  # (n,), NaN where there is no answer
    labels: Labels

    def cut(self, start: int, stop: int) -> Encoded:
        """Return some of the rows."""
        return Encoded(self.x[start:stop], self.d[start:stop], self.labels.cut(start, stop))

    def pieces(self, rows: int) -> Iterator[Encoded]:
        """Yield the rows in pieces of at most so many."""
        for row in range(0, len(self.d), rows):
            yield self.cut(row, row + rows)


class Encoder:
    """Makes numbers of blocks, and remembers the places of texts.

    Args:
      columns: what is read.
      dtype: of the numbers.
      missing_text: the number in all places of a category whose text is missing: 0, or NaN.
      bad_rows: what becomes of rows that hold no time, or no value of an order, where one must be.
    """

    def __init__(self, columns: Columns, dtype: DTypeLike, missing_text: float, bad_rows: BadRows):
        self._columns, self._dtype, self._missing_text = columns, dtype, missing_text
        self._bad_rows = bad_rows
        self._places = {
            column.name: {text: place for place, text in enumerate(column.values)}
            for column in columns.inputs
            if column.kind == "category"
        }
        self._seen = columns.seen

    @property
    def columns(self) -> Columns:
        """The columns, with all texts that have a place so far."""
        if not self._places:
            return self._columns
        inputs = tuple(
            dataclasses.replace(column, values=tuple(self._places[column.name]))
            if column.name in self._places
            else column
            for column in self._columns.inputs
        )
        return dataclasses.replace(self._columns, inputs=inputs, seen=self._seen)

    def unseen_before(self, position: int) -> int:
        """Return the row from which on texts must be seen, to read from ``position`` on."""
        growing = any(
            len(self._places[column.name]) < column.buckets
            for column in self._columns.inputs
            if column.name in self._places
        )
        return min(self._seen, position) if growing else position

    def see(self, block: RawBlock, start: int) -> None:
        """Give the texts of a block their places; its first row is the row ``start``."""
        for column in self._columns.inputs:
            if column.name in self._places:
                self._place(column, *text_codes(block.table.column(column.name)))
        self._seen = max(self._seen, start + block.table.num_rows)

    def encode(self, block: RawBlock, start: int) -> Encoded:
        """Return the numbers of a block that has these columns, from the row ``start`` on."""
        columns, n, table = self._columns, block.table.num_rows, block.table
        # The largest array is made last: the other way round, memory that one block lets go of went
        # back to the system before the next one needed it.
        bad, d = np.zeros(n, bool), np.empty(n, self._dtype)
        x = np.empty((n, columns.width), self._dtype)
        bad[list(block.bad)] = True
        labels = {name: table.column(name) for name in columns.ids}
        instants, wall, at = None, None, 0
        read: dict[str, times.Times] = {}
        for column in (*([columns.time] if columns.time else []), *columns.inputs):
            if column.kind == "time" and column.name not in read:
                read[column.name] = times.read(table, column)
                self._refuse_times(column, block, read[column.name].odd, bad)
        if columns.time is not None:
            labels = {name: table.column(name) for name in columns.time.sources} | labels
            instants, wall, _ = read[columns.time.name]
        with np.errstate(all="ignore"):  # a number too large for float32 becomes infinite
            for column in columns.inputs:
                of_column = x[:, at : at + column.width]
                if column.kind == "time":
                    cycles.fill(of_column, column, read[column.name])
                else:
                    self._fill(of_column, column, block, bad)
                at += column.width
            there = columns.target in table.column_names
            d[:] = _floats(table.column(columns.target)) if there else np.nan
        self._seen = max(self._seen, start + n)
        if bad.any():
            x[bad], d[bad] = np.nan, np.nan
        return Encoded(x, d, Labels(labels, instants, bad, wall))

    def _fill(self, x: np.ndarray, column: Column, block: RawBlock, bad: np.ndarray) -> None:
        """Fill x, the columns that a column of the block becomes; mark rows that are bad."""
        values = block.table.column(column.name)
        if column.kind in NUMERIC:
            x[:, 0] = _floats(values)
        elif column.kind == "ordinal":
            self._fill_ordinal(x, column, block, bad)
        else:
            codes, texts = text_codes(values)
            places = np.array([*self._place(column, codes, texts), -1])[codes]
            x[:] = 0
            present = np.flatnonzero(places >= 0)
            x[present, places[present]] = 1
            if len(present) < len(places):
                x[places < 0] = self._missing_text

    def _place(self, column: Column, codes: np.ndarray, texts: list[str | None]) -> list[int]:
        """Return the place of each text, −1 for None; new texts get places that are free."""
        places = self._places.get(column.name, {})
        new = column.kind == "category" and len(places) < column.buckets
        if new and any(text is not None and text not in places for text in texts):
            # A dictionary may list texts in any order, and texts that no row has.
            first = np.full(len(texts) + 1, len(codes))  # the last is for missing texts
            first[codes[::-1]] = np.arange(len(codes))[::-1]  # of a code's rows the first stays
            for code in np.argsort(first[:-1], kind="stable").tolist():
                text = texts[code] if first[code] < len(codes) else None
                if text is not None and text not in places and len(places) < column.buckets:
                    places[text] = len(places)
        return [
            -1 if text is None
            else places[text] if text in places
            else bucket(column.name, text, column.buckets)
            for text in texts
        ]  # fmt: skip

    def _fill_ordinal(
        self, x: np.ndarray, column: Column, block: RawBlock, bad: np.ndarray
    ) -> None:
        codes, texts = text_codes(block.table.column(column.name))
        ranks_of = {text: rank for rank, text in enumerate((*column.values, None))}
        ranks = np.array([*(ranks_of.get(text, -1) for text in texts), ranks_of[None]])[codes]
        for row in np.flatnonzero(ranks < 0).tolist():
            value = f"{texts[codes[row]]!r:.60} in the column {column.name!r}"
            order = ", ".join(column.values)
            if not bad[row]:
                problem = f"{block.place_of(row)}: {value} is none of {order}"
                self._bad_rows.add(DataError(problem))
            bad[row] = True
        x[:, 0] = np.where(ranks == ranks_of[None], np.nan, ranks)

    def _refuse_times(
        self, column: Column, block: RawBlock, odd: np.ndarray, bad: np.ndarray
    ) -> None:
        """Refuse what is no time, or mark its rows as bad."""
        for row in odd.tolist():
            if not bad[row]:
                value = f"{times.written(block.table.slice(row, 1), column)[0].as_py()!r:.60}"
                problem = f"{value} in the column {column.name!r} is no time like {column.format}"
                advice = "correct it, or pass --date-format, or --bad-rows skip"
                self._bad_rows.add(DataError(f"{block.place_of(row)}: {problem}", advice))
            bad[row] = True


def _floats(values: pa.ChunkedArray) -> np.ndarray:
    """Return numbers; durations in seconds."""
    pa, scale = extras.need("pyarrow", "io"), 1.0
    if pa.types.is_duration(values.type):
        scale = DURATIONS[values.type.unit]
        values = values.cast(pa.int64())
    numbers = values.cast(pa.float64(), safe=False).to_numpy()
    return numbers if scale == 1 else numbers / scale
