"""Recognises and reads times: dates, times of day, and both, as text, numbers or Arrow types.

A column's ``format`` says how its times are written:

| format           | for example                                                              |
|------------------|--------------------------------------------------------------------------|
| ``iso``          | 2012-10-02, 2012-10-02 09:00, 2012-10-02T09:00:00.5; without a zone      |
| ``iso zoned``    | 2012-10-02T09:00:00Z, 2012-10-02 09:00:00+02:00                          |
| ``s ms us ns``   | the number of seconds, milli-, micro- or nanoseconds since 1970, in UTC  |
| ``typed``        | a type of Arrow, pandas or polars                                        |
| with ``%``       | as Python's ``strptime`` has it: %d/%m/%Y %H:%M                          |

Times are kept as whole microseconds in 64 bits until they are cycles.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jboost.core import extras
from jboost.files.columns import Column, DataError, text_codes
from jboost.transforms.calendar import ELAPSED, PERIODS

if TYPE_CHECKING:
    import pyarrow as pa

ISO, ZONED, TYPED = "iso", "iso zoned", "typed"
EPOCHS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}  # microseconds of a count; ns are divided
DAYS_FIRST = ("%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%y", "%d.%m.%y", "%d-%m-%y")
MONTHS_FIRST = ("%m/%d/%Y", "%m.%d.%Y", "%m-%d-%Y", "%m/%d/%y", "%m.%d.%y", "%m-%d-%y")
OTHERS = ("%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y",
          "%d-%b-%y", "%B %d, %Y")  # fmt: skip
CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%H.%M.%S")
TIMES_OF_DAY = (" ", "T", ", ")  # between a date and its time of day
PROBE = 50  # texts that a format must read before all others are tried
SOONEST, LATEST = 946_684_800, 4_102_444_800  # 2000 and 2100, in seconds: what a count looks like
NAMES = ("time", "date", "epoch", "unix", "stamp")  # in the name of a column of counts
EARLIEST = np.datetime64("1500-01-01", "us")
REGULAR = 0.5  # so many of the steps between rows must be the usual one
DAY = PERIODS["day"] * 1_000_000
# What any of the formats above may look like; to try them all on every text would take long.
_LIKE_A_TIME = re.compile(
    r"^\s*(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[:.]\d{2}([:.]\d|\s*[ap]\.?m|\s*$)|\d{8}\s*$"
    r"|\d{1,2}[ -][a-z]{3,9}[ -]\d{2}|[a-z]{3,9} \d{1,2}, \d{4})",
    re.IGNORECASE,
)


class Times(NamedTuple):
    """The times of some rows, as datetime64[us]; NaT where one is missing or cannot be read."""

    instants: np.ndarray  # in UTC, where the zone is known
    wall: np.ndarray  # as a clock on the wall shows them
    odd: np.ndarray  # the rows whose values are there and are no times


def read(values: pa.ChunkedArray, column: Column) -> Times:
    """Return the times that a column of a table holds."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    if pa.types.is_integer(values.type) and "%" in column.format:
        values = values.cast(pa.string())
    if not _is_text(values.type) and column.format not in EPOCHS:
        instants, zone = _typed(values)
        return Times(instants, _wall(instants, column.zone or zone), np.zeros(0, np.int64))
    if column.format in EPOCHS:
        instants = _counted(values, column.format)
    elif pa.types.is_dictionary(values.type):
        codes, texts = text_codes(values)
        instants = _parsed(pa.array([*texts, None], pa.string()), column.format)[codes]
    else:
        instants = _parsed(values.cast(pa.string()), column.format)
    present = ~compute.is_null(values).to_numpy(zero_copy_only=False)
    odd = np.flatnonzero(np.isnat(instants) & present)
    if len(odd) and _is_text(values.type):  # blank space is no time, and nothing is wrong with it
        texts = values.take(odd).to_pylist()
        odd = odd[[bool(text.strip()) for text in texts]]
    return Times(instants, _wall(instants, column.zone), odd)


def recognise(
    name: str, values: pa.ChunkedArray, form: str | None, zone: str, asked: bool, place: str
) -> Column | None:
    """Return a column of times if its first values look like times, else None.

    Args:
      name: what the column is called.
      values: its first values.
      form: the format that a user declared for text, or None.
      zone: the time zone whose clock matters, where times are in UTC; "" for none.
      asked: whether a user said that the column holds times.
      place: what errors call the data.
    """
    chosen = None
    types = extras.need("pyarrow.types", "io")
    if asked and form is not None and types.is_integer(values.type):
        values = values.cast("string")  # 20121002, which looks like a number
    if _is_text(values.type):
        chosen = _format_of(values, form, f"{place}: the column {name!r}")
    elif types.is_temporal(values.type) and not types.is_duration(values.type):
        chosen = TYPED
    elif types.is_integer(values.type) or (asked and types.is_floating(values.type)):
        chosen = _count_of(values, asked or any(word in name.lower() for word in NAMES))
    if chosen is None:
        if asked:
            advice = "pass --date-format, such as '%d/%m/%Y %H:%M', or name another column"
            raise DataError(f"{place}: no times are found in the column {name!r}; {advice}")
        return None
    known_zone = zone if chosen in (ZONED, TYPED, *EPOCHS) else ""
    column = Column(name, "time", format=chosen, zone=known_zone)
    found = read(values, column)
    there = found.wall[~np.isnat(found.wall)]
    origin = found.instants[~np.isnat(found.instants)][:1].astype(np.int64)
    cycles = _cycles(there, chosen, of_day=types.is_time(values.type))
    return Column(
        name, "time", format=chosen, zone=known_zone, cycles=cycles, origin=int(origin.sum())
    )


