"""Explanations and flags by the adapters: those of the model, by the names of the features."""

import numpy as np
import pytest

import jboost as jb

pytest.importorskip("sklearn")
pytest.importorskip("river")
pandas = pytest.importorskip("pandas")
from jboost.adapters import river, sklearn  # noqa: E402

RNG = np.random.default_rng(0)
T = 400
MODEL = jb.Flags(jb.pipeline(jb.Impute(), jb.Scale(), jb.Bias(), jb.Newton(0.999)))


def rows(names):
    xs = RNG.normal(size=(T, len(names)))
    return xs, [dict(zip(names, x, strict=True)) for x in xs.tolist()]


def test_parts_add_up_to_the_prediction_and_belong_to_the_features():
    xs, samples = rows("ab")
    towns = RNG.choice(["Bonn", "Ulm", "Köln"], T).tolist()
    y = 3 * xs[:, 0] + np.array([{"Bonn": 0, "Ulm": 5, "Köln": -5}[town] for town in towns])
    one = river.OnlineRegressor("newton")
    assert one.explain_one({"a": 1.0}) == (0.0, {})
    for sample, town, target in zip(samples, towns, y.tolist(), strict=True):
        one.learn_one({**sample, "town": town}, target)
    asked = {"a": 1.0, "b": 0.5, "town": "Ulm"}
    base, parts = one.explain_one(asked)
    assert [*sorted(parts)] == ["a", "b", "town"]
    assert base + sum(parts.values()) == pytest.approx(one.predict_one(asked), abs=1e-4)
    assert parts["a"] == pytest.approx(3, abs=0.4) and parts["town"] == pytest.approx(5, abs=0.7)
    assert abs(parts["b"]) < 0.1
    many = sklearn.OnlineRegressor("newton")
    table = pandas.DataFrame({"a": xs[:, 0], "b": xs[:, 1], "town": towns})
    many.fit(table, y)
    bases, all_parts = many.explain(table[-3:])
    assert all_parts.shape == (3, 3)
    sums = bases + all_parts.sum(axis=1)
    np.testing.assert_allclose(sums, many.predict(table[-3:]), atol=1e-4)


def test_flags_are_those_of_a_run_and_nothing_is_learned():
    xs, samples = rows("abc")
    y = xs @ [1.0, -0.5, 0.2] + 0.1 * RNG.normal(size=T)
    y[350], xs[300:, 1] = 9.0, xs[300:, 1] + 4
    samples = [dict(zip("abc", x, strict=True)) for x in xs.tolist()]
    trace = jb.run(MODEL, xs, y, observe=jb.flags.flagged)[1]
    many = sklearn.OnlineRegressor(MODEL).fit(xs[:200], y[:200])
    found = many.flags(xs[200:], y[200:])
    for name, values in found.items():
        np.testing.assert_allclose(values, trace.observed[name][200:], rtol=1e-5)
    assert found["anomaly"][150] and found["drifted"][100:, 1].any()
    one, drifted = river.OnlineRegressor(MODEL), set()
    assert one.flags_one(samples[0], 1.0)["p_value"] == 1
    one.warm_up("abc"[i] for i in range(3))
    for t, (sample, target) in enumerate(zip(samples, y.tolist(), strict=True)):
        if t in (290, *range(301, 330), 350):
            before = one.predict_one(sample)
            flags = one.flags_one(sample, target)
            assert one.predict_one(sample) == before
            assert flags["p_value"] == pytest.approx(float(trace.observed["p_value"][t]), rel=1e-4)
            assert flags["anomaly"] == bool(trace.observed["anomaly"][t])
            drifted |= {*flags["drifted"]}
        one.learn_one(sample, target)
    assert drifted == {"b"}


def test_a_model_without_flags_says_so():
    regressor = sklearn.OnlineRegressor("newton").fit(np.ones((3, 1)), np.ones(3))
    with pytest.raises(ValueError, match="there are no flags: make the regressor with"):
        regressor.flags(np.ones((3, 1)), np.ones(3))
    inside = jb.pipeline(jb.Bias(), jb.Flags(jb.NLMS(0.1)))
    regressor = sklearn.OnlineRegressor(inside).fit(np.ones((3, 1)), np.ones(3))
    with pytest.raises(ValueError, match="put Flags around the pipeline"):
        regressor.flags(np.ones((3, 1)), np.ones(3))
