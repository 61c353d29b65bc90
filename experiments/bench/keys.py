"""A million names in random order, fleets in folders and over Ray, and starts from an average.

Measures what the guide of deployment plans with: rows a second, bytes a name, the time to save and
to load, one and two workers of Ray against the fleet of one process; and the error of the first
rows of new streams that start from nothing, and from the average of other streams.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jboost as jb
from experiments.shared import sets
from experiments.shared.experiment import Experiment
from jboost.core import extras
from jboost.fleets.averages import average

BSGD = jb.bsgd_wu(5, target_mse=0.01, step_size=0.1)
BNM = jb.bnm_wu(20, target_mse=0.01, forgetting=0.99, ridge=0.1)
BLOCK = 65_536
FIRST_ROWS = 20  # of a new stream, whose error is measured


def resident(what: str = "VmRSS") -> float:
    """How much memory this process has now, or had at its peak (VmHWM), in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1e3 for line in status if line.startswith(what))


def names_in_order(names: int, passes: int) -> dict[str, Any]:
    """Run every name once in each pass, in another random order; save and load the fleet."""
    rng = np.random.default_rng(0)
    texts = np.array([f"sensor-{i:07d}" for i in range(names)])
    xs = rng.normal(size=(names, 4)).astype(np.float32)
    ds = rng.normal(size=names).astype(np.float32)
    fleet = jb.Fleet(BSGD, 4)
    fleet.run(fleet.init(), texts[:BLOCK], xs[:BLOCK], ds[:BLOCK])  # compiles
    before, state, seconds, spent = resident(), fleet.init(), [], []
    for _ in range(passes):
        order, wall, cpu = rng.permutation(names), 0.0, 0.0
        for start in range(0, names, BLOCK):
            rows = order[start : start + BLOCK]
            block = texts[rows], xs[rows], ds[rows]
            begun, busy = time.perf_counter(), time.process_time()
            state, trace = fleet.run(state, *block)
            np.asarray(trace.prediction)
            wall, cpu = wall + time.perf_counter() - begun, cpu + time.process_time() - busy
        seconds.append(wall)
        spent.append(cpu)
    after, peak = resident(), resident("VmHWM")
    with tempfile.TemporaryDirectory() as folder:
        saved = _seconds(lambda: fleet.save(folder, state))
        size = sum(entry.stat().st_size for entry in os.scandir(folder))
        files = len(os.listdir(folder))
        few, _ = fleet.run(state, texts[:1], xs[:1], ds[:1])
        again = _seconds(lambda: fleet.save(folder, few))
        loaded = _seconds(lambda: fleet.load(folder))
    return {
        "names": names,
        "state_bytes": 4 * fleet.width,
        "name_bytes": state.directory.nbytes / names,
        "rows_per_second": [names / s for s in seconds],
        "cpu_microseconds_per_row": [1e6 * s / names for s in spent],
        "memory_mb": after - before,
        "peak_mb": peak - before,
        "save_seconds": saved,
        "save_one_change_seconds": again,
        "load_seconds": loaded,
        "folder_bytes_per_name": size / names,
        "files": files,
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def over_ray(rows: int, keys: int) -> dict[str, Any]:
    """Run the same blocks in this process, and over one and two workers of Ray."""
    ray = extras.need("ray", "ray")
    from jboost.fleets.ray import Fleet

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    results: dict[str, Any] = {}
    for name, model, r in (("BNM-WU", BNM, 21), ("BSGD-WU", BSGD, 4)):
        rng = np.random.default_rng(0)
        blocks = []
        for _ in range(rows // BLOCK):
            xs = rng.normal(size=(BLOCK, r)).astype(np.float32)
            ids = rng.integers(0, keys, BLOCK)
            blocks.append((ids, xs, xs[:, 0] * (1 + ids % 7)))
        times = {"in process": _timed(jb.Fleet(model, r), blocks)}
        for workers in (1, 2):
            times[f"{workers} workers"] = _timed(Fleet(model, r, workers=workers, every=64), blocks)
        results[name] = {"seconds": times, "rows": BLOCK * len(blocks), "keys": keys, "r": r}
    ray.shutdown()
    return results


def _timed(fleet: Any, blocks: list[Any]) -> dict[str, float]:
    """The seconds that a fleet takes for all blocks but the first, which compiles.

    ``busiest`` are the seconds of CPU of the process that had most: what a block would take on
    cores that nothing else uses.
    """
    state, _ = fleet.run(fleet.init(), *blocks[0])
    processes = [os.getpid(), *(fleet.processes() if hasattr(fleet, "processes") else ())]
    start, before = time.perf_counter(), [_spent(process) for process in processes]
    for block in blocks[1:]:
        state, trace = fleet.run(state, *block)
        np.asarray(trace.prediction)
    pairs = zip(processes, before, strict=True)
    busiest = max(_spent(process) - earlier for process, earlier in pairs)
    return {"wall": time.perf_counter() - start, "busiest": busiest}


def _spent(process: int) -> float:
    """The seconds of CPU that a process has used."""
    with open(f"/proc/{process}/stat") as status:
        fields = status.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def starts() -> dict[str, Any]:
    """The error of the first rows of new streams: Beijing's air, a stream per hour and month."""
    xs, ds = sets.load("beijing_air")
    month, hour = xs[:, 0].astype(int), xs[:, 2].astype(int)
    inputs = sets.without_gaps(xs)[:, 3:]
    early_rows = slice(0, 2_000)  # what the units are taken from
    inputs = (inputs - inputs[early_rows].mean(axis=0)) / (inputs[early_rows].std(axis=0) + 1e-6)
    inputs = np.column_stack([inputs, np.ones(len(inputs))]).astype(np.float32)
    ds = ((ds - ds[early_rows].mean()) / ds[early_rows].std()).astype(np.float32)
    streams = month * 24 + hour
    teaches = streams % 2 == 0
    results: dict[str, Any] = {}
    for name, model in (("NLMS", jb.NLMS(0.1)), ("Newton", jb.Newton(0.999, 1.0))):
        fleet = jb.Fleet(model, inputs.shape[1])
        state = fleet.learn(fleet.init(), streams[teaches], inputs[teaches], ds[teaches])
        start = average(model, fleet.states(state))
        errors = {}
        for label, other in (
            ("fresh", fleet),
            ("average", jb.Fleet(model, inputs.shape[1], start=start)),
        ):
            rows = np.flatnonzero(~teaches)
            _, trace = other.run(other.init(), streams[rows], inputs[rows], ds[rows])
            gaps = np.square(np.asarray(trace.prediction) - ds[rows])
            order = np.argsort(streams[rows], kind="stable")
            begins = np.flatnonzero(np.diff(streams[rows][order], prepend=-1))
            number = np.empty(len(rows), int)
            lengths = np.diff(np.append(begins, len(rows)))
            number[order] = np.arange(len(rows)) - np.repeat(begins, lengths)
            early = number < FIRST_ROWS
            errors[label] = {"first": float(gaps[early].mean()), "all": float(gaps.mean())}
        results[name] = errors
    return results


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    names, passes = experiment.size(1_000_000, 5_000), experiment.size(5, 2)
    results: dict[str, Any] = {"names": names_in_order(names, passes)}
    for title, value in results["names"].items():
        print(f"{title}: {value}")
    results["starts"] = starts()
    print(f"starts: {results['starts']}", flush=True)
    if not experiment.quick:
        results["ray"] = over_ray(10 * BLOCK, 2_000)
        print(f"ray: {results['ray']}")
    experiment.write({"block": BLOCK, "cores": os.cpu_count()}, results)


if __name__ == "__main__":
    main()
