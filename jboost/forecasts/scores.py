"""Errors of a run of a forecaster, by horizon."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jboost.core import checks
from jboost.core.numerics import LARGEST


class Scores(NamedTuple):
    """Errors by horizon: every field is (H,), NaN where no answer came."""

    mae: np.ndarray  # the mean absolute error
    rmse: np.ndarray  # the root of the mean squared error
    mase: np.ndarray  # the MAE over that of the value one season before
    coverage: np.ndarray  # the part of the answers inside the intervals; NaN without intervals
    answers: np.ndarray  # how many answers came


def by_horizon(
    due: ArrayLike, ds: ArrayLike, *,
    season: int = 1, low: ArrayLike | None = None, high: ArrayLike | None = None,
) -> Scores:  # fmt: skip
    """Return the errors of what was forecast, by horizon.

    Args:
      due: ``trace.due``, (T, H): what was forecast of each row.
      ds: (T,) answers.
      season: in rows. MASE divides by the mean absolute difference of answers a season apart.
      low, high: the bounds for each row, (T, H): ``info.low`` and ``info.high``.

    >>> due = [[np.nan, np.nan], [1.0, np.nan], [3.0, 5.0]]
    >>> scores = by_horizon(due, [1.0, 2.0, 3.0])
    >>> scores.mae.tolist(), scores.mase.tolist(), scores.answers.tolist()
    ([0.5, 2.0], [0.5, 2.0], [2, 1])
    """
    due, ds = np.asarray(due, np.float64), np.asarray(ds, np.float64)
    season = checks.whole("season", season, at_least=1)
    if due.ndim != 2 or ds.shape != due.shape[:1]:
        raise ValueError(f"due must be (T, H) and ds (T,); got {due.shape} and {ds.shape}")
    answers = np.where(np.abs(ds) < LARGEST, ds, np.nan)
    e = due - answers[:, None]
    mae = _mean(np.abs(e))
    unit = _mean(np.abs(answers[season:] - answers[:-season])[:, None])[0]
    coverage = np.full_like(mae, np.nan)
    if low is not None and high is not None:
        inside = (np.asarray(low) <= answers[:, None]) & (answers[:, None] <= np.asarray(high))
        coverage = _mean(np.where(np.isnan(e), np.nan, inside))
    count = np.sum(~np.isnan(e), axis=0)
    return Scores(mae, np.sqrt(_mean(e**2)), mae / (unit or np.nan), coverage, count)


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of each column over the rows that are there; NaN without any."""
    there = ~np.isnan(values)
    count = there.sum(axis=0)
    total = np.where(there, values, 0).sum(axis=0)
    return np.where(count, total / np.maximum(count, 1), np.nan)
