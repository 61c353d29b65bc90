"""Fleets: every stream's run is the one it would have had alone, however its rows arrive."""

import re
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.engine.packing import Packing
from jboost.engine.pieces import samples_per_call
from jboost.engine.plan import bytes_of
from jboost.fleets import blocks, loops
from jboost.fleets.averages import average
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


def alone(fleet, name, x, d):
    """The fleet's own run of one stream, without the others."""
    return fleet.run(fleet.init(), [name] * len(x), x, d)


def same(left, right):
    """Whether two pytrees are equal, bit for bit."""
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@pytest.mark.parametrize("schedule", ["rows", "rounds"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_streams_run_as_they_would_alone(model, schedule):
    ids, xs, ds = arrivals()
    fleet = Fleet(model, R, key=KEY, schedule=schedule)
    state, trace = run_in_blocks(fleet, 7, ids, xs, ds)
    for stream in (0, 1, 5, 17):
        rows = np.flatnonzero(ids == stream)
        after, by_itself = alone(fleet, stream, xs[rows], ds[rows])
        if schedule == "rows":  # rounds of another length are another program
            assert same(fleet.states(state, [stream]), fleet.states(after, [stream]))
            assert same(trace.prediction[rows], by_itself.prediction)
        rows = rows[:LENGTH]
        x, d = np.zeros((LENGTH, R), np.float32), np.full(LENGTH, np.nan, np.float32)
        x[: len(rows)], d[: len(rows)] = xs[rows], ds[rows]  # a NaN teaches nothing
        _, run = jb.run(model, x, d, fleet.key_of(stream))
        np.testing.assert_allclose(
            trace.prediction[rows], run.prediction[: len(rows)], rtol=1e-4, atol=1e-5
        )
    assert trace.skipped.tolist() == [row in (3, 10) for row in range(len(ids))]
    untouched, fresh = fleet.states(state, [N - 1]), fleet.states(fleet.init(), [N - 1])
    assert same(untouched, fresh) and len(state) == len({*ids.tolist()})


def test_blocks_may_be_cut_anywhere():
    ids, xs, ds = arrivals()
    fleet = Fleet(MODELS["RU"], R, key=KEY)
    state, trace = run_in_blocks(fleet, 1, ids, xs, ds)
    for count in (2, 5):
        again, pieces = run_in_blocks(fleet, count, ids, xs, ds)
        np.testing.assert_array_equal(again.words, state.words)
        assert fleet.names(again) == fleet.names(state) == [*dict.fromkeys(ids.tolist())]
        np.testing.assert_array_equal(pieces.prediction, trace.prediction)


def test_old_states_stay_usable_and_branch():
    """Runs from one state do not disturb each other, whatever names they add, in any order."""
    _, xs, ds = arrivals(60)
    fleet = Fleet(jb.SGD(0.1), R)
    first, _ = fleet.run(fleet.init(), ["a", "b"] * 10, xs[:20], ds[:20])
    left, left_trace = fleet.run(first, ["c", "a"] * 10, xs[20:40], ds[20:40])
    right, _ = fleet.run(first, ["d", "b"] * 10, xs[20:40], ds[20:40])
    words = {id(state): state.words for state in (left, right, first)}
    assert [fleet.names(state) for state in (first, left, right)] == [
        ["a", "b"],
        ["a", "b", "c"],
        ["a", "b", "d"],
    ]
    longer, _ = fleet.run(left, ["e", "c"] * 10, xs[40:], ds[40:])
    again, again_trace = fleet.run(first, ["c", "a"] * 10, xs[20:40], ds[20:40])
    for state in (right, left, first, right):
        np.testing.assert_array_equal(state.words, words[id(state)])
    np.testing.assert_array_equal(again.words, left.words)
    np.testing.assert_array_equal(again_trace.prediction, left_trace.prediction)
    assert fleet.names(longer) == ["a", "b", "c", "e"]


def test_an_old_state_takes_memory_for_each_row_once():
    """Whoever keeps the first state of a long run keeps each stream as it was, and no more."""
    _, xs, ds = arrivals(20)
    fleet = Fleet(jb.SGD(0.1), R)
    first, _ = fleet.run(fleet.init(), range(20), xs, ds)
    before = first.words
    middle, state = None, first
    for number in range(30):
        state, _ = fleet.run(state, range(number % 5, 20), xs[number % 5 :], ds[number % 5 :])
        if number == 9:
            middle, then = state, state.words
    held = sum(len(rows) for _, rows, _ in first.version.node.difference)
    assert held <= 20 and sum(len(r) for _, r, _ in middle.version.node.difference) <= 40
    last = state.words
    np.testing.assert_array_equal(first.words, before)
    np.testing.assert_array_equal(middle.words, then)
    np.testing.assert_array_equal(state.words, last)
    again = fleet.run(first, ["new", 3], xs[:2], ds[:2])[0]
    np.testing.assert_array_equal(state.words, last)
    np.testing.assert_array_equal(first.words, before)
    assert fleet.names(again)[-1] == "new" and len(again.words) == 21


def test_an_error_in_the_middle_changes_nothing(monkeypatch):
    ids, xs, ds = arrivals(50)
    fleet = Fleet(jb.SGD(0.1), R)
    state, _ = fleet.run(fleet.init(), ids, xs, ds)
    before = state.words
    monkeypatch.setattr(fleet, "_most", 16)
    calls, write = [], type(state.streams).write

    def fails_later(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(*arguments)

    monkeypatch.setattr(type(state.streams), "write", fails_later)
    with pytest.raises(KeyboardInterrupt):
        fleet.run(state, [f"new {i}" for i in ids], xs, ds)
    np.testing.assert_array_equal(state.words, before)
    after, _ = fleet.run(state, ids, xs, ds)
    assert fleet.names(after) == fleet.names(state)


def test_predict_and_learn_apart_are_a_run():
    ids, xs, ds = arrivals(80)
    fleet = Fleet(MODELS["RU"], R, key=KEY)
    state, trace = fleet.run(fleet.init(), ids[:60], xs[:60], ds[:60])
    apart = fleet.init()
    for row in range(20):
        part = slice(row, row + 1)
        said = fleet.predict(apart, ids[part], xs[part])
        assert same(said, trace.prediction[part])
        assert len(apart) == len({*ids[:row].tolist()})  # to predict makes no stream
        apart = fleet.learn(apart, ids[part], xs[part], ds[part])
    apart = fleet.learn(apart, ids[20:60], xs[20:60], ds[20:60])
    np.testing.assert_array_equal(apart.words, state.words)
    again = np.concatenate([fleet.predict(state, ids[rows], xs[rows]) for rows in ([0], [1, 2])])
    assert same(fleet.predict(state, ids, xs)[:3], again)


def test_threads_may_share_a_fleet():
    ids, xs, ds = arrivals(200)
    fleet = Fleet(jb.SGD(0.1), R)
    state, _ = fleet.run(fleet.init(), ids, xs, ds)
    expected = np.asarray(fleet.predict(state, ids, xs))

    def work(number):
        names = [f"{number} {i}" for i in ids]
        other, _ = fleet.run(state, names, xs, ds)
        alone, _ = fleet.run(fleet.init(), names, xs, ds)
        assert np.array_equal(fleet.predict(state, ids, xs), expected)
        return same(fleet.states(other, names), fleet.states(alone, names))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(12)))


def test_streams_may_start_from_a_state():
    model = jb.SGD(0.1)
    start, _ = jb.run(model, [[1.0, 2.0]], [3.0])
    fleet = Fleet(model, R, start=start)
    np.testing.assert_allclose(fleet.predict(fleet.init(), ["x"], [[1.0, 2.0]]), [1.5])
    _, trace = fleet.run(fleet.init(), ["x", "x"], [[1.0, 2.0]] * 2, [3.0, 3.0])
    _, run = jb.run(model, [[1.0, 2.0]] * 2, [3.0, 3.0], state=start)
    np.testing.assert_allclose(trace.prediction, run.prediction, rtol=1e-6)
    with pytest.raises(ValueError, match="start must be a state of this model for 3 inputs"):
        Fleet(model, 3, start=start)


def test_states_make_a_fleet_again(tmp_path):
    ids, xs, ds = arrivals(50)
    model = jb.SGD(0.1)
    fleet = Fleet(model, R)
    state, _ = fleet.run(fleet.init(), ids, xs, ds)
    jb.save(tmp_path / "fleet.npz", model, fleet.states(state), num_features=R)
    _, loaded, _ = jb.load(tmp_path / "fleet.npz")
    np.testing.assert_array_equal(fleet.from_states(fleet.names(state), loaded).words, state.words)
    with pytest.raises(ValueError, match="states must be of 3 streams"):
        fleet.from_states([1, 2, 3], fleet.states(state, [1, 2]))
    with pytest.raises(ValueError, match=r"states must be those of .* structure"):
        twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), jb.Newton().init(R))
        fleet.from_states([1, 2], twice)
    with pytest.raises(ValueError, match=r"states\.w has float32\[2, 3\] where float32\[2, 2\]"):
        fleet.from_states([1, 2], jb.SGD(0.1).init(R)._replace(w=np.zeros((2, 3), np.float32)))
    with pytest.raises(ValueError, match="names must all be different"):
        fleet.from_states([1, 1], fleet.states(state, [1, 2]))


