"""Speed: every model beside a plain loop in C and beside its peers, in one process.

The loops in C (``speed.h``) are the same algorithm, single-threaded, in float32. They are timed in
two layouts, with each learner's coefficients together and with the learners side by side, and
ratios are to the faster one. Without a C compiler these rows are left out, as are peers that are
not installed. Everything that is compared is timed in turns, and the best of several repetitions
counts. Compilation is timed separately. Every model is timed with the default combiner and with a
light one (normalised SGD on both sides), which leaves the learners and the chain. Times are not
asserted, since machines differ.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.bench import first_command
from experiments.bench import speed_native as native
from experiments.bench import speed_parts as parts
from experiments.bench import speed_peers as peers
from experiments.bench import speed_report as report
from experiments.bench.speed_cases import (
    FORGETTING,
    RIDGE,
    SEED,
    SPARING,
    STEP,
    TARGET,
    Case,
    K,
    M,
    Settings,
    cases_at,
    check_same_algorithm,
    compiled_again,
    measure,
    model_of,
    native_settings,
    run,
    seconds,
    sparing_target,
    stream,
)
from experiments.bench.speed_first import compilations
from experiments.shared import checkouts
from experiments.shared.experiment import Experiment, Progress, fresh_python
from jboost.core import Learner

MODES = ("WU", "DR", "RU")
FAMILIES = ("BSGD", "BNM")


def trials(T: int, count: int, repeats: int, loop: native.Native | None) -> dict[str, Any]:
    """Microseconds per trial and step of many short streams at once, by method and model."""
    streams = [stream(T, 3, seed=100 + k) for k in range(count)]
    xs, ds = (np.stack(part) for part in zip(*streams, strict=True))
    point = [{"target_mse": TARGET}]
    out: dict[str, Any] = {"T": T, "trials": count}
    for family in FAMILIES:

        def make(target_mse: float, family: str = family) -> Learner:
            return model_of(f"{family}-WU", Settings(3, target_mse), "NSGD")

        model = make(TARGET)
        batched = jax.jit(jax.vmap(lambda x, d, model=model: jb.run(model, x, d)[1].prediction))
        calls: dict[str, Callable[[], Any]] = {
            "sweep": lambda make=make: jb.sweep(make, point, xs, ds, progress=False),
            "vmap of run": lambda batched=batched: jax.block_until_ready(batched(xs, ds)),
        }
        if loop:
            settings = native_settings(f"{family}-WU", Settings(3), "NSGD", capped=False)
            for layout in native.LAYOUTS:
                prepare = partial(loop.prepare, family.lower(), layout, settings)
                loops = [prepare(*sample) for sample in streams]
                calls[f"C, {layout}"] = lambda loops=loops: [call() for call in loops]
        best = dict.fromkeys(calls, float("inf"))
        for call in calls.values():
            call()
        for _ in range(repeats):
            for how, call in calls.items():
                best[how] = min(best[how], seconds(call)[0])
        out[family] = {how: 1e6 * spent / (T * count) for how, spent in best.items()}
    return out


def growth(lengths: Sequence[int], repeats: int) -> dict[str, Any]:
    """Microseconds a step of BSGD-WU over longer and longer streams, and the cost of a call.

    All repeats of one length follow each other: after a run of 1e7 steps the caches are cold. Short
    runs are repeated until each length has had a million steps, because a few runs of 2 ms would
    depend on luck.
    """
    model = model_of("BSGD-WU", Settings(3), "NSGD")
    xs, ds = (jax.numpy.asarray(part) for part in stream(max(lengths), 3))
    parts = {T: (xs[:T], ds[:T]) for T in (10, *lengths)}
    for part in parts.values():
        run(model, *part)
    best = dict.fromkeys(parts, float("inf"))
    for T, part in parts.items():
        for _ in range(max(repeats, 1_000_000 // max(T, 10_000))):
            best[T] = min(best[T], seconds(partial(run, model, *part))[0])
    return {
        "call_microseconds": 1e6 * best.pop(10),
        "microseconds": {str(T): 1e6 * spent / T for T, spent in best.items()},
    }


def resident() -> float:
    """The resident memory of this process in MB; nan where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def streamed(blocks: int, length: int) -> None:
    """Run a long stream in blocks and print by how many MB memory grew."""
    model = model_of("BSGD-WU", Settings(3), "NSGD")
    run(jb.SGD(0.1), *stream(10, 3))  # the backend itself is no part of a run
    before = peak = resident()
    state, after_first = None, before
    for block in range(blocks):
        xs, ds = stream(length, 3, seed=block)
        state, trace = jb.run(model, xs, ds, state=state)
        assert np.isfinite(np.asarray(trace.prediction)).all()
        peak = max(peak, resident())
        after_first = peak if block == 0 else after_first
    print(peak - before, peak - after_first)


