"""What a model says of the rows of requests, as arrays and as the reply to a client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jboost.core.step import Trace
from jboost.files.columns import Columns
from jboost.serving.rows import Row


class Estimates(NamedTuple):
    """What a model says of n rows."""

    prediction: np.ndarray  # (n,)
    low: np.ndarray | None  # (n,); None if the model has no intervals
    high: np.ndarray | None
    # Of a forecaster: the forecasts of the next H rows, (n, H, 1), or with their bounds (n, H, 3).
    horizons: np.ndarray | None = None
    flags: list[list[str]] | None = None  # what is odd about each row; None without jb.Flags

    def after(self, rows: int) -> Estimates:
        """Return the estimates without those of the first rows."""
        return Estimates(*(None if array is None else array[rows:] for array in self))  # pyright: ignore[reportArgumentType]


def of_forecaster(trace: Trace, answered: np.ndarray, *, bounds: bool) -> Estimates:
    """Return what a forecaster said.

    A row with an answer has the latest forecast that was made of it before, 0 where there was none;
    a row without one has the forecast of the next row. ``trace`` has observed what
    :func:`jboost.reports.horizons.observed` returns.
    """
    due, y = (np.asarray(array, np.float64) for array in (trace.due, trace.prediction))
    latest = np.argmax(~np.isnan(due), axis=1)[:, None]

    def chosen(of_rows: np.ndarray, of_next: np.ndarray, otherwise: float) -> np.ndarray:
        found = np.take_along_axis(of_rows, latest, axis=1)[:, 0]
        return np.where(answered, np.nan_to_num(found, nan=otherwise), of_next[:, 0])

    prediction = chosen(due, y, 0.0)
    if not bounds:
        return Estimates(prediction, None, None, y[..., None])
    h = np.asarray(trace.observed["half_width"], np.float64)
    low = chosen(trace.observed["low"], y - h, -math.inf)
    high = chosen(trace.observed["high"], y + h, math.inf)
    return Estimates(prediction, low, high, np.stack([y, y - h, y + h], axis=2))


def flags_of(
    observed: Mapping[str, np.ndarray], d: np.ndarray, columns: Columns
) -> list[list[str]]:
    """Return what is odd about rows, as a model with :class:`jboost.Flags` reports it.

    ``d`` has the answers, NaN where there is none; of such a row nothing is odd.
    """
    outside = np.zeros(len(d), bool)
    if "low" in observed:
        outside = (d < observed["low"]) | (d > observed["high"])
    masks = {"outside": outside, "anomaly": observed["anomaly"], "change": observed["change"]}
    for i, column in enumerate(columns.inputs):
        drifted = observed["drifted"][:, np.equal(columns.groups, i)]
        masks[f"drift of {column.name}"] = drifted.any(axis=1)
    found: list[list[str]] = [[] for _ in d]
    for name, mask in masks.items():
        for row in np.flatnonzero(mask & ~np.isnan(d)).tolist():
            found[row].append(name)
    return found


def finite(number: float | None) -> float | None:
    """Return a number that JSON can hold, None for others."""
    return number if number is not None and math.isfinite(number) else None


def reply_of(
    row: Row, prediction: float, bounds: tuple[float, float] | None, horizons: list[Any] | None
) -> dict[str, Any]:
    """Return what the client gets for a row: the prediction, the interval and the horizons."""
    reply: dict[str, Any] = {} if row.id is None else {"id": row.id}
    reply["prediction"] = finite(prediction)
    if bounds is not None:
        reply["interval"] = [*map(finite, bounds)]
    if horizons is not None:
        reply["horizons"] = [_told(*of) for of in horizons]
    return reply


def _told(prediction: float, *bounds: float) -> dict[str, Any]:
    told: dict[str, Any] = {"prediction": finite(prediction)}
    if bounds:
        told["interval"] = [*map(finite, bounds)]
    return told