@pytest.mark.parametrize("bound", [1, 5, 20])
def test_silent_streams_go_to_a_file_and_return(bound, tmp_path):
    ids, xs, ds = arrivals(200)
    fleet, small = Fleet(MODELS["WU"], R), Fleet(MODELS["WU"], R, bound=bound, spill=tmp_path)
    state, trace = run_in_blocks(fleet, 3, ids, xs, ds)
    bounded, pieces = run_in_blocks(small, 3, ids, xs, ds)
    np.testing.assert_array_equal(pieces.prediction, trace.prediction)
    np.testing.assert_array_equal(bounded.words, state.words)
    assert np.count_nonzero(bounded.streams.arrays["stream"]) == min(bound, len(state))
    further, _ = small.run(bounded, ids, xs, ds)
    np.testing.assert_array_equal(bounded.words, state.words)  # an old state, here too
    np.testing.assert_array_equal(further.words, fleet.run(state, ids, xs, ds)[0].words)


def test_several_targets_intervals_and_delays_work_inside():
    names = np.array(["north", "south"] * 15)
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(30, R)).astype(np.float32)
    two = np.stack([xs[:, 0], -xs[:, 1]], axis=1)
    fleet = Fleet(jb.targets(jb.SGD(0.1), 2), R)
    _, trace = fleet.run(fleet.init(), names, xs, two)
    _, run = jb.run(jb.targets(jb.SGD(0.1), 2), xs[::2], two[::2])
    np.testing.assert_allclose(trace.prediction[::2], run.prediction, rtol=1e-5, atol=1e-6)
    for model in (jb.Intervals(jb.SGD(0.1), coverage=0.8), jb.Delayed(jb.SGD(0.1), delay=3)):
        fleet = Fleet(model, R)
        _, trace = fleet.run(fleet.init(), names, xs, two[:, 0], observe=observe_prediction)
        _, run = jb.run(model, xs[1::2], two[1::2, 0])
        np.testing.assert_allclose(trace.prediction[1::2], run.prediction, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(trace.observed, trace.prediction)


def observe_prediction(state, info):
    return info.prediction


def test_large_states_are_gathered_in_pieces(monkeypatch):
    ids, xs, ds = arrivals(200)
    fleet = Fleet(jb.SGD(0.1), R)
    state, trace = fleet.run(fleet.init(), ids, xs, ds)
    for streams in (1, 20):
        monkeypatch.setattr(blocks, "LARGEST", streams * 4 * fleet.width)
        assert len([*blocks.pieces(ids, 4 * fleet.width)]) > 8  # of sixteen rows
        again, pieces = fleet.run(fleet.init(), ids, xs, ds)
        np.testing.assert_array_equal(again.words, state.words)
        np.testing.assert_array_equal(pieces.prediction, trace.prediction)


def test_an_average_is_a_start_of_linear_learners_only():
    ids, xs, ds = arrivals(100)
    model = jb.pipeline(jb.Bias(), jb.Newton(0.99, 0.1))
    fleet = Fleet(model, R)
    state, _ = fleet.run(fleet.init(), ids, xs, ds)
    states = fleet.states(state)
    start = average(model, states)
    leaves = jax.tree_util.tree_leaves_with_path(start)
    fresh, stacked = jax.tree.leaves(model.init(R)), jax.tree.leaves(states)
    for (path, leaf), first, each in zip(leaves, fresh, stacked, strict=True):
        weights = getattr(path[-1], "name", "") == "w"
        expected = np.mean(np.asarray(each, np.float64), axis=0) if weights else first
        np.testing.assert_allclose(leaf, expected, rtol=1e-6)
    Fleet(model, R, start=start)
    with pytest.raises(ValueError, match="model must have linear learners in it"):
        average(jb.EWA(0.1), jax.tree.map(lambda a: jnp.stack([a, a]), jb.EWA(0.1).init(3)))
    with pytest.raises(ValueError, match="model must not draw"):
        average(MODELS["RU"], states)
    with pytest.raises(ValueError, match="states must be stacked"):
        average(model, model.init(R))


def test_a_row_copies_no_states_of_other_streams():
    """The compiled loop changes one row of the states in place, whatever the combiner."""
    fleet, rows = Fleet(MODELS["WU"], R), 16
    block = (np.zeros((1, rows), np.int32), np.ones((1, rows, R), np.float32), np.ones((1, rows)))
    words = np.zeros((1, 1000, fleet.width), np.uint32)
    lowered = loops.RUN[fleet._program.spec.loop].lower(
        fleet._program.spec, fleet.model, None, words, (*block, None)
    )
    assert not re.findall(r"= u32\[1000,.* copy\(", lowered.compile().as_text())


def test_growth_compiles_nothing_anew():
    fleet = Fleet(jb.SGD(0.1), R)
    state, block = fleet.init(), (np.ones((16, R)), np.ones(16))
    state, _ = fleet.run(state, range(16), *block)
    compiled = loops.RUN[fleet._program.spec.loop]._cache_size()
    for start in range(16, 400, 16):
        state, _ = fleet.run(state, range(start, start + 16), *block)
    assert loops.RUN[fleet._program.spec.loop]._cache_size() == compiled and len(state) == 400


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
    fleet = Fleet(jb.SGD(0.1), 1)
    state, trace = fleet.run(fleet.init(), [1, 1], [[1.0], [1.0]], [1.0, 1.0])
    assert trace.prediction.dtype == jnp.float64
    np.testing.assert_allclose(trace.prediction, [0.0, 0.1], rtol=1e-15)
    assert fleet.states(state).w.dtype == jnp.float64


def test_other_bad_arguments_are_named():
    fleet = Fleet(jb.SGD(0.1), R)
    with pytest.raises(ValueError, match=r"xs must have 2 columns; got shape \(2, 3\)"):
        fleet.run(fleet.init(), [0, 1], np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match="names must be 2 names, one for each row of xs; got 1"):
        fleet.run(fleet.init(), [0], np.ones((2, R)), np.ones(2))
    with pytest.raises(ValueError, match="key is missing"):
        Fleet(MODELS["RU"], R)
    with pytest.raises(ValueError, match="bound must be"):
        Fleet(jb.SGD(0.1), R, bound=0)
    with pytest.raises(ValueError, match="schedule must be one of 'rows', 'rounds'"):
        Fleet(jb.SGD(0.1), R, schedule="columns")
    with pytest.raises(ValueError, match=r"state must be .* got one of another fleet"):
        fleet.run(Fleet(jb.SGD(0.1), R + 1).init(), [0], np.ones((1, R)), np.ones(1))
    other = Fleet(jb.pipeline(jb.SGD(0.1)), R)  # whose states are as large, but others
    assert other.width == fleet.width
    with pytest.raises(ValueError, match=r"state must be .* got one of another fleet"):
        fleet.run(other.init(), [0], np.ones((1, R)), np.ones(1))


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
    small, large = (samples_per_call(bytes_of(model.init(r))) for r in (3, 90))
    assert (
        loops.compiled_lengths(100, small) == [256]
        and loops.compiled_lengths(100, large) == [16] * 7
    )
