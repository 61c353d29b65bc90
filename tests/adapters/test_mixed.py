"""The adapters take text, truth values, categories and times as the command does."""

from __future__ import annotations

import datetime
import math
import os
import sys
from typing import Any

import numpy as np
import pytest

import jboost as jb
from jboost.adapters import named
from jboost.core import forks

river = pytest.importorskip("jboost.adapters.river", exc_type=ImportError)
sklearn = pytest.importorskip("jboost.adapters.sklearn", exc_type=ImportError)
pd = pytest.importorskip("pandas")
START = datetime.datetime(2024, 1, 1)


def rows(count: int = 300) -> list[tuple[dict[str, Any], float]]:
    """A rhythm of the day, three colours of which some are missing, a flag and a number."""
    made = []
    for i in range(count):
        time = START + datetime.timedelta(hours=i)
        colour = None if i % 7 == 0 else ("red", "green", "blue")[i % 3]
        x = {"time": time, "colour": colour, "odd": i % 2 == 1, "n": float(i % 5)}
        level = {"red": 5.0, "green": 0.0, "blue": -5.0, None: 2.0}[colour]
        made.append((x, level + 3 * math.sin(2 * math.pi * time.hour / 24) + i % 5))
    return made


def test_river_learns_from_dicts_with_text_and_times() -> None:
    one, errors = river.OnlineRegressor("newton"), []
    for x, y in rows():
        errors.append(one.predict_one(x) - y)
        one.learn_one(x, y)
    assert np.mean(np.square(errors[200:])) < 0.2 and np.var([y for _, y in rows()]) > 15
    assert math.isfinite(one.predict_one({"colour": "violet"}))  # a text that was never learned
    with pytest.raises(TypeError, match="'colour' held text before; got 3"):
        one.learn_one({"colour": 3.0}, 1.0)
    with pytest.raises(TypeError, match="'n' must be a number; got 'red'"):
        one.learn_one({"n": "red"}, 1.0)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_river_takes_frames_as_it_takes_rows(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame([x for x, _ in rows(60)])
    one, many = river.OnlineRegressor("newton"), river.OnlineRegressor("newton")
    for x, y in rows(60):
        one.learn_one(x, y)
    many.learn_many(frame, [y for _, y in rows(60)])
    expected = [one.predict_one(x) for x, _ in rows(60)]
    np.testing.assert_array_equal(np.asarray(many.predict_many(frame)), expected)


def test_more_texts_than_columns_share_them() -> None:
    kinds = named.Kinds()
    for i in range(100):
        kinds, _ = named.expanded(kinds, {"word": f"w{i}"}, (), learn=True)
    assert len(kinds.texts["word"]) == 64
    _, numbers = named.expanded(kinds, {"word": "w99"}, (), learn=False)
    ((place, value),) = numbers.items()
    assert value == 1.0 and place.detail in kinds.texts["word"]


def table(count: int = 300) -> tuple[Any, np.ndarray]:
    frame = pd.DataFrame([x for x, _ in rows(count)])
    return frame.astype({"colour": "category"}), np.array([y for _, y in rows(count)])


def test_scikit_learn_takes_a_frame_with_text_and_times() -> None:
    X, y = table()
    whole = sklearn.OnlineRegressor("newton").fit(X, y)
    assert whole.n_features_in_ == 4 and list(whole.feature_names_in_) == list(X.columns)
    late = (whole.prequential_predictions_ - y)[200:]
    assert np.mean(late**2) < 0.2
    half = sklearn.OnlineRegressor("newton").fit(X[:100], y[:100])
    for start in (100, 200):
        half = half.partial_fit(X[start : start + 100], y[start : start + 100])
    np.testing.assert_array_equal(half.predict(X), whole.predict(X))
    with (
        pytest.raises(TypeError, match="X must be a table with columns"),
        pytest.warns(UserWarning),
    ):
        whole.predict(np.zeros((2, 4)))
    with pytest.raises(TypeError, match="the column 'n' must hold numbers, text"):
        sklearn.OnlineRegressor("newton").fit(X.assign(n=[[1]] * len(X)), y)
    polars = pytest.importorskip("polars").from_pandas(X)
    np.testing.assert_array_equal(
        sklearn.OnlineRegressor("newton").fit(polars, y).predict(polars), whole.predict(X)
    )


def test_prequential_predictions_are_those_of_a_run() -> None:
    xs, ds = jb.streams.duffing(100)
    fitted = sklearn.OnlineRegressor(jb.Newton(0.99)).fit(xs, ds)
    _, trace = jb.run(jb.Newton(0.99), xs, ds)
    np.testing.assert_allclose(fitted.prequential_predictions_, trace.prediction, rtol=1e-6)


def test_settings_of_the_model_are_parameters() -> None:
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV

    xs, ds = (np.asarray(array) for array in jb.streams.duffing(120))
    grid = {"model__forgetting": [0.5, 0.99]}
    for model in ("newton", jb.pipeline(jb.Bias(), jb.Newton(0.9))):
        found = GridSearchCV(sklearn.OnlineRegressor(model), grid, cv=2).fit(xs, ds)
        params = clone(found.best_estimator_).get_params()
        values = [v for n, v in params.items() if n.endswith("learner__forgetting")]
        assert found.best_params_["model__forgetting"] == values[-1]
    with pytest.raises(ValueError, match="has no setting 'speed'"):
        sklearn.OnlineRegressor("newton").set_params(model__speed=1)


@pytest.mark.parametrize("model", ["newton", jb.pipeline(jb.Bias(), jb.Newton(0.9)), jb.Newton()])
@pytest.mark.parametrize("value", [1.5, 0.0, float("nan"), "fast", None])
def test_a_nested_parameter_out_of_its_range_is_named_with_it(model: Any, value: Any) -> None:
    regressor = sklearn.OnlineRegressor(model)
    with pytest.raises((TypeError, ValueError), match=r"forgetting must be a .*number"):
        regressor.set_params(model__forgetting=value)
    assert regressor.model is model


def test_a_scaler_of_river_in_front_is_no_ruin() -> None:
    """A column that grows with time is nearly constant behind it: it must not be blown up."""
    preprocessing = pytest.importorskip("river.preprocessing")
    rng = np.random.default_rng(0)
    errors: dict[bool, list[float]] = {False: [], True: []}
    a, noise = rng.normal(size=(2, 1500))
    for scaled, list_of in errors.items():
        model = river.OnlineRegressor("newton")
        model = preprocessing.StandardScaler() | model if scaled else model
        for t in range(1500):
            x, y = {"a": a[t], "t": float(t)}, 2 * a[t] + 0.001 * t + 0.5 * noise[t]
            list_of.append(abs(model.predict_one(x) - y))
            model.learn_one(x, y)
    assert np.mean(errors[True][500:]) < 1.1 * np.mean(errors[False][500:])


@pytest.mark.parametrize("delay", [0, 1, 5, 40])
def test_what_is_learned_is_the_sample_whatever_was_predicted_before(delay: int) -> None:
    """Predictions of other samples, however near each other, change nothing that is learned."""
    t = np.arange(300)
    a, b = np.sin(t / 50), 1e3 + t / 300  # slow columns: each row is near the one before
    rows = [{"a": p, "b": q} for p, q in zip(a.tolist(), b.tolist(), strict=True)]
    asked, alone = river.OnlineRegressor("newton"), river.OnlineRegressor("newton")
    for i in range(delay, 300):
        for regressor in (asked, alone):
            if regressor is asked:
                regressor.predict_one(rows[i])
            regressor.learn_one(rows[i - delay], float(a[i - delay] + i % 3))
    assert asked.predict_one(rows[7]) == alone.predict_one(rows[7])


def test_the_x_of_a_prediction_is_learned_where_its_sample_comes_a_little_changed() -> None:
    rng = np.random.default_rng(1)
    xs, noise = rng.normal(size=(2, 200, 2))
    near, same = river.OnlineRegressor("newton"), river.OnlineRegressor("newton")
    for i in range(200):
        x = dict(zip("ab", xs[i].tolist(), strict=True))
        changed = dict(zip("ab", (xs[i] + 0.01 * noise[i]).tolist(), strict=True))
        near.predict_one(x)
        near.learn_one(changed if i else x, float(xs[i, 0]))
        same.learn_one(x if i > 18 else changed if i else x, float(xs[i, 0]))
    assert near.predict_one({"a": 1.0, "b": 2.0}) == same.predict_one({"a": 1.0, "b": 2.0})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore")  # JAX and Python warn of the fork
def test_a_fork_that_would_hang_is_refused() -> None:
    jb.run(jb.SGD(0.1), *jb.streams.duffing(10))
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            forks.check()
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read) as pipe:
        assert "get_context('spawn')" in pipe.read()


