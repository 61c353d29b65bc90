"""The forecaster: what it may know and when, and the same bits however it is run."""

from typing import Any

import chex
import jax
import numpy as np
import pytest

import jboost as jb
from jboost.adapters.feed import Feed
from jboost.forecasts import by_horizon, with_known
from jboost.forecasts.seasons import kinds_of_days
from jboost.running.stream import run_stream

H, T = 3, 90
CLOCK = jb.Calendar(0, "hours", "2024-01-01")
LEARNER = jb.pipeline(jb.Bias(), jb.Newton(0.99, ridge=1.0))
MODELS = {
    "by rows": jb.Forecast(horizon=H, longest=24),
    "by time": jb.Forecast(horizon=H, longest=24, calendar=CLOCK, step=6.0),
    "known": jb.Forecast(horizon=H, longest=24, calendar=CLOCK, step=6.0, known=(0, 2)),
    "given": jb.Forecast(LEARNER, H, longest=24, method="mix"),
}
EACH = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def stream(model, length=T, seed=0):
    """Return rows six hours apart: time, a column that leads the answer, and a plan."""
    rng = np.random.default_rng(seed)
    t = np.arange(length + H)
    plan = (rng.random(length + H) < 0.3).astype(float)
    ds = 50 + 10 * np.sin(2 * np.pi * t / 4) + 5 * plan + rng.normal(size=length + H)
    xs = np.column_stack([6.0 * t, rng.normal(size=length + H), plan])
    xs[7, 1] = np.nan
    after = xs[length:, list(model.known)] if model.known else None
    xs = with_known(xs[:length], model.known, H, after)
    return xs.astype(np.float32), ds[:length].astype(np.float32)


@EACH
def test_a_forecast_is_made_once_its_row_is_learned(model):
    xs, ds = stream(model)
    state, trace = jb.run(model, xs, ds)
    assert trace.prediction.shape == (T, H) and np.isfinite(trace.prediction).all()
    chex.assert_trees_all_equal(model.forecast(state), trace.prediction[-1])
    for h in range(1, H + 1):
        chex.assert_trees_all_equal(trace.due[h:, h - 1], trace.prediction[:-h, h - 1])
        assert np.isnan(trace.due[:h, h - 1]).all()


@EACH
def test_no_answer_is_used_before_its_time(model):
    """Another future changes no forecast before it; the row itself changes its own forecast."""
    xs, ds = stream(model)
    other_xs, other_ds = xs.copy(), ds.copy()
    cut = 60
    other_ds[cut:] = ds[cut:] * -3 + 1000
    other_xs[cut:, 1] = 99
    _, trace = jb.run(model, xs, ds)
    _, other = jb.run(model, other_xs, other_ds)
    chex.assert_trees_all_equal(trace.prediction[:cut], other.prediction[:cut])
    chex.assert_trees_all_equal(trace.due[: cut + 1], other.due[: cut + 1])
    assert (trace.prediction[cut] != other.prediction[cut]).all()


@EACH
def test_blocks_single_calls_and_a_file_give_the_same_bits(model, tmp_path):
    xs, ds = stream(model)
    state, trace = jb.run(model, xs, ds)

    cut = 37
    half, first = jb.run(model, xs[:cut], ds[:cut])
    jb.save(tmp_path / "model", model, half)
    loaded, half, _ = jb.load(tmp_path / "model")
    resumed, second = jb.run(loaded, xs[cut:], ds[cut:], state=half)
    chex.assert_trees_all_equal(resumed, state)
    joined = np.concatenate([first.prediction, second.prediction])
    chex.assert_trees_all_equal(joined, np.asarray(trace.prediction))

    blocks = run_stream(model, ((xs[i : i + 20], ds[i : i + 20]) for i in range(0, T, 20)))
    predictions = np.concatenate([block.prediction for block in blocks])
    chex.assert_trees_all_equal(predictions, np.asarray(trace.prediction))
    assert blocks.mse == pytest.approx(float(jb.mse(model, xs, ds)), rel=1e-5)

    feed = Feed(model, xs.shape[1])
    for row in range(T):
        feed = feed.learn(xs[row], ds[row])
        if row % 30 == 29:
            chex.assert_trees_all_equal(feed.predict(xs[row]), np.asarray(trace.prediction[row]))


