"""The account of a keyed run: errors over all rows and of each key's stream, beside controls."""

from __future__ import annotations

import numpy as np

from jboost.reports.tally import Errors
from jboost.running.blocks import Block

# Of each stream: scored rows, the sum of their targets, the last target, and the sum of the squared
# errors of the model.
COLUMNS = ("scored", "total", "last", "mse")
SHOWN = 5  # keys with the largest errors, and as many with the smallest


class KeyTally(Errors):
    """Errors of a keyed run; the controls are the running mean and the last target of each key.

    ``columns`` are sums for each stream, by the number of its name: a fleet's folder keeps them,
    and :meth:`as_dict` leaves them out.

    >>> tally, d = KeyTally("mine"), np.array([1.0, 2.0, 3.0])
    >>> block = Block(0, d, np.array([0.0, 0.0, 3.0]), np.zeros(3, bool))
    >>> tally.add(block, np.array([0, 1, 0]))
    >>> tally.mse["mine"], tally.mse["last value"], tally.of_keys().tolist()
    (1.666..., 3.0, [0.5, 4.0])
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.columns = {column: np.zeros(0) for column in COLUMNS}

    def add(self, block: Block, streams: np.ndarray, instants: np.ndarray | None = None) -> None:
        """Count a block; ``streams`` are the numbers of its rows' streams, −1 where there is none.

        A row without a stream has no target.
        """
        missing = int(streams.max(initial=-1)) + 1 - len(self.columns["scored"])
        if missing > 0:
            self.columns = {
                name: np.append(column, np.zeros(missing)) for name, column in self.columns.items()
            }
        rows = np.flatnonzero(block.scored)
        if not len(rows):
            return
        d, prediction = (a[rows].astype(np.float64) for a in (block.targets, block.prediction))
        mean, last = self._controls(streams[rows], d)
        gaps = np.abs(np.column_stack([prediction, mean, last]) - d[:, None])
        np.add.at(self.columns["mse"], streams[rows], gaps[:, 0] ** 2)
        self.count(gaps, None if instants is None else instants[rows])

    def _controls(self, streams: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the controls say of each row before its target, and count the targets."""
        sums, mean, last = self.columns, np.empty(len(d)), np.empty(len(d))
        order = np.argsort(streams, kind="stable")
        of_row, targets = streams[order], d[order]
        starts = np.flatnonzero(np.diff(of_row, prepend=-1))
        lengths = np.diff(np.append(starts, len(of_row)))
        first = np.repeat(starts, lengths)
        before = np.arange(len(of_row)) - first  # rows of the same stream in this block
        added = np.cumsum(targets) - targets
        total = sums["total"][of_row] + (added - added[first])
        mean[order] = total / np.maximum(sums["scored"][of_row] + before, 1)
        last[order] = np.where(before > 0, np.append(0.0, targets[:-1]), sums["last"][of_row])
        np.add.at(sums["total"], of_row, targets)
        np.add.at(sums["scored"], of_row, 1)
        sums["last"][of_row[starts]] = targets[starts + lengths - 1]
        return mean, last

    def of_keys(self) -> np.ndarray:
        """Return the mean squared error of each stream; NaN where it has no target."""
        scored = self.columns["scored"]
        return self.columns["mse"] / np.where(scored > 0, scored, np.nan)

    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the streams with the largest errors, the largest first, and with the smallest."""
        errors = self.of_keys()
        scored = np.flatnonzero(np.isfinite(errors))
        order = scored[np.argsort(-errors[scored], kind="stable")]
        best = order[SHOWN:][-SHOWN:]
        return order[:SHOWN], best
