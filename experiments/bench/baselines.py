"""The related work on the data sets: gradient boosting, bagging and trivial predictions.

The streams are the first 8,192 rows of each set, scaled to [−1, 1] by these rows. Every ensemble
has 20 copies. Every model gets the step size (SGD) or the forgetting factor (Newton) that is best
for it on the stream that is reported: the best of one grid in hindsight.

Gradient boosting is told the range of the targets, ±1, and keeps its predictions within it. For a
fair comparison the predictions of every model are clipped to that range; the errors without
clipping are in the record too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jboost as jb
from experiments.shared import data
from experiments.shared.experiment import Experiment
from experiments.shared.figures import MARKERS, dress, style
from jboost import plots
from jboost.baselines import (
    HullBoosting,
    LastValue,
    RunningMean,
    SpanBoosting,
    bagging,
    poisson_boosting,
)
from jboost.core import Learner
from jboost.paper import datasets

M = 20
RIDGE = 0.1
GRIDS = {"SGD": (0.003, 0.01, 0.03, 0.1, 0.3), "Newton": (0.99, 0.995, 0.999, 0.9999, 1.0)}
WIDEST = 30  # columns up to which 20 Newton learners are tried
MODELS: dict[str, Callable[[Learner, Array], Learner]] = {
    "alone": lambda learner, target: learner,
    "span": lambda learner, target: SpanBoosting(learner, M),
    "span, residual": lambda learner, target: SpanBoosting(
        learner, M, shrinkage=float(np.log(M) / M), feed="residual"
    ),
    "hull": lambda learner, target: HullBoosting(learner, M),
    "bagging": lambda learner, target: bagging(learner, M),
    "Poisson boosting": lambda learner, target: poisson_boosting(learner, M, target_mse=target),
    "WU, mean": lambda learner, target: jb.boost(
        learner, M, target_mse=target, combiner=jb.Uniform()
    ),
    "WU, RLS": lambda learner, target: jb.boost(learner, M, target_mse=target),
}


def learner_of(kind: str, value: Any) -> Learner:
    """SGD or Newton at one value of its grid."""
    return jb.SGD(value) if kind == "SGD" else jb.Newton(value, ridge=RIDGE)


@partial(jax.jit, static_argnames=("kind", "name"))
def errors(kind: str, name: str, grid: Array, target: Array, xs: Array, ds: Array) -> Array:
    """The MSE of a model at the n values of a grid, (n, 2): clipped, and as predicted."""

    def one(value: Array) -> Array:
        model = MODELS[name](learner_of(kind, value), target)
        said = jb.run(model, xs, ds, jax.random.key(0))[1].prediction
        clipped, plain = (jnp.mean(jnp.square(p - ds)) for p in (jnp.clip(said, -1, 1), said))
        return jnp.stack([clipped, plain])

    return jax.lax.map(one, grid)


def best(grid: Sequence[float], row: np.ndarray) -> dict[str, Any]:
    """The least error of a grid, and the value it belongs to."""
    at = int(np.argmin(np.nan_to_num(row, nan=np.inf)))
    return {"mse": row[at], "value": grid[at], "grid": row}


def work(name: str, length: int) -> dict[str, Any]:
    """All models on one set."""
    xs, ds = (jnp.asarray(values, jnp.float32) for values in data.scaled(name, length))
    out: dict[str, Any] = {"T": len(ds), "features": xs.shape[1]}
    out["stand_in"] = not data.is_real(name)
    out["running mean"] = float(jb.mse(RunningMean(), xs, ds))
    out["last value"] = float(jb.mse(LastValue(), xs, ds))
    for kind, grid in GRIDS.items():
        if kind == "Newton" and xs.shape[1] > WIDEST:
            continue
        target = jnp.ones((), jnp.float32)
        out[kind] = {}
        for model in MODELS:
            rows = np.asarray(errors(kind, model, jnp.asarray(grid, jnp.float32), target, xs, ds))
            out[kind][model] = {**best(grid, rows[:, 0]), "unclipped": best(grid, rows[:, 1])}
            target = jnp.asarray(out[kind]["alone"]["mse"], jnp.float32)  # σ_m², for those with one
    return out


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    sets = ("kin8nm",) if experiment.quick else datasets.names()
    origin = data.origin(sets, quick=experiment.quick)
    rows = experiment.samples(8_192, 500)
    results = dict(zip(sets, experiment.each(lambda name: work(name, rows), sets), strict=True))
    settings = {
        "rows": rows, "m": M, "grids": GRIDS, "ridge": RIDGE, "bound": 1.0, "seed": 0,
        "data": origin,
    }  # fmt: skip
    experiment.write(settings, results)
    experiment.save(figure(results))


def figure(results: dict[str, Any]) -> Any:
    """The errors of all ensembles over that of one learner alone."""
    fig, axes = plots.grid(1, 2, width=5.4, height=3.8)
    for ax, kind in zip(axes[0], GRIDS, strict=True):
        names = [name for name, block in results.items() if kind in block]
        for i, model in enumerate(list(MODELS)[1:]):
            look = style(i) | {"linestyle": "", "marker": (*MARKERS[1:], "x", "+")[i]}
            look |= {"markerfacecolor": "none"} if i % 2 else {}
            over = [
                results[n][kind][model]["mse"] / results[n][kind]["alone"]["mse"] for n in names
            ]
            label = model if ax is axes[0, 0] else None
            ax.plot(over, np.arange(len(names)) + 0.1 * (i - 3), label=label, **look)
        ax.set_yticks(range(len(names)), names, fontsize="small")
        ax.invert_yaxis()
        ax.axvline(1, color="black", linewidth=0.8)
        dress(ax, f"20 copies of {kind}, all clipped to ±1", f"MSE over that of {kind} alone", "")
    return fig


if __name__ == "__main__":
    main()
