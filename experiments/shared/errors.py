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


def cell(prediction: ArrayLike, ds: ArrayLike, *, trials: bool = False) -> dict[str, Any]:
    """The MSE of some runs as :func:`spread` has it, with what :func:`compare` needs.

    With ``trials`` every run has a stream of its own; otherwise the runs share one stream and
    differ by their keys. ``blocks`` are the MSE of groups of trials, or of consecutive blocks of
    the stream.
    """
    error = np.square(np.asarray(prediction, np.float64) - np.asarray(ds, np.float64))
    parts = error.mean(axis=1) if trials else error.mean(axis=0)
    blocks = [part.mean() for part in np.array_split(parts, min(BLOCKS, len(parts)))]
    return {**spread(error.mean(axis=1)), "blocks": blocks, "of": "trials" if trials else "keys"}


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[float, float]:
    """How much lower our MSE is than theirs, from two cells, and the standard error of that.

    The error is that over the blocks, where both models see the same samples. Keys add theirs. An
    older record without blocks is of trials, which then count as if the models had seen different
    ones: the error is too large rather than too small.
    """
    if "blocks" not in ours or "blocks" not in theirs:
        apart = sum(side["sd"] ** 2 / side["n"] for side in (ours, theirs))
        return theirs["mean"] - ours["mean"], float(np.sqrt(apart))
    difference = np.asarray(theirs["blocks"]) - np.asarray(ours["blocks"])
    variance = difference.var(ddof=1) / len(difference) if len(difference) > 1 else np.inf
    if ours["of"] == "keys":
        variance += sum(side["sd"] ** 2 / side["n"] for side in (ours, theirs))
    return theirs["mean"] - ours["mean"], float(np.sqrt(variance))


def gain(mine: ArrayLike, theirs: ArrayLike, ds: ArrayLike) -> dict[str, float]:
    """:func:`compare` on the predictions (n, T) of two models over one stream, for the record."""
    difference, error = compare(cell(mine, ds), cell(theirs, ds))
    return {"mean": difference, "error": error}
