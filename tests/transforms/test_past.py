"""Past: which answers it appends, which periods it finds, and when it is silent."""

import chex
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jboost as jb
from jboost.transforms import Past

PAST = Past(lags=2, seasons=2, longest=40)


@jax.jit
def over(past, xs, ds):
    """Return the columns that each sample sees, and the state in the end."""

    def step(state, sample):
        return past.update(state, *sample), (past.apply(state, sample[0]), state.periods)

    state, (seen, periods) = jax.lax.scan(step, past.init(xs.shape[1], xs.dtype), (xs, ds))
    return seen, periods, state


def columns(past, ds):
    """Return what is appended for each sample, (T, columns), and the periods at each."""
    ds = np.float32(ds)
    seen, periods, _ = over(past, np.ones((len(ds), 1), np.float32), ds)
    assert (np.asarray(seen)[:, 0] == 1).all()
    return np.asarray(seen)[:, 1:], np.asarray(periods)


def ago(ds, lag):
    return np.concatenate([np.full(lag, np.nan), ds[: len(ds) - lag]]).astype(np.float32)


def wave(period, rows, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    return np.sin(2 * np.pi * np.arange(rows) / period) + noise * rng.normal(size=rows)


def week(rows, period, seed=0):
    """A pattern that repeats, the same every time, and noise."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=period)[np.arange(rows) % period] + 0.2 * rng.normal(size=rows)


@pytest.mark.parametrize("period", [7, 12, 24])
def test_a_period_is_found(period):
    for seed in range(3):
        _, periods = columns(PAST, week(400, period, seed))
        assert periods[-1, 0] % period == 0 and periods[-1, 0] > 0
        assert (periods[:20] == 0).all()  # not before there is evidence
        assert (np.diff(periods[150:, 0]) != 0).sum() <= 2  # and then it stays


def test_the_shortest_period_of_a_clean_wave_is_found():
    _, periods = columns(PAST, wave(24, 400, noise=0.05))
    assert abs(int(periods[-1, 0]) - 24) <= 1


def test_two_seasons_are_found():
    for seed in (1, 2, 3):
        ds = week(2000, 7, seed) + 2 * week(2000, 33, seed + 9)
        _, periods = columns(PAST, ds)
        found = periods[-1].tolist()
        assert 33 in found and sum(found) > 33 and (sum(found) - 33) % 7 == 0


def test_a_period_that_ends_is_given_up_and_another_is_found():
    ds = np.concatenate([week(600, 9, seed=3), week(3000, 14, seed=4)])
    _, periods = columns(PAST, ds)
    assert periods[599, 0] % 9 == 0 and periods[-1, 0] % 14 == 0


def test_answers_without_order_are_silent():
    rng = np.random.default_rng(5)
    walk = np.cumsum(rng.normal(size=3000))
    for ds in (
        rng.normal(size=(4, 3000)),
        rng.standard_cauchy((4, 3000)),  # clipped at both ends
        rng.random((4, 3000)) < 0.02,  # and at one
        rng.integers(0, 3, (4, 3000)),
        [rng.permutation(walk) for _ in range(4)],
    ):
        seen = np.stack([columns(PAST, each)[0] for each in ds])
        assert np.isnan(seen[:, 50:]).mean() > 0.95
        assert np.isnan(seen[:, -1]).all()


@pytest.mark.parametrize("constant", [0.0, 5.0])
def test_a_constant_is_silent(constant):
    seen, _ = columns(PAST, np.full(100, constant))
    assert np.isnan(seen).all()


def test_the_latest_answers_are_there_soon_where_they_tell_something():
    ds = np.cumsum(np.random.default_rng(6).normal(size=300))
    seen, _ = columns(PAST, ds)
    assert not np.isnan(seen[40:, :2]).any() and np.isnan(seen[:5]).all()
    for lag in (1, 2):
        there = ~np.isnan(seen[:, lag - 1])
        np.testing.assert_array_equal(seen[there, lag - 1], ago(ds, lag)[there])


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["walk", "week", "wave", "noise"]),
    unit=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_columns_are_answers_of_their_lags_or_missing(seed, kind, unit):
    """Through many times the length of what is kept; in any units."""
    rng = np.random.default_rng(seed)
    ds = (
        unit
        * {
            "walk": np.cumsum(rng.normal(size=300)),
            "week": week(300, 2 + seed % 30, seed),
            "wave": wave(3 + seed % 30, 300, seed),
            "noise": rng.normal(size=300),
        }[kind]
    )
    seen, periods = columns(PAST, ds)
    t, telling = np.arange(300), ~np.isnan(seen[:, 0])
    expected = [(1, telling), (2, telling & (t >= 2))]
    for period in periods.T:
        expected += [(period, period > 0), (period + 1, (period > 0) & (t > period))]
    for column, (lag, there) in zip(seen.T, expected, strict=True):
        answers = np.float32(ds)[np.where(there, t - lag, 0)]
        np.testing.assert_array_equal(column, np.where(there, answers, np.float32(np.nan)))


def test_the_autocorrelations_are_those_of_numpy():
    """Of a stream without outliers, to what running means differ from those in hindsight."""
    ds = np.clip(week(4000, 12, seed=7), -2.5, 2.5)
    _, _, state = over(PAST, np.ones((4000, 1), np.float32), np.float32(ds))
    changes = np.diff(ds)
    exact = [np.mean(changes[s:] * changes[:-s]) / np.mean(changes**2) for s in range(1, 41)]
    np.testing.assert_allclose(state.changes, exact, atol=0.05)
    levels = ds - ds.mean()
    exact = [np.mean(levels[s:] * levels[:-s]) / levels.var() for s in (1, 2)]
    np.testing.assert_allclose(state.levels, exact, atol=0.05)


def test_an_unanswered_sample_does_not_enter():
    ds = np.float32(week(300, 7))
    xs = np.ones((300, 1), np.float32)
    gaps = np.insert(ds, range(0, 300, 10), np.nan)
    model = jb.pipeline(PAST, jb.Scale(), jb.Impute(), jb.NLMS(0.1))
    state, _ = jb.run(model, np.ones((len(gaps), 1)), gaps)
    other, _ = jb.run(model, xs, ds)
    chex.assert_trees_all_equal(state.transforms[0], other.transforms[0])


def test_a_late_answer_enters_when_it_comes():
    """With a delay of 3 the latest answer that is known is that of four samples ago."""
    ds = np.float32(np.cumsum(np.random.default_rng(8).normal(size=200)))
    model = jb.Delayed(jb.pipeline(Past(1, 0, 10), jb.Scale(), jb.Impute(), jb.NLMS(0.1)), 3)

    def newest(state, info):
        leaves = jax.tree.leaves(state, is_leaf=lambda leaf: type(leaf).__name__ == "PastState")
        return next(leaf for leaf in leaves if type(leaf).__name__ == "PastState").answers[0]

    _, trace = jb.run(model, np.ones((200, 1)), ds, observe=newest)
    np.testing.assert_array_equal(trace.observed[3:], ds[:-3])


def test_an_outlier_does_not_hide_a_period():
    ds = week(600, 7)
    ds[300] = 1e6
    _, periods = columns(PAST, ds)
    assert periods[-1, 0] % 7 == 0 and periods[-1, 0] > 0


def test_it_helps_a_seasonal_stream_and_does_no_harm_to_a_shuffled_one():
    ds = np.float32(week(800, 7))
    xs = np.ones((800, 1), np.float32)
    model = jb.pipeline(PAST, jb.Scale(), jb.Impute(), jb.Bias(), jb.ScaleTarget(jb.Newton(0.999)))
    plain = jb.pipeline(jb.Scale(), jb.Bias(), jb.ScaleTarget(jb.Newton(0.999)))
    late = slice(300, None)

    def error(model, ds):
        return float(np.mean(np.square(np.asarray(jb.run(model, xs, ds)[1].prediction) - ds)[late]))

    assert error(model, ds) < 0.3 * error(plain, ds)
    mixed = np.random.default_rng(9).permutation(ds)
    assert error(model, mixed) < 1.01 * error(plain, mixed)


def test_longest_must_be_above_lags():
    with pytest.raises(ValueError, match="longest must be above lags=3; got 3"):
        Past(3, 1, 3)