@EACH
def test_a_fleet_gives_the_same_bits(model):
    xs, ds = stream(model)
    _, trace = jb.run(model, xs, ds)
    fleet, names = jb.Fleet(model, xs.shape[1]), np.tile(["a", "b"], T)
    _, of_fleet = fleet.run(fleet.init(), names, np.repeat(xs, 2, axis=0), np.repeat(ds, 2))
    for name in "ab":
        chex.assert_trees_all_equal(of_fleet.prediction[names == name], trace.prediction)
        chex.assert_trees_all_equal(of_fleet.due[names == name], trace.due)


def test_mse_is_the_mean_over_all_pairs_whose_answer_came():
    model = MODELS["by rows"]
    xs, ds = stream(model)
    ds[50] = np.nan
    _, trace = jb.run(model, xs, ds)
    rows = np.delete(np.arange(T), 50)  # a row without an answer is left out
    prediction, answers = np.asarray(trace.prediction, float)[rows], ds[rows].astype(float)
    errors = [(prediction[:-h, h - 1] - answers[h:]) for h in range(1, H + 1)]
    assert float(jb.mse(model, xs, ds)) == pytest.approx(np.mean(np.concatenate(errors) ** 2))
    chex.assert_trees_all_equal(trace.prediction[50], trace.prediction[49])
    scores = by_horizon(trace.due, ds, season=4)
    np.testing.assert_allclose(scores.mae, [np.abs(e).mean() for e in errors], rtol=1e-6)
    np.testing.assert_allclose(scores.rmse, [np.sqrt(np.mean(e**2)) for e in errors], rtol=1e-6)
    assert scores.answers.tolist() == [T - 2, T - 3, T - 4]


def test_by_time_a_gap_moves_what_is_due_and_a_repeated_time_is_left_out():
    model = MODELS["by time"]
    xs, ds = stream(model)
    _, whole = jb.run(model, xs[:40], ds[:40])
    present = np.delete(np.arange(43), [40, 41])
    _, trace = jb.run(model, xs[present], ds[present])
    # Row 42 is three steps after row 39: only its third forecast was of row 42.
    assert np.isnan(trace.due[40, :2]).all()
    chex.assert_trees_all_equal(trace.due[40, 2], whole.prediction[39, 2])
    twice = np.insert(np.arange(60), 30, [29, 12])  # a repeated row, and an earlier one
    state, trace = jb.run(model, xs[twice], ds[twice])
    chex.assert_trees_all_equal(state, jb.run(model, xs[:60], ds[:60])[0])
    assert np.isnan(trace.due[30:32]).all()
    chex.assert_trees_all_equal(trace.prediction[31], trace.prediction[29])


def test_a_long_gap_leaves_everything_finite():
    model = MODELS["by time"]
    xs, ds = stream(model)
    xs[50:, 0] += 6.0 * 5000
    state, trace = jb.run(model, xs, ds)
    chex.assert_tree_all_finite(state)
    assert np.isnan(trace.due[50]).all() and np.isfinite(trace.prediction).all()


def test_intervals_cover_at_every_horizon():
    rng = np.random.default_rng(1)
    T = 3000
    ds = np.cumsum(rng.normal(size=T)).astype(np.float32)
    model = jb.Forecast(horizon=4, longest=16, coverage=0.8)
    xs = np.zeros((T, 1), np.float32)
    state, trace = jb.run(model, xs, ds, observe=jb.intervals.band)
    low, high = trace.observed
    scores = by_horizon(trace.due[1500:], ds[1500:], low=low[1500:], high=high[1500:])
    assert (np.abs(scores.coverage - 0.8) < 0.03).all()
    low, high = model.interval(state)
    assert (np.diff(high - low) > 0).all()  # a random walk is surer of the near than of the far


def test_weekends_are_found_and_every_horizon_beats_the_seasons_naive_forecasts():
    rng = np.random.default_rng(2)
    hours = 6.0 * np.arange(4000)
    day, hour = hours // 24 % 7, hours % 24
    level = 20 + np.where(day < 5, 10 * np.sin(hour / 24 * 6), 3 * np.cos(hour / 24 * 6))
    noise = np.zeros(4000)
    for t in range(1, 4000):
        noise[t] = 0.7 * noise[t - 1] + rng.normal()
    ds = (level + noise).astype(np.float32)
    model = jb.Forecast(horizon=4, longest=28, calendar=CLOCK, step=6.0)
    state, trace = jb.run(model, hours[:, None].astype(np.float32), ds)
    assert kinds_of_days(state.unlike).tolist() == [0, 0, 0, 0, 0, 1, 1]
    ours = by_horizon(trace.due[2000:], ds[2000:]).mae
    weekly = np.abs(ds[2000:] - ds[2000 - 28 : -28]).mean()
    assert (ours < 0.8 * weekly).all() and ours[0] < ours[3]


