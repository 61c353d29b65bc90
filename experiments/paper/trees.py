"""Boosted trees: the extension to "tree-based piecewise linear" learners that the abstract names.

The learner is ``PiecewiseLinear(depth, Newton(β))``. Every depth has the β that is best for one
tree of that depth. Boosted trees are compared with one such tree, with independent trees (c = 0),
with one tree of at least as many leaves, and with the best single tree that takes no more CPU time.
The streams are three draws of the piecewise stream in the paper's commented-out lines, and the
first 5,000 rows of the sets of Table 1. Boosters have 5 trees; on the streams of ``TWENTY_ON`` they
have 20 as well. A Newton step costs the square of the width, so the wider sets have fewer rows
(``WIDE``), the three widest only the untuned σ_m², and the two widest boost only trees of depth 2.

σ_m² is swept as multiples of one tree's MSE; c = 0 is what σ_m² = 0 would be. Beside the best of
them stands σ_m² = half of that MSE, which nobody tuned. The figure shows the error against the
depth.
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

FORGETTING = (
    *(0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99),
    *(0.995, 0.998, 0.999, 0.9999, 1.0),
)
MULTIPLES = (0.1, 0.5, 2.0, 8.0)
UNTUNED = 0.5
MODES = {"WU": jb.Weighted(), "DR": jb.DataReuse(5), "RU": jb.RandomUpdate()}
COMBINERS = ("forward RLS", "uniform")
KEYS = 3


class Size(NamedTuple):
    """How much of the experiment a stream can afford."""

    rows: int
    m: int  # the number of trees in a booster
    depths: tuple[int, ...] = (2, 4)  # of boosted trees
    singles: tuple[int, ...] = (2, 4, 5, 7)  # depths of one tree
    multiples: tuple[float, ...] = MULTIPLES


FIVE = Size(5000, 5)
TWENTY = Size(5000, 20, singles=(2, 4, 7, 9), multiples=(UNTUNED,))
WIDE = {  # by set
    "mv": Size(2500, 5),
    "compactiv": Size(1500, 5, multiples=(UNTUNED,)),
    "onp": Size(1000, 5, depths=(2,), singles=(2, 4, 5), multiples=(UNTUNED,)),
    "ypmsd": Size(800, 5, depths=(2,), singles=(2, 4, 5), multiples=(UNTUNED,)),
}
QUICK = Size(400, 5, depths=(2,), singles=(1, 2, 5), multiples=(UNTUNED,))
DRAWS = ("piecewise, draw 0", "piecewise, draw 1", "piecewise, draw 2")
NARROW = ("kin8nm", "puma8nh", "california", "protein")
TWENTY_ON = (*DRAWS, "kin8nm")


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
        """Microseconds of CPU time a step, of the fastest of a few runs, without compilation."""
        best = math.inf
        for _ in range(3):  # the first may compile
            start = time.process_time()
            self.predict(model)
            best = min(best, time.process_time() - start)
        return 1e6 * best / len(self.ds)

    def run(self) -> dict[str, Any]:
        """The single trees, the independent ones and the boosted ones."""
        grid: dict[int, dict[float, float]] = {}
        self.alone, self.learner, single = {}, {}, {}
        for depth in self.size.singles:
            errors = {
                b: self.mse(self.predict(jb.PiecewiseLinear(depth, jb.Newton(b))))
                for b in FORGETTING
            }
            grid[depth], best = errors, min(errors, key=lambda b: errors[b])
            self.learner[depth] = jb.Newton(best)
            tree = jb.PiecewiseLinear(depth, self.learner[depth])
            self.alone[depth] = self.predict(tree)
            time_taken = self.clock(tree)
            single[depth] = {"mse": errors[best], "forgetting": best, "microseconds": time_taken}
        boosted = {
            f"{mode}, depth {depth}": self.boosted(mode, depth, single)
            for depth in self.size.depths
            for mode in MODES
        }
        return {
            "T": len(self.ds),
            "features": self.xs.shape[1],
            "grid": {d: {f"{b:g}": e for b, e in row.items()} for d, row in grid.items()},
            "single": single,
            "boosted": boosted,
        }

    def chain(
        self, mode: str, depth: int, target: float, *, key: int = 0, dependence: float = 1.0
    ) -> tuple[np.ndarray, float]:
        """The estimates (T, m) of the trees, and the microseconds of CPU time of a step."""
        model = jb.boost(
            jb.PiecewiseLinear(depth, self.learner[depth]),
            self.size.m,
            target_mse=target,
            dependence=dependence,
            mode=MODES[mode],
        )
        start = time.process_time()
        run = jb.run(model, self.xs, self.ds, jax.random.key(key), observe=estimates)
        y = np.asarray(run[1].observed)
        return y, 1e6 * (time.process_time() - start) / len(self.ds)

    def boosted(self, mode: str, depth: int, single: dict[int, Any]) -> dict[str, Any]:
        """The record of one mode and depth, for each combiner."""
        base, keys = single[depth]["mse"], range(KEYS if mode == "RU" else 1)
        chains = {v: self.chain(mode, depth, v * base) for v in self.size.multiples}
        others = [self.chain(mode, depth, UNTUNED * base, key=k) for k in keys[1:]]
        untuned = np.stack([chains[UNTUNED][0], *(y for y, _ in others)])
        independent, taken = self.chain(mode, depth, base, dependence=0.0)
        spent = min(taken, *(t for _, t in (*chains.values(), *others)))  # the first compiles
        quick = {d: row["mse"] for d, row in single.items() if row["microseconds"] <= spent}
        rivals = {
            "one tree": depth,
            "equal size": min(depth + math.ceil(math.log2(self.size.m)), max(single)),
            "equal time": min(quick or {depth: 0}, key=lambda d: quick.get(d, 0.0)),
        }
        record = {"microseconds": spent, "others": rivals, "combiners": {}}
        for name, combiner in self.combiners.items():
            runs = self.mixed(combiner, untuned)
            free = self.mixed(combiner, independent[None])
            swept = {v: self.mse(self.mixed(combiner, y[None])) for v, (y, _) in chains.items()}
            swept = {0.0: self.mse(free), **swept}
            best = min(swept, key=lambda v: swept[v])
            gains = {what: gain(runs, self.alone[d][None], self.ds) for what, d in rivals.items()}
            record["combiners"][name] = {
                "mse": spread(ase(runs, self.ds)[:, -1]),
                "gain": {**gains, "c = 0": gain(runs, free, self.ds)},
                "swept": swept,
                "best": {"multiple": best, "mse": swept[best]},
            }
        return {str(self.size.m): record}

    def mixed(self, combiner: Learner, y: np.ndarray) -> np.ndarray:
        """The predictions (n, T) of a combiner, from estimates (n, T, m)."""
        repeated = np.broadcast_to(self.ds, (len(y), len(self.ds)))
        return np.asarray(combine(combiner, y, repeated))


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    draws = DRAWS[: experiment.size(3, 1)]
    names = [*NARROW, *WIDE] if not experiment.quick else ["kin8nm"]
    origin = data.origin(names, quick=experiment.quick)

    def work(item: str) -> dict[str, Any]:
        name, m = item.rsplit(", m = ", 1)
        size = QUICK if experiment.quick else WIDE.get(name, FIVE) if m == "5" else TWENTY
        rows = min(size.rows, experiment.length or size.rows)
        done = OneStream(name, size._replace(rows=rows)).run()
        return {"stand_in": name in names and not data.is_real(name), **done}

    settings = {
        "forgetting": FORGETTING, "multiples": MULTIPLES, "untuned": UNTUNED, "max_reuse": 5,
        "keys": KEYS, "dependence": 1.0, "best_forgetting_of": "one tree of each depth",
        "clock": "CPU time", "data": origin,
    }  # fmt: skip
    items = [f"{name}, m = 5" for name in (*draws, *names)]
    if not experiment.quick:
        items += [f"{name}, m = 20" for name in TWENTY_ON]
    done = experiment.each(experiment.kept(work, settings), items, workers=1)  # they are timed
    results: dict[str, Any] = {}
    for item, block in zip(items, done, strict=True):
        join(results.setdefault(item.rsplit(", m = ", 1)[0], {}), block)
    experiment.write(settings, results)
    experiment.save(figure(results))


def join(record: dict[str, Any], more: dict[str, Any]) -> None:
    """Put the entries of another run on the same stream into its record, which keeps its own."""
    for key, value in more.items():
        if isinstance(value, dict):
            join(record.setdefault(key, {}), value)
        else:
            record.setdefault(key, value)


def figure(streams: dict[str, Any], combiner: str = COMBINERS[0]) -> Any:
    """MSE against depth: single trees as a line, boosted ones as points."""
    across = min(4, len(streams))
    fig, axes = plots.grid(math.ceil(len(streams) / across), across, width=3.6, height=2.8)
    for ax in axes.flat[len(streams) :]:
        ax.set_axis_off()
    for ax, (name, block) in zip(axes.flat, streams.items(), strict=False):
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
