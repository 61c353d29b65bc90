"""The trees of the paper's references beside ``PiecewiseLinear``, and a regret bound on runs.

One line (forward least squares), the hard choice of one of N linear filters (the paper's
commented-out figure), a context tree over the same fixed partition (Kozat and Singer), and
``PiecewiseLinear``, which learns where to split, as the trees of Vanli (Denizcan) and Kozat and of
Khan do. Without forgetting the loss of the context tree has a bound, which is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.paper.context_tree import ContextTree, regret_bound
from experiments.shared import data
from experiments.shared.errors import ase
from experiments.shared.experiment import Experiment

RIDGE, DEPTH = 1.0, 4
MEMORIES = {"1": 1.0, "0.99": 0.99}


def stream(name: str, T: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs within [−1, 1] and the targets, without a constant."""
    if name == "Duffing":
        xs, ds = (np.asarray(a, np.float64) for a in jb.streams.duffing(T))
        return xs[:, :-1] / 1.7, ds
    if name == "fixed halves":
        rng = np.random.default_rng(3)
        xs = rng.uniform(-1, 1, (T, 2))
        pieces = np.where(xs[:, 0] > 0, np.where(xs[:, 1] > 0, xs[:, 1], -xs[:, 0]), xs[:, 0])
        return xs, pieces + 0.1 * rng.normal(size=T)
    if name.startswith("piecewise"):
        xs, ds = jb.streams.piecewise(jax.random.key(int(name[-1])), T)
        return 2 * np.asarray(xs, np.float64)[:, :-1] - 1, np.asarray(ds, np.float64)
    xs, ds = data.scaled(name, T)
    return np.asarray(xs, np.float64)[:, :-1], np.asarray(ds, np.float64)


def one(name: str, T: int) -> dict[str, Any]:
    """The MSE of every model at both memories, and the bound of the context tree."""
    xs, ds = stream(name, T)
    A = float(np.abs(ds).max())
    rows: dict[str, Any] = {"T": len(ds), "features": xs.shape[1], "A": A}
    for label, beta in MEMORIES.items():
        forward = jb.ForwardNewton(beta, ridge=RIDGE, max_variance=None if beta == 1 else 1 / RIDGE)
        models = {
            "one line": jb.pipeline(jb.Bias(), forward),
            "one of N": ContextTree(forward, A, DEPTH, hard=True),
            "context tree": ContextTree(forward, A, DEPTH),
            "PiecewiseLinear": jb.PiecewiseLinear(DEPTH, jb.Newton(beta)),
        }
        rows[label] = {
            model: float(ase(jb.run(learner, xs, ds)[1].prediction, ds)[-1])
            for model, learner in models.items()
        }
    found = regret_bound(xs, ds, DEPTH, RIDGE, A)
    loss = len(ds) * rows["1"]["context tree"]
    return rows | {"regret": {**found, "loss": loss, "holds": loss <= found["bound"]}}


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=True)
    T = experiment.samples(5_000, 400)
    draws = [f"piecewise, draw {k}" for k in range(experiment.size(3, 1))]
    sets = ["kin8nm", "puma8nh", "california", "mv", "protein"][: experiment.size(5, 1)]
    origin = data.origin(sets, quick=experiment.quick)
    names = ["fixed halves", *draws, "Duffing", *sets]
    done = experiment.each(lambda name: one(name, T), names)
    settings = {"T": T, "depth": DEPTH, "ridge": RIDGE, "data": origin}
    experiment.write(settings, dict(zip(names, done, strict=True)))


if __name__ == "__main__":
    main()
