"""A fleet from start to end: many streams, rows in any order, and the streams hard to predict.

The guide is fleets.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import jboost as jb


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--streams", type=int, default=20_000, help="how many streams")
    parser.add_argument("--blocks", type=int, default=20, help="how many blocks of 50,000 rows")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of a block")
    args = parser.parse_args(argv)

    rng = np.random.default_rng(0)
    law = rng.normal(size=(args.streams, 3))
    noise = rng.choice([0.1, 1.0], args.streams, p=[0.95, 0.05])  # a few are hard to predict
    busy = rng.dirichlet(np.full(args.streams, 0.5))  # and some have far more samples than others

    model = jb.bnm_wu(5, target_mse=0.02, forgetting=0.99, ridge=0.1)
    fleet = jb.Fleet(model, num_features=3)
    state = fleet.init()
    loss, count = np.zeros(args.streams), np.zeros(args.streams)
    for block in range(args.blocks):
        ids = rng.choice(args.streams, args.rows, p=busy)
        xs = rng.uniform(-1, 1, (args.rows, 3))
        ds = np.sum(law[ids] * xs, axis=1) + noise[ids] * rng.normal(size=args.rows)
        state, trace = fleet.run(state, ids, xs, ds)
        if block >= args.blocks // 2:  # judged when most streams have learned
            np.add.at(loss, ids, np.square(np.asarray(trace.prediction) - ds))
            np.add.at(count, ids, 1)
    seen = count >= 10
    mse = loss[seen] / count[seen]
    hard = mse > 0.5
    print(
        f"{int(count.sum()):,} rows judged; {int(seen.sum()):,} streams with at least ten of them"
    )
    print(f"MSE, median over streams: {np.median(mse):.3f}")
    found = np.mean(noise[seen][hard] == 1.0) if hard.any() else float("nan")
    print(
        f"{int(hard.sum()):,} streams have an MSE above 0.5; {found:.0%} of them are the noisy ones"
    )


if __name__ == "__main__":
    main()
