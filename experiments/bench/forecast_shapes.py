"""Forecasts of made streams of many shapes, beside the last value and the value a season ago.

Trends, seasons that grow, level shifts, rare answers, missing stretches, units from 1e-9 to 1e9:
what a forecaster meets that nobody tuned it on. A column counts the rows; no season is told. The
mean absolute error over all 24 horizons in the second half of 3,000 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.shared.experiment import Experiment

ROWS, QUICK_ROWS, H = 3_000, 256, 24
QUICK = 3  # shapes


def shapes(rows: int) -> dict[str, tuple[np.ndarray, int]]:
    """Return the answers of each shape, NaN where one is missing, and its season in rows."""
    rng = np.random.default_rng(0)
    t, noise = np.arange(rows), rng.normal(size=rows)
    day = np.sin(2 * np.pi * t / 24) + 0.5 * np.cos(4 * np.pi * t / 24)
    week = np.array([5.0, 6, 6, 6, 7, 2, 1])[t % 7]
    growth, levels = 1 + t / 300, rng.normal(size=rows // 500 + 1)[t // 500]
    seasonal, chance = 5 * day + noise, rng.random(rows)
    reverting = np.zeros(rows)
    for i in range(1, rows):
        reverting[i] = 0.9 * reverting[i - 1] + noise[i]
    moved = np.where(t < rows // 2, np.sin(2 * np.pi * t / 24), np.sin(2 * np.pi * t / 30))
    return {
        "a trend": (0.05 * t + noise, 24),
        "a trend and a season": (0.05 * t + seasonal, 24),
        "a season that grows": (growth * (3 + day) * np.exp(0.1 * noise), 24),
        "the same, negative": (-growth * (3 + day) * np.exp(0.1 * noise), 24),
        "exponential growth": (np.exp(t / 500) * (3 + day) * np.exp(0.05 * noise), 24),
        "level shifts": (10 * levels + 3 * day + noise, 24),
        "a season that ends": (np.where(t < 0.6 * rows, 5 * day, 0) + noise, 24),
        "a season that changes": (5 * moved + noise, 24),
        "rare answers": (rng.poisson(3, rows) * (chance < 0.15), 7),
        "small counts": (rng.poisson(0.3, rows), 24),
        "counts by the hour": (rng.poisson(2 * np.maximum(day, 0)), 24),
        "zero at night": (10 * np.maximum(day, 0) * np.exp(0.2 * noise), 24),
        "a spike a day": (20.0 * (t % 24 == 7) + noise, 24),
        "days of a week": (10 * week + 3 * noise, 7),
        "a period of five": (5.0 * (t % 5 == 0) + 0.3 * noise, 5),
        "a period of 365": (10 * np.sin(2 * np.pi * t / 365) + noise, 365),
        "day and week": (seasonal + 4 * np.sin(2 * np.pi * t / 168), 168),
        "a season without noise": (5 * day, 24),
        "a constant": (np.full(rows, 7.0), 24),
        "a step": (np.where(t < 0.6 * rows, 7.0, 9.0), 24),
        "a random walk": (np.cumsum(noise), 24),
        "white noise": (noise, 24),
        "back to the mean": (reverting, 24),
        "heavy tails": (5 * day + rng.standard_t(1.5, rows), 24),
        "outliers": (seasonal + 1000 * (chance < 0.003), 24),
        "missing stretches": (np.where(t // 90 % 4 == 3, np.nan, seasonal), 24),
        "a third missing": (np.where(chance < 0.33, np.nan, seasonal), 24),
        "in units of 1e9": (1e9 * (3 + day + 0.3 * noise), 24),
        "in units of 1e-9": (1e-9 * (3 + day + 0.3 * noise), 24),
        "on top of 1e6": (1e6 + 100 * (day + 0.3 * noise), 24),
    }


def errors(answers: np.ndarray, season: int) -> dict[str, float]:
    """Return the error of the forecaster and of the naive forecasts in the second half."""
    rows, half = len(answers), len(answers) // 2
    model = jb.Forecast(horizon=H, calendar=jb.Calendar(0, cycles=("elapsed",)))
    xs = np.arange(rows, dtype=np.float32)[:, None]
    _, trace = jb.run(model, xs, answers.astype(np.float32))
    there = np.maximum.accumulate(np.where(np.isnan(answers), 0, np.arange(rows)))
    latest = answers[there]  # a missing answer is the one before it
    ahead = np.arange(1, H + 1)
    row = np.arange(half, rows)[:, None]
    naive = {
        "last value": latest[row - ahead],
        "a season ago": latest[np.maximum(row - season * -(-ahead // season), 0)],
    }
    due = np.asarray(jax.device_get(trace.due), np.float64)[half:]
    found = {"Forecast": due, **naive}
    e = {name: np.abs(values - answers[half:, None]) for name, values in found.items()}
    counts = ~np.isnan(due) & ~np.isnan(answers[half:, None])
    return {name: float(sizes[counts].mean()) for name, sizes in e.items()}


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    rows = experiment.samples(ROWS, QUICK_ROWS)
    todo = [*shapes(rows).items()][: experiment.size(len(shapes(rows)), QUICK)]
    results: dict[str, Any] = {}
    for (name, (_, season)), found in zip(
        todo,
        experiment.each(lambda item: errors(*item[1]), todo, lambda item: item[0], workers=1),
        strict=True,
    ):
        results[name] = {"season": season, **found}
        best = min(found["last value"], found["a season ago"])
        print(f"{name}: {found['Forecast']:.4g}, the better naive one {best:.4g}")
    experiment.write({"rows": rows, "horizon": H}, {"shapes": results})


if __name__ == "__main__":
    main()
