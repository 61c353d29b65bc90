"""Recognises times: which columns of a table hold them, how they are written, what they become.

A column is looked at by itself (:func:`recognise`). Then a date and a time of day in two columns,
and a year, a month, a day and so on in columns of numbers, become one time (:func:`joined`).
:mod:`.times` reads the times in the formats that are found here.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jboost.core import extras
from jboost.files import times
from jboost.files.columns import Column, DataError, text_codes
from jboost.files.times import EPOCHS, ISO, TYPED, ZONED
from jboost.transforms.calendar import ELAPSED, PERIODS

if TYPE_CHECKING:
    import pyarrow as pa

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
    r"^\s*(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[:.]\d{2}([:.]\d|\s*[ap]\.?m|\s*$)"
    r"|\d{8}([ T,]|\s*$)|\d{1,2}[ -][a-z]{3,9}[ -]\d{2}|[a-z]{3,9} \d{1,2}, \d{4})",
    re.IGNORECASE,
)
DISORDER = 0.05  # the part of the rows that a time of day may bring out of the order of the dates
# The names of columns of numbers that make one time, and how their numbers are written.
FIELDS = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S"}


def recognise(
    name: str, values: pa.ChunkedArray, form: str | None, zone: str, asked: bool, label: str
) -> Column | None:
    """Return a column of times if its first values look like times, else None.

    Args:
      name: what the column is called.
      values: its first values.
      form: the format that a user declared for text, or None.
      zone: the time zone whose clock matters, where times are in UTC; "" for none.
      asked: whether a user said that the column holds times.
      label: what errors call the data.
    """
    chosen = None
    types = extras.need("pyarrow.types", "io")
    if asked and form is not None and types.is_integer(values.type):
        values = values.cast("string")  # 20121002, which looks like a number
    if times.is_text(values.type):
        chosen = _format_of(values, form, f"{label}: the column {name!r}")
    elif types.is_temporal(values.type) and not types.is_duration(values.type):
        chosen = TYPED
    elif types.is_integer(values.type) or (asked and types.is_floating(values.type)):
        called = name.lower()
        telling = any(word in called for word in NAMES) or "ts" in re.split("[^a-z]", called)
        chosen = _count_of(values, asked or telling)
    if chosen is None:
        if asked:
            advice = "pass --date-format, such as '%d/%m/%Y %H:%M', or name another column"
            raise DataError(f"{label}: no times are found in the column {name!r}; {advice}")
        return None
    known_zone = zone if chosen in (ZONED, TYPED, *EPOCHS) else ""
    column = Column(name, "time", format=chosen, zone=known_zone)
    found = times.of_values(values, column)
    return _with_cycles(column, found, of_day=types.is_time(values.type))


def joined(columns: Sequence[Column], table: pa.Table) -> list[Column]:
    """Return the columns with those that make one time as one column, in the place of the first.

    These are a date and a time of day, which keep the order of the dates: another clock, such as a
    duration, would not. And they are numbers called year, month, day, and maybe hour, minute and
    second, whose times never go back.
    """
    merged = [*columns]
    for parts, form in (*_fields(columns, table), *_pairs(columns, table)):
        column = Column(" ".join(parts), "time", format=form, parts=parts)
        found = times.read(table, column)
        lacking = np.isnat(found.instants)
        if column.name in table.column_names or lacking.all() or 2 * len(found.odd) > len(lacking):
            continue
        at = next(i for i, c in enumerate(merged) if c.name in parts)
        merged[at] = _with_cycles(column, found)
        merged = [c for c in merged if c.name not in parts]
    return merged


def _pairs(columns: Sequence[Column], table: pa.Table) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the names of a column of dates and a column of times of day, and their format."""
    found = [c for c in columns if c.kind == "time" and c.format != ZONED]
    dates = [c for c in found if ELAPSED in c.cycles and "day" not in c.cycles]
    clocks = [c for c in found if c.cycles == ("day",)]
    for date in dates:
        following = [clock for clock in clocks if columns.index(clock) == columns.index(date) + 1]
        only = clocks if len(dates) == len(clocks) == 1 else []
        for clock in (following or only)[:1]:
            forms = {ISO: "%Y-%m-%d", TYPED: "%Y-%m-%d"}, {TYPED: "%H:%M:%S"}
            form = " ".join(forms[i].get(c.format, c.format) for i, c in enumerate((date, clock)))
            parts = date.name, clock.name
            pair = Column(" ".join(parts), "time", format=form, parts=parts)
            if _disorder(table, pair) <= _disorder(table, date) + DISORDER:
                yield parts, form


def _disorder(table: pa.Table, column: Column) -> float:
    """Return the part of the rows after which time goes the other way than after most rows."""
    instants = times.read(table, column).instants
    steps = np.diff(instants[~np.isnat(instants)]).astype(np.int64)
    return float(min(np.mean(steps > 0), np.mean(steps < 0))) if len(steps) else 0.0