def test_a_period_without_a_calendar_is_found():
    t = np.arange(1200)
    ds = np.sin(2 * np.pi * t / 11) ** 3 + 0.05 * np.random.default_rng(0).normal(size=1200)
    model = jb.Forecast(horizon=11, longest=40)
    state, trace = jb.run(model, np.zeros((1200, 1), np.float32), ds.astype(np.float32))
    assert 11 in state.past.periods.tolist()
    assert (by_horizon(trace.due[600:], ds[600:]).rmse < 0.1).all()


def test_a_plan_that_is_known_helps():
    with_plan, without = (
        MODELS["known"],
        jb.Forecast(horizon=H, longest=24, calendar=CLOCK, step=6.0, known=(0,)),
    )
    xs, ds = stream(with_plan, 400)
    both = [float(jb.mse(m, x, ds)) for m, x in ((with_plan, xs), (without, xs[:, : 3 + H]))]
    assert both[0] < 0.7 * both[1]


def test_settings_sweep_and_gradients():
    xs, ds = stream(MODELS["given"])
    xs, ds = xs[:40], ds[:40]
    make = lambda beta: jb.Forecast(jb.Newton(beta), H, longest=24)  # noqa: E731
    table = jb.sweep(make, {"beta": [0.88, 0.92]}, xs, ds)
    low, high = np.asarray(table["mse"], float).ravel()
    assert float(jb.mse(make(0.92), xs, ds)) == pytest.approx(high, rel=1e-3)
    _, slopes = jb.hypergradient(make(0.9), xs, ds, wrt=("learner.forgetting",))
    slope = float(slopes["learner.forgetting"])
    assert slope == pytest.approx((high - low) / 0.04, rel=0.2)


def test_what_cannot_be_is_refused_with_a_sentence():
    xs, ds = stream(MODELS["by rows"])
    model = MODELS["by rows"]
    with pytest.raises(ValueError, match="a forecaster has one target"):
        jb.run(model, xs, np.stack([ds, ds], axis=1))
    for wrap in (jb.Intervals, jb.OnChange, jb.ScaleTarget, lambda m: jb.pipeline(jb.Bias(), m)):
        with pytest.raises(TypeError, match="got a forecaster of 3"):
            wrap(model)
    with pytest.raises(ValueError, match=r"3 more for each of the known columns \(0, 2\)"):
        jb.run(MODELS["known"], xs, ds)
    wrongs: list[dict[str, Any]] = [{"known": (1, 1)}, {"known": "ab"}, {"longest": 2}]
    wrongs += [{"step": 0}, {"horizon": 0}, {"method": "both"}, {"coverage": 1}, {"calendar": 3}]
    for wrong in wrongs:
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            settings: dict[str, Any] = {"horizon": 3} | wrong
            jb.Forecast(**settings)
    with pytest.raises(ValueError, match="known must be columns below 3"):
        with_known(xs, [3], H)
    with pytest.raises(TypeError, match="does not forecast"):
        learner = jb.SGD(0.1)
        learner.due(learner.init(1), learner.sample(learner.init(1), np.ones(1), 1.0))


@EACH
def test_a_forecast_can_be_made_again_with_what_is_known_later(model):
    xs, ds = stream(model)
    state, trace = jb.run(model, xs, ds)
    k, again = len(model.known), jax.jit(model.forecast)
    ahead = xs[-1, 3:].reshape(k, H).T
    np.testing.assert_allclose(again(state, ahead), trace.prediction[-1], rtol=1e-5)
    if k:
        ahead[:, 1] = 1 - ahead[:, 1]
        assert (np.abs(again(state, ahead) - trace.prediction[-1]) > 0.1).all()
    with pytest.raises(ValueError, match=rf"ahead must have shape \(3, {k}\)"):
        model.forecast(state, np.zeros((2, k + 1)))
