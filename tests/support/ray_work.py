"""A fleet over two actors of Ray, one of which is killed; tests/fleets/test_ray.py runs it."""

import os
import signal
import tempfile

import jax
import numpy as np
import pandas
import ray

import jboost as jb
from jboost.explanations import Explained
from jboost.fleets.ray import Fleet

MODEL, KEY, R = jb.bsgd_ru(3, target_mse=0.1, step_size=0.1), jax.random.key(1), 2


def same(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def block(seed, n=64):
    rng = np.random.default_rng(seed)
    names = [("shop", int(i)) for i in rng.integers(0, 20, n)]
    return names, rng.normal(size=(n, R)), rng.normal(size=n)


def main():
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    blocks = [block(seed) for seed in range(7)]
    alone = jb.Fleet(MODEL, R, key=KEY)
    expected, state = [], alone.init()
    for each in blocks:
        state, trace = alone.run(state, *each, observe=Explained(MODEL))
        expected.append(trace)
    fleet = Fleet(MODEL, R, key=KEY, workers=2, every=2)
    assert len({*fleet.processes()}) == 2
    now, traces, old = fleet.init(), [], None
    for number, each in enumerate(blocks[:5]):
        if number == 1:
            old = now  # it will not be saved
        if number == 3:  # after a save, and a block that was not saved
            os.kill(fleet.processes()[0], signal.SIGKILL)
        now, trace = fleet.run(now, *each, observe=Explained(MODEL))
        traces.append(trace)
    further = [*fleet.run_blocks(now, iter(blocks[5:]), observe=Explained(MODEL))]
    now, traces = further[-1][0], [*traces, *(trace for _, trace in further)]
    assert same(traces, expected), "predictions differ"
    names = alone.names(state)
    assert same(fleet.states(now, names), alone.states(state)), "states differ"
    assert sorted(fleet.names(now)) == sorted(names)
    xs = np.ones((len(names), R))
    assert same(fleet.predict(now, names, xs), alone.predict(state, names, xs))
    try:
        fleet.predict(old, names, xs)
        raise AssertionError("an old state outlived its worker")
    except ValueError as error:
        assert "state died with a worker" in str(error), error
    with tempfile.TemporaryDirectory() as folder:
        fleet.save(folder, now, position={"offset": 7})
        fewer = Fleet(MODEL, R, key=KEY, workers=1)
        loaded = fewer.load(folder)
        assert loaded.position == {"offset": 7} and loaded.rows == 7 * 64
        assert same(fewer.states(loaded, names), alone.states(state)), "loaded states differ"
        check_the_other_methods(fleet, fewer, alone, state)
    hostile = {
        "xs must have 2 columns": (["a"], [[1.0]], [1.0]),
        "names must not be missing": ([None], [[1.0, 1.0]], [1.0]),
        "xs must have at least one row": ([], np.zeros((0, R)), []),
    }
    for message, wrong in hostile.items():
        try:
            fleet.run(now, *wrong)
            raise AssertionError("accepted")
        except ValueError as error:
            assert message in str(error), error
    for message in ("xs must have 2 columns", "xs must have at least one row"):
        names, xs, _ = hostile[message]
        try:
            fleet.predict(now, names, xs)
            raise AssertionError("accepted")
        except ValueError as error:
            assert message in str(error), error
    assert same(fleet.states(now, []), alone.states(state, []))
    print("same bits")


def check_the_other_methods(fleet, fewer, alone, state):
    """Keys, tables, and states that are given, with names whose moments Python cannot hold."""
    assert same(*(jax.random.key_data(one.key_of(("shop", 3))) for one in (fleet, alone)))
    moments = pandas.to_datetime(
        ["2026-01-01T00:00:00.000000001Z", "2026-01-01T00:00:00.000000002Z"]
    )
    table = pandas.DataFrame({"at": moments, "a": [1.0, 2.0], "b": [3.0, 5.0], "y": [1.0, 2.0]})
    expected, _ = alone.run_table(alone.init(), table, names="at", target="y")
    now, _ = fleet.run_table(fleet.init(), table, names="at", target="y")
    assert same(fleet.states(now, moments), alone.states(expected, moments)), "tables differ"
    names = alone.names(state)
    given = fleet.from_states(names, alone.states(state))
    assert same(fleet.states(given, names), alone.states(state)), "given states differ"
    with tempfile.TemporaryDirectory() as folder:
        fleet.save(folder, now)
        found = fewer.load(folder)
        assert same(fewer.states(found, moments), alone.states(expected, moments)), "names differ"


if __name__ == "__main__":
    main()
