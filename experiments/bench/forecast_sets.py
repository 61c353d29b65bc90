"""The five ordered sets as streams to forecast. Needs NumPy alone, for the peers' environment too.

A row has the time in hours since a Monday. The sets hold the hour and the weekday, or the date, of
each row: the time goes on by as many hours as these say.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROWS = 16_384
SETS = ("vic_electricity", "bike_hour", "metro_traffic", "beijing_air", "wind")
HORIZONS = {"vic_electricity": 48}  # half-hourly; all others 24
STEPS = {"vic_electricity": 0.5, "wind": 1 / 6}  # hours; all others 1
KNOWN = {"vic_electricity": ("holiday",), "bike_hour": ("holiday", "workingday")}
CLOCK = ("hr", "hour", "weekday", "month", "mnth", "day")  # columns that the time tells


class Series(NamedTuple):
    """A stream to forecast."""

    name: str
    time: np.ndarray  # (T,), hours since a Monday
    x: np.ndarray  # (T, r)
    y: np.ndarray  # (T,)
    columns: list[str]  # the names of the columns of x
    horizon: int
    step: float  # hours between rows

    @property
    def known(self) -> list[int]:
        """The columns of x that are known in advance, beside the time."""
        return [self.columns.index(name) for name in KNOWN.get(self.name, ())]

    @property
    def day(self) -> int:
        """The rows of a day."""
        return round(24 / self.step)

    @property
    def origins(self) -> np.ndarray:
        """The rows at which forecasts are scored: every H rows of the second half."""
        return np.arange(len(self.y) // 2, len(self.y) - self.horizon, self.horizon)

    def answers(self) -> np.ndarray:
        """Return the H answers after each origin, (origins, H)."""
        return self.y[self.origins[:, None] + np.arange(1, self.horizon + 1)]

    def mase(self, forecasts: np.ndarray) -> np.ndarray:
        """Return the MASE of each horizon; the unit is the daily naive forecast's MAE.

        For wind, which has no day, it is that of the last value.
        """
        half, season = len(self.y) // 2, 1 if self.name == "wind" else self.day
        unit = np.abs(self.y[season:half] - self.y[: half - season]).mean()
        return np.abs(forecasts - self.answers()).mean(axis=0) / unit

    def naive(self, season: int) -> np.ndarray:
        """Return the answers whole seasons before, (origins, H)."""
        ahead = np.arange(1, self.horizon + 1)
        return self.y[self.origins[:, None] + ahead - season * -(-ahead // season)]


def load(name: str, first: int = 0, rows: int = ROWS) -> Series:
    """Return ``rows`` rows of a set, from the row ``first`` on."""
    with np.load(Path(os.environ["JBOOST_DATA"]) / f"{name}.npz") as file:
        x, y = file["x"].astype(float), file["y"].astype(float)
        columns = [str(column) for column in file["columns"]]
    hour = x[:, columns.index("hr" if "hr" in columns else "hour")]
    if "weekday" in columns:
        weekday = x[:, columns.index("weekday")]
        if name == "bike_hour":
            weekday = (weekday - 1) % 7  # its week begins on a Sunday
        of_week = 24 * weekday + hour
        time = of_week[0] + np.append(0, np.cumsum(np.diff(of_week) % 168))
    else:
        year = 2013 + np.append(0, np.cumsum(np.diff(x[:, 0]) < 0))
        dates = [
            f"{y:04.0f}-{m:02.0f}-{d:02.0f}" for y, m, d in zip(year, x[:, 0], x[:, 1], strict=True)
        ]
        days = np.array(dates, "datetime64[D]") - np.datetime64("2013-01-07")
        time = 24.0 * days.astype(int) + hour
    cut = slice(first, first + rows)
    horizon, step = HORIZONS.get(name, 24), STEPS.get(name, 1.0)
    return Series(name, time[cut], x[cut], y[cut], columns, horizon, step)
