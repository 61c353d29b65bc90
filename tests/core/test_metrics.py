"""Metrics as folds: against NumPy over whole streams, in long float32 runs, inside a run."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.core import metrics
from jboost.core.metrics import MAE, MASE, MSE, R2, RMSE, Coverage, Pinball
from jboost.wrappers.scored import Scored


def stream(T=400, seed=0):
    """Targets far from zero, some of them missing, and an interval that misses a few."""
    rng = np.random.default_rng(seed)
    d = np.cumsum(rng.normal(size=T)) + 50
    y = d + rng.standard_t(3, size=T)
    d[[3, 17, 18]] = np.nan, np.inf, 1e20
    return d, y, y - 2.0, y + 1.0


def weighted(terms, w):
    return float(np.sum(terms * w) / np.sum(w))


def r2(d, y, w):
    apart = d - weighted(d, w)
    return 1 - weighted((d - y) ** 2, w) / weighted(apart**2, w)


def mase(d, y, w):
    """The first target of all has none before it."""
    error, naive = np.abs(d - y), np.abs(np.diff(d, prepend=np.nan))
    some = np.isfinite(naive)
    return np.sum((error * w)[some]) / np.sum((naive * w)[some])


ORACLES = {
    "MSE": (MSE, lambda d, y, low, high, w: weighted((d - y) ** 2, w)),
    "RMSE": (RMSE, lambda d, y, low, high, w: weighted((d - y) ** 2, w) ** 0.5),
    "MAE": (MAE, lambda d, y, low, high, w: weighted(np.abs(d - y), w)),
    "Pinball": (
        lambda **how: Pinball(q=0.9, **how),
        lambda d, y, low, high, w: weighted(np.where(d > y, 0.9 * (d - y), 0.1 * (y - d)), w),
    ),
    "Coverage": (Coverage, lambda d, y, low, high, w: weighted((low <= d) & (d <= high), w)),
    "R2": (R2, lambda d, y, low, high, w: r2(d, y, w)),
    "MASE": (MASE, lambda d, y, low, high, w: mase(d, y, w)),
}


@pytest.mark.parametrize("name", ORACLES)
def test_against_numpy(name, x64):
    make, oracle = ORACLES[name]
    sample = stream()
    d, y, low, high = (column[np.abs(sample[0]) < 1e15] for column in sample)
    ages = np.arange(len(d))[::-1]
    cases = {"all": ({}, ages >= 0), "fading": ({"fading": 0.97}, 0.97**ages)}
    cases["window"] = {"window": 50}, ages < 50
    cases["window, not full"] = {"window": 1000}, ages >= 0
    found = metrics.evaluate(
        {case: make(**how) for case, (how, _) in cases.items()}, *_order(sample)
    )
    for case, (_, w) in cases.items():
        wanted = oracle(d, y, low, high, w.astype(float))
        np.testing.assert_allclose(found[case], wanted, rtol=1e-9, err_msg=case)


def _order(sample):
    d, y, low, high = sample
    return y, d, low, high


@pytest.mark.parametrize("name", ORACLES)
def test_a_million_float32_samples_keep_six_digits(name):
    make, oracle = ORACLES[name]
    rng = np.random.default_rng(1)
    d = (1000 + rng.normal(size=10**6)).astype(np.float32)
    y = (d + 0.1 * rng.normal(size=d.size)).astype(np.float32)
    sample = d, y, y - np.float32(0.125), y + np.float32(0.25)
    exact = [column.astype(float) for column in sample]
    wanted = oracle(*exact, np.ones(d.size))
    found = float(metrics.evaluate(make(), *_order(sample)))
    assert abs(found - wanted) <= 1e-6 * max(abs(wanted), 1e-3)


def test_a_window_forgets_what_has_left_it_entirely():
    d = np.ones(300, np.float32)
    y = np.zeros(300, np.float32)
    y[100] = 1e15  # its square, 1e30, would leave its rounding in a running sum
    assert float(metrics.evaluate(MSE(window=50), y, d)) == 1.0


def test_nothing_counted_is_nan_and_a_metric_that_is_not_defined_too():
    nothing = [np.nan] * 3
    every = [make(**how) for make, _ in ORACLES.values() for how in ({}, {"window": 2})]
    found = metrics.evaluate(every, [1.0] * 3, nothing, nothing, nothing)
    assert np.isnan(found).all()
    relative = [R2(), MASE(), R2(window=2)]  # to targets that never change
    assert np.isnan(metrics.evaluate(relative, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0])).all()


def test_an_interval_with_one_bound_covers_nothing():
    assert metrics.evaluate(Coverage(), [0.0], [0.5], low=[-1.0], high=[1.0]) == 1
    assert metrics.evaluate(Coverage(), [0.0], [0.5], low=[-1.0]) == 0
    assert metrics.evaluate(Coverage(), [0.0], [0.5], high=[1.0]) == 0


def test_a_curve_is_the_value_after_every_sample():
    d, y, _, _ = stream(60)
    both = {"mse": MSE(), "late": MAE(window=10)}
    curves = metrics.curve(both, y, d)
    for t in (1, 4, 30, 60):
        now = metrics.evaluate(both, y[:t], d[:t])
        chex.assert_trees_all_close(jax.tree.map(lambda c, t=t: c[t - 1], curves), now)
    finite = np.isfinite(d) & (np.abs(d) < 1e15)
    np.testing.assert_allclose(
        curves["mse"][finite], jb.ase(jnp.asarray(y), jnp.asarray(d))[finite], rtol=1e-4
    )


def test_gradients_and_vmap():
    d, y, _, _ = stream(50)

    def error(shift, metric):
        return metrics.evaluate(metric, jnp.asarray(y) + shift, d)

    for metric in (RMSE(), MAE(window=20), R2()):
        slope = jax.grad(error)(0.1, metric)
        step = (error(0.11, metric) - error(0.09, metric)) / 0.02
        np.testing.assert_allclose(slope, step, rtol=0.05, atol=1e-3)
    assert jax.grad(lambda y: metrics.evaluate(RMSE(), y, np.ones(2)))(jnp.ones(2)).tolist() == [
        0.0,
        0.0,
    ]
    fades = jnp.array([0.5, 0.9])
    together = jax.vmap(lambda fading: metrics.evaluate(MSE(fading=fading), y, d))(fades)
    apart = [metrics.evaluate(MSE(fading=float(fading)), y, d) for fading in fades]
    np.testing.assert_allclose(together, apart, rtol=1e-5)


def test_scored_is_the_plain_run_and_its_metrics():
    xs, ds = map(np.array, jb.streams.duffing(200))
    ds[50:60] = np.nan
    xs[70, 1] = np.inf
    learner = jb.bsgd_ru(3, target_mse=0.2, step_size=0.1)
    key = jax.random.key(0)
    model = Scored(learner, {"mse": MSE(), "late": R2(window=40)})
    _, plain = jb.run(learner, xs, ds, key)
    half, first = jb.run(model, xs[:90], ds[:90], key)
    state, second = jb.run(model, xs[90:], ds[90:], key, half)
    predicted = np.concatenate([first.prediction, second.prediction])
    np.testing.assert_allclose(predicted, plain.prediction, rtol=1e-5, atol=1e-6)
    ds[70] = np.nan  # not learned, so not counted
    wanted = metrics.evaluate(model.metrics, plain.prediction, ds)
    chex.assert_trees_all_close(model.scores(state), wanted, rtol=1e-4)


def test_the_coverage_of_a_learner_that_has_intervals():
    xs, ds = map(np.array, jb.streams.duffing(300))
    ds[50:60] = np.nan
    model = Scored(jb.Intervals(jb.NLMS(0.1), 0.8), {"in": Coverage(), "late": Coverage(window=40)})
    state, trace = jb.run(model, xs, ds, observe=lambda state, info: (info.low, info.high))
    wanted = metrics.evaluate(model.metrics, trace.prediction, ds, *trace.observed)
    assert 0.7 < wanted["in"] < 0.9
    chex.assert_trees_all_close(model.scores(state), wanted)


def see_scores(state, info):
    return info.scores


def test_scores_are_reported_as_they_were_before_the_sample():
    xs, ds = jb.streams.duffing(20)
    model = Scored(jb.SGD(0.1), MSE())
    _, trace = jb.run(model, xs, ds, observe=see_scores)
    assert np.isnan(trace.observed[0])
    np.testing.assert_allclose(
        trace.observed[1:], jb.ase(trace.prediction, ds)[:-1], rtol=1e-5, atol=0
    )


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: MSE(window=0), "window must be a whole number"),
        (lambda: MSE(fading=0.0), "fading must be"),
        (lambda: MSE(window=5, fading=0.9), "fades or has a window"),
        (lambda: Pinball(q=1.0), "q must be"),
        (lambda: metrics.evaluate(MSE(), [1.0], [1.0, 2.0]), r"prediction must be \(T,\)"),
        (lambda: Scored(jb.SGD(0.1), "mse"), "metrics must be a metric"),
        (lambda: Scored(MSE()), "learner must be"),
        (
            lambda: Scored(jb.SGD(0.1), [MSE(), Coverage()]),
            r"jboost\.Intervals\(learner\); got SGD",
        ),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
