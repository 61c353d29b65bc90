"""Accuracy of auto, of the paper's models and of river's regressors on eight data sets.

Every model predicts before it learns, over the first 8,192 rows: once raw, once scaled to [−1, 1]
by the whole set. All errors are in the units of targets in [−1, 1]. Nothing is tuned to a set: auto
has no settings, the paper's models have the defaults of ``jboost models``, and river's regressors
have river's defaults. The constants inside auto were chosen on the first four sets and on generated
streams; the last four sets are held out.

river's errors come from ``results/peers.json``, which ``accuracy_peers.py`` fills. Times are those
of this run: of one call over the whole stream, compiled before. ``first`` includes compilation.

The errors of two choices in hindsight stand beside auto: its best expert, and the best fixed linear
mix of its experts (batch least squares on their predictions). The difference is auto's regret.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.bench import accuracy_peers as peers
from experiments.shared import data
from experiments.shared.errors import spread
from experiments.shared.experiment import Experiment, read_json
from experiments.shared.figures import dress, style
from jboost import catalogue, plots
from jboost.automatic import Seeded, auto, names
from jboost.baselines.controls import LastValue, RunningMean
from jboost.core import Learner

CHOSEN, HELD_OUT = (
    ("kin8nm", "california", "mv", "onp"),
    ("puma8nh", "compactiv", "protein", "ypmsd"),
)
PAPER = ("bsgd_wu", "bsgd_dr", "bsgd_ru", "bnm_wu", "bnm_dr", "bnm_ru")
TIMED = ("ARFRegressor", "HoeffdingTreeRegressor")  # of river, in this run
TIMED_ROWS = 300


def timed(model: Learner, xs: Any, ds: Any, key: Any = None) -> tuple[np.ndarray, float]:
    """The predictions, and the seconds they took."""
    start = time.perf_counter()
    prediction = np.asarray(jb.run(model, xs, ds, key=key)[1].prediction, np.float64)
    return prediction, time.perf_counter() - start


def error(prediction: Any, ds: Any, unit: float) -> float:
    """The mean squared error over the unit; raw targets count from the second on.

    Before the first answer every model predicts 0. On raw years near 2000 that first error alone
    is fifty half ranges of the target.
    """
    known = slice(int(unit != 1.0), None)
    return float(np.mean(np.square(prediction - np.asarray(ds, np.float64))[known])) / unit


def watch(state: Any, info: Any) -> Any:
    """Observe the predictions of the experts."""
    return info.y


def hindsight(model: Seeded, size: str, xs: Any, ds: Any, unit: float) -> dict[str, Any]:
    """The error of every expert, and of their best fixed linear mix."""
    y = np.asarray(jb.run(model, xs, ds, observe=watch)[1].observed, np.float64)
    columns = np.column_stack([y, np.ones(len(y))])
    mix = columns @ np.linalg.lstsq(columns[1:], np.asarray(ds, np.float64)[1:], rcond=None)[0]
    each = {name: error(guess, ds, unit) for name, guess in zip(names(size), y.T, strict=True)}
    best = min(each, key=lambda name: each[name])
    return {
        "experts": each,
        "best expert": {"name": best, "mse": each[best]},
        "best fixed mix": error(mix, ds, unit),
        "auto, m = 1": next(mse for name, mse in each.items() if name.startswith("network 1")),
    }


def work(name: str, units: str, size: str, rows: int, keys: int) -> dict[str, Any]:
    """All measurements on one set in one kind of units."""
    xs, ds, unit = data.in_units(name, units, rows)
    model = auto(size)
    key = jax.random.key(0)  # auto takes this key where none is given
    prediction, first = timed(model, xs, ds, key)
    again, seconds = timed(model, xs, ds, key)
    errors = [error(prediction, ds, unit)]
    for k in range(1, keys):
        errors.append(error(timed(model, xs, ds, jax.random.key(k))[0], ds, unit))
    out: dict[str, Any] = {
        "T": len(ds),
        "features": xs.shape[1],
        "stand_in": not data.is_real(name),
        "auto": spread(errors) | {"us": 1e6 * seconds / len(ds), "first": first},
        "same bits": bool(np.array_equal(prediction, again)),
        "running mean": error(timed(RunningMean(), xs, ds)[0], ds, unit),
        "last value": error(timed(LastValue(), xs, ds)[0], ds, unit),
        **hindsight(model, size, xs, ds, unit),
        "paper": {},
    }
    for kind in PAPER:
        paper = catalogue.named(kind)
        key = jax.random.key(0) if paper.needs_key else None
        timed(paper, xs, ds, key)
        prediction, seconds = timed(paper, xs, ds, key)
        out["paper"][kind] = {"mse": error(prediction, ds, unit), "us": 1e6 * seconds / len(ds)}
    out["river us"] = river_times(xs[:TIMED_ROWS], ds[:TIMED_ROWS])
    return out


def river_times(xs: Any, ds: Any) -> dict[str, float]:
    """Microseconds a sample of two of river's regressors; none where river is not installed."""
    from experiments.shared.peers import river_predictions

    out = {}
    for name in TIMED:
        try:
            regressor = peers.make(name)
        except ImportError:
            return {}
        start = time.perf_counter()
        river_predictions(regressor, xs, ds)
        out[name] = 1e6 * (time.perf_counter() - start) / len(ds)
    return out


