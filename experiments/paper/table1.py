"""Table 1 of the paper: eight data sets, eight algorithms, five combiners, safe models in float32.

The protocol is the paper's. Every column is scaled to [−1, 1] by the whole set, and a constant
column is appended. The boosted models use the settings that are best for the single learner on the
stream that is reported. K = 5, c = 1 and m = 20.

The grids are so wide that every optimum lies inside them, or at a bound that no grid can pass:
β = 1 (nothing is forgotten), σ_m² = 0 (all λ are 1) and σ_m² = ∞ (a larger one changes nothing).
The paper does not give σ_m². It is swept as multiples of the single learner's MSE, and each cell
shows the best. Random updates are means over five keys, at the σ_m² that is best for the first key.
The figure shows the error over time on three sets. ``table1_literal.py`` is the literal reading.
"""

from __future__ import annotations

import itertools
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
from experiments.shared.errors import ase, curve, gain, spread
from experiments.shared.experiment import Experiment
from experiments.shared.figures import ase_panel
from jboost import plots
from jboost.paper import datasets

# The paper takes step and forgetting "to their optimal values" and names no range.
STEPS = (1e-4, 3e-4, 1e-3, 2e-3, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2)
FORGETTING = (0.8, 0.9, 0.95, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999,
              0.99999, 1.0)  # fmt: skip
RIDGES = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
WIDER = (0.5, 0.6, 0.7, 0.75), (1e-6, 1e-5)  # more β and v, where the best is the smallest above
# σ_m² over the single's MSE. Where the best of these is the last, larger ones follow.
MULTIPLES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 8.0, 16.0, 32.0)
LARGEST = 1e7
SAME = 1e-5  # errors that differ by less, relative to them, are the same in float32
KEYS = 5  # also the number of runs in every batch, so that one compiled program serves all
DRAWN, SHOWN = ("puma8nh", "kin8nm", "ypmsd"), "uniform"
LARGEST_BATCHED = 30  # columns; with more, the matrices of several runs do not fit into a cache


@partial(jax.jit, static_argnames=("name", "literal"))
def single_errors(name: str, points: Array, xs: Array, ds: Array, *, literal: bool) -> Array:
    """The MSE of a single learner at each point (n, 2): (step, –) or (forgetting, ridge)."""

    def one(point: Array) -> Array:
        s = Settings(point[0], point[0], 0.0, 0.0, ridge=point[1])
        return jb.mse(single(name, s, literal=literal), xs, ds)

    return jax.lax.map(one, points, batch_size=KEYS if xs.shape[1] <= LARGEST_BATCHED else 1)


@partial(jax.jit, static_argnames=("name", "literal"))
def batch(
    name: str, s: dict[str, Any], targets: Array, keys: Array, xs: Array, ds: Array, *,
    literal: bool,
) -> Any:  # fmt: skip
    """A booster at KEYS pairs of σ_m² and key: estimates (KEYS, T, m) and updates a step."""

    def one(pair: tuple[Array, Array]) -> Any:
        settings = Settings(**s, target_sgd=pair[0], target_nm=pair[0])
        chain = chain_of(boosted(name, settings, literal=literal), xs, ds, pair[1])
        return chain.y, chain.updates.sum()

    if xs.shape[1] <= LARGEST_BATCHED:
        return jax.vmap(one)((targets, keys))
    return jax.lax.map(one, (targets, keys))


def where(index: int, grid: Sequence[float], *, high: str = "edge of the grid") -> str:
    """Whether the best of a grid lies inside it, at its edge, or at an end that has a name."""
    if 0 < index < len(grid) - 1:
        return "inside"
    return high if index else "edge of the grid"