def _fields(columns: Sequence[Column], table: pa.Table) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the names of columns called year, month, day and so on, and their format."""
    names = {c.name.lower(): c.name for c in columns if c.kind == "number"}
    fields = [*itertools.takewhile(names.__contains__, FIELDS)]
    if len(fields) < 3:
        return
    parts, form = tuple(names[f] for f in fields), " ".join(FIELDS[f] for f in fields)
    found = times.read(table, Column(" ".join(parts), "time", format=form, parts=parts))
    steps = np.diff(found.instants[~np.isnat(found.instants)])
    forward = (steps >= np.timedelta64(0)).all() and (steps > np.timedelta64(0)).any()
    days = {str(day) for day in table.column(parts[2]).unique().to_pylist()}
    # Numbers up to 7 may be days of the week.
    if forward and not len(found.odd) and len(days) > 7:
        yield parts, form


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


def _with_cycles(column: Column, found: times.Times, *, of_day: bool = False) -> Column:
    """Return a column with what its times become, and the first of them as its origin."""
    there = found.wall[~np.isnat(found.wall)]
    origin = found.instants[~np.isnat(found.instants)][:1].astype(np.int64)
    cycles = _cycles(there, column.format, of_day=of_day)
    return dataclasses.replace(column, cycles=cycles, origin=int(origin.sum()))


def _cycles(wall: np.ndarray, form: str, *, of_day: bool) -> tuple[str, ...]:
    """Return what these times become."""
    if of_day or (not any(sign in form for sign in ("Y", "y")) and "%" in form):
        return ("day",)
    midnight = wall.astype(np.int64) % DAY == 0
    dates = midnight.all() and (len(midnight) > 1 or form in (*DAYS_FIRST, *MONTHS_FIRST, *OTHERS))
    return (*(() if dates else ("day",)), "week", "year", ELAPSED)


def _format_of(values: pa.ChunkedArray, form: str | None, label: str) -> str | None:
    """Return the format in which most of the texts are times, None if there is none."""
    types = extras.need("pyarrow.types", "io")
    if types.is_dictionary(values.type):
        values = values.unify_dictionaries()
    if form is not None:
        texts = _different(values)
        found = times.parsed(texts, form)
        return form if len(texts) and 2 * np.isnat(found).sum() < len(texts) else None
    first = _different(values[: 10 * PROBE])[:PROBE]
    if len(first) < PROBE:  # most rows have the text of another one
        first = _different(values)[:PROBE]
    if not any(_LIKE_A_TIME.search(text) for text in first.to_pylist()):
        return None
    for iso in (ISO, ZONED):
        if 2 * np.isnat(times.parsed(first, iso)).sum() < len(first):
            return iso
    dates = (*DAYS_FIRST, *MONTHS_FIRST, *OTHERS, "%Y-%m-%d")
    clocked = itertools.product(dates, TIMES_OF_DAY, CLOCKS)
    formats = [*dates, *("".join(parts) for parts in clocked), *CLOCKS]
    fitting = [form for form in formats if 2 * _lacking(first, form) < len(first)]
    if not fitting:
        return None
    texts = _different(values)
    lacking = {form: _lacking(texts, form) for form in fitting}
    best = [form for form in fitting if lacking[form] == min(lacking.values())]
    if len(best) > 1:
        best = _in_order(values, best) or best
    if len(best) > 1 and any(form.startswith(DAYS_FIRST) for form in best):
        options = " or ".join(f"--date-format '{form}'" for form in best)
        value = f"{first[0].as_py()!r:.40}"
        raise DataError(f"{label} holds dates such as {value}, in an unclear order; pass {options}")
    return best[0]


def _different(values: pa.ChunkedArray) -> pa.Array:
    """Return the different texts of a column in the order in which they appear.

    A dictionary may hold few long texts for many rows: only different ones are written out.
    """
    return values.unique().cast(extras.need("pyarrow", "io").string()).drop_null()


def _lacking(texts: pa.Array, form: str) -> int:
    """Return how many texts are no times in a format; of two digits no year is made."""
    found = times.parsed(texts, form)
    early = found < EARLIEST if "%" in form and ("Y" in form or "y" in form) else False
    return int((np.isnat(found) | early).sum())


def _in_order(values: pa.ChunkedArray, formats: Sequence[str]) -> list[str]:
    """Return those formats in which the times never go back, where there are several times."""
    ordered, (codes, texts) = [], text_codes(values)
    listed = extras.need("pyarrow", "io").array([*texts, None], "string")  # −1 takes the last
    for form in formats:
        found = times.parsed(listed, form)[codes]
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
        return None if np.isnat(times.parsed(texts, "%Y%m%d")).any() else "%Y%m%d"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        seconds = numbers / scale
        if likely and len(numbers) and ((seconds >= SOONEST) & (seconds <= LATEST)).all():
            return unit
    return None