def memory(steps: int) -> dict[str, Any]:
    """The growth of :func:`streamed` in a fresh process, where no freed memory is reused."""
    length = min(steps // 4, 100_000)
    code = f"from experiments.bench import speed; speed.streamed({steps // length}, {length})"
    lines = fresh_python(code).split()
    names = ("added_mb", "added_after_first_block_mb")
    return {"steps": steps, **dict(zip(names, map(float, lines), strict=True))}


def imports(repeats: int) -> dict[str, float]:
    """CPU seconds to import jax and jboost, in fresh processes, in turns.

    Python's compiled files are kept from the first import on, as they are on a user's machine.
    """
    best = {"jax": float("inf"), "jboost": float("inf")}
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        fresh_python("import jboost", **kept)
        for _ in range(repeats):
            for name in best:
                code = f"import time; t = time.process_time(); import {name}"
                spent = fresh_python(f"{code}; print(time.process_time() - t)", **kept)
                best[name] = min(best[name], float(spent))
    return best


def first_results(widths: Sequence[int]) -> dict[str, Any]:
    """What the first result costs in fresh processes; "warm" has the programs kept before.

    By model, number of columns and "cold" or "warm": see :func:`speed_first.show`.
    """
    names = ("run_seconds", "over_import_jax_seconds", "compiled_by_second_length")

    def fresh(name: str, r: int, folder: str | None) -> dict[str, float]:
        begin = "import time, jax; start = time.process_time()"
        show = f"speed_first.show(start, {name!r}, {r}, {folder!r})"
        code = f"{begin}; from experiments.bench import speed_first; {show}"
        return dict(zip(names, map(float, fresh_python(code).split()), strict=True))

    found: dict[str, Any] = {f"bnm_wu, r = {widths[0]}, cold": fresh("bnm_wu", widths[0], None)}
    with tempfile.TemporaryDirectory() as folder:
        for r in widths:
            found[f"auto, r = {r}, cold"] = fresh("auto", r, None)
            fresh("auto", r, folder)
            found[f"auto, r = {r}, warm"] = fresh("auto", r, folder)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    quick, size, samples = experiment.quick, experiment.size, experiment.samples
    jax.config.update("jax_enable_compilation_cache", False)  # compile times are wanted
    built = native.build()
    loop = built if isinstance(built, native.Native) else None
    notes = [] if loop else [f"{built}: the rows of C are left out"]

    count = compilations()
    rounds, budget = size(7, 3), size(40, 2)
    widths = (3, 21) if quick else (3, 21, 90)
    lengths = {
        3: {"BSGD": samples(100_000, 50_000), "BNM": samples(40_000, 20_000)},
        21: {"BSGD": samples(50_000, 30_000), "BNM": samples(8_000, 4_000)},
        90: {"BSGD": samples(20_000, 10_000), "BNM": samples(2_000, 1_000)},
    }
    names = [f"{family}-{mode}" for family in FAMILIES for mode in MODES]
    presets = [f"{family}-WU" for family in FAMILIES]
    rows: list[report.Row] = []
    apart: dict[str, float] = {}
    again: dict[str, int] = {}
    sparing = {}
    for r in widths:
        xs, ds = stream(max(lengths[r].values()), r)
        s = Settings(r)
        settings = dict.fromkeys(names, s)
        if r == 90:
            T = lengths[r]["BNM"]
            target, got = sparing_target(s, xs[:T], ds[:T])
            settings[SPARING] = s._replace(target_mse=target)
            sparing = {"target_mse": target, "mean_lambda": got}
        combiners = [(name, "NSGD") for name in settings]
        if r == 3 or not quick:
            combiners += [(name, "Newton") for name in (presets if quick else settings)]
        cases = list(cases_at(r, xs, ds, lengths[r], combiners, settings, loop))
        few = samples(1_000, 200)
        for peer in peers.peers(xs[:few], ds[:few], m=M, step_size=s.step_size / r):
            if isinstance(peer, str):
                notes += [peer] if peer not in notes else []
            else:
                cases.append(Case(peer.name, r, "peer", "", peer.samples, peer.call))
        rows += measure(cases, ds, rounds, budget, Progress(f"speed, r = {r}", len(cases)))
        if loop:
            apart |= check_same_algorithm(loop, cases, settings, xs, ds)
        again |= compiled_again(cases, xs, ds, count)

    longest = samples(10_000_000, 100_000)
    spans = [10**k for k in range(4, 8) if 10**k <= longest]
    bar = Progress("speed, the rest", 8)
    many = trials(samples(5_000, 500), 100, size(4, 2), loop)
    bar.add(1, "many trials")
    spread = growth(spans or [longest], 5)
    bar.add(1, "growth in T")
    added = memory(samples(10_000_000, 400_000))
    bar.add(1, "memory")
    loaded = imports(size(5, 1))
    bar.add(1, "imports")
    first = first_results((8,) if quick else (8, 54))
    bar.add(1, "first results")
    commanded = first_command.measured([checkouts.HERE], size(3, 1))[0]
    bar.add(1, "jboost run")
    singles = parts.single_calls()
    bar.add(1, "single calls")
    stored = {str(r): parts.storages(r, size(20, 3)) for r in (12, 21)}
    bar.add(1, "storages of P")
    results = report.Results(
        rows,
        notes,
        sparing,
        apart,
        again,
        many,
        spread,
        added,
        loaded,
        first,
        commanded,
        singles,
        stored,
    )
    report.show(results)
    recorded = {
        "m": M, "max_reuse": K, "target_mse": TARGET, "forgetting": FORGETTING, "ridge": RIDGE,
        "step_size": f"{STEP}/r", "seed": SEED, "rounds": rounds, "budget_seconds": budget,
        "cores": os.cpu_count(), "c": loop.compiler if loop else None, "peers": peers.versions(),
    }  # fmt: skip
    experiment.write(recorded, report.record(results))
    experiment.save(report.figure(results))


if __name__ == "__main__":
    main()
