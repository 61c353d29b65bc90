"""The scikit-learn adapter: its own checker, its tools, and the numbers of the library's run."""

from __future__ import annotations

import importlib.util
import pickle
from typing import Any

import numpy as np
import pytest

import jboost as jb

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from jboost.adapters.sklearn import OnlineRegressor
from jboost.wrappers.intervals import interval

T, R = 60, 3
RNG = np.random.default_rng(1)
X = RNG.normal(size=(T, R))
Y = X @ [1.0, -0.5, 0.25] + 0.1 * RNG.normal(size=T)

# The one check that scikit-learn grants its own SGDRegressor too (with its twin for sparse rows,
# which are not taken here).
GRANTED = {
    "check_sample_weight_equivalence_on_dense_data": "rows are learned one after another, in "
    "float32: a weight is a repeated row only up to rounding and order, and the check allows 1e-7"
}


@pytest.mark.filterwarnings("default")  # the checker warns of what it skips
@pytest.mark.parametrize(
    ("model", "part"),
    [
        pytest.param(jb.Newton(ridge=0.1), None, id="Newton"),
        pytest.param(jb.Newton(ridge=0.1), 0.9, id="intervals", marks=pytest.mark.slow),
        pytest.param(None, None, id="default", marks=pytest.mark.slow),
    ],
)
def test_conforms_to_scikit_learn(model: Any, part: float | None) -> None:
    made = OnlineRegressor(model, intervals=part)
    done = check_estimator(made, expected_failed_checks=GRANTED, on_skip=None)
    statuses = {result["check_name"]: result["status"] for result in done}
    assert len(statuses) > 40
    # What is granted must be needed: a check that passes is taken off the list.
    assert {name for name, status in statuses.items() if status == "xfail"} == {*GRANTED}
    # A check of arrays of other libraries is skipped where SciPy is not set up for them, and those
    # with tables where pandas is not there.
    skipped = {"check_array_api_input"}
    if importlib.util.find_spec("pandas") is None:
        skipped |= {"check_regressor_data_not_an_array", "check_sample_weights_pandas_series"}
    assert {name for name, status in statuses.items() if status == "skipped"} <= skipped


def sgd(X: Any, Y: Any, weights: Any) -> np.ndarray:
    """From its definition, in float64."""
    w = np.zeros(R)
    for x, y, weight in zip(X, Y, weights, strict=True):
        w = w + 0.05 * weight * (y - w @ x) * x
    return w


def test_rows_are_learned_in_order_with_their_weights() -> None:
    weights = RNG.uniform(0, 2, size=T)
    regressor = OnlineRegressor(jb.SGD(0.05)).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(regressor.state_.w, sgd(X, Y, weights), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(regressor.predict(X), X @ sgd(X, Y, weights), rtol=1e-4, atol=1e-5)
    some = weights > 1
    kept = OnlineRegressor(jb.SGD(0.05)).fit(X, Y, sample_weight=some.astype(float))
    np.testing.assert_array_equal(
        kept.state_.w, OnlineRegressor(jb.SGD(0.05)).fit(X[some], Y[some]).state_.w
    )


def test_however_rows_are_divided_the_bits_are_the_same() -> None:
    model = jb.bnm_ru(4, target_mse=0.1, forgetting=0.99, ridge=0.1)
    whole = OnlineRegressor(model, random_state=3).fit(X, Y)
    parts = OnlineRegressor(model, random_state=3)
    for start, stop in [(0, 1), (1, 2), (2, 30), (30, T)]:
        parts.partial_fit(X[start:stop], Y[start:stop])
        parts.predict(X)  # learns nothing
        if start == 2:
            parts = pickle.loads(pickle.dumps(parts))
    np.testing.assert_array_equal(parts.predict(X), whole.predict(X))
    one_by_one = [whole.predict(x[None])[0] for x in X]
    np.testing.assert_array_equal(one_by_one, whole.predict(X))
    again = clone(whole).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    other = OnlineRegressor(model, random_state=4).fit(X, Y)
    assert (other.predict(X) != whole.predict(X)).any()


def test_longer_than_one_piece() -> None:
    xs = RNG.normal(size=(2500, R))
    ds = xs @ [1.0, 2.0, 3.0]
    regressor = OnlineRegressor(jb.NLMS(0.5)).fit(xs, ds)
    state, _ = jb.run(jb.NLMS(0.5), xs, ds)
    np.testing.assert_allclose(regressor.state_.w, state.w, rtol=1e-5)
    assert regressor.predict(xs).shape == (2500,)


def test_in_pipelines_and_searches() -> None:
    regressor = OnlineRegressor(jb.Newton(ridge=0.1))
    cv = TimeSeriesSplit(3)
    scores = cross_val_score(make_pipeline(StandardScaler(), regressor), X, Y, cv=cv)
    assert scores.shape == (3,) and scores[-1] > 0.9
    models = [jb.SGD(1e-4), jb.Newton(ridge=0.1)]
    search = GridSearchCV(regressor, {"model": models}, cv=cv).fit(X, Y)
    assert isinstance(search.best_params_["model"], jb.Newton)
    params = {"model": regressor.model, "random_state": None, "intervals": None}
    assert regressor.get_params(deep=False) == params
    assert clone(regressor).set_params(model=models[0]).model is models[0]


def test_intervals_are_those_of_the_model() -> None:
    plain = OnlineRegressor(jb.NLMS(0.5)).fit(X, Y)
    assert not hasattr(plain, "predict_interval")
    bounded = OnlineRegressor(jb.NLMS(0.5), intervals=0.8).fit(X, Y)
    np.testing.assert_allclose(bounded.predict(X), plain.predict(X), rtol=1e-5)
    found = bounded.predict_interval(X)
    expected = [interval(bounded.model_, bounded.state_, x) for x in X[:3].astype(np.float32)]
    np.testing.assert_allclose(found[:3], expected, rtol=1e-4)
    assert found.shape == (T, 2) and found.dtype == np.float64 and (found[:, 0] < found[:, 1]).all()
    own = OnlineRegressor(jb.Intervals(jb.NLMS(0.5), 0.8)).fit(X, Y)
    np.testing.assert_array_equal(own.predict_interval(X), found)
    with pytest.raises(ValueError, match="has intervals already"):
        OnlineRegressor(own.model, intervals=0.8).fit(X, Y)
    with pytest.raises(ValueError, match="intervals must be"):
        OnlineRegressor(jb.NLMS(0.5), intervals=90).fit(X, Y)


def test_feature_names_are_kept_and_checked() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    regressor = OnlineRegressor(jb.NLMS(0.5)).fit(frame, Y)
    assert regressor.feature_names_in_.tolist() == ["a", "b", "c"] and regressor.n_features_in_ == 3
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(frame[["b", "a", "c"]])
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.partial_fit(frame[["a", "b"]], Y)


def test_gaps_are_for_models_that_fill_them() -> None:
    gaps = X.copy()
    gaps[::7, 0] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        OnlineRegressor(jb.NLMS(0.5)).fit(gaps, Y)
    named = OnlineRegressor("newton").fit(gaps * 100 + 1000, 50 * Y - 300)
    assert named.score(gaps * 100 + 1000, 50 * Y - 300) > 0.8


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("bmn_wu", ValueError, "there is no model 'bmn_wu'; did you mean 'bnm_wu'"),
        (3, TypeError, "model must be a learner .* or None; got 3"),
    ],
)
def test_a_wrong_model_is_named(model: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        OnlineRegressor(model).fit(X, Y)
