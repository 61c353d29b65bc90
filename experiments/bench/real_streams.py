"""How fast files are beside an array in memory, single samples beside river, and whether one waits.

A CSV and a Parquet file of 2 million rows and 30 columns are made and go through ``bnm_wu`` as the
command runs it. Each file has a process of its own, which also reports how much its memory grew.
Then samples go one at a time through ``predict_one`` and ``learn_one`` of boosters of 20 learners
and of a bag of 20 linear models of river's, in turns within one process. Last, 3,000 samples of 8
columns go through the river adapter of several models, ``auto`` among them: how long the first call
takes, whether any call after the first hundred takes more than 20 times the median, how many
programs were compiled by then, and what a pair of calls costs beyond a step of ``jb.run``. These
are times of the CPU, as the machine may do other things.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.shared.experiment import command_line, parsed, versions, write_json

COLUMNS, BLOCK = 30, 50_000
FIRST = 100  # calls that may wait for the compiler
MODEL = "bnm_wu"
SOURCES = ("array", "csv", "parquet")


def blocks(rows: int) -> Any:
    """The stream in blocks of rows; the last column is the target."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=COLUMNS)
    for start in range(0, rows, BLOCK):
        x = rng.normal(size=(min(BLOCK, rows - start), COLUMNS))
        yield np.column_stack([x, x @ weights + rng.normal(size=len(x))]).astype(np.float32)


def write(folder: Path, rows: int) -> None:
    """Write the same rows as an array, as CSV and as Parquet."""
    import pyarrow as pa
    import pyarrow.csv as text
    import pyarrow.parquet as parquet

    names = [*(f"x{i}" for i in range(COLUMNS)), "y"]
    schema = pa.schema([(name, pa.float32()) for name in names])
    array = np.lib.format.open_memmap(
        folder / "data.npy", "w+", dtype=np.float32, shape=(rows, COLUMNS + 1)
    )
    start = 0
    with (
        text.CSVWriter(folder / "data.csv", schema) as csv,
        parquet.ParquetWriter(folder / "data.parquet", schema) as packed,
    ):
        for block in blocks(rows):
            array[start : start + len(block)] = block
            start += len(block)
            table = pa.table(list(block.T), schema=schema)
            csv.write_table(table)
            packed.write_table(table)
    array.flush()


def measure(path: Path) -> dict[str, float]:
    """Rows a second of one source, without compilation, and by how many MB memory grew."""
    import jboost as jb
    from jboost import catalogue
    from jboost.files import sources

    def source() -> Any:
        if path.suffix == ".npy":
            return sources.read(np.load(path), str(COLUMNS + 1))
        return sources.read(path, "y")

    model = catalogue.named(MODEL)
    opened = source()
    with jb.run_stream(model, opened) as stream:  # compiles what the lengths of blocks take
        for _, _ in zip(range(2), stream, strict=False):
            pass
    before = peak()
    start = time.perf_counter()
    stream = jb.run_stream(model, opened).finish()
    seconds = time.perf_counter() - start
    grown = (peak() - before) / 1024
    return {"rows": stream.position, "rate": stream.position / seconds, "grown_mb": grown}


