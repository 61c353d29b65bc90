"""Errors of predictions: over time, at the end, and their spread over trials."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

POINTS = 80  # points of a curve that the JSON has
BLOCKS = 20  # consecutive blocks of a stream, whose errors tell how far chance reaches
Curve = NDArray[np.float64]


def ase(prediction: ArrayLike, ds: ArrayLike) -> Curve:
    """The mean squared error so far, over the last axis, in float64 on the host."""
    error = np.square(np.asarray(prediction, np.float64) - np.asarray(ds, np.float64))
    return np.cumsum(error, axis=-1) / np.arange(1, error.shape[-1] + 1)


def times(T: int, points: int = POINTS) -> NDArray[np.int64]:
    """Up to ``points`` whole times from 1 to T, evenly spaced."""
    return np.unique(np.linspace(1, T, min(points, T)).round().astype(np.int64))


def curve(prediction: ArrayLike, ds: ArrayLike) -> dict[str, Any]:
    """The mean squared error so far at a few times: mean and deviation over trials (axis 0)."""
    errors = ase(prediction, ds)
    t = times(errors.shape[-1])
    shown = errors[:, t - 1]
    sd = {"sd": shown.std(axis=0, ddof=1)} if len(shown) > 1 else {}
    return {"t": t, "mean": shown.mean(axis=0), **sd}


def spread(values: ArrayLike) -> dict[str, float]:
    """Mean and number of the values, and their standard deviation, which is 0 for one value."""
    values = np.asarray(values, np.float64)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(values.mean()), "sd": deviation, "n": len(values)}


def gain(
    mine: ArrayLike, theirs: ArrayLike, ds: ArrayLike, *, trials: bool = False
) -> dict[str, float]:
    """How much lower the MSE of ``mine`` is than that of ``theirs``, and the spread of that.

    All have runs along axis 0 and time along axis 1. With ``trials`` every run has a stream of its
    own, and ``error`` is the standard error of the gain over them. Otherwise all runs share one
    stream: ``error`` joins the standard error over BLOCKS consecutive blocks of that stream with
    the one over the runs, which differ by their keys.
    """
    a, b, d = (np.asarray(v, np.float64) for v in (theirs, mine, ds))
    difference = np.square(a - d) - np.square(b - d)
    runs = difference.mean(axis=1)
    variance = runs.var(ddof=1) / len(runs) if len(runs) > 1 else 0.0
    if not trials:
        blocks = np.array([part.mean() for part in np.array_split(difference.mean(axis=0), BLOCKS)])
        variance += blocks.var(ddof=1) / BLOCKS
    return {"mean": float(runs.mean()), "error": float(np.sqrt(variance))}
