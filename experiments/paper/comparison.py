"""All eight algorithms on one kind of stream, under both readings and every combiner."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.paper.protocol import (
    BOOSTED,
    DRAWN,
    SINGLE,
    Settings,
    all_combined,
    alone,
    boosted,
    chains,
    combiners,
    method,
    single,
)
from experiments.shared.errors import Curve, ase, curve, spread
from experiments.shared.experiment import Experiment
from experiments.shared.figures import ase_panel
from jboost import plots

READINGS = {"literal": True, "safe": False}


def compare(
    experiment: Experiment, xs: Array, ds: Array, settings: Settings, *, keys: int | None = None
) -> dict[str, Any]:
    """Every algorithm over n streams, (n, T, r) and (n, T).

    With ``keys`` all n streams are copies of one stream, one for each key: an algorithm that draws
    no random numbers then runs once.
    """
    n = len(xs)
    drawn = jax.random.split(jax.random.key(1), n)

    def streams_of(name: str) -> int:
        return n if keys is None or name.endswith("RU") else 1

    def run_single(task: tuple[str, str]) -> np.ndarray:
        reading, name = task
        count = streams_of(name)
        model = single(name, settings, literal=READINGS[reading])
        return np.asarray(alone(model, xs[:count], ds[:count]))

    def run_boosted(task: tuple[str, str]) -> dict[str, Any]:
        reading, name = task
        literal, count = READINGS[reading], streams_of(name)
        model = boosted(name, settings, literal=literal)
        chain = chains(model, xs[:count], ds[:count], drawn[:count])
        combined = all_combined(chain.y, ds[:count], combiners(literal=literal))
        lam, updates = (np.asarray(a).mean(axis=0) for a in (chain.lam, chain.updates))
        return {"lam": lam, "updates": updates.sum(), "combined": combined}

    singles = [(reading, name) for reading in READINGS for name in SINGLE]
    tasks = [(reading, name) for reading in READINGS for name in BOOSTED]
    alones = dict(zip(singles, experiment.each(run_single, singles, " ".join), strict=True))
    runs = dict(zip(tasks, experiment.each(run_boosted, tasks, " ".join), strict=True))

    results: dict[str, Any] = {}
    for reading in READINGS:
        block = results[reading] = {}
        for name in SINGLE:
            block[name] = {"mse": final(alones[reading, name], ds)}
            if READINGS[reading]:
                block[name] |= curve_of(alones[reading, name], ds)
        for name in BOOSTED:
            done, base = runs[reading, name], alones[reading, method(name)]
            block[name] = {
                "mean_lam": done["lam"].mean(),
                "updates": done["updates"],
                "combiners": {
                    combiner: against(prediction, base, ds, READINGS[reading] and combiner in DRAWN)
                    for combiner, prediction in done["combined"].items()
                },
            }
    return results


def final(prediction: np.ndarray, ds: Array) -> dict[str, float]:
    """The MSE at the end: mean and deviation over trials or keys."""
    return spread(ase(prediction, ds[: len(prediction)])[:, -1])


def curve_of(prediction: np.ndarray, ds: Array) -> dict[str, Any]:
    """The error over time of some predictions, as an entry of the record."""
    return {"curve": curve(prediction, ds[: len(prediction)])}


def against(prediction: np.ndarray, base: np.ndarray, ds: Array, draw: bool) -> dict[str, Any]:
    """The MSE of a boosted model, its ratio to the single learner's, and the gain over time."""
    mine: Curve = ase(prediction, ds[: len(prediction)])
    theirs: Curve = ase(base, ds[: len(base)])
    T = mine.shape[-1]
    gain = {f"{part:g} T": spread((theirs - mine)[:, int(part * T) - 1]) for part in (0.25, 0.5, 1)}
    results = {"mse": spread(mine[:, -1]), "ratio": mine[:, -1].mean() / theirs[:, -1].mean()}
    return {**results, "gain": gain, **(curve_of(prediction, ds) if draw else {})}


def figure(results: dict[str, Any], title: str) -> Any:
    """ASE over time under the literal reading: a row per single learner, a column per combiner."""
    fig, axes = plots.grid(2, len(DRAWN), width=4.0, height=3.0)
    block = results["literal"]
    for i, name in enumerate(SINGLE):
        for j, combiner in enumerate(DRAWN):
            curves = {f"{name} {block[name]['mse']['mean']:.4f}": block[name]["curve"]}
            for other in BOOSTED:
                if method(other) == name:
                    cell = block[other]["combiners"][combiner]
                    curves[f"{other} {cell['mse']['mean']:.4f}"] = cell["curve"]
            ase_panel(axes[i, j], curves, f"{title}: {name}, {combiner} combiner")
    return fig
