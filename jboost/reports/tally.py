"""The account of a run's errors: so far, lately and over time, beside those of two controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jboost.reports.spans import as_text, from_text
from jboost.running.blocks import Block

MOST_POINTS = 512  # of a curve; beyond, every second point is dropped
MOST_SPANS = 64  # of a curve whose every point is the mean of a span: more would be noise
WINDOW = 1000  # targets that count as "lately"


class Curves(NamedTuple):
    """Errors over time, in dictionaries by the names of the model and the controls.

    seen: (k,) numbers of targets.
    so_far: (k,) for each name, the mean squared error over the first ``seen`` targets.
    ends: (n,) numbers of targets at which spans of the stream end.
    within: (n,) for each name, the mean squared error of each span.
    """

    seen: np.ndarray
    so_far: dict[str, np.ndarray]
    ends: np.ndarray
    within: dict[str, np.ndarray]


class Tally:
    """Squared errors of a model's predictions, and of two controls that do not look at x.

    The controls are those of :mod:`jboost.baselines`: the mean of all targets so far, and the
    target before. Both predict 0 before the first target.

    Args:
      name: what the model is called.
      window: over how many of the last targets ``lately`` is the mean.

    >>> tally = Tally("mine", window=2)
    >>> d = np.array([1.0, 3.0, np.nan, 2.0])
    >>> tally.add(Block(0, d, np.array([1.0, 1.0, 9.0, 1.0]), skipped=np.isnan(d)))
    >>> tally.mse
    {'mine': 1.666..., 'running mean': 1.666..., 'last value': 2.0}
    >>> tally.lately
    2.5
    """

    def __init__(self, name: str, window: int = WINDOW):
        self.names = (name, "running mean", "last value")
        self.scored = 0  # predictions with a usable target
        self._window = window
        self._target_sum, self._last_target = 0.0, 0.0
        self._errors = np.zeros(3)  # sums over time, of the model and the controls
        self._recent = np.zeros(0)  # the model's last errors
        self._stride = 1  # targets between points
        self._points = np.zeros((0, 4))  # numbers of targets, and the sums of errors until then

    @property
    def mse(self) -> dict[str, float]:
        """The mean squared error so far, by name; NaN before the first target."""
        means = self._errors / (self.scored or np.nan)
        return dict(zip(self.names, means.tolist(), strict=True))

    @property
    def lately(self) -> float:
        """The model's mean squared error over the last targets; NaN before the first."""
        return float(self._recent.mean()) if len(self._recent) else float("nan")

    def add(self, block: Block) -> None:
        """Count a block."""
        d = block.targets[block.scored].astype(np.float64)
        if not len(d):
            return
        # Sums are taken row by row, so that no bit depends on how the stream was cut.
        target_sums = np.cumsum(np.append(self._target_sum, d))
        counts = np.arange(self.scored, self.scored + len(d))
        means, before = (
            target_sums[:-1] / np.maximum(counts, 1),
            np.append(self._last_target, d[:-1]),
        )
        errors = np.column_stack([block.squared_errors, (means - d) ** 2, (before - d) ** 2])
        so_far = np.cumsum(np.vstack([self._errors, errors]), axis=0)[1:]
        self.scored += len(d)
        self._target_sum, self._last_target = float(target_sums[-1]), float(d[-1])
        self._errors = so_far[-1]
        self._recent = np.concatenate([self._recent, errors[:, 0]])[-self._window :]
        self._add_points(np.column_stack([counts + 1, so_far]))

    def curves(self) -> Curves:
        """The errors over time, at no more than ``MOST_POINTS`` points and at the end."""
        points = self._points
        if self.scored and (not len(points) or points[-1, 0] < self.scored):
            points = np.vstack([points, [self.scored, *self._errors]])
        step = max(len(points) // MOST_SPANS, 1)
        spans = points[::-step][::-1]  # the last span ends with the stream
        within = np.diff(spans, axis=0, prepend=0)
        return Curves(
            points[:, 0],
            dict(zip(self.names, (points[:, 1:] / points[:, :1]).T, strict=True)),
            spans[:, 0],
            dict(zip(self.names, (within[:, 1:] / within[:, :1]).T, strict=True)),
        )

    def as_dict(self) -> dict[str, Any]:
        """The account as JSON can hold it."""
        return {
            "name": self.names[0],
            "window": self._window,
            "scored": self.scored,
            "stride": self._stride,
            "targets": as_text([self._target_sum, self._last_target]),
            "errors": as_text(self._errors),
            "recent": as_text(self._recent),
            "points": as_text(self._points),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Tally:
        """The account that :meth:`as_dict` described.

        >>> Tally.from_dict(Tally("mine").as_dict()).names
        ('mine', 'running mean', 'last value')
        """
        tally = cls(str(saved["name"]), int(saved["window"]))
        tally.scored, tally._stride = int(saved["scored"]), int(saved["stride"])
        tally._target_sum, tally._last_target = from_text(saved["targets"]).tolist()
        tally._errors = from_text(saved["errors"]).reshape(3)
        tally._recent = from_text(saved["recent"])
        tally._points = from_text(saved["points"]).reshape(-1, 4)
        return tally

    def _add_points(self, points: np.ndarray) -> None:
        """Keep the points at multiples of the stride, and double it while they are too many."""
        points = np.vstack([self._points, points[points[:, 0] % self._stride == 0]])
        while len(points) > MOST_POINTS:
            self._stride *= 2
            points = points[points[:, 0] % self._stride == 0]
        self._points = points
