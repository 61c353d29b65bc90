"""The errors of other libraries' regressors on the data sets, for ``accuracy.py`` to compare with.

    python experiments/bench/accuracy_peers.py [--rows T] [--only NAME …] [--sets NAME …]

A cell of ``peers.json`` is one regressor on the first rows of one set: its mean squared error when
it predicts before it learns (``mse``), that of the second half of the rows (``late``), and
microseconds of CPU time a sample (``us``), all null where it diverged or raised an exception.
Columns and target are scaled to [−1, 1] by the whole set, as no live stream could be. Where rows
are in the order of time every regressor runs twice: with the last three answers as columns
(``lags``), and without (``plain``). The first row does not count, here and for auto: before the
first answer nothing is known. With ``--record`` the tables and the figure of ``accuracy.py`` are
made again from its kept results.

Regressors have the defaults of their library, LightGBM also better settings (``peer_models.py``).
Where a library is not installed, its regressors are left out, and a sentence says so: run
``pip install river lightgbm capymoa`` in an environment with jboost; CapyMOA needs Java too. The
file is written after every cell, cheap regressors first, and no cell is run again: a run that is
cut goes on where it stopped.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.bench import peer_models as models
from experiments.shared import sets
from experiments.shared.experiment import command_line, parsed, plain, read_json, write_json

FILE = Path(__file__).parent / "results" / "peers.json"
ROWS = 8_192
WARM = 60  # rows that are run before the clock starts
PLAIN, LAGS = "plain", "lags"
Record = dict[str, Any]


class Cell(NamedTuple):
    """One regressor on one set, with the last answers as columns (LAGS) or without (PLAIN)."""

    model: str
    name: str
    inputs: str


def cells(names: Sequence[str], only: Sequence[str]) -> Iterator[Cell]:
    """All cells, cheap regressors first; those that are not compared with auto come last."""
    chosen = [model for model in models.NAMES if model in only]
    for model in chosen:
        yield from (Cell(model, name, comparable(name)) for name in names)
    for model in chosen:
        if model != models.LAST_VALUE:
            yield from (Cell(model, name, PLAIN) for name in names if name in sets.ORDERED)


def comparable(name: str) -> str:
    """The inputs with which peers are compared with auto: with lags where rows are ordered."""
    return LAGS if name in sets.ORDERED else PLAIN


def errors(prediction: Any, ds: Any) -> dict[str, float]:
    """The mean squared error of all rows but the first, and that of the second half."""
    square = np.square(np.asarray(prediction, np.float64) - np.asarray(ds, np.float64))
    return {"mse": float(np.mean(square[1:])), "late": float(np.mean(square[len(ds) // 2 :]))}


def measure(cell: Cell, rows: int) -> dict[str, float]:
    """The errors of one cell and its time a sample, infinite where the regressor breaks down."""
    xs, ds = (part[:rows] for part in sets.scaled(*sets.load(cell.name, rows)))
    if cell.inputs == LAGS:
        xs = sets.with_lags(xs, ds)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of the libraries warn while they diverge
            models.predictions(cell.model, xs[:WARM], ds[:WARM])  # imports what it needs
            start = time.process_time()
            found = errors(models.predictions(cell.model, xs, ds), ds)
    except (ArithmeticError, ValueError):  # what regressors of river raise when they break down
        return {"mse": math.inf, "late": math.inf, "us": math.inf}
    return found | {"us": 1e6 * (time.process_time() - start) / len(ds)}


def best(record: Record, name: str, library: str, error: str = "mse") -> tuple[str, float]:
    """The best regressor of a library on a set, and its error; ("", inf) where there is none."""
    found = {
        model: cell[error]
        for model, cell in record.get("sets", {}).get(name, {}).get(comparable(name), {}).items()
        if models.library(model) == library and cell[error] is not None
    }
    return min(found.items(), key=lambda pair: pair[1], default=("", math.inf))


def installed(only: Sequence[str]) -> dict[str, str]:
    """The versions of the libraries that are there; a sentence for each that is not."""
    found = {}
    for library in dict.fromkeys(map(models.library, only)):
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            print(f"{library} is not installed: its regressors are left out")
    return found


def started(record: Record, rows: int, versions: dict[str, str]) -> Record:
    """The record to go on with: cells of another length or version of a library are dropped."""
    if record.get("rows") != rows or record.get("seed") != models.SEED:
        record = {"rows": rows, "seed": models.SEED, "versions": {}, "sets": {}}
    before = record["versions"]
    stale = {library for library, now in versions.items() if before.get(library, now) != now}
    for by_inputs in record["sets"].values():
        for inputs, row in by_inputs.items():
            by_inputs[inputs] = {m: c for m, c in row.items() if models.library(m) not in stale}
    return record | {"versions": before | versions}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, help=f"rows of every set (default: {ROWS:,})")
    parser.add_argument(
        "--only", nargs="+", choices=models.NAMES, default=models.NAMES, metavar="NAME"
    )
    parser.add_argument("--sets", nargs="+", choices=sets.NAMES, metavar="NAME")
    args = parsed(parser, argv, __file__)
    names = args.sets or (sets.NAMES[:1] if args.quick else sets.NAMES)
    rows = args.rows or (100 if args.quick else ROWS)
    sets.origin(names, quick=args.quick)
    versions = installed(args.only)
    file = args.out / FILE.name
    record = started(read_json(file) or read_json(FILE), rows, versions)
    for cell in cells(names, args.only):
        row = record["sets"].setdefault(cell.name, {}).setdefault(cell.inputs, {})
        if cell.model in row or models.library(cell.model) not in versions:
            continue
        found = measure(cell, rows)
        row[cell.model] = plain(found)
        write_json(record, file)
        print(f"{' '.join(cell)}: {found['mse']:.4g}, {found['us']:.0f} µs", flush=True)
    write_json(record, file)
    print(f"results in {file}")
    if args.record:
        from experiments.bench import accuracy_limits  # which needs this module

        accuracy_limits.redraw()


if __name__ == "__main__":
    main()
