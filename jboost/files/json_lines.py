"""Reads JSON lines: a text in which each line is a JSON object, whose keys name the columns.

An object inside an object has its keys behind a dot: {"pump": {"flow": 1}} has the column
``pump.flow``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from jboost.core import extras
from jboost.files import columns as table_columns
from jboost.files import reader
from jboost.files.columns import NUMERIC, Columns, DataError, PlaceOf, RawBlock
from jboost.files.encoding import BadRows
from jboost.files.lines import Lines, Text
from jboost.files.numerals import MISSING, number_of, plain
from jboost.files.reader import Reader, kinds_in

Row = dict[str, Any]
_EMPTY: Row = {}
BLOCK_NUMBERS = 2**20  # of a block: rows times columns
FEWEST_ROWS = 16  # of a block, however many columns there are


class JsonLines(Reader):
    """Reads JSON lines from a text.

    A key that an object lacks is a missing value. Keys that the first rows lack are not read.

    Args:
      text: a file or standard input, of which a block has the lines that came in the meantime.
      bad_rows: what becomes of lines that are no objects, or hold values of another kind.
    """

    decimal = "."

    def __init__(self, text: Text, bad_rows: BadRows):
        self._text, self._bad_rows, self.tolerant = text, bad_rows, bad_rows.allowed
        self.live, self.label = text.live, text.label
        self._lines = (lines for lines in text.blocks() if lines.has_rows())
        self._sample = next(self._lines, Lines(0, b""))
        if not self.live:
            self._lines.close()
        self._numbers: list[int] = []
        self._first: list[Row] = []  # those of the sample that can be read, with their numbers
        names: dict[str, None] = {}
        for number, line in self._sample.rows():
            row = self._row(number, line)
            if isinstance(row, dict):
                self._numbers.append(number)
                self._first.append(row)
                names |= dict.fromkeys(row)
            if len(self._first) * len(names) > BLOCK_NUMBERS:
                break
        if not self._first:
            wrong = next(self._row(*line) for line in self._sample.rows())
            raise wrong if isinstance(wrong, DataError) else DataError(f"{self.label} is empty")
        for name in {n for row in self._first for n, v in row.items() if type(v) is dict}:
            if all(type(row.get(name)) in (dict, type(None)) for row in self._first):
                del names[name]  # the values inside have columns
        self._names = list(names)
        table_columns.refuse_names(self._names, self.label)

    def sample(self) -> RawBlock:
        pa, arrays = extras.need("pyarrow", "io"), {}
        for name in self._names:
            values = [row.get(name) for row in self._first]
            values = [None if isinstance(v, str) and plain(v) in MISSING else v for v in values]
            there = [v for v in values if v is not None]
            if there and all(isinstance(v, (dict, list)) for v in there):
                arrays[name] = pa.nulls(len(values), pa.list_(pa.null()))  # a type that is not read
            elif any(isinstance(v, (str, dict, list)) for v in values):
                arrays[name] = pa.array([v if v is None else _text(v) for v in values], pa.string())
            elif all(v is None or isinstance(v, bool) for v in values):
                arrays[name] = pa.array(
                    values, pa.bool_() if any(v is not None for v in values) else None
                )
            else:
                arrays[name] = _numbers(values)
        return RawBlock(pa.table(arrays), lambda i: f"{self.label}, line {self._numbers[i]}")

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        kinds = kinds_in(columns, {*self._names, *columns.kinds}, self.label)
        if self.live:
            position, blocks = 0, itertools.chain([self._sample], self._lines)
        else:
            blocks = (lines for lines in self._text.blocks() if lines.has_rows())
        row = 0
        for lines in blocks:
            end = row + lines.count_rows()
            self.total = end / self._text.share if self._text.share else None
            if end > position:
                for block in self._parsed(lines, kinds, BLOCK_NUMBERS // columns.width):
                    if isinstance(block, DataError):
                        raise block
                    skipped = max(position - row, 0)
                    row += block.table.num_rows
                    if row > position:
                        yield block.after(skipped) if skipped else block
            row = end
        reader.refuse_short(self.label, row, position)

    def _parsed(
        self, lines: Lines, kinds: Mapping[str, str], most: int
    ) -> Iterator[RawBlock | DataError]:
        """Yield the rows before the first that is bad, and then an error, if there is one.

        A block has at most ``most`` rows, or a few more: objects of few keys may have many columns.
        """
        rows, numbers, bad, wrong = [], [], [], None
        for number, line in lines.rows():
            if len(rows) >= max(most, FEWEST_ROWS):
                yield self._block(rows, numbers, bad, kinds)
                rows, numbers, bad = [], [], []
            row = self._row(number, line)
            if isinstance(row, dict):
                row = self._fitting(row, kinds, number)
            if isinstance(row, DataError):
                if not self._bad_rows.allowed:
                    wrong = row
                    break
                self._bad_rows.add(row)
                bad.append(len(rows))
                row = _EMPTY
            rows.append(row)
            numbers.append(number)
        if rows:
            yield self._block(rows, numbers, bad, kinds)
        if wrong is not None:
            yield wrong

    def _block(
        self, rows: list[Row], numbers: list[int], bad: list[int], kinds: Mapping[str, str]
    ) -> RawBlock:
        place_of: PlaceOf = lambda i: f"{self.label}, line {numbers[i]}"  # noqa: E731
        return RawBlock(_table(rows, kinds), place_of, tuple(bad))

    def _row(self, number: int, line: bytes) -> Row | DataError:
        """Return the object of a line, or what is wrong with it."""
        where = f"{self.label}, line {number}"
        try:
            row = json.loads(self._text.decoded(line, number))
        except DataError as error:
            return error
        except (ValueError, RecursionError) as error:
            return DataError(f"{where} is no JSON: {reader.first_line(error)}")
        if not isinstance(row, dict):
            return DataError(f'{where} is no JSON object, such as {{"a": 1}}, but {row!r:.60}')
        if not any(type(value) is dict for value in row.values()):
            return row
        flat = _flat(row)
        return DataError(f"{where} has too many objects inside objects") if flat is None else flat

    def _fitting(self, row: Row, kinds: Mapping[str, str], number: int) -> Row | DataError:
        """Return the values of a row that are read, or an error about one of another kind."""
        fitting: Row = {}
        for name, kind in kinds.items():
            value = row.get(name)
            if isinstance(value, str) and plain(value) in MISSING:
                value = None
            if value is not None and kind in NUMERIC:
                found = number_of(value) if isinstance(value, str) else value
                if isinstance(found, (dict, list)) or found is None:
                    problem = f"{value!r:.60} in the column {name!r} is not a number"
                    advised = reader.advice(name == [*kinds][-1])
                    return DataError(f"{self.label}, line {number}: {problem}", advised)
                value = found
            fitting[name] = value
        return fitting


def _flat(row: Row) -> Row | None:
    """Return the row with the values of the objects inside it; a key of the row itself wins.

    None stands for a row whose names would take far more memory than its text.
    """
    flat, waiting, letters = {}, [*reversed(row.items())], 0
    while waiting:
        name, value = waiting.pop()
        flat[name] = value
        if isinstance(value, dict):
            letters += sum(len(name) + len(key) for key in value)
            if letters > reader.LONGEST_ROW:
                return None
            waiting += [(f"{name}.{key}", inner) for key, inner in reversed(value.items())]
    return flat | row


def _table(rows: list[Row], kinds: Mapping[str, str]) -> Any:
    """Return the rows as an Arrow table."""
    pa, arrays = extras.need("pyarrow", "io"), {}
    for name, kind in kinds.items():
        values = [row.get(name) for row in rows]
        if kind in NUMERIC:
            arrays[name] = _numbers(values)
        else:
            arrays[name] = pa.array([v if v is None else _text(v) for v in values], pa.string())
    return pa.table(arrays)


def _numbers(values: list[Any]) -> Any:
    pa = extras.need("pyarrow", "io")
    whole = all(v is None or (type(v) is int and abs(v) < 2**63) for v in values)
    if whole and any(v is not None for v in values):
        return pa.array(values, pa.int64())
    return pa.array([v if v is None else _float(v) for v in values], pa.float64())


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # as in a file, a number beyond any float is infinite
        return float("inf") if value > 0 else float("-inf")


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text
