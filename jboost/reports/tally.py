"""The account of a run over a stream: its errors so far, lately and over time, beside controls.

Constant in memory however long the stream, and kept in a checkpoint as JSON, so that a run that
goes on has the whole account. No number depends on how the stream was cut into blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jboost.core.numerics import LARGEST
from jboost.reports.spans import as_text, from_text

MOST_POINTS = 512  # of a curve; beyond, every second is dropped
SPANS = 64  # of a curve that shows each by itself
WINDOW = 1000


class Curves(NamedTuple):
    """Errors over time, by name.

    seen: (k,) how many answers had been seen; so_far: (k,) the mean squared error until then.
    ends: (n,) where spans of the stream end; within: (n,) the mean squared error of each.
    """

    seen: np.ndarray
    so_far: dict[str, np.ndarray]
    ends: np.ndarray
    within: dict[str, np.ndarray]


class Tally:
    """Squared errors of a model's predictions, and of two that do not look at x.

    The controls are those of :mod:`jboost.baselines`, here on the host: the mean of all targets so
    far, and the target before; both 0 before the first.

    Args:
      name: what the model is called.
      window: how many of the last answers ``lately`` is of.

    >>> tally = Tally("mine", window=2)
    >>> tally.add(np.array([1.0, 3.0, np.nan, 2.0]), np.array([1.0, 1.0, 9.0, 1.0]))
    >>> tally.mse
    {'mine': 1.666..., 'running mean': 1.666..., 'last value': 2.0}
    >>> tally.lately
    2.5
    """

    def __init__(self, name: str, window: int = WINDOW):
        self.names = (name, "running mean", "last value")
        self.scored = 0
        self._window = window
        self._targets = (0.0, 0.0)  # their sum, and the last of them
        self._errors = np.zeros(3)
        self._recent = np.zeros(0)
        self._stride = 1
        self._points = np.zeros((0, 4))  # answers seen, and the errors so far

    @property
    def mse(self) -> dict[str, float]:
        """The mean squared error of each so far; NaN before the first answer."""
        means = self._errors / (self.scored or np.nan)
        return dict(zip(self.names, means.tolist(), strict=True))

    @property
    def lately(self) -> float:
        """The model's mean squared error over the last answers."""
        return float(self._recent.mean()) if len(self._recent) else float("nan")

    def add(self, targets: np.ndarray, predictions: np.ndarray) -> None:
        """Count a block: targets (n,), unusable where there is no answer, and predictions (n,)."""
        known = np.abs(targets) < LARGEST
        d, estimates = (array[known].astype(np.float64) for array in (targets, predictions))
        if not len(d):
            return
        total, last = self._targets
        sums = np.cumsum(np.append(total, d))  # one after the other, so that a cut changes no bit
        counts = np.arange(self.scored, self.scored + len(d))
        before = np.append(last, d[:-1])
        made = np.column_stack([estimates, sums[:-1] / np.maximum(counts, 1), before])
        errors = np.square(made - d[:, None])
        so_far = np.cumsum(np.vstack([self._errors, errors]), axis=0)[1:]
        self.scored += len(d)
        self._targets, self._errors = (float(sums[-1]), float(d[-1])), so_far[-1]
        self._recent = np.concatenate([self._recent, errors[:, 0]])[-self._window :]
        self._keep(np.column_stack([counts + 1, so_far]))

    def curves(self) -> Curves:
        """The errors over time, at no more than some hundred points."""
        points = self._points
        if self.scored and (not len(points) or points[-1, 0] < self.scored):
            points = np.vstack([points, [self.scored, *self._errors]])
        spans = points[:: -max(len(points) // SPANS, 1)][::-1]  # the last one ends with the stream
        within = np.diff(spans, axis=0, prepend=0)
        return Curves(
            points[:, 0],
            dict(zip(self.names, (points[:, 1:] / points[:, :1]).T, strict=True)),
            spans[:, 0],
            dict(zip(self.names, (within[:, 1:] / within[:, :1]).T, strict=True)),
        )

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {
            "name": self.names[0],
            "window": self._window,
            "scored": self.scored,
            "stride": self._stride,
            "targets": as_text(self._targets),
            "errors": as_text(self._errors),
            "recent": as_text(self._recent),
            "points": as_text(self._points),
        }

    @classmethod
    def from_dict(cls, kept: Any) -> Tally:
        """The account that :meth:`as_dict` described.

        >>> Tally.from_dict(Tally("mine").as_dict()).names
        ('mine', 'running mean', 'last value')
        """
        tally = cls(str(kept["name"]), int(kept["window"]))
        tally.scored, tally._stride = int(kept["scored"]), int(kept["stride"])
        total, last = from_text(kept["targets"]).tolist()
        tally._targets = total, last
        tally._errors = from_text(kept["errors"]).reshape(3)
        tally._recent = from_text(kept["recent"])
        tally._points = from_text(kept["points"]).reshape(-1, 4)
        return tally

    def _keep(self, points: np.ndarray) -> None:
        """Keep the points at multiples of the stride, and widen it where they become too many."""
        kept = np.vstack([self._points, points[points[:, 0] % self._stride == 0]])
        while len(kept) > MOST_POINTS:
            self._stride *= 2
            kept = kept[kept[:, 0] % self._stride == 0]
        self._points = kept
