"""The effect of σ_m², c and m on BSGD-RU and BNM-RU over the Duffing stream.

Each parameter is swept with the others as in the chaotic experiment, for three combiners. The first
m' learners of a chain of m are a chain of m', so the sweep of m is one run whose estimates are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jboost as jb
from experiments.paper.protocol import (
    DRAWN,
    DUFFING,
    Settings,
    alone,
    boosted,
    chain_of,
    combine,
    combiners,
    method,
    repeated,
    single,
)
from experiments.shared.errors import ase, cell
from experiments.shared.experiment import Experiment
from experiments.shared.figures import dress, style
from jboost import plots

NAMES = ("BSGD-RU", "BNM-RU")
SWEEPS = {
    "target_mse": (0.001, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.7, 1.0, 2.0, 4.0),
    "dependence": (0.0, 0.1, 0.2, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0, 10.0, 100.0),
    "m": (1, 2, 5, 10, 15, 20, 25, 30, 40, 60),
}
QUICK = {"target_mse": (0.1, 0.25, 0.5), "dependence": (0.0, 1.0, 10.0), "m": (2, 20)}
LABELS = {"target_mse": "modified desired MSE, σ_m²", "dependence": "dependence, c",
          "m": "weak learners, m"}  # fmt: skip


def changed(name: str, parameter: str, value: Any) -> Settings:
    """The settings of the chaotic experiment with one of them changed."""
    if parameter == "target_mse":
        parameter = "target_sgd" if method(name) == "SGD" else "target_nm"
    return replace(DUFFING, **{parameter: value})


@partial(jax.jit, static_argnames=("name", "parameter"))
def swept(name: str, parameter: str, values: Array, xs: Array, ds: Array, keys: Array) -> Any:
    """The chains of every value and key: (values, keys, …)."""

    def one(value: Array, key: Array) -> Any:
        model = boosted(name, changed(name, parameter, value), literal=True)
        return chain_of(model, xs, ds, key)

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(values, keys)


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=True)
    T, n = experiment.samples(20_000, 2_000), experiment.size(5, 1)
    sweeps = QUICK if experiment.quick else SWEEPS
    xs, ds = jb.streams.duffing(T)
    keys = jax.random.split(jax.random.key(3), n)
    chosen = {name: each for name, each in combiners(literal=True).items() if name in DRAWN}

    def row(y: Array, updates: Array) -> dict[str, Any]:
        """MSE by combiner and updates a step, over the keys."""
        many = repeated(xs, ds, len(y))[1]
        mse = {name: cell(combine(each, y, many), many) for name, each in chosen.items()}
        return {"mse": mse, "updates": float(updates.sum(axis=-1).mean())}

    def sweep(task: tuple[str, str]) -> dict[str, Any]:
        name, parameter = task
        values = sweeps[parameter]
        if parameter == "m":
            model = boosted(name, replace(DUFFING, m=max(values)), literal=True)
            run = jax.jit(jax.vmap(chain_of, (None, None, None, 0)))(model, xs, ds, keys)
            rows = [row(run.y[..., :m], run.updates[..., :m]) for m in values]
        else:
            run = swept(name, parameter, jnp.asarray(values, float), xs, ds, keys)
            rows = [row(y, updates) for y, updates in zip(run.y, run.updates, strict=True)]
        return {"values": values, "rows": rows}

    tasks = [(name, parameter) for name in NAMES for parameter in sweeps]
    done = experiment.each(sweep, tasks, ", ".join)
    results: dict[str, Any] = {name: {} for name in NAMES}
    for (name, parameter), block in zip(tasks, done, strict=True):
        results[name][parameter] = block
    one = repeated(xs, ds, 1)
    for name in ("SGD", "NM"):
        prediction = alone(single(name, DUFFING, literal=True), *one)
        results[name] = float(ase(prediction, one[1])[0, -1])
    experiment.write({**DUFFING.record(), "T": T, "keys": n, "reading": "literal"}, results)
    experiment.save(figure(results))


def figure(results: dict[str, Any]) -> Any:
    """MSE (two rows) and updates a step (the third) against each parameter."""
    fig, axes = plots.grid(3, 3, width=4.0, height=2.7)
    for j, parameter in enumerate(LABELS):
        for i, name in enumerate(NAMES):
            ax, block = axes[i, j], results[name][parameter]
            values, base = block["values"], results[method(name)]
            for k, combiner in enumerate(DRAWN, start=1):
                mean = np.array([row["mse"][combiner]["mean"] for row in block["rows"]])
                sd = np.array([row["mse"][combiner]["sd"] for row in block["rows"]])
                ax.errorbar(values, mean, sd, label=combiner, capsize=2, **style(k, markers=True))
            ax.axhline(base, label=f"{method(name)} alone", **style(0))
            ax.set_ylim(0.93 * base, 1.45 * base)
            scale(ax, parameter)
            dress(ax, name, LABELS[parameter], "MSE", ncols=2, handlelength=3, loc="upper left")
        for k, name in enumerate(NAMES):
            block = results[name][parameter]
            updates = [row["updates"] for row in block["rows"]]
            axes[2, j].plot(block["values"], updates, label=name, **style(k, markers=True))
        scale(axes[2, j], parameter)
        axes[2, j].set_ylim(bottom=0)
        dress(axes[2, j], "work", LABELS[parameter], "updates a step")
    return fig


def scale(ax: Any, parameter: str) -> None:
    """Give the axis of a parameter its logarithmic scale, where it has one."""
    if parameter == "target_mse":
        ax.set_xscale("log")
    elif parameter == "dependence":
        ax.set_xscale("symlog", linthresh=0.1)
        ax.set_xlim(left=0)


if __name__ == "__main__":
    main()
