"""A fleet of 100,000 streams with a model each, whose samples arrive in any order, in blocks.

Reports rows a second and memory, and compares 200 of the streams with separate runs. Every stream
has a linear law of its own. The stream of each row is drawn at random, so that some streams have
many rows in a block and some have none.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.shared.experiment import Experiment, Progress

R, M, NOISE = 3, 5, 0.1
MODELS = {
    "BSGD-WU": jb.bsgd_wu(M, target_mse=NOISE**2, step_size=0.1),
    "BSGD-RU": jb.bsgd_ru(M, target_mse=NOISE**2, step_size=0.1),
    "BNM-WU": jb.bnm_wu(M, target_mse=NOISE**2, forgetting=0.99, ridge=0.1),
}


class Arrivals:
    """Blocks of rows (stream, x, d)."""

    def __init__(self, streams: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.laws = self.rng.normal(size=(streams, R)).astype(np.float32)

    def block(self, rows: int) -> tuple[Any, Any, Any]:
        ids = self.rng.integers(0, len(self.laws), rows)
        xs = self.rng.uniform(-1, 1, (rows, R)).astype(np.float32)
        noise = NOISE * self.rng.standard_normal(rows, np.float32)
        return ids, xs, np.sum(self.laws[ids] * xs, axis=1) + noise


def fleet_of(
    name: str, streams: int, steps: int, rows: int, sampled: int, bar: Progress
) -> dict[str, Any]:
    """Run one fleet; what it took, and how far the sampled streams are from their runs alone."""
    model, key = MODELS[name], jax.random.key(1)
    fleet = jb.Fleet(model, R, key=key)
    arrivals = Arrivals(streams)
    sample = np.random.default_rng(1).choice(streams, min(sampled, streams), replace=False)
    kept: list[tuple[Any, ...]] = []
    state, busy, spent, done = fleet.init(), 0.0, 0.0, 0
    fleet.run(state, *arrivals.block(rows))  # compiles
    count = streams * steps // rows
    for number in range(count):
        ids, xs, ds = arrivals.block(rows)
        start, begun = time.perf_counter(), time.process_time()
        state, trace = fleet.run(state, ids, xs, ds)
        prediction = np.asarray(trace.prediction)
        busy, spent = busy + time.perf_counter() - start, spent + time.process_time() - begun
        done += rows
        own = np.isin(ids, sample)
        kept.append((ids[own], xs[own], ds[own], prediction[own]))
        if number % max(count // 5, 1) == 0 or number == count - 1:
            bar.add(1, f"{name}: {done:,} rows")
    ids, xs, ds, prediction = (np.concatenate(part) for part in zip(*kept, strict=True))
    apart, same = 0.0, 0
    longest = int(np.bincount(np.searchsorted(np.sort(sample), ids)).max())
    for stream in sample:
        own = np.flatnonzero(ids == stream)
        x, d = np.zeros((longest, R), np.float32), np.full(longest, np.nan, np.float32)
        x[: len(own)], d[: len(own)] = xs[own], ds[own]  # one length compiles once
        alone = jb.run(model, x, d, fleet.key_of(int(stream)))[1].prediction
        gap = np.abs(np.asarray(alone)[: len(own)] - prediction[own]).max(initial=0.0)
        apart, same = max(apart, float(gap)), same + int(gap == 0)
    return {
        "rows": done,
        "rows_per_second": done / busy,
        "microseconds_per_row": 1e6 * busy / done,
        "cpu_microseconds_per_row": 1e6 * spent / done,
        "state_mb": state.words.nbytes / 1e6,
        "sampled": len(sample),
        "largest_difference": apart,
        "equal_bit_for_bit": same,
        "mse": float(np.mean(np.square(prediction - ds))),
    }


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    streams, rows = experiment.size(100_000, 2_000), experiment.size(100_000, 10_000)
    sampled = experiment.size(200, 20)
    bar = Progress("fleets", 6 * len(MODELS))
    results = {name: fleet_of(name, streams, 100, rows, sampled, bar) for name in MODELS}
    for name, row in results.items():
        print(
            f"{name}: {row['rows']:,} rows of {streams:,} streams, "
            f"{row['rows_per_second'] / 1e6:.2f} million rows a second, "
            f"states {row['state_mb']:.0f} MB; {row['sampled']} streams alone: at most "
            f"{row['largest_difference']:.1g} apart, {row['equal_bit_for_bit']} bit for bit"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    experiment.write({"streams": streams, "m": M, "r": R, "block": rows, "peak_mb": peak}, results)


if __name__ == "__main__":
    main()
