"""Accuracy of auto on eighteen data sets, beside river, LightGBM, CapyMOA and the last value.

Every model predicts before it learns. auto gets the rows as their files have them, with gaps and in
their units; all errors are in units of half the target's range. The first row does not count:
before the first answer nothing is known. Each size runs over all rows, and its first 8,192 rows
are compared with the peers; the medium size runs them with five seeds, and its median counts. The
constants inside auto were chosen on nine of the sets, and the other nine were held out.

The errors of the peers come from ``results/peers.json``, which ``accuracy_peers.py`` fills. Times
are CPU time of this process: of one call over the first rows, compiled before.

The errors of two choices in hindsight stand beside auto: its best expert, and the best fixed linear
mix of its experts (batch least squares on their predictions). The difference is auto's regret.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.bench import accuracy_limits as limits
from experiments.bench import accuracy_peers as peers
from experiments.bench.accuracy_report import WATCHED
from experiments.shared import sets
from experiments.shared.experiment import Experiment, fresh_python, read_json
from jboost.automatic import SIZES, auto, names

MEDIUM = "medium"
SEEDS = 5
WIDTHS = (8, 54)  # columns of the streams whose first result is timed
WINDOWS = 10


def timed(model: Any, xs: Any, ds: Any, seed: int = 0) -> tuple[Any, float]:
    """The predictions, and the CPU seconds they took.

    The key is the one that ``auto(seed=seed)`` takes by itself; given here, nothing is compiled
    again for another seed.
    """
    start = time.process_time()
    trace = jb.run(model, xs, ds, key=jax.random.key(seed))[1]
    prediction = np.asarray(trace.prediction, np.float64)
    return prediction, time.process_time() - start


def windows(prediction: Any, ds: Any) -> list[float]:
    """The mean squared error of each tenth of the rows; the first row does not count."""
    square = np.square(prediction - ds)[1:]
    return [float(np.mean(window)) for window in np.array_split(square, WINDOWS)]


def watch(state: Any, info: Any) -> Any:
    """Observe the predictions of the experts."""
    return info.y


def hindsight(size: str, xs: Any, ds: Any, unit: float) -> dict[str, Any]:
    """The error of every expert, and of their best fixed linear mix."""
    y = jb.run(auto(size), xs, ds, observe=watch)[1].observed
    y, ds = np.asarray(y, np.float64) / unit, ds / unit
    columns = np.column_stack([y, np.ones(len(y))])
    mix = columns @ np.linalg.lstsq(columns[1:], ds[1:], rcond=None)[0]
    each = {
        name: peers.errors(guess, ds)["mse"] for name, guess in zip(names(size), y.T, strict=True)
    }
    best = min(each, key=lambda name: each[name])
    return {
        "experts": each,
        "best expert": {"name": best, "mse": each[best]},
        "best fixed mix": peers.errors(mix, ds)["mse"],
    }


def work(name: str, sizes: Sequence[str], rows: int, seeds: int) -> dict[str, Any]:
    """All measurements on one set; ``seeds`` are those of the last size."""
    raw, targets = sets.load(name, rows)
    xs, ds = raw.astype(np.float32), targets.astype(np.float32)
    unit = sets.half_range(targets)
    scaled = targets / unit
    out: dict[str, Any] = {"T": len(ds), "features": xs.shape[1], "ordered": name in sets.ORDERED}
    for size in sizes:
        model = auto(size)
        every = size == MEDIUM or name in WATCHED  # the others would take an hour
        prediction, _ = timed(model, *((xs, ds) if every else (xs[:rows], ds[:rows])))
        again, seconds = timed(model, xs[:rows], ds[:rows])
        out[size] = {
            **peers.errors(prediction[:rows] / unit, scaled[:rows]),
            "us": 1e6 * seconds / len(again),
            "same bits": bool(np.array_equal(prediction[:rows], again)),
        }
        if every:
            out[size]["all rows"] = peers.errors(prediction / unit, scaled)
            out[size]["tenths"] = windows(prediction / unit, scaled)
    last = np.concatenate([[0.0], scaled[:-1]])
    out["last value"] = {
        "all rows": peers.errors(last, scaled),
        "tenths": windows(last, scaled),
    }
    size = sizes[-1] if MEDIUM not in sizes else MEDIUM
    found = [
        peers.errors(timed(auto(size), xs[:rows], ds[:rows], seed)[0] / unit, scaled[:rows])
        for seed in range(seeds)
    ]
    out["seeds"] = {error: [row[error] for row in found] for error in ("mse", "late")}
    return out | hindsight(size, xs[:rows], ds[:rows], unit)


def state_bytes(size: str, features: int) -> int:
    """The bytes of the state of auto."""
    state = jax.eval_shape(lambda: auto(size).init(features, np.float32))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def first_results() -> dict[str, dict[str, float]]:
    """CPU seconds of the first result in a fresh process, by number of columns and model."""

    def fresh(name: str, r: int) -> float:
        begin = "import time, jax; start = time.process_time()"
        show = f"speed_first.show(start, {name!r}, {r}, None)"
        code = f"{begin}; from experiments.bench import speed_first; {show}"
        return float(fresh_python(code).split()[0])

    return {str(r): {name: fresh(name, r) for name in ("auto", "bnm_wu")} for r in WIDTHS}


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    chosen = sets.NAMES[:1] if experiment.quick else sets.NAMES
    sizes = ("small",) if experiment.quick else tuple(SIZES)
    origin = sets.origin(chosen, quick=experiment.quick)
    rows = experiment.samples(peers.ROWS, 300)
    seeds = experiment.size(SEEDS, 2)
    found = experiment.each(lambda name: work(name, sizes, rows, seeds), chosen, workers=1)
    results = {
        "sets": dict(zip(chosen, found, strict=True)),
        "bytes": {size: {str(r): state_bytes(size, r) for r in WIDTHS} for size in sizes},
        "first": {} if experiment.quick else first_results(),
    }
    settings = {"rows": rows, "seeds": seeds, "data": origin}
    experiment.write(settings, results)
    if not experiment.quick and rows == peers.ROWS:  # what the peers' errors can be compared with
        record = read_json(peers.FILE)
        experiment.save(limits.figure(results, record))
        print(limits.shown(results, record))


if __name__ == "__main__":
    main()
