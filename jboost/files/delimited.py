"""Reads CSV and text like it, from a file of any size or a pipe.

Arrow parses the text in blocks of whole lines, a few megabytes each, so that memory stays constant
and every error can name its line. A row is one line: a field cannot contain a line end.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import os
import sys
import zlib
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from jboost.checkpoints.atomic import PathLike
from jboost.core import extras
from jboost.files import columns as table_columns
from jboost.files import reader
from jboost.files.columns import MOST_COLUMNS, Columns, DataError, RawBlock
from jboost.files.reader import LONGEST_ROW, Reader, first_line, numbers_in, reads_as_number

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES = 2**22  # of text, parsed at once
# Smaller blocks are parsed without threads, which would be no faster and keep a megabyte or two of
# text each: with thousands of small files that is much memory.
THREADED_BYTES = 2**18
# What Arrow takes for a missing value, and what public data sets use besides.
MISSING = ("", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan",
           "null", "none", "?")  # fmt: skip
BOOLEANS = ("true", "false", "0", "1")
DELIMITERS = {"\t": "a tab", ";": "a semicolon", "|": "a bar", ",": "a comma", " ": "a space"}


class TextFormat(NamedTuple):
    """How a text file is written; None is for the default."""

    delimiter: str | None = None  # between fields; by default a comma, in a .tsv file a tab
    decimal: str | None = None  # the sign before decimals; by default a point
    encoding: str | None = None  # any that extends ASCII; by default UTF-8
    header: bool | None = None  # whether line 1 names the columns; else they are "1", "2", …


class _Lines(NamedTuple):
    """Whole lines of a text."""

    number: int  # that of the first line in the text, from 1
    text: bytes

    def with_rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the text of every line that is not blank: each holds a row."""
        for number, line in enumerate(self.text.split(b"\n"), start=self.number):
            if row := line.removesuffix(b"\r"):
                yield number, row

    def count_rows(self) -> int:
        """Return how many of the lines hold a row."""
        text = self.text
        if text[:1] not in b"\r\n" and b"\n\n" not in text and b"\n\r\n" not in text:
            return text.count(b"\n") + (not text.endswith(b"\n"))  # much faster than to split it
        return sum(1 for _ in self.with_rows())

    def line_of(self, row: int) -> int:
        """Return the number of the line that holds a row of these lines."""
        return next(itertools.islice(self.with_rows(), row, None))[0]


