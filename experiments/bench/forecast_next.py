"""The next answer: ``jb.Forecast(horizon=1)`` beside ``jb.auto()`` on the five ordered sets.

Both know x of the row that they estimate: auto sees it with the row, and Forecast gets it as known
in advance. Forecast is told the time too. The errors are over the second half of the first 8,192
rows. auto is made for the squared error, and Forecast for the absolute one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import jboost as jb
from experiments.bench.forecast_sets import SETS, Series, load
from experiments.shared.experiment import Experiment
from jboost.forecasts import with_known

ROWS, QUICK_ROWS = 8_192, 256


def errors(series: Series) -> dict[str, dict[str, float]]:
    """Return the errors of both and of the last value on a set."""
    ds, half = series.y.astype(np.float32), len(series.y) // 2
    xs = np.column_stack([series.time, series.x])
    known = tuple(range(xs.shape[1]))
    clock = jb.Calendar(0, "hours", "2024-01-01")  # a Monday
    model = jb.Forecast(horizon=1, known=known, calendar=clock, step=series.step)
    _, trace = jb.run(model, with_known(xs, known, 1).astype(np.float32), ds)
    _, of_auto = jb.run(jb.auto(), series.x.astype(np.float32), ds)
    found = {
        "Forecast": np.asarray(trace.due)[half:, 0],
        "auto": np.asarray(of_auto.prediction)[half:],
        "last value": ds[half - 1 : -1],
    }
    e = {name: values.astype(float) - series.y[half:] for name, values in found.items()}
    return {
        name: {"mae": float(np.abs(of).mean()), "mse": float((of**2).mean())}
        for name, of in e.items()
    }


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    rows = experiment.samples(ROWS, QUICK_ROWS)
    todo = SETS[: experiment.size(len(SETS), 1)]
    found = experiment.each(lambda name: errors(load(name, rows=rows)), todo, workers=1)
    results = dict(zip(todo, found, strict=True))
    for name, of in results.items():
        last = of["last value"]
        text = (
            f"{who} {of[who]['mae'] / last['mae']:.3f} {of[who]['mse'] / last['mse']:.3f}"
            for who in ("Forecast", "auto")
        )
        print(f"{name}: MAE and MSE over those of the last value: {', '.join(text)}")
    experiment.write({"rows": rows}, {"sets": results})


if __name__ == "__main__":
    main()
