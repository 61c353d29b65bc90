"""Sweeps: equal to separate runs, on all cores, in bounded memory, beside a plain loop in C.

Three questions. Is a sweep of 64 settings and 16 keys equal to 1,024 runs, and how often does it
compile? How much faster is it on all cores than on one? How much memory, and how much time a step,
do 4,096 runs of 10,000 samples take, beside the C loop of ``speed.c`` on one thread? Times are the
best of several, the methods taking turns, without compilation.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.bench import speed_native as native
from experiments.bench.speed_cases import (
    RIDGE,
    STEP,
    TARGET,
    M,
    Settings,
    combiner_of,
    native_settings,
    stream,
)
from experiments.shared.experiment import Experiment, Progress, fresh_python
from jboost.sweeps import devices, jobs
from jboost.sweeps.sweep import sweep

R = 3


def maker(family: str, combiner: str) -> tuple[Callable[..., Any], str, float, float]:
    """A function that makes a model from one float, the float's name, and the range to sweep."""
    fixed = {"target_mse": TARGET, "combiner": combiner_of(combiner)}
    if family == "BSGD":
        return partial(jb.bsgd_wu, M, **fixed), "step_size", STEP / R / 10, STEP / R
    return partial(jb.bnm_wu, M, ridge=RIDGE, **fixed), "forgetting", 0.99, 0.9999


def predictions(trace: Any, ds: Any) -> dict[str, Any]:
    """The predictions as a metric, so that the table of a sweep has them."""
    del ds
    return {"prediction": trace.prediction}


def equal(T: int, settings: int, keys: int) -> dict[str, Any]:
    """A sweep of random updates beside as many calls of ``run``."""
    xs, ds = stream(T, R)
    steps = np.geomspace(STEP / R / 10, STEP / R, settings)
    drawn = jax.random.split(jax.random.key(0), keys)
    make = partial(jb.bsgd_ru, M, target_mse=TARGET)
    before = len(jobs._compiled)
    start = time.perf_counter()
    table = sweep(make, {"step_size": steps}, xs, ds, drawn, metric=predictions)
    first = time.perf_counter() - start
    compiled = len(jobs._compiled) - before
    apart, same, start = 0.0, 0, time.perf_counter()
    for row, (step, key) in enumerate(zip(table["step_size"], table["key"], strict=True)):
        alone = jb.run(make(step_size=float(step)), xs, ds, drawn[key])[1].prediction
        gap = float(np.abs(table["prediction"][row] - alone).max())
        apart, same = max(apart, gap), same + int(gap == 0)
    return {
        "runs": len(table["mse"]),
        "programs_compiled": compiled,
        "largest_difference": apart,
        "equal_bit_for_bit": same,
        "seconds_with_compiling": first,
        "seconds_of_separate_runs": time.perf_counter() - start,
    }


def cores(T: int, runs: int, rounds: int) -> dict[str, Any]:
    """Seconds on one thread and on all cores, in turns."""
    xs, ds = stream(T, R)
    make, name, low, high = maker("BSGD", "Newton")
    grid = {name: np.geomspace(low, high, runs)}
    best = {1: float("inf"), devices.cores(): float("inf")}
    for number in range(rounds + 1):
        for workers in best:
            start = time.perf_counter()
            sweep(make, grid, xs, ds, workers=workers)
            if number:  # the first compiles
                best[workers] = min(best[workers], time.perf_counter() - start)
    one, all_ = best[1], best[devices.cores()]
    return {"cores": devices.cores(), "one": one, "all": all_, "ratio": one / all_}


def many_runs(T: int, runs: int, rounds: int, loop: native.Native | None) -> dict[str, Any]:
    """Microseconds per run and step of a sweep on all cores, and of C on one thread.

    C has the learners side by side. Processor time over all threads stands beside them: a busy
    machine disturbs it less.
    """
    xs, ds = stream(T, R)
    out: dict[str, Any] = {"T": T, "runs": runs}
    for family in ("BSGD", "BNM"):
        for combiner in ("NSGD", "Newton"):
            make, name, low, high = maker(family, combiner)
            calls: dict[str, tuple[Callable[[], Any], int]] = {
                "sweep": (partial(sweep, make, {name: np.geomspace(low, high, runs)}, xs, ds), 1)
            }
            if loop:
                own = native_settings(f"{family}-WU", Settings(R), combiner, capped=False)
                calls["C"] = (loop.prepare(family.lower(), "side by side", own, xs, ds), 20)
            best = dict.fromkeys(calls, (float("inf"), float("inf")))
            sweep(make, {name: np.geomspace(low, high, runs)}, xs, ds)  # compiles
            for _ in range(rounds):
                for way, (call, times) in calls.items():
                    for _ in range(times):
                        best[way] = min_of(best[way], clocked(call))
            steps = {"sweep": T * runs, "C": T}
            row = {way: 1e6 * best[way][0] / steps[way] for way in best}
            row |= {f"{way}, cpu": 1e6 * best[way][1] / steps[way] for way in best}
            if loop:
                row["ratio"] = row["sweep"] / row["C"]
                row["ratio of cpu"] = row["sweep, cpu"] / row["C, cpu"]
            out[f"{family}-WU, {combiner}"] = row
    return out


def clocked(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock and of processor time."""
    start, begun = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - begun


def min_of(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The smaller of two pairs, element by element."""
    return min(one[0], other[0]), min(one[1], other[1])


def peak(T: int, runs: int) -> None:
    """Print the peak memory of this process in MB before and after one large sweep."""
    xs, ds = stream(T, R)
    make, name, low, high = maker("BSGD", "Newton")
    jb.mse(make(**{name: low}), xs, ds)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    sweep(make, {name: np.geomspace(low, high, runs)}, xs, ds)
    print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


def memory(T: int, runs: int) -> dict[str, Any]:
    """The same in a process of its own, where no other memory counts."""
    out = fresh_python(f"from experiments.bench import sweeps; sweeps.peak({T}, {runs})")
    before, after = map(float, out.split())
    return {"T": T, "runs": runs, "before_mb": before, "peak_mb": after}


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    size, samples = experiment.size, experiment.samples
    bar = Progress("sweeps", 4)
    results: dict[str, Any] = {"equal": equal(samples(1_000, 200), size(64, 8), size(16, 4))}
    bar.add(1, "against separate runs")
    results["cores"] = cores(samples(10_000, 1_000), size(128, 16), size(7, 2))
    bar.add(1, "one core and all")
    built = native.build()
    loop = built if isinstance(built, native.Native) else None
    length = samples(10_000, 1_000)
    results["many"] = many_runs(length, size(512, 16), size(5, 1), loop)
    bar.add(1, "beside C")
    results["memory"] = memory(length, size(4_096, 64))
    bar.add(1, "memory")
    for name, found in results.items():
        print(name, found)
    experiment.write({"m": M, "r": R, "c": loop.compiler if loop else str(built)}, results)


if __name__ == "__main__":
    main()
