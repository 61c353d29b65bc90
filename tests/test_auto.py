"""auto: it runs on anything, at once, in any units, lives in time, and its reports add up."""

import chex
import jax
import numpy as np
import pytest

import jboost as jb
from jboost.automatic import SIZES, Seeded, auto, experts, names

SIZE = "small"  # where any will do: it compiles soonest
T = 600


@pytest.fixture(scope="module", autouse=True)
def plain():
    """One kernel of so many parts takes several times as long to compile as it saves here."""
    jb.engine.use("plain")
    yield
    jb.engine.use("auto")


def curved(seed, rows=T, r=3):
    """d = sin(2 x₁) + x₁ x₂ + noise of 0.1; the other columns do not matter."""
    rng = np.random.default_rng(seed)
    xs = rng.standard_normal((rows, r)).astype(np.float32)
    ds = np.sin(2 * xs[:, 0]) + xs[:, 0] * xs[:, 1] + 0.1 * rng.standard_normal(rows)
    return xs, ds.astype(np.float32)


def observe(state, info):
    return info.y


def trace_of(xs, ds, seed=0, state=None, size=SIZE):
    return jb.run(auto(size), xs, ds, jax.random.key(seed), state, observe)


def run(xs, ds, **options):
    state, trace = trace_of(xs, ds, **options)
    return state, np.asarray(trace.prediction)[: len(ds)]


@pytest.fixture(scope="module")
def clean():
    xs, ds = curved(0)
    return xs, ds, run(xs, ds)[1]


