"""Boosted trees: the extension to "tree-based piecewise linear" learners that the abstract names.

The learner is ``PiecewiseLinear(depth, Newton(β))``, with the β that is best for one tree. Boosted
trees are compared with one such tree, with independent trees (c = 0), with one tree of at least as
many leaves, and with the best single tree that takes no more time. The streams are three draws of
the piecewise stream in the paper's commented-out lines.

σ_m² is swept as multiples of one tree's MSE. Beside the best of them stands σ_m² = half of that
MSE, which nobody tuned. The figure shows the error against the depth. The sets of Table 1 can
be run too, by their names in ``SETS``; the record does not have them yet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jboost as jb
from experiments.paper.protocol import combine, combiners
from experiments.shared import data
from experiments.shared.errors import ase, gain, spread
from experiments.shared.experiment import Experiment
from experiments.shared.figures import dress, style
from jboost import plots
from jboost.core import Learner
from jboost.paper import datasets

FORGETTING = (0.98, 0.99, 0.995, 0.999, 0.9999, 1.0)
MULTIPLES = (0.1, 0.5, 2.0)
UNTUNED = 0.5
MODES = {"WU": jb.Weighted(), "DR": jb.DataReuse(5), "RU": jb.RandomUpdate()}
COMBINERS = ("forward RLS", "uniform")
KEYS = 3
SETS: tuple[
    str, ...
] = ()  # names of data sets to run beside the draws; see the end of the docstring
DRAWN = tuple(f"piecewise, draw {k}" for k in range(3))


class Size(NamedTuple):
    """How much of the experiment a stream can afford."""

    rows: int
    counts: tuple[int, ...] = (5,)  # numbers of trees in a booster
    depths: tuple[int, ...] = (2, 4)  # of boosted trees
    singles: tuple[int, ...] = (2, 4, 5, 7)  # depths of one tree
    multiples: tuple[float, ...] = MULTIPLES


USUAL = Size(5000)
QUICK = Size(400, depths=(2,), singles=(1, 2, 5), multiples=(UNTUNED,))


def stream(name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The inputs and targets of a stream in float32, without the constant, which a tree has."""
    if name.startswith("piecewise"):
        xs, ds = jb.streams.piecewise(jax.random.key(int(name[-1])), rows)
    else:
        xs, ds = data.scaled(name, rows)
    return np.asarray(xs, np.float32)[:, :-1], np.asarray(ds, np.float32)


def estimates(state: Any, info: Any) -> Any:
    """Observe the estimates of all trees."""
    del state
    return info.y


