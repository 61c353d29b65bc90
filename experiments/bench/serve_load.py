"""The load that ``jboost serve`` takes, beside a server that only commits the same bodies.

Sixteen clients send pairs of a question and its answer to both servers in turns, and to
``jboost serve`` also batches of 1,000 rows. In the soak the clients go on for long, and the time of
every ``/predict`` is taken. All traffic stays on the loopback address.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench.serve_clients import (
    Connection,
    answer,
    batch,
    clients,
    question,
    rows,
    started,
)
from experiments.shared.experiment import Experiment

CLIENTS, BATCH = 16, 1000
HOUR = 50 * 3600  # predictions: an hour of fifty a second
MODEL = "bnm_wu"
SERVE = ["-m", "jboost", "serve", "--model", MODEL, "--target", "y", "--rate", "1000000"]
ECHO = [str(Path(__file__).with_name("serve_echo.py"))]


async def pairs(port: int, count: int, turn: int, times: list[float] | None = None) -> float:
    """Send pairs, divided among the clients; the pairs a second."""
    xs, ds = rows(count, seed=turn)
    bodies = [
        (question(f"{turn}-{i}", x), answer(f"{turn}-{i}", d))
        for i, (x, d) in enumerate(zip(xs, ds, strict=True))
    ]

    async def work(number: int, connection: Connection) -> None:
        for asked, answered in bodies[number::CLIENTS]:
            start = time.perf_counter()
            status, _ = await connection.post("/predict", asked)
            if times is not None:
                times.append(time.perf_counter() - start)
            assert status == 200
            status, _ = await connection.post("/learn", answered)
            assert status == 200

    return count / await clients(port, CLIENTS, work)


async def batches(port: int, count: int) -> dict[str, float]:
    """Send batches one after the other; the rows a second of each route."""
    found, connection = {}, await Connection.to(port)
    for path, answered in (("/predict", False), ("/learn", True)):
        bodies = []
        for seed in range(count):
            xs, ds = rows(BATCH, seed=seed)
            bodies.append(batch(xs, ds if answered else None))
        start = time.perf_counter()
        for body in bodies:
            status, _ = await connection.post(path, body)
            assert status == 200
        found[path.lstrip("/")] = count * BATCH / (time.perf_counter() - start)
    connection.close()
    return found


async def singles(port: int, count: int) -> dict[str, float]:
    """Send rows one by one from one client; the rows a second of each route."""
    found, connection = {}, await Connection.to(port)
    xs, ds = rows(count)
    for path, answered in (("/predict", False), ("/learn", True)):
        bodies = [
            batch(xs[i : i + 1], ds[i : i + 1] if answered else None)[1:-1] for i in range(count)
        ]
        start = time.perf_counter()
        for body in bodies:
            status, _ = await connection.post(path, body)
            assert status == 200
        found[path.lstrip("/")] = count / (time.perf_counter() - start)
    connection.close()
    return found


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    turns, count = experiment.size(7, 3), experiment.size(4000, 400)
    number, long = experiment.size(40, 5), experiment.size(HOUR, 2_000)
    rates: dict[str, list[float]] = {"jboost serve": [], "echo": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        started(SERVE, Path(folder, "serve")) as (port, _),
        started(ECHO, Path(folder, "echo")) as (other, _),
    ):
        for each in (port, other):
            asyncio.run(pairs(each, 16 * CLIENTS, 1000))  # compiles, and fills what is empty
        for turn in range(turns):
            rates["jboost serve"].append(asyncio.run(pairs(port, count, turn)))
            rates["echo"].append(asyncio.run(pairs(other, count, turn)))
        alone = asyncio.run(singles(port, count))
        together = asyncio.run(batches(port, number))
        times: list[float] = []
        start = time.perf_counter()
        asyncio.run(pairs(port, long, 2000, times))
        soaked = time.perf_counter() - start
    ratios = [a / b for a, b in zip(*rates.values(), strict=True)]
    median, slow = np.quantile(times, [0.5, 0.99]).tolist()
    results: dict[str, Any] = {
        "pairs_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "ratio": statistics.median(ratios),
        "ratios": sorted(ratios),
        "rows_per_second": {"single": alone, "batch": together},
        "batch_ratio": {name: together[name] / alone[name] for name in alone},
        "soak": {
            "predictions": len(times),
            "seconds": soaked,
            "p50_ms": 1e3 * median,
            "p99_ms": 1e3 * slow,
            "p99_over_p50": slow / median,
            "slowest_ms": 1e3 * max(times),
        },
    }
    print(
        f"{results['pairs_per_second']['jboost serve']:,.0f} pairs a second of {CLIENTS} clients, "
        f"echo {results['pairs_per_second']['echo']:,.0f}: ratio {results['ratio']:.2f}; batches "
        f"of {BATCH:,}: {results['batch_ratio']['predict']:.0f} (predict) and "
        f"{results['batch_ratio']['learn']:.0f} (learn) times the rows a second of single calls; "
        f"soak of {len(times):,} predictions: p50 {1e3 * median:.2f} ms, p99 {1e3 * slow:.2f} ms, "
        f"{slow / median:.1f} times"
    )
    settings = {"model": MODEL, "clients": CLIENTS, "batch": BATCH, "pairs": count, "turns": turns}
    experiment.write(settings, results)


if __name__ == "__main__":
    main()
