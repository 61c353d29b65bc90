"""Columns of names: lists, arrays of NumPy and columns of tables become :class:`.names.Names`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jboost.core import checks, extras
from jboost.fleets.names import (
    BYTES,
    DATE,
    KINDS,
    LONG,
    LONGEST,
    MOMENT,
    TEXT,
    UTC,
    WHOLE,
    WORD,
    MissingName,
    Names,
    encode,
    is_missing,
    words_of,
)  # fmt: skip

if TYPE_CHECKING:
    import pyarrow as pa

Keys = object  # a column of names: a list, an array of NumPy, or a column of a table

_MASKS = np.array([2 ** (8 * n) - 1 for n in range(WORD + 1)], np.uint64)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def names_of(argument: str, values: Keys, rows: int | None = None) -> Names:
    """Return a column of names that a caller passed; ``rows`` is how many there must be."""
    names = _names_of(argument, values)
    if rows not in (None, len(names)):
        detail = f"{rows} names, one for each row of xs"
        raise ValueError(f"{argument} must be {detail}; got {len(names)}")
    if names.long and int((lengths := names.lengths).max()) > LONGEST:
        row = int(lengths.argmax())
        size = f"row {row} has one of {lengths[row]:,} bytes"
        raise ValueError(f"{argument} must be at most {LONGEST:,} bytes each; {size}")
    return names


def _names_of(argument: str, values: Any) -> Names:
    if isinstance(values, Names):
        return values
    if hasattr(values, "__arrow_c_stream__") or type(values).__module__.startswith("pyarrow"):
        column = _arrow(values)
        if column is not None:
            return _from_arrow(argument, column)
    if hasattr(values, "dtype") and hasattr(values, "__array__"):
        return _from_array(argument, np.asarray(values))
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, dict, set)):
        raise TypeError(
            f"{argument} must be a list or a column of names; got {checks.shown(values)}"
        )
    return _from_objects(argument, list(values))


def _arrow(values: Any) -> pa.ChunkedArray | None:
    """Return a column of a table as one of Arrow; None where Arrow cannot hold it."""
    try:
        pa = extras.need("pyarrow", "io")
    except extras.MissingExtra:
        return None
    if isinstance(values, pa.Array):
        return pa.chunked_array([values])
    try:
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array(values)
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _from_arrow(argument: str, column: pa.ChunkedArray) -> Names:
    pa, types = extras.need("pyarrow", "io"), extras.need("pyarrow.types", "io")
    if column.null_count:
        nulls = np.asarray(column.is_null())
        raise _missing(argument, int(nulls.argmax()), int(nulls.sum()))
    kind = column.type
    if types.is_dictionary(kind):
        column = column.unify_dictionaries().combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        codes = column.indices.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return _from_arrow(argument, pa.chunked_array([column.dictionary])).take(codes)
    letter = None
    if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view():
        letter, column = TEXT, column.cast(pa.large_string())
    elif types.is_binary(kind) or types.is_large_binary(kind) or kind == pa.binary_view():
        letter, column = BYTES, column.cast(pa.large_binary())
    if letter is not None:
        column = column.combine_chunks()
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return joined([_from_buffers(letter, chunk) for chunk in chunks if len(chunk)])
    if types.is_integer(kind) or types.is_date(kind) or types.is_timestamp(kind):
        if types.is_date(kind):
            column = column.cast(pa.date32())
        array = np.asarray(column.to_numpy())
        zone = types.is_timestamp(kind) and kind.tz is not None
        return _from_array(argument, array, UTC if zone else MOMENT)
    return _from_objects(argument, column.to_pylist())


def _from_buffers(letter: int, chunk: Any) -> Names:
    """Return the names of an Arrow array of large strings or bytes."""
    _, offsets, data = chunk.buffers()
    ends = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    contents = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    return _from_contents(np.full(len(chunk), letter, np.uint8), contents, np.diff(ends))


def _from_contents(kinds: np.ndarray, contents: np.ndarray, lengths: np.ndarray) -> Names:
    """Return names whose contents lie one after the other."""
    starts = np.cumsum(lengths) - lengths
    data = np.zeros(len(contents) + WORD, np.uint8)
    data[: len(contents)] = contents
    # The eight bytes from each byte on, as a number.
    numbers = np.ndarray((len(contents) + 1,), "<u8", data, strides=(1,))
    counts = words_of(lengths)
    words = np.zeros((len(kinds), int(counts.max(initial=0)) + 1), np.uint64)
    words[:, 0] = _heads(kinds, lengths)
    for word in range(words.shape[1] - 1):
        left = np.clip(lengths - WORD * word, 0, WORD)
        positions = np.minimum(starts + WORD * word, len(contents))
        words[:, word + 1] = numbers[positions] & _MASKS[left]
    long = {}
    for row in np.flatnonzero(lengths > LONG).tolist():
        content = contents[starts[row] : starts[row] + lengths[row]].tobytes()
        words[row, 1:3], long[row] = _digest(content), content
    return Names(words, long)


def _digest(content: bytes) -> np.ndarray:
    """Return the two words of a long content."""
    return np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), "<u8")


def _heads(kinds: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return (lengths.astype(np.uint64) << np.uint64(8)) | kinds.astype(np.uint64)


def joined(columns: Sequence[Names]) -> Names:
    """Return several columns, one after the other, as one."""
    if len(columns) == 1:
        return columns[0]
    width = max((names.words.shape[1] for names in columns), default=1)
    words, long = np.zeros((sum(map(len, columns)), width), np.uint64), {}
    start = 0
    for names in columns:
        words[start : start + len(names), : names.words.shape[1]] = names.words
        long |= {start + row: content for row, content in names.long.items()}
        start += len(names)
    return Names(words, long)


def _from_array(argument: str, array: np.ndarray, moment: int = MOMENT) -> Names:
    """Return the names of an array of NumPy; ``moment`` is the kind of its times."""
    if array.ndim != 1:
        raise ValueError(f"{argument} must have shape (n,); got {array.shape}")
    kind = array.dtype.kind
    if not array.size:  # no name is of the wrong kind
        return _from_objects(argument, [])
    if kind == "i" or (kind == "u" and (array <= np.iinfo(np.int64).max).all()):
        return _uniform(WHOLE, array.astype("<i8").view(np.uint8).reshape(-1, 8))
    if kind == "M":
        return _from_times(argument, array, moment)
    if kind == "S":
        contents = np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)
        return _from_padded(BYTES, contents, np.char.str_len(array))
    if kind == "U":
        letters = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="), copy=False)
        letters = letters.view(np.uint32).reshape(len(array), -1)
        if letters.max(initial=0) < 128:
            return _from_padded(TEXT, letters.astype(np.uint8), np.char.str_len(array))
    if kind in "fcbm":
        hint = ", or missing names made floats of them" if kind == "f" else ""
        raise TypeError(f"{argument} must be {KINDS}; got dtype {array.dtype}{hint}")
    return _from_objects(argument, array.tolist())


def _from_padded(letter: int, contents: np.ndarray, lengths: np.ndarray) -> Names:
    """Return names whose contents (n, length) are filled up with zeros."""
    n, length = contents.shape
    lengths = lengths.astype(np.int64, copy=False)
    kinds = np.full(n, letter, np.uint8)
    if length > LONG:
        used = np.arange(length) < lengths[:, None]
        return _from_contents(kinds, contents[used], lengths)
    words = np.zeros((n, -(-length // WORD) + 1), "<u8")
    words[:, 0] = _heads(kinds, lengths)
    words.view(np.uint8)[:, WORD : WORD + length] = contents
    return Names(words.astype(np.uint64, copy=False), {})


def _uniform(letter: int, contents: np.ndarray) -> Names:
    """Return names whose contents (n, length) are equally long."""
    return _from_padded(letter, contents, np.full(len(contents), contents.shape[1]))


def _from_times(argument: str, array: np.ndarray, moment: int) -> Names:
    if np.isnat(array).any():
        missing = np.isnat(array)
        raise _missing(argument, int(missing.argmax()), int(missing.sum()))
    unit = np.datetime_data(array.dtype)[0]
    if unit in ("Y", "M", "W", "D"):
        days = array.astype("datetime64[D]").astype("<i8")
        return _uniform(DATE, days.view(np.uint8).reshape(-1, 8))
    if unit in ("h", "m"):
        array, unit = array.astype("datetime64[s]"), "s"
    elif unit not in _PER_SECOND:
        array, unit = array.astype("datetime64[ns]"), "ns"
    ticks = array.astype(f"datetime64[{unit}]").astype(np.int64)
    seconds, rest = np.divmod(ticks, _PER_SECOND[unit])
    contents = np.empty((len(array), 12), np.uint8)
    contents[:, :8] = seconds.astype("<i8").view(np.uint8).reshape(-1, 8)
    nanoseconds = (rest * (10**9 // _PER_SECOND[unit])).astype("<u4")
    contents[:, 8:] = nanoseconds.view(np.uint8).reshape(-1, 4)
    return _uniform(moment, contents)


def _from_objects(argument: str, values: list[Any]) -> Names:
    kinds = {*map(type, values)}
    if kinds == {str}:
        try:
            return _from_bytes(np.full(len(values), TEXT, np.uint8), [*map(str.encode, values)])
        except UnicodeEncodeError:
            pass  # half of a surrogate pair, which `encode` keeps
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return _from_array(argument, np.array(values, np.int64))
    letters, contents = np.empty(len(values), np.uint8), []
    for row, value in enumerate(values):
        try:
            letters[row], content = encode(value)
        except MissingName:
            raise _missing(argument, row, sum(map(_lacks, values))) from None
        except TypeError:
            got = f"row {row} has {checks.shown(value)}, of type {type(value).__name__}"
            raise TypeError(f"{argument} must be {KINDS}; {got}") from None
        contents.append(content)
    return _from_bytes(letters, contents)


def _lacks(value: Any) -> bool:
    """Return whether a name, or a part of it, is missing."""
    return any(map(_lacks, value)) if isinstance(value, tuple) else is_missing(value)


def _from_bytes(letters: np.ndarray, contents: list[bytes]) -> Names:
    lengths = np.fromiter(map(len, contents), np.int64, len(contents))
    return _from_contents(letters, np.frombuffer(b"".join(contents), np.uint8), lengths)


def _missing(argument: str, row: int, count: int) -> ValueError:
    advice = "leave such rows out, or give them a name"
    return ValueError(
        f"{argument} must not be missing; row {row} has none, {count:,} in all: {advice}"
    )
