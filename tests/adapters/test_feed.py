"""One program for single calls and batches: compiled once, for the places of new features too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.adapters import held
from jboost.adapters.feed import Feed
from jboost.transforms import Bias, Impute, Scale, ScaleTarget
from jboost.transforms.pipelines import pipeline
from tests.support.table import FEW, QUICK

RNG = np.random.default_rng(4)
R = 3
NLMS = jb.NLMS(step_size=0.5, epsilon=0.0)
PIPED = pipeline(Scale(), Impute(), Bias(), ScaleTarget(jb.Newton(0.99, 0.1)))
MODELS = {
    "NLMS": NLMS,
    "Newton": jb.Newton(0.99, 0.1),
    "pipeline": PIPED,
    "booster": jb.bsgd_wu(20, target_mse=0.1, step_size=0.1),
    "random updates": jb.bnm_ru(5, target_mse=0.1, forgetting=0.99, ridge=0.1),
    "mixture": jb.boost([jb.SGD(0.1), jb.NLMS(0.1)], target_mse=0.2, mode=jb.PoissonReuse()),
    "intervals": jb.Intervals(jb.Newton(0.99, 0.1)),
}
EVERY = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
# A first state that is drawn depends on the number of columns; a column of indicators is not idle;
# of columns that tell it nothing yet, Select takes the first.
NOT_ALIKE = {"GaussNewton", "Gradient", "boosted RandomFourier", "OnChange, restart", "Impute"}
NOT_ALIKE |= {"Select"}
COMPILED: list[float] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration_secs, **_: (
        COMPILED.append(duration_secs) if "backend_compile" in event else None
    )
)


@contextmanager
def nothing_compiles() -> Iterator[None]:
    before = len(COMPILED)
    yield
    assert len(COMPILED) == before


def stream(count: int) -> tuple[np.ndarray, np.ndarray]:
    xs = RNG.normal(size=(count, R)).astype(np.float32)
    return xs, (xs @ [1.0, -2.0, 0.5] + RNG.normal(size=count)).astype(np.float32)


def key_for(model: Any) -> Any:
    return jax.random.key(1) if model.needs_key else None


def assert_alike(single: Any, other: Any) -> None:
    for a, b in zip(jax.tree.leaves(single), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@EVERY
def test_single_calls_and_batches_learn_what_a_run_learns(model: Any) -> None:
    (xs, ds), key = stream(1100), key_for(model)  # more than a block
    ds[::9] = np.nan
    state, trace = jb.run(model, xs, ds, key=key)
    single, many, predictions = Feed(model, R, key), Feed(model, R, key), []
    for x, d in zip(xs, ds, strict=True):
        predictions.append(single.predict(x)[0])
        single = single.learn(x, d)
    for start, stop in ((0, 13), (13, 1100)):
        many = many.learn_many(xs[start:stop], ds[start:stop])
    assert_alike(single.state, many.state)
    np.testing.assert_array_equal(predictions, trace.prediction)
    assert_alike(single.state, state)
    np.testing.assert_array_equal([single.predict(x) for x in xs], many.predict_many(xs))


NEWTON = {"forgetting": 0.99, "ridge": 0.1}


@pytest.mark.parametrize(
    ("r", "model"),
    [
        (21, jb.SGD(0.01)),
        (21, jb.bsgd_dr(20, target_mse=0.1, step_size=0.01)),
        (21, jb.bnm_wu(20, target_mse=0.1, **NEWTON)),
        (8, jb.boost(jb.Newton(**NEWTON, storage="covariance"), 20, target_mse=0.1)),
        (40, jb.bnm_ru(4, target_mse=0.1, **NEWTON)),
    ],
    ids=repr,
)
def test_no_bit_of_a_prediction_depends_on_the_path(r: int, model: Any) -> None:
    """A run, a run in two, a stream of blocks and single calls; some rows are not usable."""
    xs = RNG.normal(size=(130, r)).astype(np.float32)
    ds, key = xs.sum(axis=1) / r, key_for(model)
    xs[7, 1], xs[20, 0], ds[11] = np.nan, 1e20, np.inf
    state, trace = jb.run(model, xs, ds, key=key)
    half, first = jb.run(model, xs[:50], ds[:50], key=key)
    _, second = jb.run(model, xs[50:], ds[50:], key=key, state=half)
    pieces = [slice(0, 33), slice(33, 34), slice(34, None)]
    blocks = jb.run_stream(model, ((xs[piece], ds[piece]) for piece in pieces), key=key)
    single, predictions = Feed(model, r, key), []
    for x, d in zip(xs, ds, strict=True):
        predictions.append(single.predict(x)[0])
        single = single.learn(x, d)
    for path in (
        [first.prediction, second.prediction],
        [block.prediction for block in blocks],
        [predictions],
    ):
        np.testing.assert_array_equal(np.concatenate(path), trace.prediction)
    assert_alike(single.state, state)


@EVERY
def test_weights_in_single_calls_and_batches(model: Any) -> None:
    (xs, ds), key = stream(40), key_for(model)
    weights = RNG.uniform(0, 2, size=40) * (RNG.uniform(size=40) < 0.7)
    single, less = Feed(model, R, key), Feed(model, R, key)
    for x, d, weight in zip(xs, ds, weights, strict=True):
        single = single.learn(x, d, weight)
    counts = weights > 0
    for batch in (slice(None), counts):  # a sample of weight zero counts for nothing
        many = less.learn_many(xs[batch], ds[batch], weights[batch])
        assert_alike(single.state, many.state)


@pytest.mark.parametrize(
    "model",
    [*MODELS.values(), pytest.param(jb.auto(), marks=pytest.mark.slow)],
    ids=[*MODELS, "auto"],
)
def test_only_the_first_call_compiles(model: Any) -> None:
    xs, ds = stream(1200)
    single = Feed(model, R, key_for(model)).learn_many(xs[:1], ds[:1])
    with nothing_compiles():
        for x, d in zip(xs, ds, strict=True):
            single.predict(x)
            single = single.learn(x, d)
        for length in (1, 2, 300, 1200):
            single = single.learn_many(xs[:length], ds[:length])
            single.predict_many(xs[:length])
        Feed(model, R, key_for(model)).predict(xs[0])


def test_blocks_of_wide_rows_stay_small() -> None:
    rows = [Feed(NLMS, width).setup.rows for width in (3, 1000, 100_000)]
    assert rows == [held.LONGEST_BLOCK, 64, held.FEWEST_ROWS]


@pytest.mark.parametrize("features", [["c", "a", "b"], 3, np.int64(3)], ids=repr)
@pytest.mark.parametrize("coverage", [None, 0.9])
def test_a_warm_regressor_of_river_compiles_nothing(features: Any, coverage: float | None) -> None:
    river = pytest.importorskip("jboost.adapters.river")
    xs, ds = stream(30)
    rows = [dict(zip("abc", x.tolist(), strict=True)) for x in xs]
    warm = river.OnlineRegressor(PIPED, intervals=coverage).warm_up(features)
    with nothing_compiles():
        cold = river.OnlineRegressor(PIPED, intervals=coverage)
        for x, d in zip(rows, ds.tolist(), strict=True):
            assert warm.predict_one(x) == cold.predict_one(x)
            warm.learn_one(x, d)
            cold.learn_one(x, d)
        warm.warm_up()


def test_reserved_places_are_for_names_that_come() -> None:
    river = pytest.importorskip("jboost.adapters.river")
    reserved, exact = river.OnlineRegressor(NLMS).warm_up(8), river.OnlineRegressor(NLMS)
    with nothing_compiles():
        for name in "abcdefgh":
            reserved.learn_one({name: 1.0, "a": 0.5}, 2.0)
    for name in "abcdefgh":
        exact.learn_one({name: 1.0, "a": 0.5}, 2.0)
    query = dict(zip("abcdefgh", RNG.normal(size=8).tolist(), strict=True))
    assert reserved.predict_one(query) == pytest.approx(exact.predict_one(query), rel=1e-5)
    assert reserved.warm_up(9)._learned.feed.setup.num_features == 16
    assert reserved.predict_one(query) == pytest.approx(exact.predict_one(query), rel=1e-5)


def test_a_width_that_is_not_known_is_asked_for() -> None:
    river = pytest.importorskip("jboost.adapters.river")
    with pytest.raises(
        ValueError, match=r"warm_up got no features, .*: give their names, or how many"
    ):
        river.OnlineRegressor(NLMS).warm_up()
    for features in (0, -1, 2.5, "abc", True):
        with pytest.raises(ValueError, match="features must be a whole number >= 1"):
            river.OnlineRegressor(NLMS).warm_up(features)
    sklearn = pytest.importorskip("jboost.adapters.sklearn")
    with pytest.raises(ValueError, match="warm_up got no num_features"):
        sklearn.OnlineRegressor(NLMS).warm_up()
    with pytest.raises(ValueError, match="num_features must be a whole number >= 1"):
        sklearn.OnlineRegressor(NLMS).warm_up(0)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_warm_regressor_of_scikit_learn_compiles_nothing(seed: int | None) -> None:
    sklearn = pytest.importorskip("jboost.adapters.sklearn")
    xs, ds = stream(30)
    for model in (PIPED, MODELS["random updates"]):
        warm = sklearn.OnlineRegressor(model, random_state=seed).warm_up(R)
        assert not hasattr(warm, "feed_")
        with nothing_compiles():
            warm.fit(xs, ds).partial_fit(xs[:1], ds[:1]).warm_up().predict(xs)


def test_names_that_come_one_by_one_compile_at_doublings() -> None:
    river = pytest.importorskip("jboost.adapters.river")
    growing, wide = (river.OnlineRegressor(NLMS) for _ in range(2))
    wide.learn_one(dict.fromkeys(range(32), 0.0), 0.0, w=0.0)
    widths, feed_before = [], None
    for i in range(300):
        x, y = {int(RNG.integers(min(i + 1, 30))): 1.0}, float(RNG.normal())
        assert growing.predict_one(x) == pytest.approx(wide.predict_one(x), rel=1e-4, abs=1e-5)
        growing.learn_one(x, y)
        wide.learn_one(x, y)
        setup = growing._learned.feed.setup
        if setup is not feed_before:
            widths.append(setup.num_features)
        feed_before = setup
    assert widths == [1, 16, 32]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, id=name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name, model in FEW.items()
        if name not in NOT_ALIKE
    ],
)
def test_idle_columns_change_no_prediction(model: Any) -> None:
    """Columns that no feature has yet are zero, or missing where the model takes missing inputs.

    Not to the last digit: the cap of a Newton learner comes to one column a step, in turn.
    """
    (xs, ds), key = stream(40), jax.random.key(0)
    idle = np.full((40, 5), np.nan if model.takes_missing else 0.0, np.float32)
    _, expected = jb.run(model, xs, ds, key=key)
    _, trace = jb.run(model, np.hstack([idle, xs]), ds, key=key)
    np.testing.assert_allclose(trace.prediction, expected.prediction, rtol=0.02, atol=0.02)
