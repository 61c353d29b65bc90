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
from experiments.shared.errors import Curve, ase, cell, curve, spread
from experiments.shared.experiment import Experiment
from experiments.shared.figures import ase_panel, dress, style
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
            block[name] = {"mse": final(alones[reading, name], ds, trials=keys is None)}
            if READINGS[reading]:
                block[name] |= curve_of(alones[reading, name], ds)
        for name in BOOSTED:
            done, base = runs[reading, name], alones[reading, method(name)]
            block[name] = {
                "mean_lam": done["lam"].mean(),
                "updates": done["updates"],
                "combiners": {
                    combiner: against(prediction, base, ds, trials=keys is None)
                    | (curve_of(prediction, ds) if READINGS[reading] and combiner in DRAWN else {})
                    for combiner, prediction in done["combined"].items()
                },
            }
    return results


def final(prediction: np.ndarray, ds: Array, *, trials: bool) -> dict[str, Any]:
    """The MSE at the end: mean and deviation over trials or keys, and its blocks."""
    return cell(prediction, ds[: len(prediction)], trials=trials)


def curve_of(prediction: np.ndarray, ds: Array) -> dict[str, Any]:
    """The error over time of some predictions, as an entry of the record."""
    return {"curve": curve(prediction, ds[: len(prediction)])}


def against(prediction: np.ndarray, base: np.ndarray, ds: Array, *, trials: bool) -> dict[str, Any]:
    """The MSE of a boosted model, its ratio to the single learner's, and the gain over time."""
    mine: Curve = ase(prediction, ds[: len(prediction)])
    theirs: Curve = ase(base, ds[: len(base)])
    T = mine.shape[-1]
    gain = {f"{part:g} T": spread((theirs - mine)[:, int(part * T) - 1]) for part in (0.25, 0.5, 1)}
    ratio = mine[:, -1].mean() / theirs[:, -1].mean()
    return {"mse": final(prediction, ds, trials=trials), "ratio": ratio, "gain": gain}


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


def relative_figure(results: dict[str, Any], title: str) -> Any:
    """How much lower the ASE is than the single learner's, in per cent, as in :func:`figure`."""
    fig, axes = plots.grid(2, len(DRAWN), width=4.0, height=3.0)
    block = results["literal"]
    for i, name in enumerate(SINGLE):
        base = np.asarray(block[name]["curve"]["mean"])
        for j, combiner in enumerate(DRAWN):
            ax, late = axes[i, j], []
            for k, other in enumerate((n for n in BOOSTED if method(n) == name), start=1):
                shown = block[other]["combiners"][combiner]["curve"]
                better = 100 * (1 - np.asarray(shown["mean"]) / base)
                ax.plot(shown["t"], better, label=f"{other} {better[-1]:+.1f} %", **style(k))
                late += better[len(better) // 5 :].tolist()
            ax.axhline(0, color="0.5", lw=1)
            low, high = min(0.0, *late), max(0.0, *late)
            ax.set_ylim(low - 0.1 * (high - low), high + 0.5 * (high - low))
            ax.xaxis.set_major_formatter(lambda t, _: f"{t:,.0f}")
            words = f"{title}: {name}, {combiner} combiner"
            dress(ax, words, "samples seen, t", "improvement of the ASE, %", loc="upper right")
    return fig
