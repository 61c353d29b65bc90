"""The account of a keyed run: errors of each key's stream, beside those of controls."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from jboost.core.numerics import LARGEST

# Of each stream: scored rows, the sum of their targets, the last target; then sums of squared
# errors and of their sizes, of the model, of the mean of the stream so far and of its last target.
COLUMNS = ("scored", "total", "last", "mse", "mae", "mean_mse", "mean_mae", "last_mse", "last_mae")
SHOWN = 5  # keys with the largest errors, and as many with the smallest


class KeyTally:
    """Sums for each stream, by the number of its name.

    >>> tally = KeyTally("mine")
    >>> tally.add(np.array([0, 1, 0]), np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 3.0]))
    >>> tally.table()[0][:2], tally.errors().tolist()
    (['mine', '1.66667'], [0.5, 4.0])
    """

    def __init__(self, name: str, columns: Mapping[str, np.ndarray] | None = None) -> None:
        self.name = name
        self.columns = {column: np.zeros(0) for column in COLUMNS}
        if columns is not None:
            self.columns = {column: np.array(columns[column], float) for column in COLUMNS}

    def add(self, streams: np.ndarray, targets: np.ndarray, prediction: np.ndarray) -> None:
        """Count rows: the number of the stream, the target and the prediction of each."""
        missing = int(streams.max(initial=-1)) + 1 - len(self.columns["scored"])
        if missing > 0:
            more = {name: np.zeros(missing) for name in COLUMNS}
            self.columns = {
                name: np.append(column, more[name]) for name, column in self.columns.items()
            }
        usable = np.abs(targets) < LARGEST
        order = np.flatnonzero(usable)[np.argsort(streams[usable], kind="stable")]
        if not len(order):
            return
        sums, streams, d = self.columns, streams[order], targets[order].astype(np.float64)
        starts = np.flatnonzero(np.diff(streams, prepend=-1))
        lengths = np.diff(np.append(starts, len(streams)))
        first = np.repeat(starts, lengths)
        before = np.arange(len(streams)) - first  # rows of the same stream in this block
        added = np.cumsum(d) - d
        total = sums["total"][streams] + (added - added[first])
        mean = total / np.maximum(sums["scored"][streams] + before, 1)
        last = np.where(before > 0, np.append(0.0, d[:-1]), sums["last"][streams])
        estimates = {"": prediction[order].astype(np.float64), "mean_": mean, "last_": last}
        for which, estimate in estimates.items():
            gaps = np.abs(estimate - d)
            np.add.at(sums[f"{which}mse"], streams, gaps**2)
            np.add.at(sums[f"{which}mae"], streams, gaps)
        np.add.at(sums["total"], streams, d)
        np.add.at(sums["scored"], streams, 1)
        sums["last"][streams[starts]] = d[starts + lengths - 1]

    @property
    def scored(self) -> int:
        """How many predictions had a usable target."""
        return int(self.columns["scored"].sum())

    def errors(self) -> np.ndarray:
        """Return the mean squared error of each stream; NaN where it has no target."""
        scored = self.columns["scored"]
        return self.columns["mse"] / np.where(scored > 0, scored, np.nan)

    def table(self) -> list[list[str]]:
        """Return the errors of the model and the controls over all rows, as text."""
        sums = {name: float(column.sum()) for name, column in self.columns.items()}
        scored = sums["scored"] or math.nan
        names = {"": self.name, "mean_": "running mean", "last_": "last value"}  # of each key
        mean, rows = sums["mean_mse"] / scored or math.nan, []
        for which, name in names.items():
            mse, mae = sums[f"{which}mse"] / scored, sums[f"{which}mae"] / scored
            numbers = map("{:.6g}".format, (mse, math.sqrt(mse), mae))
            rows.append([name, *numbers, f"{mse / mean:.3f}"])
        return rows

    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the streams with the largest errors, the largest first, and with the smallest."""
        errors = self.errors()
        scored = np.flatnonzero(np.isfinite(errors))
        order = scored[np.argsort(-errors[scored], kind="stable")]
        best = order[SHOWN:][-SHOWN:]
        return order[:SHOWN], best
