"""Reads CSV and text like it, from a file of any size or a pipe.

Arrow parses the text in blocks of whole rows. A row is a line, or several lines where a quoted
field contains line ends.
"""

from __future__ import annotations

import collections
import contextlib
import csv
import itertools
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from jboost.core import extras
from jboost.files import columns as table_columns
from jboost.files import dialect, reader
from jboost.files.columns import MOST_COLUMNS, Columns, DataError, RawBlock
from jboost.files.dialect import DELIMITERS, TextFormat
from jboost.files.encoding import BadRows
from jboost.files.lines import Lines, Text
from jboost.files.numerals import MISSING, SHARES, numbers_in, plain, reads_as_number
from jboost.files.reader import Reader, first_line, kinds_in
from jboost.files.times import ISO, ZONED

if TYPE_CHECKING:
    import pyarrow as pa

# Smaller blocks are parsed without threads, which would be no faster and keep a megabyte or two of
# text each: with thousands of small files that is much memory.
THREADED_BYTES = 2**18
SAMPLE_BYTES = 2**20  # of the first block, from which it is decided what the columns hold
BOOLEANS = ("true", "false", "0", "1")


class Delimited(Reader):
    """Reads CSV from a text.

    Args:
      text: a file or standard input, of which a block has the lines that came in the meantime.
      text_format: how it is written.
      bad_rows: what becomes of rows that cannot be read.
    """

    def __init__(self, text: Text, text_format: TextFormat, bad_rows: BadRows):
        self._text, self._bad_rows, self.tolerant = text, bad_rows, bad_rows.allowed
        self.live, self.label = text.live, text.label
        self._delimiter, self._decimal, self.notes = dialect.signs(text, text_format)
        self.decimal = self._decimal
        self._header = text_format.header is not False
        # A thread of Arrow's lets go of the text a little after the table is there. If nothing else
        # held the text, and Python ended in this moment, the process would be aborted.
        self._parsed_text: pa.Buffer | None = None
        self.names: list[str] = []
        self._nameless: set[str] = set()  # the numbers of columns whose header is blank
        self._lines = self._below_header()
        self._sample = next(self._lines, Lines(0, b""))
        if not self._sample.text:
            raise DataError(f"{self.label} has a header, in line 1, and no rows")
        if not self.live:
            self._lines.close()

    def sample(self) -> RawBlock:
        pa, block = extras.need("pyarrow", "io"), self._sampled()
        # Times stay as they are written: what they are is decided from the text.
        temporal = [f.name for f in block.table.schema if pa.types.is_temporal(f.type)]
        as_text = self._sampled(dict.fromkeys(temporal, "text")).table if temporal else block.table
        columns, shares = {}, []
        for name, values in zip(self.names, block.table.columns, strict=True):
            # Arrow takes a column for text because of a number that it cannot read.
            values = as_text.column(name) if name in temporal else values
            numbers = self._numbers_in(values) if reader.holds_text(values.type) else None
            if name not in self._nameless or values.null_count < len(values):
                columns[name] = values if numbers is None else numbers
            if numbers is not None and any(sign in str(values[:1000]) for sign in SHARES):
                shares.append(name)
        if empty := ", ".join(name for name in self.names if name not in columns):
            self.notes += (f"columns without a name and without values are left out: {empty}",)
        if shares:
            self.notes += (f"in {', '.join(shares)}, 5 % is read as 0.05",)
        return block._replace(table=pa.table(columns))

    def _sampled(self, kinds: Mapping[str, str] = {}) -> RawBlock:
        """Return the rows of the sample that can be read; without kinds, all of its columns."""
        lines, most = self._sample, self._sample.text[:SAMPLE_BYTES].rfind(b"\n") + 1
        if lines.delimiter is None and most:  # every line is a row: some of them are enough
            lines = lines._replace(text=lines.text[:most])
        first = next(self._parsed(lines, kinds, lines.count_rows(), said=False))
        binary = extras.need("pyarrow", "io").binary()
        if isinstance(first, RawBlock) and binary in first.table.schema.types:
            if not self.tolerant:
                self._refuse(lines, {}, "the text is not in UTF-8")
            first = next(self._row_by_row(lines, kinds, "the text is not in UTF-8", False))
        if isinstance(first, DataError):
            raise first
        return first

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        kinds = kinds_in(columns, self.names, self.label) | _iso_times(columns)
        if self.live:
            position, blocks = 0, itertools.chain([self._sample], self._lines)
        else:
            blocks = self._below_header()
        row = 0
        for lines in blocks:
            count = lines.count_rows()
            end = row + count
            self.total = end / self._text.share if self._text.share else None
            if end > position:  # rows before the position are counted and not parsed
                for block in self._parsed(lines, kinds, count):
                    if isinstance(block, DataError):
                        raise block
                    skipped = max(position - row, 0)
                    if block.table.num_rows > skipped:
                        yield block.after(skipped) if skipped else block
            row = end
        reader.refuse_short(self.label, row, position)

    def _below_header(self) -> Generator[Lines]:
        """Yield the blocks of lines that have rows; the first line of all sets the column names."""
        for lines in self._text.blocks(self._delimiter.encode()):
            if lines.number == 1:
                if not lines.has_rows():
                    raise DataError(f"{self.label} is empty")
                line, _, rest = lines.text.partition(b"\n")
                below = rest.partition(b"\n")[0].removesuffix(b"\r")
                self.names = self.names or self._names(line.removesuffix(b"\r"), below)
                lines = lines._replace(number=2, text=rest) if self._header else lines
            if lines.has_rows():  # all lines of a block may be blank
                yield lines

    def _names(self, line: bytes, below: bytes) -> list[str]:
        """Return the names of the columns, from the first line and the line below it."""
        where, fields = f"{self.label}, line 1", self._fields(line, 1)
        if not self._header:
            return [str(i) for i in range(1, len(fields) + 1)]
        if below.endswith(self._delimiter.encode()):  # of rows, and not of the header
            with contextlib.suppress(DataError):
                fields += [""] * (len(self._fields(below, 2)) == len(fields) + 1)
        names = [field.strip() or str(i) for i, field in enumerate(fields, start=1)]
        self._nameless = {name for name, f in zip(names, fields, strict=True) if not f.strip()}
        if all(map(reads_as_number, fields)):
            raise DataError(
                f"{where} holds numbers where names are wanted; pass --no-header if it has none"
            )
        if len(names) == 1 and names[0].startswith("#"):
            begin = "a file begins with the names of its columns; delete what stands before them"
            raise DataError(f"{where} is a remark, {names[0]!r:.60}; {begin}")
        for delimiter, called in DELIMITERS.items():
            if len(names) == 1 and delimiter in names[0]:
                raise DataError(
                    f"{where} has one column, {names[0]!r:.60}; is {called} the delimiter? "
                    f"Pass --delimiter '{delimiter}'".replace("\t", r"\t")
                )
        names = self._different(names)
        table_columns.refuse_names(names, where)
        return names

    def _different(self, names: list[str]) -> list[str]:
        """Return names of which no two are alike: a second "a" becomes "a.1"."""
        taken, again, found = {*names}, collections.Counter(), []
        for name in names:
            called, again[name] = name, again[name] + 1
            while again[name] > 1 and called in taken:
                called, again[name] = f"{name}.{again[name] - 1}", again[name] + 1
            taken.add(called)
            found.append(called)
        renamed = [called for name, called in zip(names, found, strict=True) if name != called]
        if renamed:
            shown = ", ".join(renamed[:8]) + (", …" if len(renamed) > 8 else "")
            self.notes += (f"columns with the name of one before them are called {shown}",)
        return found

    def _fields(self, line: bytes, number: int) -> list[str]:
        """Return the fields of a line, as many as there are columns."""
        text, where = self._text.decoded(line, number), f"{self.label}, line {number}"
        if "\r" in text.replace("\r\n", "\n"):
            problem, advice = "a carriage return within it", "end lines with line feeds"
            raise DataError(f"{where} has {problem}", advice)
        count, fields = text.count(self._delimiter) + 1, []
        if count <= MOST_COLUMNS:  # to split more would take much memory
            try:
                rows = [*csv.reader(text.splitlines(keepends=True), delimiter=self._delimiter)]
                fields = rows[0] if rows else []
            except csv.Error as error:
                raise DataError(f"{where}: {error}") from None
            count = len(fields)
        if self.names and count != len(self.names):
            expected = f"{'the header' if self._header else 'line 1'} has {len(self.names)}"
            advice = "correct it, or pass --bad-rows skip"
            raise DataError(f"{where} has {count:,} fields where {expected}", advice)
        if count > MOST_COLUMNS:
            raise DataError(f"{where} has {count:,} columns; at most {MOST_COLUMNS:,} are read")
        return fields

    def _parsed(
        self, lines: Lines, kinds: Mapping[str, str], count: int, *, said: bool = True
    ) -> Iterator[RawBlock | DataError]:
        """Yield the rows before the first that is bad, and then an error, if there is one.

        There are ``count`` rows. Without kinds all columns are read, of the types that they look
        like. Where bad rows are allowed, all are yielded; the values of bad ones are missing. They
        are ``said`` or not.
        """
        pa = extras.need("pyarrow", "io")
        try:
            table = self._with_numbers(lines, kinds)
            if table.num_rows != count:
                raise pa.ArrowInvalid("the rows are not as many as the lines")
        except pa.ArrowInvalid as error:
            yield from self._row_by_row(lines, kinds, first_line(error), said)
            return
        label, line_of = f"{self.label}, line", lines.line_of
        yield RawBlock(table, lambda row: f"{label} {line_of(row)}")

    def _row_by_row(
        self, lines: Lines, kinds: Mapping[str, str], reason: str, said: bool
    ) -> Iterator[RawBlock | DataError]:
        """Yield what :meth:`_parsed` does, after a look at every row by itself."""
        pa, rows, bad, wrong = extras.need("pyarrow", "io"), [], [], None
        empty = self._delimiter.join(["NA"] * len(self.names)).encode()
        for number, row in lines.rows():
            wrong = self._fault(number, row, kinds)
            if wrong is not None and not self._bad_rows.allowed:
                break
            if wrong is not None:
                bad.append(len(rows))
                if said:
                    self._bad_rows.add(wrong)
            rows.append((number, row if wrong is None else empty))
        else:
            wrong = None
        if rows:
            numbers, texts = zip(*rows, strict=True)
            try:
                table = self._with_numbers(Lines(numbers[0], b"\n".join(texts)), kinds)
                if table.num_rows != len(rows):
                    raise pa.ArrowInvalid(reason)
                yield RawBlock(table, lambda i: f"{self.label}, line {numbers[i]}", tuple(bad))
            except pa.ArrowInvalid as error:
                problem = f"from line {lines.number} on: {first_line(error)}"
                wrong = wrong or DataError(f"{self.label}, {problem}")
        if wrong is not None:
            yield wrong

    def _table(self, lines: Lines, kinds: Mapping[str, str]) -> pa.Table:
        """The rows as Arrow parses them."""
        pa, arrow_csv = extras.need("pyarrow", "io"), extras.need("pyarrow.csv", "io")
        types = {"number": pa.float64(), "boolean": pa.bool_()}
        types |= {ISO: pa.timestamp("us"), ZONED: pa.timestamp("us", "UTC")}
        threads = not self.live and len(lines.text) >= THREADED_BYTES
        read = arrow_csv.ReadOptions(
            column_names=self.names, block_size=len(lines.text) + 1, use_threads=threads
        )
        convert = arrow_csv.ConvertOptions(
            column_types={name: types.get(kind, pa.string()) for name, kind in kinds.items()},
            include_columns=[*kinds],
            null_values=MISSING,
            strings_can_be_null=True,
            decimal_point=self._decimal,
        )
        quoted = b'"' in lines.text  # without quotations Arrow is faster
        parse = arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=quoted)
        text = pa.py_buffer(lines.text)
        if threads:
            self._parsed_text = text
        return arrow_csv.read_csv(pa.BufferReader(text), read, parse, convert)

    def _with_numbers(self, lines: Lines, kinds: Mapping[str, str]) -> pa.Table:
        """The rows as Arrow parses them, with numbers and times that Arrow cannot parse."""
        pa = extras.need("pyarrow", "io")
        try:
            return self._table(lines, kinds)
        except pa.ArrowInvalid as error:
            if times := [name for name, kind in kinds.items() if kind in (ISO, ZONED)]:
                # What is no time is named where texts become times.
                return self._with_numbers(lines, {**kinds, **dict.fromkeys(times, "time")})
            as_text = {name: "text" if kind == "number" else kind for name, kind in kinds.items()}
            table = self._table(lines, as_text)
            columns = {name: table.column(name) for name in kinds}
            for name in (name for name, kind in kinds.items() if kind == "number"):
                numbers = self._numbers_in(columns[name])
                if numbers is None:
                    raise error from None
                columns[name] = numbers
            return pa.table(columns)

    def _numbers_in(self, values: pa.ChunkedArray) -> np.ndarray | None:
        return numbers_in(values, self._decimal, MISSING)

    def _fault(self, number: int, row: bytes, kinds: Mapping[str, str]) -> DataError | None:
        """Return what is wrong with a row, None if nothing is."""
        *_, target = (None, *kinds)
        try:
            fields = self._fields(row, number)
        except DataError as error:
            return error
        for name, field in zip(self.names, fields, strict=True):
            number_fits = kinds.get(name) != "number" or reads_as_number(field, self._decimal)
            fits = kinds.get(name) != "boolean" or field.lower() in BOOLEANS
            if not (number_fits and fits) and plain(field) not in MISSING:
                expected = "true or false" if number_fits else "a number"
                problem = f"{field!r:.60} in the column {name!r} is not {expected}"
                advised = reader.advice(name == target)
                return DataError(f"{self.label}, line {number}: {problem}", advised)
        return None

    def _refuse(self, lines: Lines, kinds: Mapping[str, str], reason: str) -> None:
        """Refuse the first line that is wrong; for ``reason`` where no line is found wrong."""
        for number, row in lines.rows():
            error = self._fault(number, row, kinds)
            if error is not None:
                raise error
        raise DataError(f"{self.label}, from line {lines.number} on: {reason}")


def _iso_times(columns: Columns) -> dict[str, str]:
    """Return the formats of times that Arrow parses with the text; labels stay as written."""
    formats = {c.name: c.format for c in columns.inputs if c.format in (ISO, ZONED)}
    return {name: form for name, form in formats.items() if name not in columns.labels}
