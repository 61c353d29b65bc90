"""Names of streams as words of 64 bits: any column of names becomes one array of words.

A name is a text, bytes, a whole number, a date, a moment, a UUID, or a tuple of these. Its *kind*
is a letter, and its *content* is bytes, so that the text "1", the number 1 and the bytes b"1" are
three names. The hash of a name is the same in every process, on every machine and in every
release: draws depend on it, and so does the machine that serves a name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import struct
import uuid
from typing import Any

import numpy as np

Name = str | bytes | int | datetime.date | datetime.datetime | uuid.UUID | tuple["Name", ...]

TEXT, BYTES, WHOLE, BIG, DATE, MOMENT, UTC, UUID, TUPLE = b"sbiIdmzut"
KINDS = "text, bytes, whole numbers, dates, UUIDs, or tuples of these"
LONGEST = 2**26  # bytes of a name
LONG = 64  # bytes; the words of a longer name are a digest of its content

WORD = 8  # bytes
# The multipliers of splitmix64 (Steele, Lea and Flood, 2014).
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_EPOCH = datetime.datetime(1970, 1, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """A column of n names.

    The first word of a name is its kind and, shifted by 8 bits, the length of its content. The
    content follows, filled up with zeros; or, where it is long, a digest of it in two words.
    """

    words: np.ndarray  # (n, w) uint64; behind the words of a name, anything
    long: dict[int, bytes]  # the contents of long names, by row

    def __len__(self) -> int:
        return len(self.words)

    @property
    def lengths(self) -> np.ndarray:
        """How many bytes the contents have, (n,) int64."""
        return (self.words[:, 0] >> np.uint64(8)).astype(np.int64)

    def take(self, rows: np.ndarray | slice) -> Names:
        """Return the names of some rows."""
        words = self.words[rows] if isinstance(rows, slice) else self.words.take(rows, axis=0)
        if not self.long:
            return Names(words, {})
        chosen = np.arange(len(self.words))[rows].tolist()
        return Names(words, {i: self.long[row] for i, row in enumerate(chosen) if row in self.long})

    def tolist(self) -> list[Any]:
        """Return the names as Python's objects."""
        kinds = (self.words[:, 0] & np.uint64(255)).tolist()
        rows = enumerate(zip(kinds, self.lengths.tolist(), strict=True))
        data = np.ascontiguousarray(self.words[:, 1:])
        return [
            decode(kind, self.long[row] if row in self.long else data[row].tobytes()[:length])
            for row, (kind, length) in rows
        ]


def words_of(lengths: np.ndarray) -> np.ndarray:
    """Return how many words names have behind the first one, by the lengths of their contents."""
    return np.where(lengths > LONG, 2, -(-lengths // WORD))


def hashes(names: Names) -> np.ndarray:
    """Return the hash of each name, (n,) uint64.

    >>> from jboost.fleets.columns import names_of
    >>> [hex(h) for h in hashes(names_of("names", ["a", 1]))]
    ['0x69da71da7281f878', '0x633074625459c0e7']
    """
    result = _mixed(names.words[:, 0])
    counts = words_of(names.lengths)
    fewest = int(counts.min(initial=0))
    for word in range(int(counts.max(initial=0))):
        mixed = _mixed(result ^ names.words[:, word + 1])
        result = mixed if word < fewest else np.where(word < counts, mixed, result)
    return result


def _mixed(h: np.ndarray) -> np.ndarray:
    h = (h ^ (h >> np.uint64(30))) * _A
    h = (h ^ (h >> np.uint64(27))) * _B
    return h ^ (h >> np.uint64(31))


class MissingName(ValueError):  # noqa: N818  (a sign between functions)
    """A name is missing."""


def is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating, np.datetime64)) and bool(value != value)


def encode(value: Any) -> tuple[int, bytes]:
    """Return the kind and the content of one name."""
    if is_missing(value):
        raise MissingName
    if isinstance(value, str):
        return TEXT, value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray)):
        return BYTES, bytes(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        number = int(value)
        if -(2**63) <= number < 2**63:
            return WHOLE, struct.pack("<q", number)
        return BIG, number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    if isinstance(value, datetime.datetime):
        return _encode_moment(value)
    if isinstance(value, datetime.date):
        return DATE, struct.pack("<q", (value - _EPOCH.date()).days)
    if isinstance(value, np.datetime64):
        return _encode_numpy(value)
    if isinstance(value, uuid.UUID):
        return UUID, value.bytes
    if isinstance(value, tuple):
        parts = [encode(item) for item in value]
        return TUPLE, b"".join(struct.pack("<BI", kind, len(c)) + c for kind, c in parts)
    raise TypeError


def _encode_moment(value: datetime.datetime) -> tuple[int, bytes]:
    ahead = value.utcoffset()
    letter = MOMENT if ahead is None else UTC
    nanosecond = int(getattr(value, "nanosecond", 0))  # of a pandas.Timestamp
    since = datetime.datetime(*value.timetuple()[:6], value.microsecond) - _EPOCH
    if ahead is not None:
        since -= ahead  # in UTC it may lie before the year 1, or after 9999
    seconds = since.days * 86400 + since.seconds
    return letter, struct.pack("<qI", seconds, since.microseconds * 1000 + nanosecond)


def _encode_numpy(value: np.datetime64) -> tuple[int, bytes]:
    if np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D"):
        return DATE, struct.pack("<q", int(value.astype("datetime64[D]").astype(np.int64)))
    seconds = value.astype("datetime64[s]")
    rest = (value.astype("datetime64[ns]") - seconds.astype("datetime64[ns]")).astype(np.int64)
    return MOMENT, struct.pack("<qI", int(seconds.astype(np.int64)), int(rest))


def decode(kind: int, content: bytes) -> Any:
    """Return the name that :func:`encode` took apart.

    A moment that Python cannot hold, between microseconds or before the year 1 or after 9999, is
    NumPy's; pandas', where it is installed, if it lies between microseconds in UTC.
    """
    if kind == TEXT:
        return content.decode("utf-8", "surrogatepass")
    if kind == WHOLE:
        return struct.unpack("<q", content)[0]
    if kind == BIG:
        return int.from_bytes(content, "little", signed=True)
    if kind == DATE:
        days = np.datetime64(struct.unpack("<q", content)[0], "D")
        return days.item() if isinstance(days.item(), datetime.date) else days
    if kind in (MOMENT, UTC):
        return _decode_moment(*struct.unpack("<qI", content), is_utc=kind == UTC)
    if kind == UUID:
        return uuid.UUID(bytes=content)
    if kind == TUPLE:
        items, start = [], 0
        while start < len(content):
            inner, length = struct.unpack_from("<BI", content, start)
            items.append(decode(inner, content[start + 5 : start + 5 + length]))
            start += 5 + length
        return tuple(items)
    return content


def _decode_moment(seconds: int, nanoseconds: int, *, is_utc: bool) -> Any:
    if nanoseconds % 1000:
        if is_utc:  # moments of NumPy have no zone
            with contextlib.suppress(ImportError):
                import pandas

                return pandas.Timestamp(seconds * 10**9 + nanoseconds, unit="ns", tz="UTC")
        return np.datetime64(seconds * 10**9 + nanoseconds, "ns")
    try:
        moment = _EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError:
        if nanoseconds:
            return np.datetime64(seconds * 10**6 + nanoseconds // 1000, "us")
        return np.datetime64(seconds, "s")
    return moment.replace(tzinfo=datetime.UTC) if is_utc else moment
