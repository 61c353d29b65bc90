"""Table 1 of the paper: eight data sets, eight algorithms, three combiners.

The protocol is the paper's. Every column is scaled to [−1, 1] by the whole set, and a constant
column is appended. The boosted models use the step and the forgetting factor that are best for the
single learner on the stream that is reported. K = 5, c = 1 and m = 20.

The paper does not give σ_m². It is swept as multiples of the single learner's MSE, and each cell
shows the best. The models are the safe ones, in float32. Random updates are means over five keys,
at the σ_m² that is best for the first key. The figure shows the error over time on three sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jboost as jb
from experiments.paper.protocol import (
    ALGORITHMS,
    BOOSTED,
    SINGLE,
    TABLE1,
    TABLED,
    Settings,
    boosted,
    chain_of,
    combine,
    combiners,
    method,
    single,
)
from experiments.shared import data
from experiments.shared.errors import ase, curve, spread
from experiments.shared.experiment import Experiment
from experiments.shared.figures import ase_panel
from jboost import plots
from jboost.paper import datasets

STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
FORGETTING = (0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0)
RIDGES = (0.01, 0.1, 1.0)
MULTIPLES = (0.1, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 8.0, 16.0)  # σ_m² over the single's MSE
KEYS = 5  # also the number of runs in every batch, so that one compiled program serves all
DRAWN = ("puma8nh", "kin8nm", "ypmsd")
LARGEST_BATCHED = 30  # columns; with more, the matrices of several runs do not fit into a cache


@partial(jax.jit, static_argnames=("name",))
def single_errors(name: str, points: Array, xs: Array, ds: Array) -> Array:
    """The MSE of a single learner at each point (n, 2): (step, –) or (forgetting, ridge)."""

    def one(point: Array) -> Array:
        s = Settings(point[0], point[0], 0.0, 0.0, ridge=point[1])
        return jb.mse(single(name, s, literal=False), xs, ds)

    return jax.vmap(one)(points)


@partial(jax.jit, static_argnames=("name",))
def batch(name: str, s: dict[str, Any], targets: Array, keys: Array, xs: Array, ds: Array) -> Any:
    """A booster at KEYS pairs of σ_m² and key: estimates (KEYS, T, m) and updates a step."""

    def one(pair: tuple[Array, Array]) -> Any:
        settings = Settings(**s, target_sgd=pair[0], target_nm=pair[0])
        chain = chain_of(boosted(name, settings, literal=False), xs, ds, pair[1])
        return chain.y, chain.updates.sum()

    if xs.shape[1] <= LARGEST_BATCHED:
        return jax.vmap(one)((targets, keys))
    return jax.lax.map(one, (targets, keys))


def best_single(name: str, xs: Array, ds: Array) -> tuple[Settings, float, dict[str, float]]:
    """The settings with the least MSE on the stream, that MSE, and the MSE at every setting."""
    if name == "SGD":
        grid = [(step, 1.0) for step in STEPS]
        labels = [f"μ {step:g}" for step in STEPS]
    else:
        grid = [(beta, ridge) for beta in FORGETTING for ridge in RIDGES]
        labels = [f"β {beta:g}, v {ridge:g}" for beta, ridge in grid]
    errors = np.asarray(single_errors(name, jnp.asarray(grid), xs, ds), np.float64)
    point = grid[int(np.nanargmin(errors))]
    settings = Settings(point[0], point[0], 0.0, 0.0, ridge=point[1])
    return settings, float(np.nanmin(errors)), dict(zip(labels, errors.tolist(), strict=True))


class OneSet:
    """One data set of the table. The number of ``multiples`` is a multiple of KEYS."""

    def __init__(self, name: str, xs: Any, ds: Any, multiples: Sequence[float]) -> None:
        self.name, self.multiples = name, np.asarray(multiples)
        self.xs, self.ds = jnp.asarray(xs, jnp.float32), jnp.asarray(ds, jnp.float32)
        self.repeated = jnp.broadcast_to(self.ds, (KEYS, len(ds)))
        self.combiners = {c: k for c, k in combiners(literal=False).items() if c in TABLED}
        self.keys = jax.random.split(jax.random.key(0), KEYS)

    def run(self) -> dict[str, Any]:
        """The cells of all eight algorithms."""
        result: dict[str, Any] = {"T": len(self.ds), "features": self.xs.shape[1], "cells": {}}
        for name in SINGLE:
            settings, mse, grid = best_single(name, self.xs, self.ds)
            chosen = min(grid, key=lambda label: grid[label])
            cell: dict[str, Any] = {"mse": mse, "setting": chosen, "grid": grid}
            if self.name in DRAWN:
                alone = jb.run(single(name, settings, literal=False), self.xs, self.ds)[1]
                cell["curve"] = curve(np.asarray(alone.prediction)[None], self.repeated[:1])
            result["cells"][name] = cell
            for other in BOOSTED:
                if method(other) == name:
                    result["cells"][other] = self.boosted(other, settings, mse)
        return result

    def boosted(self, name: str, settings: Settings, base: float) -> dict[str, Any]:
        """The best σ_m² for each combiner and, for random updates, the spread over the keys."""
        predictions: dict[str, list[np.ndarray]] = {c: [] for c in self.combiners}
        updates: list[float] = []
        for part in self.multiples.reshape(-1, KEYS):
            y, work = self.batch(name, settings, base * part, self.keys[jnp.zeros(KEYS, int)])
            updates += np.asarray(work, float).tolist()
            for combiner, model in self.combiners.items():
                predictions[combiner] += [*np.asarray(combine(model, y, self.repeated))]
        cells = {}
        for combiner, model in self.combiners.items():
            errors = self.errors(np.stack(predictions[combiner]))
            at = int(np.argmin(np.nan_to_num(errors, nan=np.inf)))
            runs = predictions[combiner][at][None]
            target = base * float(self.multiples[at])
            if name.endswith("RU"):
                y, _ = self.batch(name, settings, np.full(KEYS, target), self.keys)
                runs = np.asarray(combine(model, y, self.repeated))
            mse = spread(self.errors(runs))
            cells[combiner] = {
                "mse": mse,
                "ratio": mse["mean"] / base,
                "target_mse": target,
                "multiple": self.multiples[at],
                "updates": updates[at],
                "sweep": errors,
            }
            if self.name in DRAWN:
                cells[combiner]["curve"] = curve(runs, self.repeated[: len(runs)])
        return {"combiners": cells}

    def batch(self, name: str, s: Settings, targets: Any, keys: Array) -> Any:
        floats = {
            k: jnp.asarray(getattr(s, k), jnp.float32) for k in ("step_size", "forgetting", "ridge")
        }
        return batch(name, floats, jnp.asarray(targets, jnp.float32), keys, self.xs, self.ds)

    def errors(self, prediction: Any) -> np.ndarray:
        """The MSE of each of n runs, from predictions (n, T)."""
        return ase(prediction, self.ds)[:, -1]


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    names = [name for name in datasets.names() if not experiment.quick or name in DRAWN[:2]]
    origin = data.origin(names, quick=experiment.quick)
    rows = experiment.length or (1_000 if experiment.quick else None)
    multiples = (0.3, 0.7, 1.0, 1.5, 4.0) if experiment.quick else MULTIPLES

    def work(name: str) -> dict[str, Any]:
        done = OneSet(name, *data.scaled(name, rows), multiples).run()
        for algorithm, paper in zip(ALGORITHMS, TABLE1[name], strict=True):
            done["cells"][algorithm]["paper"] = paper
        return {"stand_in": not data.is_real(name), **done}

    longest = sorted(
        names, key=lambda name: -datasets.SETS[name].rows * datasets.SETS[name].features
    )
    done = dict(zip(longest, experiment.each(work, longest), strict=True))
    sets = {name: done[name] for name in names}
    settings = {
        "models": "safe", "m": 20, "max_reuse": 5, "dependence": 1.0, "seed": 0, "keys": KEYS,
        "multiples": multiples, "steps": STEPS, "forgetting": FORGETTING, "ridges": RIDGES,
        "data": origin,
    }  # fmt: skip
    experiment.write(settings, sets)
    drawn = [name for name in DRAWN if name in sets]
    experiment.save(figure({name: sets[name] for name in drawn}))


def figure(sets: dict[str, Any], combiner: str = "uniform") -> Any:
    """ASE over time, a column for each set, a row for each single learner."""
    fig, axes = plots.grid(2, len(sets), width=4.0, height=3.0)
    for j, (name, block) in enumerate(sets.items()):
        title = datasets.SETS[name].title + (" (STAND-IN)" if block["stand_in"] else "")
        for i, base in enumerate(SINGLE):
            cells = block["cells"]
            curves = {f"{base} {cells[base]['mse']:.4f}": cells[base]["curve"]}
            for other in BOOSTED:
                if method(other) == base:
                    cell = cells[other]["combiners"][combiner]
                    curves[f"{other} {cell['mse']['mean']:.4f}"] = cell["curve"]
            ase_panel(axes[i, j], curves, f"{title}: {base}, {combiner} combiner", settled=0.1)
    return fig


if __name__ == "__main__":
    main()