def ratios(results: dict[str, Any], record: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The error of auto over that of river's best regressor, and raw over scaled, by set."""
    out: dict[str, Any] = {}
    for name in names:
        scaled = results[name]["scaled"]["auto"]["mean"]
        who, theirs = peers.best(record, name, "scaled")
        out[name] = {
            "auto": scaled,
            "river": who,
            "theirs": theirs,
            "ratio": scaled / theirs,
            "raw over scaled": results[name]["raw"]["auto"]["mean"] / scaled,
        }
    known = [row["ratio"] for row in out.values() if row["ratio"] > 0]
    mean = math.exp(sum(map(math.log, known)) / len(known)) if known else None
    return {"sets": out, "geometric mean": mean}


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    names = CHOSEN[:1] if experiment.quick else CHOSEN + HELD_OUT
    origin = data.origin(names, quick=experiment.quick)
    rows = experiment.samples(peers.ROWS, 500)
    size, keys = ("small", 1) if experiment.quick else ("medium", 3)
    cells = [(name, units) for name in names for units in peers.UNITS]

    def one(cell: tuple[str, str]) -> dict[str, Any]:
        name, units = cell
        return work(name, units, size, rows, keys)

    done = experiment.each(one, cells, " ".join, workers=1)
    results: dict[str, Any] = {name: {} for name in names}
    for (name, units), block in zip(cells, done, strict=True):
        results[name][units] = block
    # river's recorded errors are those of full runs on the real sets.
    comparable = rows == peers.ROWS and not experiment.quick
    record = read_json(peers.FILE) if comparable else {}
    summary = {
        "chosen on": ratios(results, record, [n for n in names if n in CHOSEN]),
        "held out": ratios(results, record, [n for n in names if n in HELD_OUT]),
        "all": ratios(results, record, names)["geometric mean"],
    }
    settings = {
        "rows": rows, "size": size, "keys": keys, "river": record.get("river"),
        "data": origin,
    }  # fmt: skip
    experiment.write(settings, {"summary": summary, "sets": results})
    experiment.save(figure(results, record))
    report(summary)


def report(summary: dict[str, Any]) -> None:
    """Print the summary as a table."""
    for part in ("chosen on", "held out"):
        for name, row in summary[part]["sets"].items():
            print(
                f"{part:9} {name:10} auto {row['auto']:.4f}  raw/scaled "
                f"{row['raw over scaled']:.2f}  best of river {row['theirs']:.4f} "
                f"{row['river']}  ratio {row['ratio']:.2f}"
            )


def figure(results: dict[str, Any], record: dict[str, Any]) -> Any:
    """Mean squared error against time per sample, both logarithmic, with a panel for each set."""
    columns = min(4, len(results))
    lines = -(-len(results) // columns)
    fig, axes = plots.grid(lines, columns, width=3.4, height=3.0)
    for ax, (name, both) in zip(np.ravel(axes), results.items(), strict=False):
        block = both["scaled"]
        points = {"auto": (block["auto"]["us"], block["auto"]["mean"])}
        points |= {kind: (cell["us"], cell["mse"]) for kind, cell in block["paper"].items()}
        theirs = record.get("mse", {}).get("scaled", {}).get(name, {})
        points |= {
            kind: (us, theirs[kind])
            for kind, us in block["river us"].items()
            if theirs.get(kind) is not None
        }
        for k, (label, point) in enumerate(points.items()):
            mark = "*" if label == "auto" else "o" if label in PAPER else "s"
            look = style(k) | {"linestyle": "", "marker": mark}
            ax.plot(*point, label=label, **look)
        who, least = peers.best(record, name, "scaled")
        if who:
            ax.axhline(least, color="0.5", linewidth=0.8, linestyle=":")
        ax.axhline(block["running mean"], color="0.8", linewidth=0.8)
        ax.set(xscale="log", yscale="log")
        dress(ax, name, "µs per sample", "mean squared error", fontsize="xx-small")
    return fig


if __name__ == "__main__":
    main()
