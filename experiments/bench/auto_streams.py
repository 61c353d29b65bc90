"""auto on generated streams: its promises, and kinds of streams that its constants never saw.

The promises: an error below 1e-3 on Duffing; within 2 % of Newton's method on the stationary
stream; within 1.2 times its old error 500 samples after all coefficients change; finite, in
constant memory, over a million float32 samples of a hard set that is repeated with changes.

The kinds: many columns of which few matter, codes of categories, daily and weekly periods with and
without lags, gross outliers, constant and duplicated columns, steps, and a stream of 1,000 rows.
Their errors stand beside those of a line (Newton) and of three of river's regressors behind its
StandardScaler. Lines and curves that change at once, and a line that turns, are run with two sizes.
"""

from __future__ import annotations

import resource
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import jboost as jb
from experiments.bench import peer_models as peers
from experiments.shared import markdown
from experiments.shared.experiment import Experiment, read_json
from experiments.shared.peers import river_predictions
from jboost import catalogue
from jboost.automatic import auto
from jboost.paper import datasets

RIVALS = tuple(
    name + peers.SCALED for name in ("HoeffdingAdaptiveTreeRegressor", "AMRules", "ARFRegressor")
)
Floats = NDArray[np.float64]
Stream = tuple[Any, Any]
Rng = np.random.Generator


def wide(rng: Rng, T: int) -> Stream:
    """100 columns, of which three matter."""
    x = rng.normal(size=(T, 100))
    d = 2 * x[:, 17] + np.sin(2 * x[:, 60]) + x[:, 60] * x[:, 91]
    return x, d + 0.3 * rng.normal(size=T)


def codes(rng: Rng, T: int) -> Stream:
    """Four columns of codes, each with an effect for every code, and three numbers."""
    code, z = rng.integers(0, 10, size=(T, 4)), rng.normal(size=(T, 3))
    effect = rng.normal(size=(4, 10))[np.arange(4), code].sum(axis=1)
    return np.column_stack([code, z]), effect + z @ [1, -0.5, 0.2] + 0.3 * rng.normal(size=T)


def periods(rng: Rng, T: int) -> Stream:
    """The load of a grid by hour, weekday and temperature."""
    hours = np.arange(T)
    hour, day = hours % 24, hours // 24 % 7
    celsius = 10 + 10 * np.sin(hours * 2 * np.pi / 8760) + 3 * np.sin((hour - 9) * np.pi / 12)
    load = 100 + 20 * np.exp(-(((hour - 8) / 2) ** 2)) + 35 * np.exp(-(((hour - 19) / 3) ** 2))
    load += 0.08 * (celsius - 15) ** 2 - 15 * (day >= 5) * (1 + 0.3 * np.sin(hour))
    return np.column_stack([hour, day, celsius]), load + 2 * rng.normal(size=T)


def periods_with_lags(rng: Rng, T: int) -> Stream:
    """The same with the load an hour and a day before as columns."""
    x, d = periods(rng, T + 24)
    return np.column_stack([x[24:], d[23:-1], d[:-24]]), d[24:]


def outliers(rng: Rng, T: int) -> Stream:
    """1 % of x and of d are 100 times too large."""
    x = rng.normal(size=(T, 6))
    d = x @ rng.normal(size=6) + np.sin(3 * x[:, 0]) + 0.3 * rng.normal(size=T)
    x[rng.random(T) < 0.01, 0] *= 100
    return x, np.where(rng.random(T) < 0.01, 100 * d, d)


def copies(rng: Rng, T: int) -> Stream:
    """Four columns, each twice or thrice, in several units, and three constants."""
    x = rng.normal(size=(T, 4))
    d = np.abs(x[:, 0]) + x[:, 1] * x[:, 2] + 0.2 * rng.normal(size=T)
    return np.column_stack([x, x, np.full((T, 3), 5.0), 1e5 * x[:, :2] + 3e6]), d


def steps(rng: Rng, T: int) -> Stream:
    """A tree of steps."""
    x = rng.random((T, 8))
    low, high = np.where(x[:, 2] > 0.7, 0.0, 5.0), np.where(x[:, 1] > 0.3, 3.0, -1.0)
    return x, np.where(x[:, 0] > 0.5, high, low) + 0.3 * rng.normal(size=T)


