"""The paper's data sets, with generated stand-ins where a file is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np

from jboost.paper import datasets


def is_real(name: str) -> bool:
    """Whether the file of a set is there; otherwise :func:`raw` generates a stand-in."""
    return name in datasets.available()


def raw(name: str, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A whole set as its file has it, or the first ``rows`` of a stand-in."""
    return datasets.load(name) if is_real(name) else datasets.stand_in(name, rows)


def scaled(name: str, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of a set, scaled to [−1, 1] by these rows, with a constant column."""
    xs, ds = raw(name, rows)
    return datasets.paper_scaled(xs[:rows], ds[:rows], bias=True)


def in_units(name: str, units: str, rows: int | None) -> tuple[np.ndarray, np.ndarray, float]:
    """The first rows of a set, "raw" or "scaled" to [−1, 1] by the whole set, and a unit of error.

    Squared errors divided by the unit are those of targets in [−1, 1].
    """
    xs, ds = raw(name, rows)
    half = float(ds.max() - ds.min()) / 2
    if units == "scaled":
        xs, ds = datasets.paper_scaled(xs, ds)
        half = 1.0
    return xs[:rows], ds[:rows], half * half


def origin(names: Iterable[str], *, quick: bool) -> str:
    """Where the data of these sets come from, for the record.

    A quick run may use stand-ins and says so on standard error; a full run ends here without files.
    """
    missing = [name for name in names if not is_real(name)]
    if not missing:
        return "the sets"
    if not quick:
        sys.exit(f"no files for {', '.join(missing)}; see jboost.datasets, or use --quick")
    print(f"STAND-IN data for {', '.join(missing)}: not the sets", file=sys.stderr)
    return f"STAND-IN for {', '.join(missing)}, generated"
