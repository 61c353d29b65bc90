"""Streams that are not regular: rows without answers, gaps, other steps, and very short ones."""

import chex
import numpy as np
import pytest

import jboost as jb
from jboost.forecasts import by_horizon
from jboost.forecasts.rows import COUNTED

H, T = 3, 240
COUNTER = jb.Calendar(0, cycles=("elapsed",))
COUNTS = jb.Forecast(horizon=H, longest=24, calendar=COUNTER)
HOURS = jb.Forecast(horizon=H, longest=24, calendar=jb.Calendar(0, "hours", "2024-01-01"), step=6.0)
RNG = np.random.default_rng(0)
ANSWERS = (10 * np.sin(2 * np.pi * np.arange(T) / 8) + RNG.normal(size=T)).astype(np.float32)


def counted(rows, first=0):
    """Return x for rows: their number, and an input."""
    rows = np.asarray(rows)
    return np.column_stack([(first + rows) % COUNTED, np.cos(rows)]).astype(np.float32)


def test_where_rows_are_counted_those_without_an_answer_are_steps():
    ds = np.where(np.random.default_rng(1).random(T) < 0.3, np.nan, ANSWERS)
    _, trace = jb.run(COUNTS, counted(range(T)), ds)
    uncounted = jb.Forecast(horizon=H, longest=24)
    _, slipped = jb.run(uncounted, counted(range(T))[:, 1:], ds)
    maes = [by_horizon(of.due[120:], ds[120:]).mae for of in (trace, slipped)]
    assert (maes[0] < 0.6 * maes[1]).all()
    # The rows may as well be missing altogether.
    there = np.flatnonzero(~np.isnan(ds))
    _, without = jb.run(COUNTS, counted(there), ds[there])
    chex.assert_trees_all_equal(without.prediction, trace.prediction[there])
    chex.assert_trees_all_equal(without.due, trace.due[there])


def test_a_count_may_begin_again():
    state, trace = jb.run(COUNTS, counted(range(T)), ANSWERS)
    again, later = jb.run(COUNTS, counted(range(T), COUNTED - 100), ANSWERS)
    chex.assert_trees_all_equal(later.prediction, trace.prediction)
    chex.assert_trees_all_equal((again.shared, again.mix), (state.shared, state.mix))
    unknown = counted(range(T))
    unknown[:, 0] = np.nan  # a row whose number is missing comes next
    chex.assert_trees_all_equal(jb.run(COUNTS, unknown, ANSWERS)[1].prediction, trace.prediction)


def test_a_count_that_repeats_or_goes_back_leaves_the_row_out():
    twice = np.insert(np.arange(60), 30, [29, 12])
    state, trace = jb.run(COUNTS, counted(twice), ANSWERS[twice])
    chex.assert_trees_all_equal(state, jb.run(COUNTS, counted(range(60)), ANSWERS[:60])[0])
    assert np.isnan(trace.due[30:32]).all()


def test_a_changed_frequency_is_repeats_or_gaps():
    x = np.zeros((T, 2), np.float32)
    x[:, 0] = 6.0 * np.arange(T)
    finer = x[:100].copy()
    finer[50:, 0] = x[49, 0] + 2.0 * np.arange(1, 51)  # three rows a step from row 50 on
    state, trace = jb.run(HOURS, finer, ANSWERS[:100])
    # A row less than half a step after the latest one is left out.
    assert int(state.number) == 50 + 25 and np.isfinite(trace.prediction).all()
    coarser = x.copy()
    coarser[100:, 0] = x[99, 0] + 12.0 * np.arange(1, T - 99)  # every other step
    _, trace = jb.run(HOURS, coarser, ANSWERS)
    assert np.isfinite(trace.prediction).all()
    assert np.isnan(trace.due[120:, [0, 2]]).all() and np.isfinite(trace.due[120:, 1]).all()


@pytest.mark.parametrize("model", [COUNTS, HOURS], ids=["counted", "hours"])
def test_horizons_and_seasons_beyond_the_stream_wait(model):
    longer = jb.Forecast(horizon=50, longest=500, calendar=model.calendar, step=model.step)
    x = np.zeros((7, 2), np.float32)
    x[:, 0] = model.step * np.arange(7)
    state, trace = jb.run(longer, x, ANSWERS[:7])
    assert trace.prediction.shape == (7, 50) and np.isfinite(trace.prediction).all()
    assert np.isnan(np.asarray(trace.due)[:, 6:]).all()
    low, high = longer.interval(state)
    assert np.isinf(high[6:]).all() and np.isinf(low[6:]).all()
    scores = by_horizon(trace.due, ANSWERS[:7])
    assert scores.answers.tolist() == [6, 5, 4, 3, 2, 1] + 44 * [0]
    assert np.isnan(scores.mae[6:]).all()


def test_a_forecast_from_a_kept_state_is_as_good_by_count():
    """What is known later is used at the rows that it is known of."""
    model = jb.Forecast(horizon=H, longest=24, calendar=COUNTER, known=(1,))
    x = jb.forecasts.with_known(counted(range(T)), [1], H)
    state, trace = jb.run(model, x, ANSWERS)
    ahead = x[-1, 2:][:, None]
    np.testing.assert_allclose(model.forecast(state, ahead), trace.prediction[-1], rtol=1e-4)