def late(prediction, ds, keep=slice(T // 2, None)):
    return float(np.mean(np.square(prediction - ds)[keep]))


def test_a_run_can_be_made_again(clean):
    xs, ds, prediction = clean
    np.testing.assert_array_equal(run(xs, ds)[1], prediction)


def test_another_key_is_another_draw(clean):
    xs, ds, prediction = clean
    other = run(xs, ds, seed=7)[1]
    assert np.abs(other - prediction).max() > 1e-3
    assert late(other, ds) < 2 * late(prediction, ds)


def test_it_learns_what_a_linear_learner_cannot(clean):
    xs, ds, prediction = clean
    linear = jb.run(jb.Newton(), xs, ds)[1].prediction
    assert late(prediction, ds) < 0.6 * late(np.asarray(linear), ds)


def test_it_is_near_the_best_of_its_experts(clean):
    xs, ds, prediction = clean
    _, trace = trace_of(xs, ds)
    each = np.mean(np.square(np.asarray(trace.observed) - ds[:, None])[T // 2 :], axis=0)
    assert each.shape == (len(names(SIZE)),)
    assert late(prediction, ds) < 1.1 * each.min()


def test_the_units_of_the_stream_do_not_matter(clean):
    xs, ds, prediction = clean
    units, offsets = np.float32([1e-4, 1.0, 1e3]), np.float32([0.0, 5.0, -2e3])
    other = run(xs * units + offsets, 1e4 * ds - 300)[1]
    assert late((other + 300) / 1e4, ds) < 1.05 * late(prediction, ds)


def test_it_is_sensible_from_the_first_samples():
    xs, ds = curved(1)
    _, prediction = run(xs, 100 + ds)
    assert prediction[0] == 0
    assert np.abs(prediction[1:100] - 100).max() < 4 * ds.std()
    assert np.mean(np.square(prediction[1:50] - 100 - ds[1:50])) < 2 * ds.var()


@pytest.mark.parametrize("where", ["x", "d"])
def test_gross_outliers_do_little_harm(clean, where):
    xs, ds, _ = clean
    bad = np.random.default_rng(2).random(T) < 0.01
    wild_xs = np.where(bad[:, None] & (where == "x"), 100 * xs, xs)
    wild_ds = np.where(bad & (where == "d"), 100 * ds, ds)
    _, hit = run(wild_xs, wild_ds)
    good = ~bad & (np.arange(T) >= T // 2)
    assert np.isfinite(hit).all()
    assert late(hit, ds, good) < 0.5 * ds.var()


def test_missing_and_absurd_numbers_leave_it_finite(clean):
    xs, ds, _ = clean
    xs, ds = xs.copy(), ds.copy()
    rng = np.random.default_rng(3)
    xs[rng.random(xs.shape) < 0.1] = np.nan
    xs[5], ds[7], ds[8] = 1e30, np.inf, np.nan
    state, prediction = run(xs, ds)
    assert np.isfinite(prediction).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert late(prediction[300:], ds[300:], slice(None)) < 0.6 * np.nanvar(ds[300:])


@pytest.mark.parametrize("column", ["duplicate", "constant", "code"])
def test_a_column_that_adds_nothing_costs_little(clean, column):
    xs, ds, prediction = clean
    idle = {"duplicate": xs[:, 0], "constant": np.full(T, 7.0), "code": np.sign(xs[:, 0])}[column]
    more = np.column_stack([xs[:, :2], idle]).astype(np.float32)  # the third did not matter
    assert late(run(more, ds)[1], ds) < 1.35 * late(prediction, ds)


def test_it_follows_a_change():
    rng = np.random.default_rng(4)
    xs = rng.standard_normal((T, 3)).astype(np.float32)
    first, then = xs @ np.float32([1, -2, 0.5]), xs @ np.float32([-1, 1, 2])
    ds = np.where(np.arange(T) < 250, first, then) + 0.3 * rng.standard_normal(T)
    squared = np.square(run(xs, ds.astype(np.float32))[1] - ds)
    assert squared[450:].mean() < 2 * squared[150:250].mean()


@pytest.mark.parametrize("rows", [1, 2, 10])
def test_few_rows(rows):
    xs, ds = curved(5, rows)
    assert np.isfinite(run(xs, ds)[1]).all()


def test_a_run_can_be_cut_and_kept(tmp_path, clean):
    xs, ds, prediction = clean
    state, head = run(xs[:200], ds[:200])
    jb.save(tmp_path / "auto.npz", auto(SIZE), state)
    model, state, _ = jb.load(tmp_path / "auto.npz")
    assert jax.tree.structure(model) == jax.tree.structure(auto(SIZE))
    _, tail = run(xs[200:], ds[200:], state=state)
    np.testing.assert_array_equal(np.concatenate([head, tail]), prediction)


@pytest.mark.slow
def test_many_streams_at_once():
    pairs = [curved(seed, 40) for seed in (6, 7)]
    xs, ds = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    both = jax.vmap(lambda x, d: jb.run(auto(SIZE), x, d)[1].prediction)(xs, ds)
    alone = run(xs[1], ds[1])[1]
    np.testing.assert_allclose(both[1], alone, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_its_error_has_a_gradient():
    xs, ds = curved(8, 60)
    slopes = jax.grad(lambda model: jb.mse(model, xs, ds))(auto(SIZE))
    leaves = jax.tree.leaves(slopes)
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    assert any(np.abs(leaf).max() > 0 for leaf in leaves)


@pytest.mark.parametrize("size", SIZES)
def test_every_estimate_has_a_name(size):
    found = names(size)
    assert len({*found}) == len(found) == auto(size).learner.m
    assert found[: len(experts(size))] == [*experts(size)]
    assert ("trees" in found) == (size != "small")


@pytest.mark.parametrize("size", ["huge", 0, 1.5, 30, None])
def test_a_wrong_size_says_so(size):
    with pytest.raises((TypeError, ValueError), match="size"):
        auto(size)


def test_seeded_takes_the_key_it_is_given_first():
    model = jb.boost(jb.SGD(0.1), 3, target_mse=0.1, mode=jb.RandomUpdate())
    xs, ds = curved(9, 50)
    for key in (jax.random.key(0), jax.random.key(1)):
        prediction = jb.run(Seeded(model), xs, ds, key=key)[1].prediction
        np.testing.assert_array_equal(prediction, jb.run(model, xs, ds, key=key)[1].prediction)
    unseen = jb.run(Seeded(model, seed=1), xs, ds)[1].prediction
    np.testing.assert_array_equal(unseen, prediction)


# Time: past answers tell something, or nothing.


def last_value(ds):
    return np.concatenate([[0.0], ds[:-1]])


def timeless(rows=T, r=2):
    return np.random.default_rng(10).standard_normal((rows, r)).astype(np.float32)


def seasonal(rows=T, period=12):
    rng = np.random.default_rng(11)
    pattern = rng.normal(size=period)[np.arange(rows) % period]
    return (50 + 5 * pattern + 0.5 * rng.normal(size=rows)).astype(np.float32)


def test_the_names_are_in_the_order_of_the_estimates():
    ds = seasonal()
    state, trace = trace_of(timeless(), ds)
    estimates = dict(zip(names(SIZE), np.asarray(trace.observed).T, strict=True))
    np.testing.assert_allclose(estimates["last value"][1:], ds[:-1], rtol=1e-5)
    period = int(state.past.periods[0])
    assert period % 12 == 0 and period > 0
    late = slice(-100, None)
    ago = [np.roll(ds, lag)[late] for lag in (1, period, period + 1)]
    np.testing.assert_allclose(estimates["value a season ago"][late], ago[1], rtol=1e-4)
    changed = estimates["last value and the season's change"][late]
    np.testing.assert_allclose(changed, ago[0] + ago[1] - ago[2], rtol=1e-3)


def test_it_is_not_behind_the_last_value_of_a_random_walk():
    ds = np.cumsum(np.random.default_rng(12).normal(size=T)).astype(np.float32)
    prediction = run(timeless(), 1000 + ds)[1] - 1000
    assert late(prediction, ds) < 1.1 * late(last_value(ds), ds)


def test_it_finds_a_season():
    ds = seasonal()
    prediction = run(timeless(), ds)[1]
    assert late(prediction, ds) < 0.1 * late(last_value(ds), ds)
    assert late(prediction, ds) < 2.2 * 0.5**2  # a season ago has twice the noise


def test_the_past_of_a_shuffled_stream_is_not_used():
    ds = np.random.default_rng(13).permutation(seasonal())
    state, prediction = run(timeless(), ds)
    assert not state.past.telling and not np.any(state.past.periods)
    assert late(prediction, ds) < 1.05 * ds.var()


@pytest.mark.slow
def test_the_engine_runs_it(clean):
    xs, ds, prediction = clean
    jb.engine.use("auto")
    again = run(xs[:150], ds[:150])[1]
    jb.engine.use("plain")
    np.testing.assert_allclose(again, prediction[:150], rtol=1e-2, atol=1e-2)


# The medium size, which is the default: one program for all tests.


def stepped(seed=14):
    """Boxes, which neither lines nor smooth networks follow; a twentieth is missing."""
    rng = np.random.default_rng(seed)
    xs = rng.uniform(-1, 1, (T, 4)).astype(np.float32)
    ds = np.sign(xs[:, 0]) * np.sign(xs[:, 1] - 0.3) + 2 * (xs[:, 2] > 0.5)
    xs[rng.random(xs.shape) < 0.05] = np.nan
    return xs, (ds + 0.1 * rng.standard_normal(T)).astype(np.float32)


@pytest.fixture(scope="module")
def medium():
    xs, ds = stepped()
    state, trace = trace_of(xs, ds, size="medium")
    return xs, ds, state, trace


def test_trees_help_where_the_target_has_steps(medium):
    xs, ds, _, trace = medium
    prediction = np.asarray(trace.prediction)
    assert late(prediction, ds) < 0.8 * late(run(xs, ds)[1], ds)
    estimates = dict(zip(names(), np.asarray(trace.observed).T, strict=True))
    assert late(estimates["trees"], ds) < 1.2 * late(prediction, ds)


def test_medium_is_cut_and_bad_samples_change_no_bit(medium):
    xs, ds, state, trace = medium
    half, head = trace_of(xs[:300], ds[:300], size="medium")
    nothing = np.full(300, np.nan, np.float32)
    same, _ = trace_of(xs[300:], nothing, size="medium", state=half)
    chex.assert_trees_all_equal(same, half)
    end, tail = trace_of(xs[300:], ds[300:], size="medium", state=half)
    chex.assert_trees_all_equal(end, state)
    both = np.concatenate([head.prediction, tail.prediction])
    np.testing.assert_array_equal(both, trace.prediction)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(end))


@pytest.mark.slow
def test_medium_is_steady_over_keys(medium):
    xs, ds, _, trace = medium
    errors = [late(np.asarray(trace.prediction), ds)]
    for seed in (1, 2):
        _, other = trace_of(xs, ds, seed=seed, size="medium")
        errors.append(late(np.asarray(other.prediction), ds))
    assert 1 < max(errors) / min(errors) < 1.25


def test_medium_is_kept_in_a_file(medium, tmp_path):
    _, _, state, _ = medium
    jb.save(tmp_path / "auto", auto(), state)
    model, again, _ = jb.load(tmp_path / "auto")
    assert jax.tree.structure(model) == jax.tree.structure(auto())
    chex.assert_trees_all_equal(again, state)
