"""Forecasts of the next H answers on five ordered sets, beside naive ones and other libraries.

The first 16,384 rows of each set, scored at every H-th row of the second half; H is a day, of wind
four hours. The time of the rows to come and the columns that are known in advance (holidays) are
known to all; other columns up to the row of the forecast. Coverage is that of 90 % intervals over
all rows of the second half.

Other libraries run in an environment that the script makes in the folder of temporary files, as
their pandas is another; the variable JBOOST_PEERS may name a Python that has them. Their results
are kept there, so that a run that was cut goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jboost as jb
from experiments.bench.forecast_sets import ROWS, SETS, Series, load
from experiments.shared.experiment import TEMPORARY, Experiment, Progress
from jboost.forecasts import by_horizon, with_known

PACKAGES = ("skforecast==0.26.0", "lightgbm==4.7.0", "river==0.26.1", "statsforecast==2.1.1")
LIGHTGBM = "skforecast LightGBM"
QUICK_ROWS = 2_048


def model_and_inputs(series: Series) -> tuple[jb.Forecast, np.ndarray]:
    """Return the forecaster of a set, and its x: the time, the columns, and those known ahead."""
    xs = np.column_stack([series.time, series.x])
    known = (0, *(1 + column for column in series.known))
    model = jb.Forecast(
        horizon=series.horizon,
        known=known,
        calendar=jb.Calendar(0, "hours", "2024-01-01"),  # a Monday
        step=series.step,
    )
    return model, with_known(xs, known, series.horizon).astype(np.float32)


def ours(series: Series) -> dict[str, Any]:
    """Return the errors, the coverage and the time of ``Forecast`` on a set."""
    model, xs = model_and_inputs(series)
    ds, half = series.y.astype(np.float32), len(series.y) // 2
    began = time.perf_counter()
    jb.run(model, xs[:64], ds[:64], observe=jb.intervals.band)
    compiled = time.perf_counter()
    _, trace = jb.run(model, xs, ds, observe=jb.intervals.band)
    forecasts = np.asarray(trace.prediction, float)[series.origins]
    seconds = time.perf_counter() - compiled
    low, high = (np.asarray(bound)[half:] for bound in trace.observed)
    scores = by_horizon(trace.due[half:], series.y[half:], low=low, high=high)
    return {
        "mase": series.mase(forecasts),
        "coverage": scores.coverage,
        "seconds": seconds,
        "compile_seconds": compiled - began,
        "microseconds": 1e6 * seconds / len(ds),
    }


def naive(series: Series) -> dict[str, Any]:
    """Return the errors of the last value, and of the values days and weeks before."""
    seasons = {"last value": 1, "a day before": series.day, "a week before": 7 * series.day}
    found = {}
    for name, season in seasons.items():
        values = series.naive(season)
        if name == "last value":
            values = np.repeat(series.y[series.origins][:, None], series.horizon, axis=1)
        found[name] = {"mase": series.mase(values)}
    return found


def later(name: str, rows: int) -> dict[str, Any] | None:
    """Return our errors and the best naive ones on the rows after the first; None if too few."""
    series = load(name, first=rows, rows=rows)
    if len(series.y) < rows:
        return None
    mine = ours(series)
    best = min((np.mean(found["mase"]), label) for label, found in naive(series).items())
    return {
        "mase": float(np.mean(mine["mase"])),
        "naive": float(best[0]),
        "best naive": best[1],
        "coverage": [float(mine["coverage"].min()), float(mine["coverage"].max())],
    }


def peers(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Return the results of other libraries, by set and name; computed where they are not kept."""
    folder = TEMPORARY / ("forecast-peers-quick" if experiment.quick else "forecast-peers")
    python = os.environ.get("JBOOST_PEERS") or _environment(TEMPORARY / "forecast-environment")
    command = [python, "-m", "experiments.bench.forecast_peers", str(folder)]
    command += ["--quick"] if experiment.quick else []
    root = Path(__file__).resolve().parents[2]
    subprocess.run(command, check=True, cwd=root)
    found: dict[str, dict[str, Any]] = {name: {} for name in SETS}
    for path in sorted(folder.glob("*.json")):
        name, _, peer = path.stem.partition(", ")
        found[name][peer] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _environment(folder: Path) -> str:
    """Make a virtual environment with the packages of the peers; return its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return str(python)


def verdicts(results: dict[str, Any]) -> dict[str, Any]:
    """Return what must hold, with the figures."""
    ratios, times, below_naive, below_river, coverage = [], [], {}, {}, {}
    for name, by_model in results.items():
        mine = np.array(by_model["Forecast"]["mase"])
        best = np.minimum(*(by_model[f"a {s} before"]["mase"] for s in ("day", "week")))
        below_naive[name] = int((mine < best).sum()), len(mine)
        covered = np.array(by_model["Forecast"]["coverage"])
        coverage[name] = [float(covered.min()), float(covered.max())]
        if "river" in by_model:
            below_river[name] = float(mine.mean() / np.mean(by_model["river"]["mase"]))
        if LIGHTGBM in by_model:
            ratios.append(float(mine.mean() / np.mean(by_model[LIGHTGBM]["mase"])))
            seconds = by_model["Forecast"]["seconds"] + by_model["Forecast"]["compile_seconds"]
            times.append(seconds / by_model[LIGHTGBM]["seconds"])
    return {
        "horizons below the better of the daily and the weekly naive forecast": below_naive,
        "MASE over river's": below_river,
        "coverage": coverage,
        "geometric mean of the MASE over LightGBM's": float(np.exp(np.mean(np.log(ratios)))),
        "largest time over LightGBM's": max(times),
    }


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    rows = experiment.samples(ROWS, QUICK_ROWS)
    bar = Progress("forecast", 2 * len(SETS) + 1)
    results: dict[str, Any] = {}
    unseen = {}
    for name in SETS:
        series = load(name, rows=rows)
        results[name] = {"Forecast": ours(series)} | naive(series)
        bar.add(1, name)
        unseen[name] = later(name, rows)
        bar.add(1, f"{name}, later rows")
    for name, found in peers(experiment).items():
        results[name] |= found
    bar.add(1, "other libraries")
    summary = verdicts(results)
    for text, figures in summary.items():
        print(f"{text}: {figures}")
    settings = {"rows": rows, "horizons": {name: load(name, rows=rows).horizon for name in SETS}}
    experiment.write(
        settings | {"peers": PACKAGES}, {"sets": results, "later": unseen, "verdicts": summary}
    )


if __name__ == "__main__":
    main()
