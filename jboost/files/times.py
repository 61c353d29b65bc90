"""Reads times: dates, times of day, and both, as text, numbers or Arrow types.

A column's ``format`` says how its times are written:

| format           | for example                                                              |
|------------------|--------------------------------------------------------------------------|
| ``iso``          | 2012-10-02, 2012-10-02 09:00, 2012-10-02T09:00:00.5; without a zone      |
| ``iso zoned``    | 2012-10-02T09:00:00Z, 2012-10-02 09:00:00+02:00                          |
| ``s ms us ns``   | the number of seconds, milli-, micro- or nanoseconds since 1970, in UTC  |
| ``typed``        | a type of Arrow, pandas or polars                                        |
| with ``%``       | as Python's ``strptime`` has it: %d/%m/%Y %H:%M                          |

A time whose ``parts`` are several columns is read from their texts, with a space between them.
Times are kept as whole microseconds in 64 bits until they are cycles. :mod:`.time_formats` finds
out which format a column has.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jboost.core import extras
from jboost.files.columns import Column, DataError, text_codes

if TYPE_CHECKING:
    import pyarrow as pa

ISO, ZONED, TYPED = "iso", "iso zoned", "typed"
EPOCHS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}  # microseconds of a count; ns are divided


class Times(NamedTuple):
    """The times of some rows, as datetime64[us]; NaT where one is missing or cannot be read."""

    instants: np.ndarray  # in UTC, where the zone is known
    wall: np.ndarray  # as a clock on the wall shows them
    odd: np.ndarray  # the rows whose values are there and are no times


def written(table: pa.Table, column: Column) -> pa.ChunkedArray:
    """Return the times of a table as they are written; of several columns, as text."""
    if not column.parts:
        return table.column(column.name)
    compute = extras.need("pyarrow.compute", "io")
    texts = (_as_text(table.column(name)) for name in column.parts)
    return compute.binary_join_element_wise(*texts, " ")


def read(table: pa.Table, column: Column) -> Times:
    """Return the times that the rows of a table have by a column."""
    return of_values(written(table, column), column)


def of_values(values: pa.ChunkedArray, column: Column) -> Times:
    """Return the times that the values of a column are."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    if pa.types.is_integer(values.type) and "%" in column.format:
        values = values.cast(pa.string())
    if not is_text(values.type) and column.format not in EPOCHS:
        instants, zone = _typed(values)
        return Times(instants, _wall(instants, column.zone or zone), np.zeros(0, np.int64))
    if column.format in EPOCHS:
        instants = _counted(values, column.format)
    elif pa.types.is_dictionary(values.type):
        codes, texts = text_codes(values)
        instants = parsed(pa.array([*texts, None], pa.string()), column.format)[codes]
    else:
        instants = parsed(values.cast(pa.string()), column.format)
    present = ~compute.is_null(values).to_numpy(zero_copy_only=False)
    odd = np.flatnonzero(np.isnat(instants) & present)
    if len(odd) and is_text(values.type):  # blank space is no time, and nothing is wrong with it
        texts = values.take(odd).to_pylist()
        odd = odd[[bool(text.strip()) for text in texts]]
    return Times(instants, _wall(instants, column.zone), odd)


def is_text(arrow_type: pa.DataType) -> bool:
    """Return whether an Arrow type holds text, in a dictionary or not."""
    types = extras.need("pyarrow.types", "io")
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    string = types.is_string(arrow_type) or types.is_large_string(arrow_type)
    return string or types.is_string_view(arrow_type)


def _as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a date, a time of day, or whole numbers as text; what is no such thing is missing."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.date32(), safe=False)
    elif pa.types.is_time(values.type):
        values = values.cast(pa.time32("s"), safe=False)
    elif pa.types.is_floating(values.type):
        values = compute.if_else(compute.is_finite(values), values, None)
        values = values.cast(pa.int64(), safe=False)
    return compute.utf8_trim_whitespace(values.cast(pa.string()))


