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
    model = jb.Forecast(horizon=3, longest=16, known=(1,))
    xs = with_known(x, [1], 3)
    xs[:, 2:] = np.nan  # while learning, nothing of the rows to come is known
    state, trace = jb.run(model, xs.astype(np.float32), y.astype(np.float32))
    assert forecaster.forecast(3) == trace.prediction[-1].tolist()
    ahead = [{"b": value} for value in (1.0, -1.0, 0.5)]
    expected = model.forecast(state, np.array([[1.0], [-1.0], [0.5]]))
    np.testing.assert_allclose(forecaster.forecast(2, ahead), expected[:2], rtol=1e-5)
    with pytest.raises(ValueError, match=r"make an OnlineForecaster\(horizon=4\)"):
        forecaster.forecast(4)
    with pytest.raises(ValueError, match="known must be features of the first row"):
        OnlineForecaster(3, known=["c"]).learn_one(1.0, {"a": 1.0})


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
