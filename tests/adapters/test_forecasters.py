"""river's and sktime's forecaster interfaces."""

import numpy as np
import pytest

import jboost as jb
from jboost.forecasts import with_known

pytest.importorskip("river")
from river import datasets, evaluate, metrics, time_series

from jboost.adapters.river import OnlineForecaster


def test_river_gets_the_numbers_of_a_run():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = np.sin(np.arange(80)) + x[:, 1]
    forecaster = OnlineForecaster(3, longest=16, known=["b"])
    for (a, b), answer in zip(x, y, strict=True):
        forecaster.learn_one(answer, {"a": a, "b": b, "text": "left out"})
    counter = jb.Calendar(0, cycles=("elapsed",))
    model = jb.Forecast(horizon=3, longest=16, known=(2,), calendar=counter)
    xs = with_known(np.column_stack([np.arange(80), x]), [2], 3)
    xs[:, 3:] = np.nan  # while learning, nothing of the rows to come is known
    state, trace = jb.run(model, xs.astype(np.float32), y.astype(np.float32))
    assert forecaster.forecast(3) == trace.prediction[-1].tolist()
    ahead = [{"b": value} for value in (1.0, -1.0, 0.5)]
    expected = model.forecast(state, np.array([[1.0], [-1.0], [0.5]]))
    np.testing.assert_allclose(forecaster.forecast(2, ahead), expected[:2], rtol=1e-5)
    with pytest.raises(ValueError, match=r"make an OnlineForecaster\(horizon=4\)"):
        forecaster.forecast(4)
    with pytest.raises(ValueError, match="known must be features of the first row"):
        OnlineForecaster(3, known=["c"]).learn_one(1.0, {"a": 1.0})


def test_a_row_without_an_answer_is_a_step_for_river():
    forecaster = OnlineForecaster(6, longest=12)
    rng = np.random.default_rng(1)
    for t in range(300):
        missing = rng.random() < 0.2 and t < 290
        forecaster.learn_one((None if t % 2 else np.nan) if missing else float(t % 5))
    assert [round(y) for y in forecaster.forecast(5)] == [0, 1, 2, 3, 4]
    forecaster.learn_one(None)
    forecaster.learn_one(np.nan)
    # The next row is the third after the latest answer; beyond H the last forecast holds on.
    assert [round(y) for y in forecaster.forecast(6)] == [2, 3, 4, 0, 0, 0]


def test_a_row_without_an_answer_is_a_step_for_sktime():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("sktime")

    from jboost.adapters.sktime import OnlineForecaster as Forecaster

    y = pd.Series(np.arange(300) % 5, dtype=float)
    missing = np.random.default_rng(1).random(300) < 0.2
    y[missing & (y.index < 290)] = np.nan
    forecaster = Forecaster(horizon=6, longest=12).fit(y)
    assert [round(v) for v in forecaster.predict([1, 2, 5])] == [0, 1, 4]
    forecaster.update(pd.Series([np.nan, np.nan], index=[300, 301]))
    assert [round(v) for v in forecaster.predict([1, 2])] == [2, 3]


def test_rivers_evaluation_takes_it_and_finds_it_better_than_holt_winters():
    passengers = list(datasets.AirlinePassengers())
    models = [OnlineForecaster(6, longest=24), time_series.HoltWinters(alpha=0.1)]
    ours, theirs = (
        evaluate.evaluate(iter(passengers), model, metrics.MAE(), horizon=6).get()
        for model in models
    )
    assert np.mean(ours) < np.mean(theirs)


def test_sktime_accepts_it():
    checks = pytest.importorskip("sktime.utils.estimator_checks")

    from jboost.adapters.sktime import OnlineForecaster as Forecaster

    results = checks.check_estimator(Forecaster, raise_exceptions=True, verbose=False)
    assert {*results.values()} == {"PASSED"}