def short(rng: Rng, T: int) -> Stream:
    """Friedman's function on at most 1,000 rows."""
    x = rng.random((min(T, 1000), 10))
    d = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    return x, d + 10 * x[:, 3] + 5 * x[:, 4] + rng.normal(size=len(x))


KINDS: dict[str, Callable[[Rng, int], Stream]] = {
    "100 columns, three of which matter": wide,
    "codes of categories": codes,
    "daily and weekly periods": periods,
    "the same with lags": periods_with_lags,
    "1 % gross outliers in x and in d": outliers,
    "constant and duplicated columns": copies,
    "steps": steps,
    "1,000 rows": short,
}


def run(model: Any, xs: Any, ds: Any) -> Floats:
    """The predictions of a model in float64."""
    return np.asarray(jb.run(model, xs, ds)[1].prediction, np.float64)


def kind(name: str, T: int, rivals: Sequence[str]) -> dict[str, float]:
    """The errors of all models on one kind of stream, without the first sample and outliers."""
    xs, ds = (part.astype(np.float32) for part in KINDS[name](np.random.default_rng(3), T))
    quartiles = np.percentile(ds, [25, 75])
    counted = np.abs(ds - np.median(ds)) < 10 * np.ptp(quartiles)
    counted[0] = False

    def error(prediction: Any) -> float:
        return float(np.mean(np.square(prediction - ds)[counted]))

    found = {"variance": float(ds[counted].var()), "auto": error(run(auto(), xs, ds))}
    found["Newton"] = error(run(catalogue.named("newton"), xs, ds))
    for rival in rivals:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # river's own, once it has diverged
            found[rival] = error(river_predictions(peers.make(rival), xs, ds))
    return found


def promises(duffing: int, stationary: int) -> dict[str, dict[str, float]]:
    """What is promised and what was measured."""
    xs, ds = map(np.asarray, jb.streams.duffing(duffing))
    chaotic = float(np.mean(np.square(run(auto(), xs, ds) - ds)))
    xs, ds = map(np.asarray, jb.streams.stationary(jax.random.key(0), stationary))
    mine, theirs = (
        float(np.mean(np.square(run(model, xs, ds) - ds))) for model in (auto(), jb.Newton())
    )
    return {
        "Duffing": {"wanted": 1e-3, "got": chaotic},
        "stationary, over Newton's method": {"wanted": 1.02, "got": mine / theirs},
        "after a change, over before": {"wanted": 1.2, "got": changed()},
    }


