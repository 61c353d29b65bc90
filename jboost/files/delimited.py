"""Text with a row a line, from a file of any size or a pipe, as Arrow tables of a few megabytes.

Text is cut at line ends and parsed piece by piece with Arrow's parser, so that memory stays
constant and every error can say its line. A row is one line: there are no line ends within fields.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jboost.checkpoints.atomic import PathLike
from jboost.core import extras
from jboost.files.columns import (
    MOST,
    Columns,
    DataError,
    advice,
    find,
    is_number,
    refuse_twice,
    text_types,
)
from jboost.files.pieces import Piece, brief, refuse_short

PIECE = 2**22  # bytes parsed at once
LONGEST = 2**24  # bytes of one line; more is no text with rows
# Bytes that threads are worth: each keeps a megabyte or two of what it once read, so that small
# files read by the thousand would cost as much as there are cores, and are read no faster.
THREADED = 2**18
# What Arrow takes for a missing value, and what the public sets use besides.
MISSING = ("", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan",
           "null", "none", "?")  # fmt: skip
DELIMITERS = {"\t": "a tab", ";": "a semicolon", "|": "a bar", ",": "a comma", " ": "a space"}


class _Lines(NamedTuple):
    """Whole lines, and the number of the first."""

    number: int
    text: bytes


class Delimited:
    """A reader of CSV, or text like it: a file, a gzip of one, or standard input.

    Standard input is handed on as it comes: whatever lines are there make a table.

    Args:
      path: the file; ``-`` is standard input, which can be read only once.
      delimiter: what stands between fields; by default a comma, in a ``.tsv`` file a tab.
      decimal: what stands before decimals, by default a point.
      encoding: by default UTF-8.
      header: whether the first line has the names, as by default; without, columns are called
        "1", "2", ….
    """

    def __init__(
        self,
        path: PathLike,
        *,
        delimiter: str | None = None,
        decimal: str | None = None,
        encoding: str | None = None,
        header: bool | None = None,
    ):
        self._path = os.fspath(path)
        self.live = self._path == "-"
        self.label = "standard input" if self.live else self._path
        tabs = self._path.removesuffix(".gz").endswith((".tsv", ".tab"))
        self._delimiter = delimiter or ("\t" if tabs else ",")
        self.decimal = decimal or "."
        self._encoding = _encoding(encoding)
        self._header = header is not False
        for name, sign in (("delimiter", self._delimiter), ("decimal", self.decimal)):
            if len(sign) != 1:
                raise ValueError(f"{name} must be one character; got {sign!r}")
        self.names, self._pieces = self._open()
        first = next(self._pieces, None)
        if first is None:
            raise DataError(f"{self.label} has a header, in line 1, and no rows")
        self._first = first

    def sample(self) -> Piece:
        """The first rows, with types as they look."""
        piece = self._parse(self._first, self.names, {})
        if extras.need("pyarrow", "io").binary() in piece.table.schema.types:
            raise self._diagnosis(self._first, {}, "this is no text in UTF-8")
        return piece

    def tables(self, columns: Columns, position: int) -> Iterator[Piece]:
        """The columns used, from a row on; a live stream goes on where it is."""
        find(columns.used, self.names, self.label)
        pieces, position = itertools.chain([self._first], self._pieces), max(position, 0)
        if self.live:
            position = 0
        else:
            self._pieces.close()
            pieces = self._open()[1]
        row = 0
        for lines in pieces:
            rows = _rows(lines.text)
            if row + rows > position:
                piece = self._parse(lines, columns.used, text_types(columns))
                yield piece.without(max(position - row, 0))
            row += rows
        refuse_short(self.label, row, position)

    def _open(self) -> tuple[list[str], Any]:
        """The names of the columns, and the lines that follow them."""
        pieces = self._read()
        number, text = next(pieces, _Lines(1, b""))
        if not text.strip():
            raise DataError(f"{self.label} is empty")
        line, _, rest = text.partition(b"\n")
        names = self._names(line.removesuffix(b"\r"))
        if self._header:
            number, text = number + 1, rest

        def rows() -> Iterator[_Lines]:
            for lines in itertools.chain([_Lines(number, text)], pieces):
                if lines.text.strip():  # there may be blank lines only
                    yield lines

        return names, rows()

    def _read(self) -> Iterator[_Lines]:
        """The whole text in pieces of whole lines."""
        number, parts, size = 1, [b""], 0  # the parts of the line that has not ended yet
        with _bytes_of(self._path) as file, self._unzipping():
            start = file.read1(PIECE)
            self._refuse_other(start)
            new = start.removeprefix(b"\xef\xbb\xbf")  # the mark of UTF-8
            while new:
                text, end, rest = new.rpartition(b"\n")
                if end:
                    lines = self._recoded(_Lines(number, b"".join([*parts, text, end])))
                    number += lines.text.count(b"\n")
                    parts, size = [], 0
                    yield lines
                parts.append(rest)
                size += len(rest)
                if size > LONGEST:
                    wrong = f"is longer than {LONGEST // 2**20} MB: this is no text with rows"
                    raise DataError(f"{self.label}, line {number} {wrong}")
                new = file.read1(PIECE)
        if size:
            yield self._recoded(_Lines(number, b"".join(parts)))

    @contextlib.contextmanager
    def _unzipping(self) -> Iterator[None]:
        try:
            yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self.label} is a damaged gzip file: {brief(error)}") from None

    def _refuse_other(self, start: bytes) -> None:
        """A file that is no text in an encoding that extends ASCII."""
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(f"{self.label} is in UTF-16; convert it to UTF-8")
        before, zero, _ = start.partition(b"\0")
        if zero:
            line = before.count(b"\n") + 1
            raise DataError(f"{self.label}, line {line} has a zero byte: this is no text")

    def _recoded(self, lines: _Lines) -> _Lines:
        if self._encoding == "utf-8":  # Arrow checks it, where it matters
            return lines
        for number, line in enumerate(lines.text.split(b"\n"), start=lines.number):
            self._decoded(line, number)
        return _Lines(lines.number, lines.text.decode(self._encoding).encode())

    def _decoded(self, line: bytes, number: int, encoding: str | None = None) -> str:
        encoding = encoding or self._encoding
        try:
            return line.decode(encoding)
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} at place {error.start + 1}"
            raise DataError(
                f"{self.label}, line {number} is not in {encoding.upper()} ({byte}); name the "
                "encoding, such as latin-1, or clean the file"
            ) from None

    def _names(self, line: bytes) -> list[str]:
        text = self._decoded(line, 1, "utf-8")
        here = f"{self.label}, line 1"
        if self._count(text) > MOST:
            raise DataError(f"{here} has {self._count(text):,} columns; at most {MOST:,} are read")
        fields = self._fields(text, 1)
        if not self._header:
            return [str(i) for i in range(1, len(fields) + 1)]
        names = [field.strip() or str(i) for i, field in enumerate(fields, start=1)]
        if all(is_number(field) for field in fields):
            raise DataError(f"{here} holds numbers where names are wanted; is there no header?")
        for delimiter, called in DELIMITERS.items():
            if len(names) == 1 and delimiter in names[0]:
                raise DataError(f"{here} has one column, {text!r:.60}; is {called} the delimiter?")
        refuse_twice(names, here)
        return names

    def _count(self, text: str) -> int:
        """How many fields a line may have, without taking it apart: that takes much memory."""
        return text.count(self._delimiter) + 1

    def _fields(self, text: str, number: int) -> list[str]:
        if "\r" in text:
            wrong = "has a carriage return within it; end lines with line feeds"
            raise DataError(f"{self.label}, line {number} {wrong}")
        try:
            return next(csv.reader([text], delimiter=self._delimiter), [])
        except csv.Error as error:
            raise DataError(f"{self.label}, line {number}: {error}") from None

    def _parse(self, lines: _Lines, names: list[str], types: Mapping[str, Any]) -> Piece:
        pa, reader = extras.need("pyarrow", "io"), extras.need("pyarrow.csv", "io")
        try:
            table = reader.read_csv(
                pa.BufferReader(lines.text),
                read_options=reader.ReadOptions(
                    column_names=self.names,
                    block_size=len(lines.text) + 1,
                    use_threads=not self.live and len(lines.text) >= THREADED,
                ),
                parse_options=reader.ParseOptions(delimiter=self._delimiter),
                convert_options=reader.ConvertOptions(
                    column_types=types,
                    include_columns=names,
                    null_values=MISSING,
                    strings_can_be_null=True,
                    decimal_point=self.decimal,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._diagnosis(lines, types, error) from None
        if table.num_rows != _rows(lines.text):
            raise self._diagnosis(lines, types, "the lines are not told apart")
        return Piece(table, lambda row: f"{self.label}, line {_line_of(lines, row)}")

    def _diagnosis(self, lines: _Lines, types: Mapping[str, Any], reason: Any) -> DataError:
        """The first line that is wrong, and what is wrong with it."""
        pa = extras.need("pyarrow", "io")
        wanted = {pa.float64(): "a number", pa.bool_(): "true or false"}
        places = {name: place for place, name in enumerate(self.names)}
        read = [(places[name], name, wanted.get(of)) for name, of in types.items()]
        *_, target = None, *types
        for number, line in enumerate(lines.text.split(b"\n"), start=lines.number):
            here = f"{self.label}, line {number}"
            line = line.removesuffix(b"\r")
            if not line:
                continue
            try:
                text = self._decoded(line, number, "utf-8")
                count = self._count(text)
                fields = self._fields(text, number) if count <= MOST else []
            except DataError as error:
                return error
            count = len(fields) or count
            if count != len(self.names):
                what = "the header has" if self._header else "line 1 has"
                return DataError(f"{here} has {count:,} fields where {what} {len(self.names)}")
            for place, name, what in read:
                if what and not self._reads_as(fields[place], what):
                    return DataError(
                        f"{here}: {fields[place]!r:.60} in the column {name!r} is not {what}; "
                        f"{advice(name == target)}"
                    )
        return DataError(f"{self.label}, from line {lines.number} on: {brief(reason)}")

    def _reads_as(self, field: str, what: str) -> bool:
        if field in MISSING:
            return True
        if what == "a number":
            return is_number(field, self.decimal)
        return field.lower() in ("true", "false", "0", "1")


def _encoding(name: str | None) -> str:
    name = (name or "utf-8").lower().replace("utf8", "utf-8")
    try:
        extends = "\n".encode(name) == b"\n"
    except LookupError:
        raise ValueError(f"encoding must be one that Python knows; got {name!r}") from None
    if not extends:
        raise ValueError(f"encoding must be one that extends ASCII; got {name!r}")
    return name


def _bytes_of(path: str) -> Any:
    if path == "-":
        return open(sys.stdin.fileno(), "rb", closefd=False)
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if zipped else open(path, "rb")


def _rows(text: bytes) -> int:
    """How many lines hold something."""
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    if text[:1] not in b"\r\n" and b"\n\n" not in text and b"\n\r\n" not in text:
        return lines
    return sum(1 for line in text.split(b"\n") if line.removesuffix(b"\r"))


def _line_of(lines: _Lines, row: int) -> int:
    """The number of the line that holds a row."""
    numbered = enumerate(lines.text.split(b"\n"), start=lines.number)
    held = (number for number, line in numbered if line.removesuffix(b"\r"))
    return next(itertools.islice(held, row, None))
