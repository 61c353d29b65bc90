"""A sweep from start to end: settings, trials, a table, pictures, and the best model.

The guide is sweeps.md. The pictures go to the folder that ``--out`` names.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np

import jboost as jb
from jboost import plots
from jboost.sweeps.sweep import SweepInterrupted, sweep


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path(tempfile.gettempdir()), help="the folder for the pictures"
    )
    parser.add_argument("--length", type=int, default=10_000, help="samples of the stream")
    parser.add_argument("--points", type=int, default=12, help="values of each setting")
    args = parser.parse_args(argv)

    xs, ds = jb.streams.duffing(args.length)
    first = args.length // 2  # chosen on the first half, reported on the second
    keys = jax.random.split(jax.random.key(0), 8)
    make = partial(jb.bsgd_ru, 20)
    grid = {
        "target_mse": np.geomspace(0.05, 1.0, args.points),
        "step_size": np.geomspace(0.01, 0.3, args.points),
    }
    try:
        table = sweep(make, grid, xs[:first], ds[:first], keys)
    except SweepInterrupted as stopped:
        table = stopped.table
    print(table)
    plots.save(table.plot().figure, args.out / "sweep-map.png")
    plots.save(table.plot("step_size").figure, args.out / "sweep-lines.png")
    print(f"sweep-map.png and sweep-lines.png are in {args.out}")

    best = table.best()
    print(f"best: {best}")
    state, _ = jb.run(make(**best), xs[:first], ds[:first], keys[0])
    _, trace = jb.run(make(**best), xs[first:], ds[first:], keys[0], state)
    error = np.mean(np.square(np.asarray(trace.prediction) - np.asarray(ds[first:])))
    print(f"on the samples that nothing was chosen on: MSE {error:.4f}")


if __name__ == "__main__":
    main()
