"""The paper's lemmas, theorems, costs and regret, checked on runs and counterexamples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.paper import bounds, regret
from experiments.shared.experiment import Experiment
from experiments.shared.figures import dress, style
from jboost import plots


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=True)
    T = experiment.samples(1_000_000, 10_000)
    shorter = min(T, experiment.size(20_000, 2_000))
    parts: dict[str, Any] = {
        "lemma1": lambda: bounds.lemma1(shorter),
        "lemma1_defects": bounds.lemma1_defects,
        "lemma2": lambda: bounds.lemma2(experiment.size(1_000, 300)),
        "theorem2": lambda: bounds.theorem2(experiment.size(20_000, 2_000)),
        "costs": lambda: bounds.costs(shorter),
        "deadlock": lambda: bounds.deadlock(min(shorter, 5_000)),
        "counterexample": lambda: regret.counterexample(
            [n for n in (100, 1_000, 10_000, 100_000) if n <= T]
        ),
    }
    for name in regret.SEQUENCES:
        parts[f"regret of {name}"] = lambda name=name: regret.grow(name, T)
    done = dict(zip(parts, experiment.each(lambda name: parts[name](), parts), strict=True))
    growth = {name: done.pop(f"regret of {name}") for name in regret.SEQUENCES}
    results = {**done, "regret": growth}
    settings = {
        "T": T,
        "ridge": regret.RIDGE,
        "lemma1": {
            "learner": "SGD 0.1, weighted updates", "T": shorter,
            "m": bounds.LEARNERS, "kappa": bounds.KAPPA,
            "guarantee": bounds.GUARANTEE, "target_mse": bounds.TARGET,
        },
    }  # fmt: skip
    experiment.write(settings, results)
    experiment.save(figure(results))


def figure(results: dict[str, Any]) -> Any:
    """Theorem 2, Lemma 1, the regret of NM, and the counterexample."""
    fig, axes = plots.grid(2, 2, width=5.6, height=3.4)
    theorem_panel(axes[0, 0], results["theorem2"]["monte_carlo"])
    lemma_panel(axes[0, 1], results["lemma1"])
    for i, (name, row) in enumerate(results["regret"].items()):
        label = f"{name}, slope {row['slope']:.3g}"
        axes[1, 0].plot(row["times"], row["regret"], label=label, **style(i, markers=True))
    axes[1, 0].set_xscale("log")
    title = "Regret of NM against batch least squares"
    dress(axes[1, 0], title, "T", "regret R_T", loc="upper left")
    low, high = axes[1, 0].get_ylim()
    axes[1, 0].set_ylim(low, high + 0.6 * (high - low))
    rows = results["counterexample"]
    for i, name in enumerate(("NM", "forward")):
        axes[1, 1].plot(rows["T"], rows[name], label=name, **style(i + 1, markers=True))
    axes[1, 1].set_xscale("log")
    axes[1, 1].set_yscale("symlog", linthresh=10)
    axes[1, 1].axhline(rows["forward_bound"], color="0.5", lw=1, label="ln(2 + 1/v)")
    title = "x = √(v/T), d = 1 for T steps, then x = 1, d = −1"
    place = {"loc": "center left", "bbox_to_anchor": (0.0, 0.62)}
    dress(axes[1, 1], title, "T", "regret R_T", **place)
    return fig


def theorem_panel(ax: Any, runs: list[dict[str, Any]]) -> None:
    """Mean weights as points, bounds as lines; a run without a bound has points alone."""
    for i, run in enumerate(runs):
        k = np.arange(1, len(run["mean"]) + 1)
        look = style(i)
        label = f"ζ² {run['zeta2']:g}, σ_m² {run['target_mse']:g}"
        if np.isfinite(run["bound"][1:]).any():
            ax.plot(k, run["bound"], **look)
        else:
            label += " (no bound)"
        ax.plot(k, run["mean"], ls="", marker="os^Dv"[i], ms=4, color=look["color"], label=label)
    ax.set_ylim(0, 1.35)
    ax.set_xticks([1, 5, 10, 15, 20])
    title = "Theorem 2: mean λ (points) and its bound (lines)"
    dress(ax, title, "learner, k", "E[λ]", ncols=2, loc="upper right", handlelength=1)


def lemma_panel(ax: Any, rows: dict[str, Any]) -> None:
    """The MSE of the mean of the first M learners beside what Lemma 1 promises."""
    names = [name for name, row in rows.items() if row["applies"]]
    at = np.arange(len(names))
    for i, (key, label) in enumerate(
        {"mse": "MSE", "proven_mse": "proven for any |e|", "desired_mse": "desired, σ_d²"}.items()
    ):
        values = [rows[name][key] for name in names]
        ax.bar(at + 0.27 * (i - 1), values, 0.25, label=label, color=("0.25", "0.6", "0.9")[i],
               edgecolor="black")  # fmt: skip
    ax.set_xticks(at, [f"{name}\nM = {rows[name]['learners']}" for name in names], fontsize=7)
    ax.set_ylim(0, 0.27)
    dress(ax, "Lemma 1 on Algorithm 1", "stream", "squared error", ncols=3, handlelength=1.5)


if __name__ == "__main__":
    main()
