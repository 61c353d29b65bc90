"""Fleets: every stream's run is the one it would have had alone, however its rows arrive."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.engine.packing import Packing
from jboost.engine.pieces import samples_per_call
from jboost.fleets import loops
from jboost.fleets.fleet import Fleet

KEY = jax.random.key(4)
N, R, LENGTH = 40, 2, 24
MODELS = {
    "WU": jb.bsgd_wu(5, target_mse=0.1, step_size=0.1),
    "RU": jb.bnm_ru(3, target_mse=0.1, forgetting=0.95, ridge=0.1, combiner=jb.Uniform()),
}


def arrivals(rows=300, streams=N, seed=0):
    """Rows in blocks: the first streams often, the last ones never; a bad sample or two."""
    rng = np.random.default_rng(seed)
    ids = np.minimum(rng.geometric(0.1, rows) - 1, streams - 3)
    xs = rng.normal(size=(rows, R)).astype(np.float32)
    ds = (xs @ [1.0, -0.5] * (1 + ids % 3)).astype(np.float32)
    ds[3], xs[10, 1] = np.nan, np.inf
    return ids, xs, ds


def run_in_blocks(fleet, blocks, ids, xs, ds):
    state, traces = fleet.init(), []
    for rows in np.array_split(np.arange(len(ids)), blocks):
        state, trace = fleet.run(state, ids[rows], xs[rows], ds[rows])
        traces.append(trace)
    return state, jax.tree.map(lambda *parts: np.concatenate(parts), *traces)


@pytest.mark.parametrize("schedule", ["rows", "rounds"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_streams_run_as_they_would_alone(model, schedule):
    ids, xs, ds = arrivals()
    fleet = Fleet(model, N, R, key=KEY, schedule=schedule)
    state, trace = run_in_blocks(fleet, 7, ids, xs, ds)
    states = fleet.states(state)
    for stream in (0, 1, 5, 17):
        rows = np.flatnonzero(ids == stream)[:LENGTH]
        x, d = np.zeros((LENGTH, R), np.float32), np.full(LENGTH, np.nan, np.float32)
        x[: len(rows)], d[: len(rows)] = xs[rows], ds[rows]  # a NaN teaches nothing
        key = jax.random.fold_in(KEY, stream)
        after, alone = jb.run(model, x, d, key)
        np.testing.assert_allclose(
            trace.prediction[rows], alone.prediction[: len(rows)], rtol=1e-4, atol=1e-5
        )
        if np.sum(ids == stream) <= LENGTH:
            for leaf, stacked in zip(jax.tree.leaves(after), jax.tree.leaves(states), strict=True):
                np.testing.assert_allclose(stacked[stream], leaf, rtol=1e-3, atol=1e-4)
    assert trace.skipped.tolist() == [row in (3, 10) for row in range(len(ids))]
    untouched, fresh = fleet.states(state, [N - 1]), fleet.states(fleet.init(), [N - 1])
    for leaf, first in zip(jax.tree.leaves(untouched), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_array_equal(leaf, first)


def test_blocks_may_be_cut_anywhere():
    ids, xs, ds = arrivals()
    fleet = Fleet(MODELS["RU"], N, R, key=KEY)
    state, trace = run_in_blocks(fleet, 1, ids, xs, ds)
    for blocks in (2, 5):
        again, pieces = run_in_blocks(fleet, blocks, ids, xs, ds)
        np.testing.assert_array_equal(again.words, state.words)
        np.testing.assert_array_equal(pieces.prediction, trace.prediction)


def test_a_state_stays_unless_it_is_donated_and_can_be_kept(tmp_path):
    ids, xs, ds = arrivals(50)
    model = jb.SGD(0.1)
    fleet = Fleet(model, N, R)
    first = fleet.init()
    before = np.array(first.words)
    state, _ = fleet.run(first, ids, xs, ds)
    np.testing.assert_array_equal(first.words, before)
    jb.save(tmp_path / "fleet.npz", model, fleet.states(state), num_features=R)
    _, loaded, _ = jb.load(tmp_path / "fleet.npz")
    np.testing.assert_array_equal(fleet.from_states(loaded).words, state.words)
    expected = np.array(state.words)
    again, _ = fleet.run(first, ids, xs, ds, donate=True)
    np.testing.assert_array_equal(again.words, expected)
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(first.words)


def test_a_row_copies_no_states_of_other_streams():
    """The compiled loop changes one row of the states in place, whatever the combiner."""
    fleet, rows = Fleet(MODELS["WU"], 1000, R), 16
    block = (np.zeros((1, rows), np.int32), np.ones((1, rows, R), np.float32), np.ones((1, rows)))
    lowered = loops.RUN[fleet._spec.loop].lower(
        fleet._spec, fleet.model, None, fleet.init().words, block
    )
    assert not re.findall(r"= u32\[1000,.* copy\(", lowered.compile().as_text())


def test_packing_keeps_every_bit(x64):
    state = {
        "a": jnp.array([1.5, -0.0, np.nan], jnp.float64),
        "b": jnp.array([[np.inf, 1e-40]], jnp.float32),
        "c": jnp.array(True),
        "d": jnp.array([-3, 7], jnp.int8),
        "e": jnp.array(0.1, jnp.bfloat16),
        "f": jnp.array(2**40, jnp.int64),
    }
    packing = Packing.of(state)
    words = packing.pack(state)
    assert words.shape == (packing.width,) and words.dtype == jnp.uint32
    back = packing.unpack(words)
    for name, leaf in state.items():
        assert back[name].dtype == leaf.dtype and back[name].shape == leaf.shape
        assert np.asarray(back[name]).tobytes() == np.asarray(leaf).tobytes()


def test_float64_fleets(x64):
    fleet = Fleet(jb.SGD(0.1), 3, 1)
    state, trace = fleet.run(fleet.init(), [1, 1], [[1.0], [1.0]], [1.0, 1.0])
    assert trace.prediction.dtype == jnp.float64
    np.testing.assert_allclose(trace.prediction, [0.0, 0.1], rtol=1e-15)
    assert fleet.states(state).w.dtype == jnp.float64


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 40], "streams from 0 to 39; row 1 has 40"),
        ([-1, 0], "row 0 has -1"),
        ([0.0, 1.0], "whole numbers; got dtype float64"),
        ([0], r"shape \(2,\), one for each row of xs; got \(1,\)"),
    ],
)
def test_bad_ids_are_named(ids, message):
    fleet = Fleet(jb.SGD(0.1), N, R)
    with pytest.raises((ValueError, TypeError), match=message):
        fleet.run(fleet.init(), ids, np.ones((2, R)), np.ones(2))


def test_other_bad_arguments_are_named():
    fleet = Fleet(jb.SGD(0.1), N, R)
    with pytest.raises(ValueError, match=r"xs must have 2 columns; got shape \(2, 3\)"):
        fleet.run(fleet.init(), [0, 1], np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match="key is missing"):
        Fleet(MODELS["RU"], N, R)
    with pytest.raises(ValueError, match="num_streams must be"):
        Fleet(jb.SGD(0.1), 0, R)
    with pytest.raises(ValueError, match="schedule must be one of 'rows', 'rounds'"):
        Fleet(jb.SGD(0.1), N, R, schedule="columns")
    with pytest.raises(ValueError, match=r"state must be .* got one of another fleet"):
        fleet.run(Fleet(jb.SGD(0.1), N + 1, R).init(), [0], np.ones((1, R)), np.ones(1))
    with pytest.raises(ValueError, match="states must be of 40 streams"):
        fleet.from_states(fleet.states(fleet.init(), [1, 2]))


@pytest.mark.parametrize("call", [0, 40, 1000])
def test_calls_hold_all_rows_and_waste_little(call):
    for n in [*range(1, 600), 4095, 4097, 30_000, 65_535, 65_536, 65_537, 200_000]:
        lengths = loops.compiled_lengths(n, call)
        assert set(lengths) <= set(loops.LENGTHS)
        assert sum(lengths[:-1]) < n <= sum(lengths)  # padding is in the last one only
        if call == 0:
            assert sum(lengths) - n < 16


def test_large_states_are_padded_less():
    model = jb.bnm_wu(20, target_mse=0.2, forgetting=0.99, ridge=0.1)
    small, large = (samples_per_call(model.init(r)) for r in (3, 90))
    assert (
        loops.compiled_lengths(100, small) == [256]
        and loops.compiled_lengths(100, large) == [16] * 7
    )
