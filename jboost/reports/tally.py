"""The account of a run's errors: so far, lately and over time, beside those of two controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jboost.reports.spans import Spans, as_text, from_text
from jboost.running.blocks import Block

WINDOW = 1000  # targets that count as "lately"


class Curves(NamedTuple):
    """Errors over time, in dictionaries by the names of the model and the controls.

    ends: (k,) numbers of targets at which spans of the stream end.
    so_far: (k,) for each name, the mean squared error over all targets until there.
    within: (k,) for each name, the mean squared error of the span.
    """

    ends: np.ndarray
    so_far: dict[str, np.ndarray]
    within: dict[str, np.ndarray]


class Tally:
    """Squared errors of a model's predictions, and of two controls that do not look at x.

    The controls are those of :mod:`jboost.baselines`: the mean of all targets so far, and the
    target before. Both predict 0 before the first target.

    Args:
      name: what the model is called.

    >>> tally = Tally("mine")
    >>> d = np.array([1.0, 3.0, np.nan, 2.0])
    >>> tally.add(Block(0, d, np.array([1.0, 1.0, 9.0, 1.0]), skipped=np.isnan(d)))
    >>> tally.mse
    {'mine': 1.666..., 'running mean': 1.666..., 'last value': 2.0}
    """

    def __init__(self, name: str):
        self.names = (name, "running mean", "last value")
        self._target_sum, self._last_target = 0.0, 0.0
        self._errors = np.zeros(3)  # sums over time, of the model and the controls
        self._recent = np.zeros(0)  # the model's last errors
        self._spans = Spans(3)  # the errors of the model and the controls

    @property
    def scored(self) -> int:
        """How many predictions had a usable target."""
        return self._spans.rows

    @property
    def mse(self) -> dict[str, float]:
        """The mean squared error so far, by name; NaN before the first target."""
        means = self._errors / (self.scored or np.nan)
        return dict(zip(self.names, means.tolist(), strict=True))

    @property
    def lately(self) -> float:
        """The model's mean squared error over the last 1000 targets; NaN before the first."""
        return float(self._recent.mean()) if len(self._recent) else float("nan")

    def add(self, block: Block) -> None:
        """Count a block."""
        d = block.targets[block.scored].astype(np.float64)
        if not len(d):
            return
        # Sums are taken row by row, so that no bit depends on how the stream was cut.
        target_sums = np.cumsum(np.append(self._target_sum, d))
        counts = np.arange(self.scored, self.scored + len(d))
        means = target_sums[:-1] / np.maximum(counts, 1)
        before = np.append(self._last_target, d[:-1])
        errors = np.column_stack([block.squared_errors, (means - d) ** 2, (before - d) ** 2])
        self._target_sum, self._last_target = float(target_sums[-1]), float(d[-1])
        self._errors = np.cumsum(np.vstack([self._errors, errors]), axis=0)[-1]
        self._recent = np.concatenate([self._recent, errors[:, 0]])[-WINDOW:]
        self._spans.add(errors)

    def curves(self) -> Curves:
        """The errors over time."""
        ends, within = self._spans.over_time()
        so_far = np.cumsum(within * np.diff(ends, prepend=0)[:, None], axis=0) / ends[:, None]
        so_far, within = (dict(zip(self.names, each.T, strict=True)) for each in (so_far, within))
        return Curves(ends, so_far, within)

    def as_dict(self) -> dict[str, Any]:
        """The account as JSON can hold it."""
        return {
            "name": self.names[0],
            "targets": as_text([self._target_sum, self._last_target]),
            "errors": as_text(self._errors),
            "recent": as_text(self._recent),
            "spans": self._spans.as_dict(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Tally:
        """The account that :meth:`as_dict` described.

        >>> Tally.from_dict(Tally("mine").as_dict()).names
        ('mine', 'running mean', 'last value')
        """
        tally = cls(str(saved["name"]))
        tally._target_sum, tally._last_target = from_text(saved["targets"]).tolist()
        tally._errors = from_text(saved["errors"]).reshape(3)
        tally._recent = from_text(saved["recent"])
        tally._spans = Spans.from_dict(saved["spans"])
        return tally
