"""The paper's eight algorithms on its chaotic stream, under both of its combiners.

``compare`` runs them and returns a record of each; ``table``, ``verdict``, ``picture`` show those.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost as jb

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jboost.learners import Learner

LENGTH = 20_000
M, STEP_SIZE, FORGETTING, RIDGE, MAX_REUSE, DEPENDENCE = 20, 0.1, 0.999, 0.01, 5, 1.0
TARGET_SGD, TARGET_NM = 0.25, 0.17
SETTINGS = (
    f"{M} weak learners, μ {STEP_SIZE}, β {FORGETTING}, v {RIDGE}, K {MAX_REUSE}, "
    f"c {DEPENDENCE:g}, σ_m² {TARGET_SGD} (SGD) and {TARGET_NM} (NM)"
)


@dataclass(frozen=True)
class Result:
    """One algorithm's run.

    ratio is to the MSE of the single learner; updates are of weak learners, per sample;
    microseconds are per step; ase is the mean squared error so far at every step, (T,).
    """

    algorithm: str
    combiner: str
    single: str
    mse: float
    ratio: float
    mean_lam: float
    updates: float
    microseconds: float
    ase: np.ndarray


def algorithms() -> Iterator[tuple[str, str, str, Learner]]:
    """(algorithm, combiner, its single learner, model) for the single and the boosted ones."""
    yield "SGD", "none", "SGD", jb.SGD(STEP_SIZE, guard=False)
    yield "NM", "none", "NM", jb.Newton(FORGETTING, ridge=RIDGE, max_variance=None)
    combiners = {
        "NSGD": jb.NSGD(step_size=0.01, epsilon=0.0),
        "RLS": jb.Newton(forgetting=0.999, ridge=1.0, max_variance=None),
    }
    for name, combiner in combiners.items():
        own: Any = {"m": M, "combiner": combiner, "dependence": DEPENDENCE, "literal": True}
        sgd = own | {"target_mse": TARGET_SGD, "step_size": STEP_SIZE}
        nm = own | {"target_mse": TARGET_NM, "forgetting": FORGETTING, "ridge": RIDGE}
        yield "BSGD-WU", name, "SGD", jb.bsgd_wu(**sgd)
        yield "BSGD-DR", name, "SGD", jb.bsgd_dr(max_reuse=MAX_REUSE, **sgd)
        yield "BSGD-RU", name, "SGD", jb.bsgd_ru(**sgd)
        yield "BNM-WU", name, "NM", jb.bnm_wu(**nm)
        yield "BNM-DR", name, "NM", jb.bnm_dr(max_reuse=MAX_REUSE, **nm)
        yield "BNM-RU", name, "NM", jb.bnm_ru(**nm)


def compare(
    length: int = LENGTH, *, seed: int = 0, progress: Callable[[str], None] | None = None
) -> list[Result]:
    """Run all of them on the first ``length`` samples of the Duffing stream.

    The models compile side by side, since that is most of the time; then each runs once more,
    alone, against the clock. ``progress`` is told how far they are.
    """
    say = progress if progress is not None else lambda text: None
    xs, ds = jb.streams.duffing(length)
    key = jax.random.key(seed)
    entries = list(algorithms())

    def through(model: Learner) -> Any:
        return jax.block_until_ready(jb.run(model, xs, ds, key=key, observe=_spent)[1])

    pool = ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1))
    try:
        jobs = {pool.submit(through, entry[3]): entry for entry in entries}
        for count, job in enumerate(as_completed(jobs), start=1):
            job.result()
            algorithm, combiner = jobs[job][:2]
            with_ = "" if combiner == "none" else f" with the {combiner} combiner"
            say(f"{count:2d} of {len(jobs)}: {algorithm}{with_}")
    finally:
        pool.shutdown(cancel_futures=True)

    say("now each once more, for the time per step")
    results: list[Result] = []
    singles: dict[str, float] = {}
    for (algorithm, combiner, single, model), job in zip(entries, jobs, strict=True):
        start = time.perf_counter()
        through(model)
        seconds = time.perf_counter() - start
        trace = job.result()
        ase = _ase(trace.prediction, ds)
        lam, updates = (float(np.mean(np.asarray(each))) for each in trace.observed)
        mse = float(ase[-1])
        if combiner == "none":
            singles[algorithm] = mse
        results.append(
            Result(
                algorithm=algorithm,
                combiner=combiner,
                single=single,
                mse=mse,
                ratio=mse / singles[single],
                mean_lam=lam,
                updates=updates,
                microseconds=1e6 * seconds / length,
                ase=ase,
            )
        )
    return results


def _spent(state: Any, info: Any) -> tuple[jax.Array, jax.Array]:
    """Mean λ and the number of updates of one step; a single learner learns every sample once."""
    del state
    if "lam" not in info:
        return jnp.ones(()), jnp.ones((), jnp.int32)
    return jnp.mean(info.lam), jnp.sum(info.updates)


def _ase(prediction: Any, ds: Any) -> np.ndarray:
    """On the host and in float64, where it costs nothing to compile."""
    error = np.asarray(prediction, np.float64) - np.asarray(ds, np.float64)
    return np.cumsum(error**2) / np.arange(1, len(error) + 1)


def table(results: list[Result]) -> str:
    """The results as text, a block for each combiner, and what its columns mean."""
    lines = ["combiner  algorithm      MSE   ratio  mean λ  updates  µs/step"]
    block = ""
    for row in results:
        if row.combiner != block:
            lines.append("─" * len(lines[0]))
        label = row.combiner if row.combiner != block else ""
        block = row.combiner
        lines.append(
            f"{label:<8}  {row.algorithm:<9}  {row.mse:7.4f}  {row.ratio:6.3f}  {row.mean_lam:6.3f}"
            f"  {row.updates:7.2f}  {row.microseconds:7.2f}"
        )
    return "\n".join(
        [
            *lines,
            "",
            "ratio: MSE over that of the single learner, SGD or NM (below 1: boosting helps);",
            "updates: of weak learners, per sample; µs/step: of a second run, without compilation.",
        ]
    )


def verdict(results: list[Result]) -> list[str]:
    """What the table says of the paper's claim that boosting lowers the error, by combiner."""
    lines = []
    for combiner in dict.fromkeys(row.combiner for row in results if row.combiner != "none"):
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
    """ASE over time: a row for each single learner, a column for each combiner."""
    from jboost import plots

    singles = [row for row in results if row.combiner == "none"]
    combiners = list(dict.fromkeys(row.combiner for row in results if row.combiner != "none"))
    figure, axes = plots.grid(len(singles), len(combiners))
    for i, single in enumerate(singles):
        for j, combiner in enumerate(combiners):
            boosted = [r for r in results if (r.combiner, r.single) == (combiner, single.algorithm)]
            curves = {f"{r.algorithm}, {r.mse:.4f}": r.ase for r in [single, *boosted]}
            title = f"{single.algorithm}, alone and boosted with the {combiner} combiner"
            plots.ase_curves(curves, ax=axes[i, j], title=title, legend="algorithm, MSE at the end")
    return figure