class OneSet:
    """One data set of the table under one reading. ``multiples`` are some times KEYS."""

    def __init__(
        self, name: str, xs: Any, ds: Any, multiples: Sequence[float], *, literal: bool
    ) -> None:
        self.name, self.multiples, self.literal = name, multiples, literal
        self.dtype = jnp.float64 if literal else jnp.float32
        self.xs, self.ds = jnp.asarray(xs, self.dtype), jnp.asarray(ds, self.dtype)
        self.repeated = jnp.broadcast_to(self.ds, (KEYS, len(ds)))
        self.combiners = {c: k for c, k in combiners(literal=literal).items() if c in TABLED}
        self.keys = jax.random.split(jax.random.key(0), KEYS)

    def run(self) -> dict[str, Any]:
        """The cells of all eight algorithms."""
        result: dict[str, Any] = {"T": len(self.ds), "features": self.xs.shape[1], "cells": {}}
        for name in SINGLE:
            settings, cell = self.best_single(name)
            alone = jb.run(single(name, settings, literal=self.literal), self.xs, self.ds)[1]
            prediction = np.asarray(alone.prediction)[None]
            if self.name in DRAWN:
                cell["curve"] = curve(prediction, self.repeated[:1])
            result["cells"][name] = cell
            for other in BOOSTED:
                if method(other) == name:
                    cells = self.boosted(other, settings, cell["mse"], prediction)
                    result["cells"][other] = cells
        return result

    def best_single(self, name: str) -> tuple[Settings, dict[str, Any]]:
        """The settings with the least MSE on the stream, and the record of the search."""
        if name == "SGD":
            errors = self.single_errors(name, STEPS, (1.0,))
            i, j = np.unravel_index(int(np.argmin(errors)), errors.shape)
            first, second = STEPS[i], 1.0
            text, found = f"μ {first:g}", {"μ": where(int(i), STEPS)}
            best = {f"μ {step:g}": error for step, error in zip(STEPS, errors[:, 0], strict=True)}
        else:
            betas, ridges = FORGETTING, RIDGES
            errors = self.single_errors(name, betas, ridges)
            i, j = np.unravel_index(int(np.argmin(errors)), errors.shape)
            if i == 0 or j == 0:
                betas, ridges = WIDER[0] + betas, WIDER[1] + ridges
                errors = self.single_errors(name, betas, ridges)
                i, j = np.unravel_index(int(np.argmin(errors)), errors.shape)
            first, second = betas[i], ridges[j]
            text = f"β {first:g}, v {second:g}"
            found = {"β": where(int(i), betas, high="β = 1"), "v": where(int(j), ridges)}
            best = {f"β {b:g}": row.min() for b, row in zip(betas, errors, strict=True)}
            best |= {f"v {v:g}": row.min() for v, row in zip(ridges, errors.T, strict=True)}
        cell = {"mse": errors[i, j], "setting": text, "where": found, "grid": best}
        return Settings(first, first, 0.0, 0.0, ridge=second), cell

    def single_errors(
        self, name: str, firsts: Sequence[float], seconds: Sequence[float]
    ) -> np.ndarray:
        """The MSE of a single learner at every pair of settings; inf where it is not finite."""
        points = jnp.asarray(list(itertools.product(firsts, seconds)), self.dtype)
        errors = single_errors(name, points, self.xs, self.ds, literal=self.literal)
        errors = np.nan_to_num(np.asarray(errors, np.float64), nan=np.inf, posinf=np.inf)
        return errors.reshape(len(firsts), len(seconds))

    def boosted(self, name: str, s: Settings, base: float, alone: np.ndarray) -> dict[str, Any]:
        """The best σ_m² for each combiner and, for random updates, the spread over the keys."""
        predictions: dict[str, list[np.ndarray]] = {c: [] for c in self.combiners}
        multiples: list[float] = []
        updates: list[float] = []
        more, errors = list(self.multiples), {}
        while more:
            for part in np.asarray(more).reshape(-1, KEYS):
                y, work = self.batch(name, s, base * part, self.keys[jnp.zeros(KEYS, int)])
                updates += np.asarray(work, float).tolist()
                for combiner, model in self.combiners.items():
                    predictions[combiner] += [*np.asarray(combine(model, y, self.repeated))]
            multiples += more
            errors = {c: self.errors(np.stack(p)) for c, p in predictions.items()}
            last = any(self.best(e) == len(e) - 1 for e in errors.values())
            wider = last and multiples[-1] > 1 and multiples[-1] < LARGEST
            more = [multiples[-1] * 4.0**n for n in range(1, KEYS + 1)] if wider else []
        cells = {}
        for combiner, model in self.combiners.items():
            at = self.best(errors[combiner])
            runs = predictions[combiner][at][None]
            target = base * multiples[at]
            if name.endswith("RU"):
                y, _ = self.batch(name, s, np.full(KEYS, target), self.keys)
                runs = np.asarray(combine(model, y, self.repeated))
            mse = spread(self.errors(runs))
            cells[combiner] = {
                "mse": mse,
                "ratio": mse["mean"] / base,
                "gain": gain(runs, alone, self.ds),
                "multiple": multiples[at],
                "where": self.bound(errors[combiner], at),
                "updates": updates[at],
            }
            if self.name in DRAWN and combiner == SHOWN:
                cells[combiner]["curve"] = curve(runs, self.repeated[: len(runs)])
        return {"combiners": cells, "largest_multiple": multiples[-1]}

    @staticmethod
    def best(errors: np.ndarray) -> int:
        """The first of the errors that are as small as the smallest."""
        return int(np.argmax(errors <= np.nanmin(errors) * (1 + SAME)))

    @staticmethod
    def bound(errors: np.ndarray, at: int) -> str:
        """Whether the best σ_m², at an index, is 0, or ∞, or between."""
        if at == 0:
            return "σ_m² = 0"
        return "σ_m² = ∞" if errors[-1] <= errors[at] * (1 + SAME) else "inside"

    def batch(self, name: str, s: Settings, targets: Any, keys: Array) -> Any:
        floats = {
            k: jnp.asarray(getattr(s, k), self.dtype) for k in ("step_size", "forgetting", "ridge")
        }
        targets = jnp.asarray(targets, self.dtype)
        return batch(name, floats, targets, keys, self.xs, self.ds, literal=self.literal)

    def errors(self, prediction: Any) -> np.ndarray:
        """The MSE of each of n runs, from predictions (n, T); inf where a run is not finite."""
        with np.errstate(invalid="ignore", over="ignore"):
            errors = ase(prediction, self.ds)[:, -1]
        return np.nan_to_num(errors, nan=np.inf, posinf=np.inf)