def step_between(instants: np.ndarray) -> int:
    """Return the usual step from one row to the next in microseconds, 0 where there is none.

    >>> hours = np.datetime64("2024-01-01", "us") + np.arange(5) * np.timedelta64(1, "h")
    >>> step_between(hours) // 3_600_000_000, step_between(np.repeat(hours, 3))
    (1, 0)
    """
    there = instants[~np.isnat(instants)].astype(np.int64)
    steps = np.diff(there)
    usual = int(np.median(steps)) if len(steps) > 1 else 0
    regular = usual > 0 and np.mean(np.abs(steps - usual) <= 0.01 * usual) >= REGULAR
    return usual if regular else 0


def _is_text(arrow_type: pa.DataType) -> bool:
    types = extras.need("pyarrow.types", "io")
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    string = types.is_string(arrow_type) or types.is_large_string(arrow_type)
    return string or types.is_string_view(arrow_type)


def _cycles(wall: np.ndarray, form: str, *, of_day: bool) -> tuple[str, ...]:
    """Return what these times become."""
    if of_day or (not any(sign in form for sign in ("Y", "y")) and "%" in form):
        return ("day",)
    midnight = wall.astype(np.int64) % DAY == 0
    dates = midnight.all() and (len(midnight) > 1 or form in (*DAYS_FIRST, *MONTHS_FIRST, *OTHERS))
    return (*(() if dates else ("day",)), "week", "year", ELAPSED)


def _format_of(values: pa.ChunkedArray, form: str | None, label: str) -> str | None:
    """Return the format in which most of the texts are times, None if there is none."""
    pa = extras.need("pyarrow", "io")
    codes, listed = text_codes(values)
    distinct = [listed[code] for code in np.setdiff1d(codes, [-1]).tolist()]
    texts = pa.array([text for text in distinct if text is not None], pa.string())
    if form is not None:
        found = _parsed(texts, form)
        return form if len(texts) and 2 * np.isnat(found).sum() < len(texts) else None
    first = texts[:PROBE]
    if not any(_LIKE_A_TIME.search(text) for text in first.to_pylist()):
        return None
    for iso in (ISO, ZONED):
        if 2 * np.isnat(_parsed(first, iso)).sum() < len(first):
            return iso
    dates = (*DAYS_FIRST, *MONTHS_FIRST, *OTHERS, "%Y-%m-%d")
    clocked = itertools.product(dates, TIMES_OF_DAY, CLOCKS)
    formats = [*dates, *("".join(parts) for parts in clocked), *CLOCKS]
    fitting = [form for form in formats if 2 * _lacking(first, form) < len(first)]
    if not fitting:
        return None
    lacking = {form: _lacking(texts, form) for form in fitting}
    best = [form for form in fitting if lacking[form] == min(lacking.values())]
    if len(best) > 1:
        best = _in_order(codes, pa.array([*listed, None], pa.string()), best) or best
    if len(best) > 1 and any(form.startswith(DAYS_FIRST) for form in best):
        options = " or ".join(f"--date-format '{form}'" for form in best)
        value = f"{first[0].as_py()!r:.40}"
        raise DataError(f"{label} holds dates such as {value}, in an unclear order; pass {options}")
    return best[0]


def _lacking(texts: pa.Array, form: str) -> int:
    """Return how many texts are no times in a format; of two digits no year is made."""
    found = _parsed(texts, form)
    early = found < EARLIEST if "%" in form and ("Y" in form or "y" in form) else False
    return int((np.isnat(found) | early).sum())


def _in_order(codes: np.ndarray, texts: pa.Array, formats: Sequence[str]) -> list[str]:
    """Return those formats in which the times never go back, where there are several times."""
    ordered = []
    for form in formats:
        found = _parsed(texts, form)[codes]
        steps = np.diff(found[~np.isnat(found)])
        if (steps > np.timedelta64(0)).any() and (steps >= np.timedelta64(0)).all():
            ordered.append(form)
    return ordered


def _count_of(values: pa.ChunkedArray, likely: bool) -> str | None:
    """Return the unit of numbers that count from 1970 on, None if they seem not to."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    numbers = compute.drop_null(values).cast(pa.float64(), safe=False).to_numpy()
    if likely and len(numbers) and ((numbers > 19000100) & (numbers < 21000000)).all():
        texts = compute.drop_null(values).cast(pa.string())
        return None if np.isnat(_parsed(texts, "%Y%m%d")).any() else "%Y%m%d"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        seconds = numbers / scale
        if likely and len(numbers) and ((seconds >= SOONEST) & (seconds <= LATEST)).all():
            return unit
    return None


def _counted(values: pa.ChunkedArray, unit: str) -> np.ndarray:
    """Return the times of counts since 1970, which may be text."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    if _is_text(values.type):
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


def _parsed(texts: pa.Array | pa.ChunkedArray, form: str) -> np.ndarray:
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
