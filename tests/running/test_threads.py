"""One model in many threads, on a machine whose cores are taken: the same bits as alone."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb

THREADS = 8
KEY = jax.random.key(2)
BUSY = "import os; os.nice(5)\nwhile True: pass"


@pytest.fixture
def load():
    """A process for every core that does nothing else but run."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in processes:
        process.kill()
        process.wait()


class Work:
    """All that a user does with a model: run, go on, predict, learn, keep and load."""

    def __init__(self, model):
        self.model, self.predict, self.update = model, jax.jit(model.predict), jax.jit(model.update)

    def __call__(self, xs, ds, path):
        _, trace = jb.run(self.model, xs[:256], ds[:256], KEY)
        stream = jb.run_stream(self.model, (xs, ds), KEY, block=256)
        streamed = np.concatenate([block.prediction for block in stream])
        state, live = stream.state, []
        for x, d in zip(xs[:5], ds[:5], strict=True):
            live.append(self.predict(state, x))
            state = self.update(state, x, d, key=KEY)
        jb.save(path, self.model, state, KEY)
        _, kept, _ = jb.load(path)
        return trace.prediction, streamed, jnp.stack(live), state, kept


def test_eight_threads_under_load_are_eight_runs_alone(load, tmp_path):
    """The threads come first and together, so that they also compile at once."""
    booster = jb.bnm_ru(3, target_mse=0.1, forgetting=0.99, ridge=1.0)
    work = Work(jb.pipeline(jb.Scale(), jb.Bias(), jb.ScaleTarget(booster)))
    start, own = Barrier(THREADS), THREADS // 2  # every stream is run by two of them
    streams = [jb.streams.stationary(jax.random.key(k), 1024) for k in range(own)]
    streams = [tuple(np.asarray(a) for a in stream) for stream in streams]

    def one(k):
        start.wait(timeout=60)
        return work(*streams[k % own], tmp_path / f"{k}.npz")

    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(one, range(THREADS)))
    alone = [work(*stream, tmp_path / "alone.npz") for stream in streams]
    for k, found in enumerate(together):
        chex.assert_trees_all_equal(found, alone[k % own])
        chex.assert_trees_all_equal(found[3], found[4])  # what was kept is what was loaded
    assert not any(np.array_equal(alone[0][1], other[1]) for other in alone[1:])


def test_one_path_and_many_writers(tmp_path):
    """Whoever comes last, the file is one whole state and none of two."""
    model, path = jb.SGD(0.1), tmp_path / "shared.npz"
    states = [jax.tree.map(lambda a, k=k: a + k, model.init(1000)) for k in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda state: jb.save(path, model, state), states * 3))
    _, kept, _ = jb.load(path)
    assert any(np.array_equal(kept.w, state.w) for state in states)
    assert [p.name for p in tmp_path.iterdir()] == ["shared.npz"]