def main(argv: Sequence[str] | None = None) -> None:
    run(Experiment(__file__, __doc__, argv, double=False), literal=False)


def run(experiment: Experiment, *, literal: bool) -> None:
    """Every set under one reading, kept set by set, and the figure."""
    names = [name for name in datasets.names() if not experiment.quick or name in DRAWN[:2]]
    names += [name for name in datasets.FURTHER if data.is_real(name)]
    origin = data.origin(names, quick=experiment.quick)
    rows = experiment.length or (1_000 if experiment.quick else None)
    multiples = (0.0, 0.7, 1.0, 1.5, 4.0) if experiment.quick else MULTIPLES
    settings = {
        "models": "literal" if literal else "safe", "m": 20, "max_reuse": 5, "dependence": 1.0,
        "seed": 0, "keys": KEYS, "multiples": multiples, "steps": STEPS, "forgetting": FORGETTING,
        "ridges": RIDGES, "wider": WIDER, "data": origin,
    }  # fmt: skip

    def work(name: str) -> dict[str, Any]:
        done = OneSet(name, *data.scaled(name, rows), multiples, literal=literal).run()
        for algorithm, paper in zip(ALGORITHMS, TABLE1.get(name, (None,) * 8), strict=True):
            done["cells"][algorithm]["paper"] = paper
        return {"stand_in": not data.is_real(name), **done}

    described = {**datasets.SETS, **datasets.FURTHER}
    longest = sorted(names, key=lambda name: -described[name].rows * described[name].features)
    once = experiment.kept(work, settings)
    done = dict(zip(longest, experiment.each(once, longest), strict=True))
    sets = {name: done[name] for name in names}
    experiment.write(settings, sets)
    if not literal:
        experiment.save(figure({name: sets[name] for name in DRAWN if name in sets}))


def figure(sets: dict[str, Any], combiner: str = SHOWN) -> Any:
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
