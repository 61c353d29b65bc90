"""The errors of river's regressors on the eight data sets, for ``accuracy.py`` to compare with.

    python experiments/bench/accuracy_peers.py [--rows T] [--only NAME …] [--sets NAME …]

Every cell of ``peers.json`` is one regressor on the first rows of one set: its mean squared error
when it predicts before it learns. Errors on raw sets are divided by the square of half the range of
the target, so that all are in the units of targets in [−1, 1]. They depend only on river's version
and on the seed, so a cell is never run again. The file is written after every cell, cheap
regressors first; a run that is cut goes on where it stopped. Times depend on the machine and are
not kept here: ``accuracy.py`` measures them in its own run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.shared import data
from experiments.shared.experiment import command_line, parsed, read_json, write_json
from experiments.shared.peers import river_predictions
from jboost.paper import datasets

FILE = Path(__file__).parent / "results" / "peers.json"
ROWS = 8_192
SEED = 1
UNITS = ("scaled", "raw")
SCALED = " behind StandardScaler"
# By cost: (name, module, has a seed).
CLASSES = (
    ("LinearRegression", "linear_model", False),
    ("BayesianLinearRegression", "linear_model", False),
    ("HoeffdingTreeRegressor", "tree", False),
    ("HoeffdingAdaptiveTreeRegressor", "tree", True),
    ("AMRules", "rules", False),
    ("ARFRegressor", "forest", True),
    ("SRPRegressor", "ensemble", True),
)
NAMES = tuple(
    name + behind
    for name, _, _ in CLASSES
    for behind in (("",) if name == "SRPRegressor" else ("", SCALED))
)
Floats = NDArray[np.float64]


def make(name: str) -> Any:
    """A new regressor with river's defaults."""
    plain = name.removesuffix(SCALED)
    cls, module, seeded = next(entry for entry in CLASSES if entry[0] == plain)
    regressor = getattr(import_module(f"river.{module}"), cls)(**{"seed": SEED} if seeded else {})
    if name == plain:
        return regressor
    return import_module("river.preprocessing").StandardScaler() | regressor


def measure(model: str, name: str, units: str, rows: int) -> tuple[float, float]:
    """The error of one cell, infinite where the regressor diverged, and the seconds it took."""
    xs, ds, unit = data.in_units(name, units, rows)
    start = time.perf_counter()
    try:
        with np.errstate(all="ignore"):
            said = river_predictions(_Ordinary(make(model)), xs, ds)
            mse = float(np.mean(np.square(said - np.asarray(ds, np.float64)))) / unit
    except (ArithmeticError, ValueError):
        mse = math.inf  # some of river's optimisers raise once they have diverged
    return mse if math.isfinite(mse) else math.inf, time.perf_counter() - start


class _Ordinary:
    """A regressor whose predictions are plain floats."""

    def __init__(self, regressor: Any) -> None:
        self.learn_one: Callable[..., Any] = regressor.learn_one
        self.regressor = regressor

    def predict_one(self, x: dict[Any, float]) -> float:
        return float(self.regressor.predict_one(x) or 0.0)


def best(record: dict[str, Any], name: str, units: str) -> tuple[str, float]:
    """river's best regressor on a set, and its error; ("", inf) where the record has none."""
    cells = record.get("mse", {}).get(units, {}).get(name, {})
    known = {model: error for model, error in cells.items() if error is not None}
    return min(known.items(), key=lambda cell: cell[1], default=("", math.inf))


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, help=f"rows of every set (default: {ROWS:,})")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--sets", nargs="+", default=datasets.names(), metavar="NAME")
    parser.add_argument("--units", nargs="+", choices=UNITS, default=UNITS)
    args = parsed(parser, argv, __file__)
    rows = args.rows or (100 if args.quick else ROWS)
    data.origin(args.sets, quick=args.quick)
    stamp = {"river": version("river"), "seed": SEED, "rows": rows}
    file = args.out / FILE.name
    record = read_json(file) or read_json(FILE)
    if {key: record.get(key) for key in stamp} != stamp:
        record = {**stamp, "note": "MSE, targets in [-1, 1]; null: diverged", "mse": {}}
    cells = [(m, u, s) for u in args.units for m in NAMES for s in args.sets if m in args.only]
    for model, units, name in cells:
        row = record["mse"].setdefault(units, {}).setdefault(name, {})
        if model in row:
            continue
        mse, seconds = measure(model, name, units, rows)
        row[model] = float(f"{mse:.5g}") if math.isfinite(mse) else None
        write_json(record, file)
        print(f"{units} {name}: {model} {mse:.4g}, {seconds:.0f} s", flush=True)
    write_json(record, file)
    print(f"results in {file}")


if __name__ == "__main__":
    main()
