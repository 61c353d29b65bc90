"""A fleet over Ray whose workers are killed at random moments, compared with one in this process.

Before each block one of the workers is chosen, which SIGKILL ends at a random moment of the block.
Ray starts it again; it loads its share and does the blocks since then once more. All predictions
and all states must be those of the fleet in this process, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import threading
import time
from collections.abc import Sequence

import jax
import numpy as np

import jboost as jb
from experiments.shared.experiment import Experiment
from jboost.core import extras

R = 3


def kill(process: int) -> None:
    """End a process, if it still runs."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, metavar="N", help="one for each block; default: 50")
    parser.add_argument("--rows", type=int, metavar="N", help="default: a million")
    parser.add_argument("--keys", type=int, default=10_000, metavar="N", help="default: 10,000")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the moments")


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False, options=options)
    args = experiment.args
    kills = args.kills or experiment.size(50, 2)
    rows = args.rows or experiment.size(1_000_000, 20_000)
    ray = extras.need("ray", "ray")
    from jboost.fleets.ray import Fleet

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    rng, moments = np.random.default_rng(1), random.Random(args.seed)
    law = rng.normal(size=(args.keys, R)).astype(np.float32)
    model, key = jb.bsgd_ru(5, target_mse=0.01, step_size=0.1), jax.random.key(1)
    alone, fleet = jb.Fleet(model, R, key=key), Fleet(model, R, key=key, workers=2, every=8)
    expected, state = alone.init(), fleet.init()
    longest, sent = 0.2, 0
    for number in range(kills):
        ids = rng.integers(0, args.keys, rows // kills)
        xs = rng.normal(size=(len(ids), R)).astype(np.float32)
        names, ds = [f"sensor {i}" for i in ids], np.sum(law[ids] * xs, axis=1)
        expected, trace = alone.run(expected, names, xs, ds)
        worker = moments.choice(fleet.processes())
        timer = threading.Timer(moments.uniform(0, longest), kill, [worker])
        timer.start()
        start = time.perf_counter()
        state, found = fleet.run(state, names, xs, ds)
        timer.join()
        sent += 1
        assert np.array_equal(found.prediction, trace.prediction), "predictions differ"
        took = time.perf_counter() - start
        print(f"block {number + 1} of {kills}: {took:.1f} s with a kill", flush=True)
    every = alone.names(expected)
    both = alone.states(expected, every), fleet.states(state, every)
    pairs = zip(*map(jax.tree.leaves, both), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs), "states differ"
    print(f"{sent} kills over {rows:,} rows of {len(every):,} keys: every bit is the same")
    settings = {"rows": rows, "keys": args.keys, "seed": args.seed}
    experiment.write(settings, {"kills": sent, "keys": len(every)})


if __name__ == "__main__":
    main()
