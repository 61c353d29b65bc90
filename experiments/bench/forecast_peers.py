"""Forecasts of other libraries on the ordered sets; forecast.py runs it in another environment.

    python -m experiments.bench.forecast_peers RESULTS [--quick] [SET …]

skforecast's direct LightGBM is refitted every 1,000 rows on all rows so far. It has the lags 1 … 6,
of a day and of a week, the calendar and the known columns at the target, and the other columns as
they were H rows before it. river's SNARIMAX and HoltWinters have the settings that were best on the
first tenth. MSTL with AutoETS (statsforecast) is fitted at every origin on the last eight weeks of
the load series. A result that is there is not computed again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench.forecast_sets import CLOCK, SETS, Series, load

REFIT = 1000  # rows
TUNED = 0.1  # the part of the rows that river's settings are chosen on


def lightgbm(series: Series) -> np.ndarray:
    """Return the forecasts of skforecast's direct LightGBM, (origins, H)."""
    import pandas as pd
    from lightgbm import LGBMRegressor  # pyright: ignore[reportMissingImports]
    from skforecast.direct import ForecasterDirect  # pyright: ignore[reportMissingImports]

    H, day = series.horizon, series.day
    clock = np.column_stack([series.time % 24, series.time // 24 % 7])
    months = [c for c in ("month", "mnth") if c in series.columns]
    of_target = [series.columns.index(c) for c in months] + series.known
    others = [i for i, c in enumerate(series.columns) if i not in of_target and c not in CLOCK]
    late = np.vstack([np.full((H, len(others)), np.nan), series.x[:-H, others]])
    exog = pd.DataFrame(np.column_stack([clock, series.x[:, of_target], late]))
    exog.columns = [f"e{i}" for i in exog.columns]
    y = pd.Series(series.y)
    lags = sorted({1, 2, 3, 4, 5, 6, day, *([7 * day] if 28 * day < len(y) else [])})
    forecasts, fitted, model = [], -REFIT, None
    for origin in series.origins.tolist():
        if origin - fitted >= REFIT:
            learner = LGBMRegressor(objective="mae", verbose=-1, n_jobs=1, random_state=0)
            model = ForecasterDirect(steps=H, estimator=learner, lags=lags, n_jobs=1)
            model.fit(y=y[: origin + 1], exog=exog[: origin + 1])
            fitted = origin
        assert model is not None
        window = y[origin + 1 - lags[-1] : origin + 1]
        ahead = exog[origin + 1 : origin + 1 + H]
        forecasts.append(model.predict(steps=H, last_window=window, exog=ahead).to_numpy())
    return np.array(forecasts)


def river(series: Series) -> np.ndarray:
    """Return the forecasts of the better of river's forecasters on the first tenth."""
    from river import time_series

    H, m = series.horizon, series.day
    makes: list[Callable[[], Any]] = [
        lambda p=p, sp=sp, sd=sd: time_series.SNARIMAX(p=p, d=0, q=0, m=m, sp=sp, sd=sd)
        for p in (3, 12) for sp, sd in ((0, 0), (1, 0), (3, 0), (1, 1))
    ]  # fmt: skip
    makes += [
        lambda a=a, g=g: time_series.HoltWinters(alpha=a, beta=0.01, gamma=g, seasonality=m)
        for a in (0.1, 0.3) for g in (0.1, 0.3)
    ]  # fmt: skip

    def run(make: Callable[[], Any], stop: int, origins: set[int]) -> dict[int, np.ndarray]:
        model, found = make(), {}
        for row in range(stop):
            model.learn_one(float(series.y[row]))
            if row in origins:
                found[row] = np.array(model.forecast(H), float)
        return found

    tenth = int(TUNED * len(series.y))
    trial = range(tenth // 2, tenth - H, H)

    def score(make: Callable[[], Any]) -> float:
        try:
            found = run(make, tenth, {*trial})
        except (IndexError, ValueError, ZeroDivisionError, OverflowError):  # too few rows
            return np.inf
        errors = [np.abs(y - series.y[t + 1 : t + 1 + H]).mean() for t, y in found.items()]
        return float(np.nan_to_num(np.mean(errors), nan=np.inf))

    best = min(makes, key=score)
    found = run(best, int(series.origins[-1]) + 1, {*series.origins.tolist()})
    return np.array([found[row] for row in series.origins.tolist()])


def mstl(series: Series) -> np.ndarray:
    """Return the forecasts of statsforecast's MSTL with AutoETS."""
    from statsforecast.models import MSTL, AutoETS  # pyright: ignore[reportMissingImports]

    rows, forecasts = 8 * 7 * series.day, []
    for origin in series.origins.tolist():
        model = MSTL(
            season_length=[series.day, 7 * series.day], trend_forecaster=AutoETS(model="ZZN")
        )
        past = series.y[max(origin + 1 - rows, 0) : origin + 1]
        forecasts.append(model.forecast(y=past, h=series.horizon)["mean"])
    return np.array(forecasts)


PEERS = {"river": river, "skforecast LightGBM": lightgbm, "statsforecast MSTL": mstl}


def main() -> None:
    """Write a file for each set and peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("sets", nargs="*", default=[])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.results.mkdir(parents=True, exist_ok=True)
    for peer, forecast in PEERS.items():
        for name in args.sets or SETS:
            path = args.results / f"{name}, {peer}.json"
            if path.exists() or (peer == "statsforecast MSTL" and name != "vic_electricity"):
                continue
            series = load(name, rows=2_048) if args.quick else load(name)
            began = time.perf_counter()
            forecasts = forecast(series)
            seconds = time.perf_counter() - began
            scores = {"mase": series.mase(forecasts).tolist(), "seconds": seconds}
            path.write_text(json.dumps(scores) + "\n", encoding="utf-8")
            print(f"{path.stem}: {np.mean(scores['mase']):.3f}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