def lines(rng: Rng, T: int) -> Stream:
    """A line, all of whose coefficients change halfway."""
    x = rng.normal(size=(T, 5))
    before, after = x @ rng.normal(size=5), x @ rng.normal(size=5)
    return x, np.where(np.arange(T) < T // 2, before, after) + 0.3 * rng.normal(size=T)


def curves(rng: Rng, T: int) -> Stream:
    """Friedman's function, whose columns all change places halfway."""
    x = rng.random((T, 10))
    order = np.where((np.arange(T) < T // 2)[:, None], np.arange(10), np.roll(np.arange(10), 5))
    z = np.take_along_axis(x, order, axis=1)
    d = 10 * np.sin(np.pi * z[:, 0] * z[:, 1]) + 20 * (z[:, 2] - 0.5) ** 2
    return x, d + 10 * z[:, 3] + 5 * z[:, 4] + rng.normal(size=T)


def turning(rng: Rng, T: int) -> Stream:
    """A line whose coefficients turn a full circle in 2,000 samples."""
    x, angle = rng.normal(size=(T, 2)), np.arange(T) * 2 * np.pi / 2000
    d = x[:, 0] * np.cos(angle) + x[:, 1] * np.sin(angle) + x[:, 0] * x[:, 1]
    return x, d + 0.1 * rng.normal(size=T)


def changed() -> float:
    """The mean error 500 to 1,000 samples after all coefficients change, over the error before."""
    xs, ds = lines(np.random.default_rng(0), 6000)
    error = np.square(run(auto(), xs.astype(np.float32), ds.astype(np.float32)) - ds)
    return float(error[3500:4000].mean() / error[2000:3000].mean())


def changes(T: int) -> dict[str, dict[str, dict[str, float]]]:
    """What streams that change cost each size: the error, and for how long a jump is felt.

    That is how many samples after it the mean error of 100 samples is first below 1.5 times the
    mean of the 1,000 before; medians of five draws.
    """

    def one(size: str, make: Callable[[Rng, int], Stream], seed: int) -> tuple[float, float]:
        xs, ds = (part.astype(np.float32) for part in make(np.random.default_rng(seed), T))
        error = np.square(run(auto(size), xs, ds) - ds)
        level = error[max(0, T // 2 - 1000) : T // 2].mean()
        after = np.convolve(error[T // 2 :], np.full(100, 0.01), "valid")
        return float(error[1:].mean()), float(np.argmax(after < 1.5 * level)) + 100

    found: dict[str, dict[str, dict[str, float]]] = {}
    for make in (lines, curves, turning):
        for size in ("small", "medium"):
            draws = np.median([one(size, make, seed) for seed in range(5)], axis=0)
            row = {"error": float(draws[0])}
            if make is not turning:
                row["felt for"] = float(draws[1])
            found.setdefault(make.__name__, {})[size] = row
    return found


def long(T: int) -> dict[str, Any]:
    """T samples of protein whose columns change places at times; without the data, of codes."""
    if "protein" in datasets.available():
        xs, ds = (np.asarray(part[:8192], np.float32) for part in datasets.load("protein"))
    else:
        xs, ds = (part.astype(np.float32) for part in codes(np.random.default_rng(3), 8192))
    rng = np.random.default_rng(4)

    def blocks() -> Any:
        for start in range(0, T, len(xs)):
            order = rng.permutation(xs.shape[1]) if start % (16 * len(xs)) == 0 else slice(None)
            yield xs[: T - start, order], ds[: T - start]

    stream = jb.run_stream(auto(), blocks())
    errors, peak = [], 0.0
    for position, piece in enumerate(stream):
        errors.append(np.isfinite(np.asarray(piece.prediction)).all())
        if position == 1:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    return {"T": T, "finite": bool(all(errors)), "grown MB": grown / 1024}


def kinds_table(record: markdown.Record) -> str:
    """The errors of all models on every kind of stream."""
    found = record["results"]["kinds"]
    rows = [[name, *(f"{value:.4g}" for value in row.values())] for name, row in found.items()]
    names = (name.replace(peers.SCALED, ", scaled") for name in next(iter(found.values())))
    return f"{markdown.run_line(record, 'T')}\n\n{markdown.table(['stream', *names], rows)}"


def changes_table(record: markdown.Record) -> str:
    """What streams that change cost the sizes of auto."""
    rows = [
        [f"{name}, {size}", markdown.short(row["error"]), markdown.number(row.get("felt for"), 0)]
        for name, sizes in record["results"]["changes"].items()
        for size, row in sizes.items()
    ]
    return markdown.table(["stream, size", "error", "samples that the jump is felt"], rows)


def promises_table(record: markdown.Record) -> str:
    """What is promised, what was measured, and the run over a million samples."""
    rows = [
        [name, f"≤ {row['wanted']}", f"{row['got']:.4g}", _holds(row["got"] <= row["wanted"])]
        for name, row in record["results"]["promises"].items()
    ]
    long = record["results"]["long"]
    finite = f"{long['T']:,} samples: all predictions are finite"
    rows.append([finite, "", "", _holds(long["finite"])])
    rows.append(["memory they take after the second block, MB", "", f"{long['grown MB']:.0f}", ""])
    return markdown.table(["", "limit", "measured", "holds"], rows)


def _holds(holds: bool) -> str:
    return "yes" if holds else "**no**"


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    names = [*KINDS][-1:] if experiment.quick else [*KINDS]
    rivals = RIVALS[:1] if experiment.quick else RIVALS
    T = experiment.samples(6000, 300)
    kinds = experiment.each(lambda name: kind(name, T, rivals), names, workers=1)
    found = dict(zip(names, kinds, strict=True))
    promised = promises(experiment.samples(20_000, 500), experiment.samples(10_000, 500))
    drifting = changes(experiment.samples(8_000, 600))
    lasting = long(experiment.samples(1_000_000, 20_000))
    results = {"kinds": found, "promises": promised, "changes": drifting, "long": lasting}
    experiment.write({"T": T}, results)
    record = read_json(experiment.out / f"{experiment.name}.json")
    for shown in (kinds_table, promises_table, changes_table):
        print(f"\n{shown(record)}")


if __name__ == "__main__":
    main()
