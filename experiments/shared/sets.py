"""The eighteen data sets of the accuracy benchmark; the rows of five are in the order of time.

Eight are the sets of the paper. The others are read from ``<name>.npz`` in the folder that
``JBOOST_DATA`` names, with ``x`` (T, r), where NaN is a gap, and ``y`` (T,), both unscaled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.shared import data
from jboost.paper import datasets

# The constants of auto were chosen on the first nine sets; the other nine were held out.
CHOSEN = (
    *("kin8nm", "california", "mv", "onp", "pol", "elevators"),
    *("bike_hour", "vic_electricity", "wind"),
)
HELD_OUT = (
    *("puma8nh", "compactiv", "protein", "ypmsd", "puma32h", "powerplant", "fried"),
    *("metro_traffic", "beijing_air"),
)
NAMES = CHOSEN + HELD_OUT
ORDERED = ("bike_hour", "vic_electricity", "wind", "metro_traffic", "beijing_air")
LAGS = 3  # past answers that peers get as columns where rows are ordered
Floats = NDArray[np.float64]


def origin(names: Sequence[str], *, quick: bool) -> str:
    """Return where the data of these sets come from; end a full run where files are missing."""
    missing = [name for name in names if name not in datasets.SETS and not _file(name).is_file()]
    if missing:
        sys.exit(f"no files for {', '.join(missing)} in the folder that JBOOST_DATA names")
    return data.origin((name for name in names if name in datasets.SETS), quick=quick)


def load(name: str, rows: int | None = None) -> tuple[Floats, Floats]:
    """Return a whole set as its file has it, in float64.

    A set of the paper without a file is replaced by the first ``rows`` of its stand-in.
    """
    if name in datasets.SETS:
        xs, ds = data.raw(name, rows)
    else:
        with np.load(_file(name), allow_pickle=False) as file:
            xs, ds = file["x"], file["y"]
    return xs.astype(np.float64), ds.astype(np.float64)


def half_range(ds: Floats) -> float:
    """Return half the range of the targets: errors are given in this unit."""
    return float(np.ptp(ds)) / 2


def scaled(xs: Floats, ds: Floats) -> tuple[Floats, Floats]:
    """Scale every column and the target to [−1, 1] by the whole set; constants become 0.

    Gaps stay gaps. A live stream cannot be scaled so: it favours the models that get it.
    """
    table = np.column_stack([xs, ds])
    low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
    unit = 2 * (table - low) / np.where(high > low, high - low, np.inf) - (high > low)
    return unit[:, :-1], unit[:, -1]


def with_lags(xs: Floats, ds: Floats) -> Floats:
    """Append the last answers as columns, the newest first; before the first answer they are 0."""
    past = np.concatenate([np.zeros(LAGS), ds])
    lags = [past[LAGS - k : LAGS - k + len(ds)] for k in range(1, LAGS + 1)]
    return np.column_stack([xs, *lags])


def without_gaps(xs: Floats) -> Floats:
    """Fill every gap with the latest value of its column, 0 before the first."""
    usable = np.isfinite(xs)
    latest = np.maximum.accumulate(np.where(usable, np.arange(1, len(xs) + 1)[:, None], 0), axis=0)
    values = np.concatenate([np.zeros((1, xs.shape[1])), np.where(usable, xs, 0.0)])
    return np.take_along_axis(values, latest, axis=0)


def _file(name: str) -> Path:
    return Path(os.environ.get("JBOOST_DATA", "")).expanduser() / f"{name}.npz"