def test_notebooks_show_models_runs_and_tables() -> None:
    xs, ds = jb.streams.duffing(20)
    model = jb.pipeline(jb.Scale(), jb.SGD(0.1))
    assert "learner: SGD, step_size 0.1" in model._repr_html_()
    stream = jb.run_stream(model, (xs, ds)).finish()
    assert stream._repr_html_().startswith("<p>20 rows, MSE ")
    assert "20 predictions" in jb.run(model, xs, ds)[1]._repr_html_()
    assert "step_size" in jb.sweep(jb.SGD, {"step_size": [0.1, 0.2]}, xs, ds)._repr_html_()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "<object object at"),
        ([1.0, 2.0], r"\[1.0, 2.0\], of the type list: convert the column, or drop it"),
        (pd.Period("2024-01", "M"), "of the type Period: convert"),
        (1 + 2j, "make the real and the imaginary parts columns of their own"),
    ],
)
def test_scikit_learn_names_a_column_that_can_become_no_numbers(value: Any, said: str) -> None:
    y, numbers = np.arange(30.0), [*range(30)]
    good = pd.DataFrame({"a": numbers, "b": numbers})
    bad = pd.DataFrame({"a": numbers, "b": [value] * 30})
    wanted = f"'b' must hold numbers, text, truth values or times; got .*{said}"
    with pytest.raises(TypeError, match=wanted):
        sklearn.OnlineRegressor("newton").fit(bad, y)
    with pytest.raises(TypeError, match=wanted):
        sklearn.OnlineRegressor("newton").fit(good, y).predict(bad)
    with pytest.raises(TypeError, match=wanted):
        sklearn.OnlineRegressor("newton").fit(bad.assign(a="x"), y)


def test_scikit_learn_takes_objects_that_are_dates_or_lack_a_value_and_durations() -> None:
    days = [(START + datetime.timedelta(days=i)).date() for i in range(30)]
    lacking = np.array([1.0, 2, pd.NA] * 10, object)
    lasted = [datetime.timedelta(seconds=i) for i in range(30)]
    X = pd.DataFrame({"day": np.array(days, object), "n": lacking, "lasted": lasted})
    made = sklearn.OnlineRegressor("newton").fit(X, np.arange(30.0))
    assert [column.kind for column in made.columns_.inputs] == ["time", "number", "number"]


def test_scikit_learn_names_a_column_of_text_where_there_were_numbers() -> None:
    table = pd.DataFrame({"a": np.arange(9.0), "b": np.arange(9.0) ** 2})
    model = sklearn.OnlineRegressor(jb.Newton()).fit(table, table.a)
    other = table.assign(b=table.b.astype(object))
    np.testing.assert_array_equal(model.predict(other), model.predict(table))
    other.loc[3, "b"] = "x"
    for call in (lambda: model.predict(other), lambda: model.partial_fit(other, table.a)):
        with pytest.raises(
            ValueError, match=r"the column 'b' held numbers .*got 'x': give numbers"
        ):
            call()
