"""How near are explanations to the exact Shapley values, and what do they cost, beside shap?

Each model learns the first rows of a set of eight columns. Some later rows are then explained, all
against the same usual input: exactly, by all 2⁸ subsets; by ``jb.explain`` with 1, 2 and 4 pairs of
orders; and by the permutation explainer of shap, where it is installed, with as many. An error is
the mean distance of a part from the exact one, over the mean size of the exact parts. A time is
that of the quickest row.
"""

from __future__ import annotations

import importlib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.shared import data
from experiments.shared.experiment import Experiment
from jboost.explanations.usual import usual_input

KEY = jax.random.key(0)
PAIRS = (1, 2, 4)
SET = "kin8nm"
MODELS: dict[str, Callable[[], jb.Learner]] = {
    "Newton behind a scaler": lambda: jb.pipeline(jb.Scale(), jb.Bias(), jb.Newton(0.999)),
    "products of two columns": lambda: jb.pipeline(jb.Scale(), jb.Polynomial(), jb.Newton(0.999)),
    "BNM-WU": lambda: jb.pipeline(
        jb.Scale(), jb.Bias(), jb.bnm_wu(20, target_mse=0.1, forgetting=0.999, ridge=1.0)
    ),
    "tree of regions": lambda: jb.pipeline(jb.Scale(), jb.PiecewiseLinear(4)),
    "auto": jb.auto,
}


def exact(predict: Callable[[Any], Any], x: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """The Shapley values by their definition, in float64."""
    r = len(x)
    inside = np.array([*itertools.product([False, True], repeat=r)])
    values = np.asarray(predict(np.where(inside, x, usual)), np.float64)
    sizes, bits = inside.sum(axis=1), 1 << np.arange(r)[::-1]
    weights = [math.factorial(n) * math.factorial(r - n - 1) / math.factorial(r) for n in range(r)]
    parts = np.zeros(r)
    for i in range(r):
        without = np.flatnonzero(~inside[:, i])
        gains = values[without + bits[i]] - values[without]
        parts[i] = gains @ np.array(weights)[sizes[without]]
    return parts


def of_shap(predict: Callable[[Any], Any], rows: np.ndarray, usual: np.ndarray, pairs: int) -> Any:
    """The parts by shap's permutation explainer, and milliseconds a row; None without shap."""
    try:
        shap = importlib.import_module("shap")
    except ImportError:
        return None
    explainer = shap.explainers.Permutation(lambda x: np.asarray(predict(x)), usual[None], seed=0)
    evaluations = pairs * (2 * rows.shape[1] + 1)
    explainer(rows[:1], max_evals=evaluations, silent=True)  # compiles
    found, least = [], math.inf
    for row in rows:
        start = time.perf_counter()
        found.append(explainer(row[None], max_evals=evaluations, silent=True).values[0])
        least = min(least, 1000 * (time.perf_counter() - start))
    return found, least


def compare(name: str, T: int, count: int) -> dict[str, Any]:
    """Errors and times of one model."""
    rows_needed = T + count
    xs, ds = (np.asarray(a[:rows_needed], np.float32) for a in data.raw(SET, rows_needed))
    model = MODELS[name]()
    state, _ = jb.run(model, xs[:T], ds[:T], KEY)
    rows, usual = xs[T:], np.asarray(usual_input(model, state, xs.shape[1]))
    predict = jax.jit(jax.vmap(lambda x: model.predict(state, x)))
    truth = np.array([exact(predict, x, usual) for x in rows])

    def error(parts: Any) -> float:
        return float(np.abs(np.asarray(parts) - truth).mean() / np.abs(truth).mean())

    found: dict[str, Any] = {}
    for pairs in PAIRS:
        parts = [jb.explain(model, state, x, pairs=pairs) for x in rows]
        least = math.inf
        for x in rows:
            start = time.perf_counter()
            jax.block_until_ready(jb.explain(model, state, x, pairs=pairs))
            least = min(least, 1000 * (time.perf_counter() - start))
        sums = np.array([float(base + p.sum()) for base, p in parts])
        left = np.abs(sums - np.asarray(predict(rows))).max()
        found[f"jboost, {pairs}"] = {
            "error": error([p for _, p in parts]), "ms": least, "left": float(left)
        }  # fmt: skip
        peer = of_shap(predict, rows, usual, pairs)
        if peer is not None:
            found[f"shap, {pairs}"] = {"error": error(peer[0]), "ms": peer[1]}
    return found


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    T, count = experiment.samples(4000, 300), experiment.size(30, 3)
    names = [*MODELS] if not experiment.quick else [*MODELS][:2]
    results = {}
    for name in names:
        results[name] = compare(name, T, count)
        for how, row in results[name].items():
            print(f"{name:26} {how:10} error {row['error']:.2%}, {row['ms']:.2f} ms", flush=True)
    origin = data.origin([SET], quick=experiment.quick)
    experiment.write({"T": T, "rows": count, "set": SET, "data": origin}, results)


if __name__ == "__main__":
    main()
