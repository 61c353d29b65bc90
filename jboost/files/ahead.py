"""What a forecaster needs to know of a file: how its times are numbers, which columns are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jboost.files.columns import Columns, DataError, refuse_unknown

UNITS = {"seconds": 1_000_000, "minutes": 60_000_000, "hours": 3_600_000_000}  # microseconds
UNITS |= {"days": 86_400_000_000}


class Timing(NamedTuple):
    """How the times of rows become numbers, small enough for float32."""

    unit: str  # of the numbers
    origin: str  # the day from which they count, in ISO 8601
    step: float  # from row to row, in this unit
    microseconds: int  # the same

    @classmethod
    def of(cls, columns: Columns) -> Timing | None:
        """Return the timing of rows; None where they have no times at a regular step."""
        if columns.time is None or columns.step <= 0:
            return None
        unit = next((u for u in reversed(UNITS) if UNITS[u] <= columns.step), "seconds")
        day = np.datetime64(columns.time.origin, "us").astype("datetime64[D]")
        return cls(unit, str(day), columns.step / UNITS[unit], columns.step)

    def numbers(self, wall: np.ndarray) -> np.ndarray:
        """Return times, datetime64[us], as numbers; NaN where one is missing."""
        since = (wall - np.datetime64(self.origin, "us")).astype(np.int64)
        return np.where(np.isnat(wall), np.nan, since / UNITS[self.unit])

    def slots(self, wall: np.ndarray) -> np.ndarray:
        """Return the numbers of the steps at which times lie; missing times have no meaning."""
        since = (wall - np.datetime64(self.origin, "us")).astype(np.int64)
        return np.floor_divide(since + self.microseconds // 2, self.microseconds)

    def latest(self, wall: np.ndarray, learned: np.ndarray, before: int | None) -> np.ndarray:
        """Return, for each row, the time of the latest row that was learned until then.

        ``before`` is that of the rows before, in microseconds since 1970. A row that is learned
        without a time counts as one step later than the row before it.
        """
        latest, found = np.datetime64("NaT", "us"), np.empty(len(wall), "datetime64[us]")
        if before is not None:
            latest = np.datetime64(before, "us")
        for row, at in enumerate(wall):
            if learned[row]:
                here = latest + np.timedelta64(self.microseconds, "us") if np.isnat(at) else at
                latest = here if np.isnat(latest) else max(latest, here)
            found[row] = latest
        return found

    def ahead(self, times: np.ndarray, horizon: int) -> np.ndarray:
        """Return the times of the next H steps after each of some times, (n, H)."""
        steps = np.arange(1, horizon + 1) * np.timedelta64(self.microseconds, "us")
        return times[:, None] + steps[None, :]


def columns_of(columns: Columns, names: Sequence[str], label: str) -> list[int]:
    """Return the numbers of the columns of x that some columns of a table become."""
    inputs = {column.name: column for column in columns.inputs}
    refuse_unknown(names, [*inputs], label)
    numbers, at = [], 0
    for column in columns.inputs:
        if column.name in names:
            if column.kind == "time":
                advice = "times are known anyway, and --time names the column"
                raise DataError(f"--known is no column of times, as {column.name!r} is", advice)
            numbers += range(at, at + column.width)
        at += column.width
    return numbers
