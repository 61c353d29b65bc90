"""The demonstration: the paper's eight algorithms on its chaotic stream, with two combiners."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost import plots
from jboost.boosting import models
from jboost.combiners.mean import NSGD
from jboost.core import Learner, State
from jboost.core.progress import Progress
from jboost.core.step import Info, Trace
from jboost.learners import SGD, Newton
from jboost.paper import streams
from jboost.running.run import run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH = 20_000
M, STEP_SIZE, FORGETTING, RIDGE, MAX_REUSE, DEPENDENCE = 20, 0.1, 0.999, 0.01, 5, 1.0
TARGET_SGD, TARGET_NM = 0.25, 0.17
SETTINGS = (
    f"{M} weak learners, μ {STEP_SIZE}, β {FORGETTING}, v {RIDGE}, K {MAX_REUSE}, "
    f"c {DEPENDENCE:g}, σ_m² {TARGET_SGD} (SGD) and {TARGET_NM} (NM)"
)


class Algorithm(NamedTuple):
    """An algorithm to compare."""

    name: str  # in the paper
    combiner: str  # the name of its combiner; "none" for a single learner
    single: str  # the name of the single learner that it boosts, or is
    model: Learner


class Result(NamedTuple):
    """The run of an algorithm."""

    algorithm: str  # its name; combiner and single are as in Algorithm
    combiner: str
    single: str
    mse: float  # the mean squared error over the whole stream
    ratio: float  # the MSE over that of the single learner
    mean_lam: float  # the mean of λ over learners and samples; 1 for a single learner
    updates: float  # of weak learners, per sample
    microseconds: float  # per sample
    ase: np.ndarray  # (T,), the mean squared error so far


def algorithms() -> Iterator[Algorithm]:
    """Yield the two single learners, then the six boosted models under each combiner."""
    yield Algorithm("SGD", "none", "SGD", SGD(STEP_SIZE, guard=False))
    yield Algorithm("NM", "none", "NM", Newton(FORGETTING, ridge=RIDGE, max_variance=None))
    combiners = {
        "NSGD": NSGD(step_size=0.01, epsilon=0.0),
        "RLS": Newton(forgetting=0.999, ridge=1.0, max_variance=None),
    }
    for name, combiner in combiners.items():
        both: Any = {"m": M, "combiner": combiner, "dependence": DEPENDENCE, "literal": True}
        sgd = both | {"target_mse": TARGET_SGD, "step_size": STEP_SIZE}
        nm = both | {"target_mse": TARGET_NM, "forgetting": FORGETTING, "ridge": RIDGE}
        yield Algorithm("BSGD-WU", name, "SGD", models.bsgd_wu(**sgd))
        yield Algorithm("BSGD-DR", name, "SGD", models.bsgd_dr(**sgd, max_reuse=MAX_REUSE))
        yield Algorithm("BSGD-RU", name, "SGD", models.bsgd_ru(**sgd))
        yield Algorithm("BNM-WU", name, "NM", models.bnm_wu(**nm))
        yield Algorithm("BNM-DR", name, "NM", models.bnm_dr(**nm, max_reuse=MAX_REUSE))
        yield Algorithm("BNM-RU", name, "NM", models.bnm_ru(**nm))


def compare(
    length: int = LENGTH, *, seed: int = 0, progress: Progress | None = None
) -> list[Result]:
    """Run all algorithms on the first ``length`` samples of the Duffing stream.

    Compiling takes most of the time, so the models compile and run side by side; then each runs
    once more, alone, against the clock. ``progress`` counts these steps.
    """
    progress = progress or Progress(shown=False)
    xs, ds = streams.duffing(length)
    key = jax.random.key(seed)

    def trace_of(algorithm: Algorithm) -> Trace:
        return jax.block_until_ready(run(algorithm.model, xs, ds, key=key, observe=_spent)[1])

    pool = ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1))
    try:
        jobs = {pool.submit(trace_of, algorithm): algorithm for algorithm in algorithms()}
        progress.total = len(jobs) + 1  # the last step is to run all of them once more
        progress.compiling()
        for job in as_completed(jobs):
            job.result()
            name, combiner, *_ = jobs[job]
            progress.add(1, name if combiner == "none" else f"{name}, {combiner}")
    finally:
        pool.shutdown(cancel_futures=True)

    progress.say("now each once more, for the time per step")
    results, singles = list[Result](), dict[str, float]()
    for job, algorithm in jobs.items():
        start = time.perf_counter()
        trace_of(algorithm)
        microseconds = 1e6 * (time.perf_counter() - start) / length
        trace = job.result()  # its errors are computed on the host: nothing to compile
        error = np.asarray(trace.prediction, np.float64) - np.asarray(ds, np.float64)
        ase = np.cumsum(error**2) / np.arange(1, length + 1)
        mse = float(ase[-1])
        ratio = mse / singles.setdefault(algorithm.single, mse)  # the single learners come first
        lam, updates = (float(np.mean(np.asarray(values))) for values in trace.observed)
        results.append(Result(*algorithm[:3], mse, ratio, lam, updates, microseconds, ase))
    progress.add(1)
    return results


def _spent(state: State, info: Info) -> tuple[Array, Array]:
    """Return the mean λ and the updates of a step; a single learner learns each sample once."""
    if "lam" not in info:
        return jnp.ones(()), jnp.ones((), jnp.int32)
    return jnp.mean(info.lam), jnp.sum(info.updates)


def table(results: list[Result]) -> str:
    """Return the results as text, grouped by combiner, with a legend of the columns."""
    lines = ["combiner  algorithm      MSE   ratio  mean λ  updates  µs/step"]
    group = ""
    for row in results:
        label, group = row.combiner if row.combiner != group else "", row.combiner
        if label:
            lines.append("─" * len(lines[0]))
        lines.append(
            f"{label:<8}  {row.algorithm:<9}  {row.mse:7.4f}  {row.ratio:6.3f}  {row.mean_lam:6.3f}"
            f"  {row.updates:7.2f}  {row.microseconds:7.2f}"
        )
    lines += [
        "",
        "ratio: MSE over that of the single learner, SGD or NM (below 1: boosting helps);",
        "updates: of weak learners, per sample; µs/step: of a second run, without compilation.",
    ]
    return "\n".join(lines)


def verdict(results: list[Result]) -> list[str]:
    """Say for each combiner whether the paper's claim, that boosting lowers the error, holds."""
    lines = []
    for combiner in _combiners(results):
        ratios = [row.ratio for row in results if row.combiner == combiner]
        below = sum(ratio < 1 for ratio in ratios)
        holds = {0: "does not hold", len(ratios): "holds"}.get(below, "holds in part")
        lines.append(
            f"With the {combiner} combiner {below} of {len(ratios)} boosted models end below their "
            f"single learner\n({min(ratios):.2f} to {max(ratios):.2f} times its MSE): "
            f"the paper's claim {holds} here."
        )
    return lines


def picture(results: list[Result]) -> Figure:
    """Draw the ASE over time: a row for each single learner, a column for each combiner."""
    singles, combiners = [row for row in results if row.combiner == "none"], _combiners(results)
    figure, axes = plots.grid(len(singles), len(combiners))
    for i, single in enumerate(singles):
        for j, combiner in enumerate(combiners):
            boosted = [r for r in results if (r.combiner, r.single) == (combiner, single.algorithm)]
            curves = {f"{r.algorithm}, {r.mse:.4f}": r.ase for r in [single, *boosted]}
            title = f"{single.algorithm}, alone and boosted with the {combiner} combiner"
            plots.ase_curves(curves, ax=axes[i, j], title=title, legend="algorithm, MSE at the end")
    return figure


def _combiners(results: list[Result]) -> list[str]:
    """Return the names of the combiners, in the order of the results."""
    return list(dict.fromkeys(row.combiner for row in results if row.combiner != "none"))
