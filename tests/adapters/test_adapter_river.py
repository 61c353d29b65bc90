"""The river adapter: its own checker, features that come and go, single samples and batches."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import numpy as np
import pytest

import jboost as jb

pytest.importorskip("river")
from river import checks, compose, evaluate, metrics, preprocessing

from jboost.adapters import river
from jboost.adapters.feed import Feed
from jboost.adapters.river import OnlineRegressor
from jboost.automatic import Seeded
from jboost.transforms import Bias, Impute, RandomFourier, Scale, ScaleTarget
from jboost.transforms.pipelines import pipeline

RNG = np.random.default_rng(2)
NAMES = ["a", "b", "c", "d", "e"]
NLMS = jb.NLMS(step_size=0.5, epsilon=0.0)
BOOSTED = jb.boost(NLMS, 3, target_mse=0.1, mode=jb.RandomUpdate(), combiner=jb.NSGD(0.1, 0.01))


def samples(count: int, names: Any = NAMES) -> list[tuple[dict[str, float], float]]:
    rows = RNG.normal(size=(count, len(NAMES)))
    truth = rows @ [1.0, -2.0, 0.5, 0.0, 3.0]
    chosen = [NAMES.index(name) for name in names]
    return [
        ({NAMES[i]: float(row[i]) for i in chosen}, float(y))
        for row, y in zip(rows, truth, strict=True)
    ]


def leaves(regressor: OnlineRegressor) -> list[np.ndarray]:
    assert regressor._learned.feed is not None
    return [np.asarray(leaf) for leaf in jax.tree.leaves(regressor._learned.feed.state)]


@pytest.mark.parametrize(
    ("model", "part"),
    [
        pytest.param(jb.Newton(ridge=0.1), None, id="Newton"),
        pytest.param(jb.Newton(ridge=0.1), 0.9, id="intervals", marks=pytest.mark.slow),
        pytest.param(None, None, id="default", marks=pytest.mark.slow),
    ],
)
def test_conforms_to_river(model: Any, part: float | None) -> None:
    made = OnlineRegressor(model, intervals=part)
    assert not made._unit_test_skips()
    pytest.importorskip("sklearn")  # river's checker takes data sets of its
    checks.check_estimator(made)


def test_features_come_and_go() -> None:
    """Against normalised least mean squares on dicts, from its definition."""
    regressor, w = OnlineRegressor(NLMS), dict.fromkeys(NAMES, 0.0)
    stream = [*samples(5, "bd"), *samples(5, "bdca"), *samples(5, "e"), *samples(20)]
    for x, y in stream:
        estimate = sum(w[name] * value for name, value in x.items())
        np.testing.assert_allclose(regressor.predict_one(x), estimate, rtol=1e-3, atol=1e-5)
        step = 0.5 * (y - estimate) / sum(value**2 for value in x.values())
        for name, value in x.items():
            w[name] += step * value
        regressor.learn_one(x, y)


@pytest.mark.parametrize(
    "model",
    [
        jb.Newton(0.99, 0.1),
        BOOSTED,
        pipeline(Scale(), Impute(), Bias(), ScaleTarget(jb.Newton(0.99, 0.1))),
        pipeline(Bias(), RandomFourier(8, length_scale=2.0), jb.NLMS(0.5)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_was_learned_survives_growth(model: Any) -> None:
    regressor = OnlineRegressor(model, seed=1)
    for x, y in samples(40, "abc"):
        regressor.learn_one(x, y)
    queries = [x for x, _ in samples(5, "abc")]
    before = [regressor.predict_one(x) for x in queries]
    assert regressor._learned.feed is not None and regressor._learned.feed.setup.num_features == 3
    regressor.learn_one({"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0, "e": 1.0}, 0.0, w=0.0)
    assert regressor._learned.feed.setup.num_features == 16
    after = [regressor.predict_one(x) for x in queries]
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)


def test_a_state_that_cannot_grow_begins_anew() -> None:
    model = pipeline(Impute(indicators=True), jb.NLMS(0.5))  # columns behind those of x
    regressor = OnlineRegressor(model)
    for x, y in samples(10, "abc"):
        regressor.learn_one(x, y)
    with pytest.warns(UserWarning, match="a state of Pipeline cannot grow"):
        regressor.learn_one({"d": 1.0}, 1.0)


def test_of_a_mixture_what_can_grow_does() -> None:
    """A network of a given number of parameters has fewer units where there are more inputs."""
    network = jb.GaussNewton(jb.networks.Perceptron(parameters=30))
    experts = [jb.ScaleTarget(pipeline(Scale(), one)) for one in (jb.Newton(0.99, 0.1), network)]
    model = jb.boost(experts, target_mse=0.1, dependence=0.0, combiner=jb.NSGD(0.1, 0.01))
    regressor = OnlineRegressor(model, seed=0)
    for x, y in samples(60, "abc"):
        regressor.learn_one(x, 1000 + y)

    def said(x: dict[str, float]) -> np.ndarray:
        assert regressor._learned.feed is not None
        row, state = river._row(regressor._learned, x), regressor._learned.feed.state
        row = row.astype(np.float32)
        return np.asarray(model.info(state, model.sample(state, row, 0.0))["y"])

    query = {"a": 1.0, "b": -1.0, "c": 0.5}
    before = said(query)
    regressor.learn_one({"d": 1.0, "e": 1.0}, 0.0, w=0.0)
    after = said(query)
    assert after[0] == pytest.approx(before[0], rel=1e-4)
    assert after[1] != before[1] and after[1] == pytest.approx(1000, abs=5)  # its scale is kept


def test_a_state_whose_structure_depends_on_the_width_grows_where_it_can() -> None:
    """``Select`` keeps statistics only where there are more columns than it selects."""
    selected = pipeline(Scale(), jb.Select(4), jb.NLMS(0.5))
    regressor = OnlineRegressor(selected)
    for x, y in samples(10, "abc"):
        regressor.learn_one(x, y)
    with pytest.warns(UserWarning, match="a state of Pipeline cannot grow"):
        regressor.learn_one({"d": 1.0, "e": 1.0}, 1.0)
    model = jb.boost([selected, NLMS], target_mse=0.1, combiner=jb.Uniform())
    regressor = OnlineRegressor(model)
    for x, y in samples(40, "abc"):
        regressor.learn_one(x, y)
    assert regressor._learned.feed is not None
    before = regressor._learned.feed.state.learners[1].w
    regressor.learn_one({"d": 1.0, "e": 1.0}, 0.0, w=0.0)
    np.testing.assert_array_equal(regressor._learned.feed.state.learners[1].w[:, -3:], before)


@pytest.mark.parametrize("model", [NLMS, BOOSTED], ids=["NLMS", "boosted"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_batches_are_loops_to_the_last_bit(model: Any, library: str) -> None:
    frames: Any = pytest.importorskip(library)
    one, many = (OnlineRegressor(model, seed=5) for _ in range(2))
    for names in ("ab", "c", "dcbae"):
        part = samples(9, names)
        X = frames.DataFrame([x for x, _ in part])
        y = frames.Series([y for _, y in part])
        np.testing.assert_array_equal(
            many.predict_many(X).to_numpy(), [one.predict_one(x) for x, _ in part]
        )
        many.learn_many(X, y)
        for x, d in part:
            one.learn_one(x, d)
        one.predict_one(part[0][0])  # learns nothing
        for a, b in zip(leaves(one), leaves(many), strict=True):
            np.testing.assert_array_equal(a, b)
    if library == "pandas":
        X.index = X.index + 100
        assert many.predict_many(X).index.equals(X.index)


def test_copies_and_pickles_go_on_alike() -> None:
    regressor = OnlineRegressor(BOOSTED, seed=9)
    for x, y in samples(20):
        regressor.learn_one(x, y)
    others = [copy.deepcopy(regressor), pickle.loads(pickle.dumps(regressor))]
    for x, y in samples(20):
        for each in (regressor, *others):
            each.learn_one(x, y)
    for other in others:
        for a, b in zip(leaves(regressor), leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
    assert regressor.clone().predict_one({"a": 1.0}) == 0.0


def test_odd_samples() -> None:
    regressor = OnlineRegressor(NLMS)
    assert regressor.predict_one({}) == 0.0
    regressor.learn_one({}, 1.0)
    regressor.learn_one({"a": 1.0}, 2.0)
    assert regressor.predict_one({"a": 1.0, "never seen": 7.0}) == 1.0
    before = leaves(regressor)
    for x, y in [({"a": float("nan")}, 1.0), ({"a": 1.0}, float("nan")), ({"a": None}, 5.0)]:
        regressor.learn_one(x, y)
    regressor.learn_one({"a": 1e300}, 1.0)
    regressor.learn_one({"a": 3.0}, 1.0, w=0.0)
    for a, b in zip(before, leaves(regressor), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(TypeError, match="'a' must be a number; got 'red': encode it first"):
        regressor.learn_one({"a": "red"}, 1.0)
    regressor.learn_one({"a": True, ("a", 1): 2}, 1)
    assert np.isfinite(regressor.predict_one({("a", 1): 1}))


def test_intervals_as_river_gives_them() -> None:
    """Through growth and copies, covering what they say."""
    regressor = OnlineRegressor(jb.Newton(0.999, 0.1), intervals=0.8)
    first = regressor.predict_one({"a": 1.0}, with_interval=True)
    assert (first.lower, first.upper) == (-np.inf, np.inf)
    inside = []
    for i, (x, y) in enumerate([*samples(20, "ab"), *samples(400)]):
        y += RNG.normal()
        bounds = regressor.predict_one(x, with_interval=True)
        inside.append(y in bounds)
        assert i == 0 or regressor.predict_one(x) == pytest.approx(bounds.center, abs=1e-3)
        regressor.learn_one(x, y)
        if i == 200:
            regressor = pickle.loads(pickle.dumps(regressor))
    assert 0.74 < np.mean(inside[20:]) < 0.86
    with pytest.raises(ValueError, match=r"intervals=0\.9"):
        OnlineRegressor(NLMS).predict_one({"a": 1.0}, with_interval=True)


def test_in_a_river_pipeline() -> None:
    model = compose.Pipeline(preprocessing.StandardScaler(), OnlineRegressor(jb.Newton(ridge=0.1)))
    stream = samples(300)
    evaluate.progressive_val_score(stream[:50], model, metrics.R2())  # river's scaler settles
    assert evaluate.progressive_val_score(stream[50:], model, metrics.R2()).get() > 0.9


def test_a_key_for_the_start_alone_makes_no_other_program() -> None:
    network = jb.GaussNewton(jb.networks.Perceptron(2))
    key = jax.random.key(1)
    starts = Seeded(jb.boost([network, jb.NLMS(0.5)], target_mse=0.1, dependence=0.0))
    one, other = Feed(starts, 3), Feed(starts, 3, key)
    assert one.setup.program is other.setup.program
    assert one.predict([1, 2, 3]) != other.predict([1, 2, 3])
    again = pickle.loads(pickle.dumps(other))
    assert again.predict([1, 2, 3]) == other.predict([1, 2, 3])
    draws = Seeded(jb.boost(NLMS, 3, target_mse=30.0, mode=jb.RandomUpdate()))
    one, other = Feed(draws, 3), Feed(draws, 3, key)
    assert one.setup.program is not other.setup.program
    for x, y in samples(100, "abc"):  # of twenty, both may skip the same
        one, other = (each.learn([*x.values()], y) for each in (one, other))
    assert one.predict([1, 2, 3]) != other.predict([1, 2, 3])


def test_float64_where_it_is_on(x64: None) -> None:
    xs = RNG.normal(size=(40, 3))
    wide = Feed(jb.NLMS(0.5), 3).learn_many(xs, xs.sum(axis=1))
    assert wide.predict_many(xs).dtype == wide.state.w.dtype == np.float64
    again = pickle.loads(pickle.dumps(wide))
    np.testing.assert_array_equal(again.predict_many(xs), wide.predict_many(xs))