def _counted(values: pa.ChunkedArray, unit: str) -> np.ndarray:
    """Return the times of counts since 1970, which may be text."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    if is_text(values.type):
        number = compute.match_substring_regex(values.cast(pa.string()), r"^\s*-?\d+(\.\d*)?\s*$")
        values = compute.utf8_trim_whitespace(values.cast(pa.string()))
        values = compute.if_else(number, values, pa.scalar(None, pa.string()))
    if not pa.types.is_integer(values.type):
        # Whole numbers in 64 bits; a fraction of a second is all that a float may round.
        values = compute.multiply(values.cast(pa.float64(), safe=False), float(EPOCHS[unit]))
        counts, scale = values, 1
    else:
        counts, scale = values, EPOCHS[unit]
    missing = compute.is_null(counts).to_numpy(zero_copy_only=False)
    numbers = compute.fill_null(counts, 0).to_numpy()
    with np.errstate(all="ignore"):
        near = np.abs(numbers.astype(np.float64)) < 9e18 / scale
        whole = np.where(near, numbers, 0).astype(np.int64) * scale // (1000 if unit == "ns" else 1)
    instants = whole.astype("datetime64[us]")
    instants[missing | ~near] = np.datetime64("NaT")
    return instants


def _typed(values: pa.ChunkedArray) -> tuple[np.ndarray, str]:
    """Return the times of an Arrow type, in UTC where it has a zone, and that zone."""
    pa = extras.need("pyarrow", "io")
    if pa.types.is_time(values.type):
        unit = "us" if pa.types.is_time64(values.type) else values.type.unit
        values = values.cast(pa.time64("us") if unit == "us" else values.type, safe=False)
        whole = values.cast(pa.int64() if unit == "us" else pa.int32()).cast(pa.int64())
        scale = EPOCHS[unit]
        values = extras.need("pyarrow.compute", "io").multiply(whole, scale)
        return values.cast(pa.timestamp("us")).to_numpy().astype("datetime64[us]"), ""
    zone = getattr(values.type, "tz", None) or ""
    return values.cast(pa.timestamp("us", zone or None), safe=False).to_numpy().astype(
        "datetime64[us]"
    ), zone


def _wall(instants: np.ndarray, zone: str) -> np.ndarray:
    """Return what a clock in a time zone shows."""
    if not zone or zone == "UTC":
        return instants
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    try:
        zoned = pa.array(instants).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
        return compute.local_timestamp(zoned).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        advice = "such as Europe/Berlin or UTC"
        raise DataError(f"{zone!r:.60} is no time zone that is known here, {advice}") from None


def parsed(texts: pa.Array | pa.ChunkedArray, form: str) -> np.ndarray:
    """Return the times of texts, NaT where a text is no time in this format."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    if form in (ISO, ZONED):
        kind = pa.timestamp("us", "UTC" if form == ZONED else None)
        try:
            return texts.cast(kind).to_numpy(**_copying(texts)).astype("datetime64[us]")
        except pa.ArrowInvalid:
            return _one_by_one(texts, lambda text: pa.scalar(text.strip()).cast(kind))
    if "%f" in form or "%z" in form:  # which Arrow cannot read
        return _one_by_one(texts, lambda text: _utc(datetime.datetime.strptime(text, form)))
    found = compute.strptime(texts, format=form, unit="us", error_is_null=True)
    if found.null_count > texts.null_count:
        trimmed = compute.utf8_trim_whitespace(texts)
        found = compute.strptime(trimmed, format=form, unit="us", error_is_null=True)
    return found.to_numpy(**_copying(texts)).astype("datetime64[us]")


def _utc(time: datetime.datetime) -> datetime.datetime:
    return time if time.tzinfo is None else time.astimezone(datetime.UTC).replace(tzinfo=None)


def _one_by_one(texts: pa.Array | pa.ChunkedArray, parse: object) -> np.ndarray:
    """Return the times of texts, each different text parsed by itself."""
    pa = extras.need("pyarrow", "io")
    found: dict[str | None, np.datetime64] = {None: np.datetime64("NaT", "us")}
    column = texts.to_pylist()
    for text in column:
        if text not in found:
            try:
                time = parse(text)  # type: ignore[operator]
                time = time.as_py() if hasattr(time, "as_py") else time
                found[text] = np.datetime64(_utc(time), "us")
            except (ValueError, OverflowError, pa.ArrowException):
                found[text] = np.datetime64("NaT", "us")
    return np.array([found[text] for text in column], "datetime64[us]")


def _copying(texts: object) -> dict[str, bool]:
    """Return the argument that lets an Arrow array, but not a chunked one, be copied to NumPy."""
    return {} if hasattr(texts, "chunks") else {"zero_copy_only": False}