class OneStream:
    """All models on one stream."""

    def __init__(self, name: str, size: Size) -> None:
        self.size = size
        self.xs, self.ds = stream(name, size.rows)
        self.combiners = {c: k for c, k in combiners(literal=False).items() if c in COMBINERS}

    def mse(self, prediction: np.ndarray) -> float:
        return float(ase(prediction, self.ds)[..., -1].mean())

    def predict(self, model: Learner) -> np.ndarray:
        return np.asarray(jb.run(model, self.xs, self.ds, jax.random.key(0))[1].prediction)

    def clock(self, model: Learner) -> float:
        """Microseconds a step of the fastest of a few runs, without compilation."""
        best = math.inf
        for _ in range(3):  # the first may compile
            start = time.perf_counter()
            self.predict(model)
            best = min(best, time.perf_counter() - start)
        return 1e6 * best / len(self.ds)

    def run(self) -> dict[str, Any]:
        """The single trees, the independent ones and the boosted ones."""
        some = self.size.singles[min(3, len(self.size.singles) - 1)]
        errors = {
            b: self.mse(self.predict(jb.PiecewiseLinear(some, jb.Newton(b)))) for b in FORGETTING
        }
        self.learner = jb.Newton(min(errors, key=lambda b: errors[b]))
        self.alone, single = {}, {}
        for depth in self.size.singles:
            tree = jb.PiecewiseLinear(depth, self.learner)
            self.alone[depth] = self.predict(tree)
            single[depth] = {"mse": self.mse(self.alone[depth]), "microseconds": self.clock(tree)}
        boosted = {
            f"{mode}, depth {depth}": self.boosted(mode, depth, single)
            for depth in self.size.depths
            for mode in MODES
        }
        return {
            "T": len(self.ds),
            "features": self.xs.shape[1],
            "forgetting": self.learner.forgetting,
            "grid": {f"{b:g}": error for b, error in errors.items()},
            "single": single,
            "boosted": boosted,
        }

    def chain(
        self, mode: str, depth: int, m: int, target: float, *, key: int = 0, dependence: float = 1.0
    ) -> np.ndarray:
        """The estimates (T, m) of m trees; notes the time of a step in ``self.spent``."""
        model = jb.boost(
            jb.PiecewiseLinear(depth, self.learner),
            m,
            target_mse=target,
            dependence=dependence,
            mode=MODES[mode],
        )
        start = time.perf_counter()
        run = jb.run(model, self.xs, self.ds, jax.random.key(key), observe=estimates)
        y = np.asarray(run[1].observed)
        spent = 1e6 * (time.perf_counter() - start) / len(self.ds)
        self.spent[m] = min(spent, self.spent.get(m, math.inf))  # the first call compiles
        return y

    def boosted(self, mode: str, depth: int, single: dict[int, Any]) -> dict[str, Any]:
        """The record of one mode and depth, for each number of trees and combiner."""
        base, keys = single[depth]["mse"], range(KEYS if mode == "RU" else 1)
        record = {}
        for m in self.size.counts:
            self.spent: dict[int, float] = {}
            chains = {v: self.chain(mode, depth, m, v * base) for v in self.size.multiples}
            others = [self.chain(mode, depth, m, UNTUNED * base, key=k) for k in keys[1:]]
            untuned = np.stack([chains[UNTUNED], *others])
            independent = self.chain(mode, depth, m, base, dependence=0.0)
            spent = self.spent[m]
            quick = {d: row["mse"] for d, row in single.items() if row["microseconds"] <= spent}
            rivals = {
                "one tree": depth,
                "equal size": min(depth + math.ceil(math.log2(m)), max(single)),
                "equal time": min(quick or {depth: 0}, key=lambda d: quick.get(d, 0.0)),
            }
            record[str(m)] = {"microseconds": spent, "others": rivals, "combiners": {}}
            for name, combiner in self.combiners.items():
                swept = {v: self.mse(self.mixed(combiner, y[None])) for v, y in chains.items()}
                best = min(swept, key=lambda v: swept[v])
                runs = self.mixed(combiner, untuned)
                free = self.mixed(combiner, independent[None])
                record[str(m)]["combiners"][name] = {
                    "mse": spread(ase(runs, self.ds)[:, -1]),
                    "gain": {
                        what: gain(runs, self.alone[d][None], self.ds) for what, d in rivals.items()
                    }
                    | {"c = 0": gain(runs, free, self.ds)},
                    "independent": self.mse(free),
                    "best": {"multiple": best, "mse": swept[best]},
                }
        return record

    def mixed(self, combiner: Learner, y: np.ndarray) -> np.ndarray:
        """The predictions (n, T) of a combiner, from estimates (n, T, m)."""
        repeated = np.broadcast_to(self.ds, (len(y), len(self.ds)))
        return np.asarray(combine(combiner, y, repeated))


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    draws = [f"piecewise, draw {k}" for k in range(experiment.size(3, 1))]
    names = [*SETS] if not experiment.quick else ["kin8nm"]
    origin = data.origin(names, quick=experiment.quick)

    def work(name: str) -> dict[str, Any]:
        size = QUICK if experiment.quick else USUAL
        rows = min(size.rows, experiment.length or size.rows)
        done = OneStream(name, size._replace(rows=rows)).run()
        return {"stand_in": name in names and not data.is_real(name), **done}

    settings = {
        "forgetting": FORGETTING, "multiples": MULTIPLES, "untuned": UNTUNED, "max_reuse": 5,
        "keys": KEYS, "dependence": 1.0, "data": origin,
    }  # fmt: skip
    items = [*draws, *names]
    done = experiment.each(experiment.kept(work, settings), items, workers=1)  # they are timed
    results = dict(zip(items, done, strict=True))
    experiment.write(settings, results)
    experiment.save(figure({name: results[name] for name in DRAWN if name in results}))


def figure(streams: dict[str, Any], combiner: str = COMBINERS[0]) -> Any:
    """MSE against depth: single trees as a line, boosted ones as points."""
    fig, axes = plots.grid(1, len(streams), width=4.6, height=3.4)
    for j, (name, block) in enumerate(streams.items()):
        ax = axes[0, j]
        depths = [int(depth) for depth in block["single"]]
        errors = [row["mse"] for row in block["single"].values()]
        ax.plot(depths, errors, label="one tree", **style(0))
        for i, (mode, mark) in enumerate({"WU": "s", "DR": "^", "RU": "D"}.items(), start=1):
            found = {
                int(key.rsplit(" ", 1)[1]): entry["5"]["combiners"][combiner]["mse"]["mean"]
                for key, entry in block["boosted"].items()
                if key.startswith(mode)
            }
            look = {"color": style(i)["color"], "marker": mark, "ls": ""}
            ax.plot([*found], [*found.values()], label=f"five by {mode}", **look)
        ax.set_xticks(depths)
        title = datasets.SETS[name].title if name in datasets.SETS else name
        title += " (STAND-IN)" if block["stand_in"] else ""
        dress(ax, title, "depth", "MSE", handlelength=2)
    return fig


if __name__ == "__main__":
    main()