def peak() -> int:
    """The most memory this process has had, in KB.

    On Linux ``ru_maxrss`` includes the parent from which the process was forked: a large parent
    would hide what is measured. VmHWM does not.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def files(rows: int) -> dict[str, dict[str, float]]:
    """Measure every source, each in a process of its own."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), rows)
        for name, suffix in zip(SOURCES, (".npy", ".csv", ".parquet"), strict=True):
            command = [sys.executable, __file__, "--measure", f"{folder}/data{suffix}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[name] = json.loads(done.stdout)
            found[name]["ratio"] = found[name]["rate"] / found["array"]["rate"]
            print(
                f"{name:<8} {found[name]['rate']:10,.0f} rows/s, {found[name]['ratio']:.2f} of the "
                f"array's, memory grew by {found[name]['grown_mb']:.0f} MB",
                flush=True,
            )
    return found


def singles(samples: int) -> dict[str, dict[str, float]]:
    """Microseconds to predict and learn one sample, the models taking turns."""
    from river import datasets, ensemble, linear_model, preprocessing

    import jboost as jb
    from jboost.adapters import compute_in_calling_thread
    from jboost.adapters.river import OnlineRegressor

    compute_in_calling_thread()
    stream = [(x, y) for x, y in datasets.TrumpApproval().take(samples)]
    bag = ensemble.BaggingRegressor(linear_model.LinearRegression(), n_models=20, seed=0)
    sgd = jb.bsgd_wu(20, target_mse=0.1, step_size=0.01)
    newton = jb.bnm_wu(20, target_mse=0.1, forgetting=0.999, ridge=0.1)
    regressors = {
        "river's bagging": preprocessing.StandardScaler() | bag,
        "BSGD-WU": preprocessing.StandardScaler() | OnlineRegressor(sgd),
        "BNM-WU": preprocessing.StandardScaler() | OnlineRegressor(newton),
        "BNM-WU, wrapped": OnlineRegressor("bnm_wu"),
    }
    times: dict[str, list[float]] = {name: [] for name in regressors}
    turns = [*regressors.items()]
    for x, y in stream:
        turns = [*turns[1:], turns[0]]  # whoever comes after the bag finds the caches full of it
        for name, regressor in turns:
            start = time.perf_counter()
            regressor.predict_one(x)
            regressor.learn_one(x, y)
            times[name].append(1e6 * (time.perf_counter() - start))
    found = {}
    for name, own in times.items():
        settled = np.array(own[len(own) // 5 :])  # the first samples compile
        found[name] = {"median": float(np.median(settled)), "least": float(settled.min())}
        found[name]["faster"] = found["river's bagging"]["median"] / found[name]["median"]
        median, least, faster = (found[name][key] for key in ("median", "least", "faster"))
        print(f"{name:<16} median {median:6.0f} µs, least {least:4.0f}; {faster:.1f} × river's bag")
    return found


def waits(samples: int) -> dict[str, dict[str, float]]:
    """Seconds of the first call, the longest later call, and the cost of a pair beyond a step."""
    import jax

    import jboost as jb
    from jboost.adapters import compute_in_calling_thread
    from jboost.adapters.river import OnlineRegressor

    compute_in_calling_thread()
    compiled: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **_: (
            compiled.append(duration_secs) if "backend_compile" in event else None
        )
    )
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(samples, 8)).astype(np.float32)
    ds = (xs.sum(axis=1) + rng.normal(size=samples)).astype(np.float32)
    models = {
        "auto": jb.auto(),
        "BNM-WU": jb.bnm_wu(20, target_mse=0.1, forgetting=0.999, ridge=0.1),
        "Newton": jb.Newton(),
    }
    found = {}
    for name, model in models.items():
        regressor, times, before = OnlineRegressor(model), [], 0  # times of pairs of calls, in µs
        for i, (x, d) in enumerate(zip(xs.tolist(), ds.tolist(), strict=True)):
            row = dict(enumerate(x))
            if i == FIRST:
                before = len(compiled)
            start = time.process_time_ns()
            regressor.predict_one(row)
            regressor.learn_one(row, d)
            times.append((time.process_time_ns() - start) / 1e3)
        late, settled = len(compiled) - before, np.array(times[FIRST:])
        steps = []
        for _ in range(4):  # the first compiles
            start = time.process_time_ns()
            jax.block_until_ready(jb.run(model, xs, ds))
            steps.append((time.process_time_ns() - start) / 1e3 / samples)
        median = float(np.median(settled))
        found[name] = {
            "first_s": sum(times[:FIRST]) / 1e6,
            "median": median,
            "longest_by_median": float(settled.max()) / median,
            "compiled_late": late,
            "step": min(steps),
            "beyond_step": median - min(steps),
        }
        print(
            f"{name:<8} first {FIRST} calls {found[name]['first_s']:5.2f} s; later median "
            f"{median:4.0f} µs, longest {found[name]['longest_by_median']:.1f} × the median (at "
            f"most 20), {late} programs compiled; {median - min(steps):4.0f} µs beyond a step of "
            f"{min(steps):.1f} µs",
            flush=True,
        )
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument(
        "--rows", type=int, metavar="N", help="rows of the files (default: 2 million, quick 60,000)"
    )
    parser.add_argument("--only", choices=["files", "singles", "waits"], help="one of these")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parsed(parser, argv, __file__)
    if args.measure:
        print(json.dumps(measure(args.measure)))
        return
    rows = args.rows or (60_000 if args.quick else 2_000_000)
    parts: dict[str, Callable[[], Any]] = {
        "singles": lambda: singles(300 if args.quick else 1000),
        "waits": lambda: waits(600 if args.quick else 3000),
        "files": lambda: files(rows),
    }
    found = {name: part() for name, part in parts.items() if args.only in (None, name)}
    path = args.out / "real_streams.json"
    write_json({"quick": args.quick, "versions": versions(), "results": found}, path)
    print(f"results in {path}")


if __name__ == "__main__":
    main()