class Delimited(Reader):
    """Reads a CSV file, a gzip of a CSV file, or standard input (``-``).

    A file is opened for its sample, and again for each pass over its rows. The only pass over
    standard input begins with the sample; a block has the lines that came in the meantime.
    """

    def __init__(self, path: PathLike, text_format: TextFormat):
        self._path = os.fspath(path)
        self.live = self._path == "-"
        self.label = "standard input" if self.live else self._path
        tabs = self._path.removesuffix(".gz").endswith((".tsv", ".tab"))
        self._delimiter = text_format.delimiter or ("\t" if tabs else ",")
        self.decimal = self._decimal = text_format.decimal or "."
        self._encoding = _checked_encoding(text_format.encoding or "utf-8")
        self._header = text_format.header is not False
        for name, sign in (("delimiter", self._delimiter), ("decimal", self.decimal)):
            if len(sign) != 1 or not sign.isascii():
                raise ValueError(f"{name} must be one character of ASCII; got {sign!r}")
        self.names: list[str] = []
        self._share = 0.0  # how much of the file was read, between 0 and 1; 0 where that is unknown
        self._lines = self._below_header()
        self._sample = next(self._lines, _Lines(0, b""))
        if not self._sample.text:
            raise DataError(f"{self.label} has a header, in line 1, and no rows")
        if not self.live:
            self._lines.close()

    def sample(self) -> RawBlock:
        pa, block = extras.need("pyarrow", "io"), self._parsed(self._sample, {})
        if pa.binary() in block.table.schema.types:
            self._refuse(self._sample, {}, "the text is not in UTF-8")
        columns = {}
        for name, values in zip(self.names, block.table.columns, strict=True):
            # Arrow takes a column for text because of a number that it cannot read.
            numbers = self._numbers_in(values) if reader.holds_text(values.type) else None
            columns[name] = values if numbers is None else numbers
        return block._replace(table=pa.table(columns))

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        table_columns.refuse_unknown(columns.kinds, self.names, self.label)
        if self.live:
            position, blocks = 0, itertools.chain([self._sample], self._lines)
        else:
            blocks = self._below_header()
        row = 0
        for lines in blocks:
            end = row + lines.count_rows()
            self.total = end / self._share if self._share else None
            if end > position:  # rows before the position are counted and not parsed
                yield self._parsed(lines, columns.kinds, max(position - row, 0))
            row = end
        reader.refuse_short(self.label, row, position)

    def _below_header(self) -> Generator[_Lines]:
        """Yield the blocks of lines that have rows; the first line of all sets the column names."""
        with contextlib.closing(self._blocks_of_lines()) as blocks:
            for lines in blocks:
                if lines.number == 1:
                    if not lines.text.strip():
                        raise DataError(f"{self.label} is empty")
                    line, _, rest = lines.text.partition(b"\n")
                    self.names = self.names or self._names(line.removesuffix(b"\r"))
                    lines = _Lines(2, rest) if self._header else lines
                if lines.text.strip():  # all lines of a block may be blank
                    yield lines

    def _blocks_of_lines(self) -> Generator[_Lines]:
        number, unfinished = 1, bytearray()  # the beginning of a line whose end is not read yet
        with contextlib.closing(self._bytes()) as pieces:
            for new in itertools.chain(pieces, [b"\n"]):  # to end the last line
                text, end, rest = new.rpartition(b"\n")
                if end:
                    lines = self._in_utf8(number, b"".join((unfinished, text, end)))
                    number += lines.text.count(b"\n")
                    unfinished.clear()
                    yield lines
                unfinished += rest
                if len(unfinished) > LONGEST_ROW:
                    size = f"{LONGEST_ROW // 2**20} MB: this is no text with rows"
                    raise DataError(f"{self.label}, line {number} is longer than {size}")

    def _bytes(self) -> Generator[bytes]:
        """The bytes of the text as they come; a file that is no text is refused."""
        if self.live and sys.stdin is None:  # the process was started without it
            raise DataError(f"{self.label} is closed")
        source = sys.stdin.fileno() if self.live else self._path
        try:
            with open(source, "rb", closefd=not self.live) as file:
                zipped = not self.live and file.peek(2)[:2] == b"\x1f\x8b"
                stream = gzip.GzipFile(fileobj=file) if zipped else file
                size = 0 if self.live else os.fstat(file.fileno()).st_size  # 0 for a pipe
                start = stream.read1(BLOCK_BYTES)
                self._share = file.tell() / size if size else 0.0
                if start.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise DataError(f"{self.label} is in UTF-16; convert it to UTF-8")
                before, zero, _ = start.partition(b"\0")
                if zero:
                    line = before.count(b"\n") + 1
                    raise DataError(f"{self.label}, line {line} has a zero byte: this is no text")
                yield start.removeprefix(b"\xef\xbb\xbf")  # the byte order mark of UTF-8
                while new := stream.read1(BLOCK_BYTES):
                    self._share = file.tell() / size if size else 0.0
                    yield new
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self.label} is a damaged gzip file: {first_line(error)}") from None

    def _in_utf8(self, number: int, text: bytes) -> _Lines:
        """Return the lines in UTF-8. Text that should be in UTF-8 is left for Arrow to check."""
        if self._encoding != "utf-8":
            text = self._decoded(text, number, self._encoding).encode()
        return _Lines(number, text)

    def _decoded(self, text: bytes, number: int, encoding: str = "utf-8") -> str:
        try:
            return text.decode(encoding)
        except UnicodeDecodeError as error:
            before = text[: error.start].split(b"\n")
            byte = f"byte 0x{text[error.start]:02x} at place {len(before[-1]) + 1}"
            raise DataError(
                f"{self.label}, line {number + len(before) - 1} is not in {encoding.upper()} "
                f"({byte}); name the encoding, such as latin-1, or clean the file"
            ) from None

    def _names(self, line: bytes) -> list[str]:
        """Return the names of the columns, from the first line."""
        where, fields = f"{self.label}, line 1", self._fields(line, 1)
        if not self._header:
            return [str(i) for i in range(1, len(fields) + 1)]
        names = [field.strip() or str(i) for i, field in enumerate(fields, start=1)]
        if all(map(reads_as_number, fields)):
            raise DataError(f"{where} holds numbers where names are wanted; is there no header?")
        for delimiter, called in DELIMITERS.items():
            if len(names) == 1 and delimiter in names[0]:
                raise DataError(
                    f"{where} has one column, {names[0]!r:.60}; is {called} the delimiter?"
                )
        table_columns.refuse_names(names, where)
        return names

    def _fields(self, line: bytes, number: int) -> list[str]:
        """Return the fields of a line, as many as there are columns."""
        text, where = self._decoded(line, number), f"{self.label}, line {number}"
        if "\r" in text:
            raise DataError(f"{where} has a carriage return within it; end lines with line feeds")
        count, fields = text.count(self._delimiter) + 1, []
        if count <= MOST_COLUMNS:  # to split more would take much memory
            try:
                fields = next(csv.reader([text], delimiter=self._delimiter), [])
            except csv.Error as error:
                raise DataError(f"{where}: {error}") from None
            count = len(fields)
        if self.names and count != len(self.names):
            expected = f"{'the header' if self._header else 'line 1'} has {len(self.names)}"
            raise DataError(f"{where} has {count:,} fields where {expected}")
        if count > MOST_COLUMNS:
            raise DataError(f"{where} has {count:,} columns; at most {MOST_COLUMNS:,} are read")
        return fields

    def _parsed(self, lines: _Lines, kinds: Mapping[str, str], skipped: int = 0) -> RawBlock:
        """The rows after ``skipped``; without kinds all columns, of the types they look like."""
        pa = extras.need("pyarrow", "io")
        try:
            table = self._table(lines, kinds)
        except pa.ArrowInvalid as error:
            table = self._table_with_numbers(lines, kinds, first_line(error))
        if table.num_rows != lines.count_rows():
            self._refuse(lines, kinds, "the rows are not as many as the lines")
        label, line_of = f"{self.label}, line", lines.line_of
        return RawBlock(table[skipped:], lambda row: f"{label} {line_of(skipped + row)}")

    def _table(self, lines: _Lines, kinds: Mapping[str, str]) -> pa.Table:
        """The rows as Arrow parses them."""
        pa, arrow_csv = extras.need("pyarrow", "io"), extras.need("pyarrow.csv", "io")
        types = {"number": pa.float64(), "boolean": pa.bool_()}
        threads = not self.live and len(lines.text) >= THREADED_BYTES
        read = arrow_csv.ReadOptions(
            column_names=self.names, block_size=len(lines.text) + 1, use_threads=threads
        )
        convert = arrow_csv.ConvertOptions(
            column_types={name: types.get(kind, pa.string()) for name, kind in kinds.items()},
            include_columns=[*kinds],
            null_values=MISSING,
            strings_can_be_null=True,
            decimal_point=self.decimal,
        )
        parse = arrow_csv.ParseOptions(delimiter=self._delimiter)
        return arrow_csv.read_csv(pa.BufferReader(lines.text), read, parse, convert)

    def _table_with_numbers(self, lines: _Lines, kinds: Mapping[str, str], reason: str) -> pa.Table:
        """The rows, with numbers that Arrow cannot parse; lines without numbers are refused."""
        pa = extras.need("pyarrow", "io")
        as_text = {name: "text" if kind == "number" else kind for name, kind in kinds.items()}
        try:
            table = self._table(lines, as_text)
        except pa.ArrowInvalid:
            self._refuse(lines, kinds, reason)
        columns = {name: table.column(name) for name in kinds}
        for name in (name for name, kind in kinds.items() if kind == "number"):
            numbers = self._numbers_in(columns[name])
            if numbers is None:
                self._refuse(lines, kinds, reason)
            columns[name] = numbers
        return pa.table(columns)

    def _numbers_in(self, values: pa.ChunkedArray) -> np.ndarray | None:
        return numbers_in(values, self._decimal, MISSING)

    def _refuse(self, lines: _Lines, kinds: Mapping[str, str], reason: str) -> NoReturn:
        """Refuse the first line that is wrong; for ``reason`` where no line is found wrong."""
        *_, target = (None, *kinds)
        for number, line in lines.with_rows():
            where, fields = f"{self.label}, line {number}", self._fields(line, number)
            for name, field in zip(self.names, fields, strict=True):
                number_fits = kinds.get(name) != "number" or reads_as_number(field, self._decimal)
                fits = kinds.get(name) != "boolean" or field.lower() in BOOLEANS
                if not (number_fits and fits) and reader.plain(field) not in MISSING:
                    expected = "true or false" if number_fits else "a number"
                    problem = f"{field!r:.60} in the column {name!r} is not {expected}"
                    raise DataError(f"{where}: {problem}; {reader.advice(name == target)}")
        raise DataError(f"{self.label}, from line {lines.number} on: {reason}")


def _checked_encoding(name: str) -> str:
    name = name.lower().replace("utf8", "utf-8")
    with contextlib.suppress(LookupError):
        if "\n".encode(name) == b"\n":
            return name
    raise ValueError(f"encoding must be one that Python knows and that extends ASCII; got {name!r}")
