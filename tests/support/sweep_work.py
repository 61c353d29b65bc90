"""A small sweep and a small fleet, which tests/sweeps/test_devices.py runs in other processes."""

import json
import sys

import jax
import numpy as np

import jboost as jb
from jboost.fleets import loops
from jboost.fleets.fleet import Fleet
from jboost.sweeps import jobs
from jboost.sweeps.sweep import sweep

computed = 0


def make(m, step_size):
    return jb.bsgd_ru(m, target_mse=0.3, step_size=step_size, combiner=jb.Uniform())


def counted(fill):
    """Columns.fill, which also counts the rows that this process computes."""

    def fill_and_count(self, *results):
        global computed
        before = int(self.done.sum())
        fill(self, *results)
        computed += int(self.done.sum()) - before

    return fill_and_count


def work():
    """5 steps × 2 lengths × 3 keys × 2 streams, and 30 streams with a model each."""
    xs, ds = (np.asarray(array) for array in jb.streams.duffing(50))
    grid = {"m": [2, 4], "step_size": np.linspace(0.05, 0.2, 5)}
    streams = np.stack([xs, 0.5 * xs]), np.stack([ds, ds])
    streams[1][1, 3] = np.nan
    table = sweep(make, grid, *streams, jax.random.split(jax.random.key(1), 3), batch=8)
    rng = np.random.default_rng(0)
    fleet = Fleet(make(3, 0.1), 3, key=jax.random.key(2))
    loop, shardings = fleet._program.spec.loop, []
    run = loops.RUN[loop]

    def recorded(*arguments):
        results = run(*arguments)
        shardings.append(results[0][0].sharding)
        return results

    loops.RUN[loop] = recorded
    _, trace = fleet.run(fleet.init(), rng.integers(0, 30, 50), xs, ds)
    loops.RUN[loop] = run
    return {
        "settings": [table[name].tolist() for name in ("m", "step_size", "key", "stream")],
        "done": table.done.tolist(),
        "skipped": table["skipped"].tolist(),
        "mse": table["mse"].tolist(),
        "fleet": trace.prediction.tolist(),
        "parts": len(shardings[0].device_set),
    }


if __name__ == "__main__":
    if sys.argv[1] == "process":
        jax.distributed.initialize(sys.argv[3], num_processes=2, process_id=int(sys.argv[2]))
    jobs.ResultColumns.fill = counted(jobs.ResultColumns.fill)
    results = work()
    results |= {"devices": jax.local_device_count(), "computed": computed}
    results |= {"process": jax.process_index(), "processes": jax.process_count()}
    print(json.dumps(results))
