"""Reads the lines of a text of any size: a file, a compressed file, or standard input.

The text comes in blocks of whole lines, a few megabytes each, so that memory stays constant and
every error can name its line.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from jboost.checkpoints.atomic import PathLike
from jboost.core import extras
from jboost.files.columns import DataError
from jboost.files.reader import LONGEST_ROW, first_line

BLOCK_BYTES = 2**22  # of text, parsed at once
FIRST_BYTES = 2**18  # of a file, at least, from which it is decided what its columns hold
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # how compressed files begin
OTHERS = {  # how files begin that are not read, and what they are
    b"PK\x03\x04": "a zip archive or a workbook; unpack it, or save its table as CSV",
    b"ARROW1\0\0": "an Arrow file; write its table as Parquet",
    b"BZh91AY": "compressed by bzip2; compress it by gzip or zstd instead",
    b"\xfd7zXZ": "compressed by xz; compress it by gzip or zstd instead",
    b"\x89HDF": "an HDF5 file; write its table as Parquet or CSV",
    b"SQLite format 3": "a database; write its table as CSV",
}
ENDINGS = (".gz", ".zst", ".zstd")  # of their names
MOST_LINES = 1000  # of a row: a quotation that goes on for longer was never opened


CACHED_BYTES = 2**16  # looked at at once: what is found in them fits in a cache
_MARK, _END = ord('"'), ord("\n")


class Lines(NamedTuple):
    """Whole rows of a text, of which each has a line, or several if it quotes line ends."""

    number: int  # that of the first line in the text, from 1
    text: bytes
    delimiter: bytes | None = None  # between fields; None where every line is a row

    def rows(self, *, ended: bool = True) -> Iterator[tuple[int, bytes]]:
        """Yield the number of the first line of every row, and its text; blank lines are none.

        A quotation that is open at the end was never opened, if the text has ``ended``.
        """
        waiting: list[tuple[int, bytes]] = []  # the lines of a row whose quotation is open
        for number, line in enumerate(self.text.split(b"\n"), start=self.number):
            if self.delimiter is not None and b'"' in line:
                changes = line.count(b'"') % 2 == 1
                opened = (not waiting and changes and self._opens(line)) or (
                    bool(waiting) and not changes
                )
            else:
                opened = bool(waiting)
            if opened and len(waiting) < MOST_LINES:
                waiting.append((number, line))
                continue
            if waiting and not opened:
                waiting.append((number, line))
                text = b"\n".join(part for _, part in waiting)
                yield waiting[0][0], text.removesuffix(b"\r")
            else:
                for number, line in [*waiting, (number, line)]:  # noqa: B020
                    if row := line.removesuffix(b"\r"):
                        yield number, row
            waiting = []
        if waiting and ended:
            yield from ((number, row) for number, line in waiting if (row := line.rstrip(b"\r")))
        elif waiting:
            yield waiting[0][0], b"\n".join(part for _, part in waiting)

    def ends_open(self) -> bytes:
        """Return the last row if its quotation is still open, else nothing."""
        *_, (_, last) = self._replace(text=self.text.removesuffix(b"\n")).rows(ended=False)
        is_open = last.count(b'"') % 2 == 1 and self._opens(last.partition(b"\n")[0])
        return last if is_open and last.count(b"\n") < MOST_LINES - 1 else b""

    def every_line_is_whole(self) -> bool:
        """Whether no line has an odd number of quotation marks, and so each is a row."""
        if self.delimiter is None or b'"' not in self.text:
            return True
        marks = 0  # before a piece
        for piece in _pieces(self.text):
            signs = piece[np.flatnonzero((piece == _MARK) | (piece == _END))]
            ends = np.flatnonzero(signs == _END)
            if ((marks + ends - np.arange(len(ends))) % 2).any():
                return False
            marks += len(signs) - len(ends)
        return marks % 2 == 0

    def _opens(self, line: bytes) -> bool:
        """Whether a quotation mark stands where a field begins."""
        return line.startswith(b'"') or (self.delimiter or b"") + b'"' in line

    def count_rows(self) -> int:
        """Return how many rows there are."""
        text = self.text
        if self.delimiter is None and not self._has_blank_lines():  # faster than to split the text
            return _count_ends(text) + (not text.endswith(b"\n"))
        return sum(1 for _ in self.rows())

    def _has_blank_lines(self) -> bool:
        text = self.text
        if text[:1] in b"\r\n" or (b"\r" in text and b"\n\r\n" in text):
            return True
        return any(((p[1:] == _END) & (p[:-1] == _END)).any() for p in _pieces(text, further=1))

    def has_rows(self) -> bool:
        """Whether any line is not blank."""
        return bool(self.text) and not self.text.isspace()

    def line_of(self, row: int) -> int:
        """Return the number of the line in which a row begins."""
        return next(itertools.islice(self.rows(), row, None))[0]


class Text:
    """A text in a file, compressed or not, or standard input (``-``).

    A file is opened for its start, and again for each pass over its lines. There is only one pass
    over standard input. A text with a zero byte is refused, unless it is ``tolerant`` and has a
    line before it.
    """

    def __init__(self, path: PathLike, encoding: str | None = None, *, tolerant: bool = False):
        self._tolerant = tolerant
        self.path = os.fspath(path)
        self.live = self.path == "-"
        self.label = "standard input" if self.live else self.path
        self.encoding = _checked_encoding(encoding or "utf-8")
        self.share = 0.0  # how much of the file was read, between 0 and 1; 0 where that is unknown
        self._pieces = self._bytes()
        self.start = next(self._pieces, b"")  # the first bytes of the text
        if not self.live:
            self._pieces.close()

    @property
    def name(self) -> str:
        """The name of the file without the ending of a compressed one."""
        return next((self.path[: -len(e)] for e in ENDINGS if self.path.endswith(e)), self.path)

    def blocks(self, delimiter: bytes | None = None) -> Generator[Lines]:
        """Yield whole rows, from the first line on."""
        pieces = itertools.chain([self.start], self._pieces) if self.live else self._bytes()
        number, unfinished = 1, bytearray()  # the beginning of a row whose end is not read yet
        with contextlib.ExitStack() as stack:
            if not self.live:
                stack.callback(pieces.close)  # type: ignore[union-attr]
            for new in itertools.chain(pieces, [None]):
                # At the end of the text, the last line is ended, and so is an open quotation.
                text = memoryview(new or b"\n")  # to slice bytes would copy them
                end = (new or b"\n").rfind(b"\n") + 1
                if end:
                    whole = b"".join((unfinished, text[:end]))
                    unfinished.clear()
                    lines = Lines(number, whole, delimiter)
                    if lines.every_line_is_whole():
                        lines = lines._replace(delimiter=None)
                    elif new is not None and (left := lines.ends_open()):
                        unfinished += left + b"\n"
                        whole = whole[: len(whole) - len(unfinished)]
                    if whole:
                        lines = lines._replace(text=self._in_utf8(number, whole))
                        number += _count_ends(lines.text)
                        yield lines
                unfinished += text[end:]
                if len(unfinished) > LONGEST_ROW:
                    size = f"{LONGEST_ROW // 2**20} MB: this is no text with rows"
                    raise DataError(f"{self.label}, line {number} is longer than {size}")

    def decoded(self, text: bytes, number: int, encoding: str = "utf-8") -> str:
        """Return a text that begins in the line ``number``; another encoding is refused."""
        try:
            return text.decode(encoding)
        except UnicodeDecodeError as error:
            before = text[: error.start].split(b"\n")
            byte = f"byte 0x{text[error.start]:02x} at place {len(before[-1]) + 1}"
            problem = f"line {number + len(before) - 1} is not in {encoding.upper()} ({byte})"
            advice = "pass --encoding, such as cp1252 or latin-1, or clean the file"
            raise DataError(f"{self.label}, {problem}", advice) from None

    def _in_utf8(self, number: int, text: bytes) -> bytes:
        """Return the text in UTF-8. Text that should be in UTF-8 is left for a parser to check."""
        if self.encoding != "utf-8":
            text = self.decoded(text, number, self.encoding).encode()
        return text

    def _bytes(self) -> Generator[bytes]:
        """The bytes of the text as they come; a file that is no text is refused."""
        if self.live and sys.stdin is None:  # the process was started without it
            raise DataError(f"{self.label} is closed")
        source = sys.stdin.fileno() if self.live else self.path
        errors: tuple[type[Exception], ...] = (gzip.BadGzipFile, EOFError, zlib.error)
        try:
            with open(source, "rb", closefd=not self.live) as file:
                start = b"" if self.live else _beginning(file)
                read = file.read1
                size = 0 if self.live else os.fstat(file.fileno()).st_size  # 0 for a pipe
                if start[:2] == GZIP:
                    read = gzip.GzipFile(fileobj=file).read1
                    read = _gathered(read) if size else read  # a pipe's rows are wanted at once
                elif start == ZSTD:
                    read, errors = _zstd(file)
                start = read(BLOCK_BYTES)
                while not self.live and 0 < len(start) < min(FIRST_BYTES, BLOCK_BYTES):
                    if not (new := read(BLOCK_BYTES)):
                        break
                    start += new
                self.share = file.tell() / size if size else 0.0
                if start.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise DataError(f"{self.label} is in UTF-16; convert it to UTF-8")
                before, zero, _ = start.partition(b"\0")
                if kind := next((k for s, k in OTHERS.items() if start.startswith(s)), ""):
                    raise DataError(f"{self.label} is {kind}")
                if zero and not (self._tolerant and b"\n" in before):
                    line = before.count(b"\n") + 1
                    raise DataError(f"{self.label}, line {line} has a zero byte: this is no text")
                yield start.removeprefix(b"\xef\xbb\xbf")  # the byte order mark of UTF-8
                while new := read(BLOCK_BYTES):
                    self.share = file.tell() / size if size else 0.0
                    yield new
        except errors as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            kind = "zstd" if len(errors) == 1 else "gzip"
            raise DataError(f"{self.label} is a damaged {kind} file: {first_line(error)}") from None


def _pieces(text: bytes, further: int = 0) -> Iterator[np.ndarray]:
    """Yield the bytes of a text in pieces, each with some ``further`` bytes of the next one."""
    signs = np.frombuffer(text, np.uint8)
    for start in range(0, len(signs), CACHED_BYTES):
        yield signs[start : start + CACHED_BYTES + further]


def _count_ends(text: bytes) -> int:
    """Return how many lines of a text are ended, which takes NumPy less time than ``count``."""
    return sum(int(np.count_nonzero(piece == _END)) for piece in _pieces(text))


def _beginning(file: io.BufferedReader) -> bytes:
    """Return the first bytes of a file, which will be read again."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and hasattr(os, "pread"):
        return os.pread(file.fileno(), 4, 0)  # to peek would make the first block a short one
    return file.peek(4)[:4]


def _gathered(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return a function that reads whole blocks by one that returns some thousand bytes at a time.

    An error of ``read`` comes after the bytes that were read before it.
    """
    failure: Exception | None = None

    def gathered(size: int) -> bytes:
        nonlocal failure
        if failure is not None:
            raise failure
        pieces: list[bytes] = []
        left = size
        try:
            while left > 0 and (new := read(left)):
                pieces.append(new)
                left -= len(new)
        except Exception as error:
            if not pieces:
                raise
            failure = error
        return b"".join(pieces)

    return gathered


def _zstd(file: BinaryIO) -> tuple[Callable[[int], bytes], tuple[type[Exception], ...]]:
    """Return the function that reads a file of zstd, and what it raises where that is damaged."""
    pa: Any = extras.need("pyarrow", "io")
    stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
    return stream.read, (OSError,)


def _checked_encoding(name: str) -> str:
    name = name.lower().replace("utf8", "utf-8")
    with contextlib.suppress(LookupError):
        if "\n".encode(name) == b"\n":
            return name
    raise ValueError(f"encoding must be one that Python knows and that extends ASCII; got {name!r}")
