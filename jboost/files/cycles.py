"""Fills the columns that times become. Cycles of the day and the week are looked up in a table."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from jboost.files.columns import Column
from jboost.files.times import Times
from jboost.transforms import calendar

CACHED_ROWS = 8192  # of which columns are computed at once: their arrays fit in a cache
MINUTE = 60_000_000  # microseconds
WEEK = calendar.PERIODS["week"] // 60  # minutes
MONDAY = calendar.WEEK_BEGINS * 1_000_000  # microseconds since 1970
Cycles = tuple[str, ...]


def fill(x: np.ndarray, column: Column, found: Times) -> None:
    """Fill x, the columns that a column of times becomes.

    Sines take most of the time. Where times lie whole minutes apart, as most do, those of the day
    and the week are the same in every week: a table of them has the same bits.
    """
    # To make the table takes about as long as to compute that many rows.
    weekly = _weekly(column.cycles) if len(x) >= WEEK else ()
    width, rest = calendar.width(weekly), column.cycles[len(weekly) :]
    first = np.argmin(np.isnat(found.wall)) if weekly else 0  # the first that is not missing
    after = int(found.wall[first].astype(np.int64)) % MINUTE if weekly else 0
    for rows in _pieces(len(x)):
        spans = found.wall[rows], found.instants[rows], column.origin
        minutes = _minutes(found.wall[rows], after) if weekly else None
        if minutes is None:
            _compute(x[rows], column.cycles, *spans)
        else:
            x[rows, :width] = _table(weekly, after, x.dtype).take(minutes, axis=0)
            _compute(x[rows, width:], rest, *spans)


def _weekly(cycles: Cycles) -> Cycles:
    """Return the first of the cycles, as far as they repeat with the week."""
    return tuple(itertools.takewhile(("day", "week").__contains__, cycles))


def _pieces(rows: int) -> Iterator[slice]:
    return (slice(start, start + CACHED_ROWS) for start in range(0, rows, CACHED_ROWS))


def _compute(
    x: np.ndarray, cycles: Cycles, wall: np.ndarray, instants: np.ndarray, origin: int
) -> None:
    for i, numbers in enumerate(calendar.of_instants(cycles, wall, instants, origin)):
        x[:, i] = numbers


def _minutes(wall: np.ndarray, after: int) -> np.ndarray | None:
    """Return the minutes since Monday of times that lie ``after`` a whole minute.

    None if one of them does not, or is missing.
    """
    since = wall.view(np.int64) - (MONDAY + after)
    minutes = since // MINUTE  # NumPy's // is much faster than its %
    if (minutes * MINUTE != since).any():
        return None
    return minutes - minutes // WEEK * WEEK


@functools.lru_cache(maxsize=16)
def _table(cycles: Cycles, after: int, dtype: np.dtype) -> np.ndarray:
    """Return the columns of these cycles for the times ``after`` each minute of a week."""
    times = (MONDAY + after + np.arange(WEEK) * MINUTE).astype("datetime64[us]")
    table = np.empty((WEEK, calendar.width(cycles)), dtype)
    for rows in _pieces(WEEK):
        _compute(table[rows], cycles, times[rows], times[rows], 0)
    table.flags.writeable = False
    return table
