"""Long float32 runs on data that breaks the textbook formulas: what float64 says, float32 says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.boosting.booster import RLS_COMBINER
from jboost.combiners.mean import from_mean

NOISE = 0.1


def hazards(name, T, seed=0):
    rng = np.random.default_rng(seed)
    if name == "collinear":
        a = rng.normal(size=(T, 3))
        xs = np.c_[a, a[:, 0], a[:, 1] + a[:, 2]]
    elif name == "one-hot and bias":
        xs = np.c_[np.eye(4)[rng.integers(0, 4, T)], np.ones(T)]
    elif name == "scales from 1e-3 to 1e3":
        xs = rng.normal(size=(T, 4)) * [1e-3, 1e3, 1.0, 30.0]
    elif name == "seen once in 10,000":
        xs = np.c_[rng.normal(size=(T, 2)), np.arange(T) % 10_000 == 0]
    elif name == "two constants":
        xs = np.c_[rng.normal(size=(T, 2)), np.ones(T), 5 * np.ones(T)]
    true = rng.normal(size=xs.shape[1]) / np.abs(xs).mean(0).clip(1e-9)
    return xs.astype(np.float32), (xs @ true).astype(np.float32), rng.normal(size=T) * NOISE


def excess(model, name, T, dtype):
    """Mean squared distance of the estimates from the noise-free target, after a start."""
    xs, clean, noise = hazards(name, T)
    ds = clean + noise.astype(np.float32)
    state, trace = jb.run(model, xs.astype(dtype), ds.astype(dtype))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    error = np.asarray(trace.prediction, np.float64) - clean
    return float(np.mean(error[T // 10 :] ** 2))


NAMES = [
    "collinear",
    "one-hot and bias",
    "scales from 1e-3 to 1e3",
    "seen once in 10,000",
    "two constants",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_million_float32_steps_agree_with_float64(name, x64):
    model = jb.Newton(0.999, ridge=0.01)
    single, double = (excess(model, name, 1_000_000, dtype) for dtype in (np.float32, np.float64))
    assert single == pytest.approx(double, rel=0.02)


def test_learners_that_hardly_differ_and_then_do_are_combined_with_care():
    """What the default combiner came to in their differences, it does not trust when these grow.

    The plain form of the same least squares throws the estimate off by several times the noise.
    """
    rng = np.random.default_rng(3)
    T, m = 3000, 20
    clean, noise = rng.normal(size=T), 0.3 * rng.normal(size=T + 20)
    alike = clean[:, None] + 0.003 * rng.normal(size=(T, m))
    apart = rng.normal(size=(20, m))
    y, d = np.r_[alike, apart], np.r_[clean, np.zeros(20)] + noise
    added = {}
    for form in (jb.Newton, jb.ForwardNewton):
        combiner = form(0.999, ridge=1.0, max_variance=100.0, shrink=True)
        prediction = jb.run(from_mean(combiner), y, d)[1].prediction
        added[form] = np.abs(np.asarray(prediction) - y.mean(axis=1))[T : T + 3].max()
    assert added[jb.ForwardNewton] < 0.3 < 1.0 < added[jb.Newton]
    assert isinstance(RLS_COMBINER, jb.ForwardNewton)


@pytest.mark.parametrize("name", NAMES[:3])
def test_boosted_float32_agrees_with_float64(name, x64):
    model = jb.bnm_wu(3, target_mse=0.01, forgetting=0.999, ridge=0.01)
    single, double = (excess(model, name, 100_000, dtype) for dtype in (np.float32, np.float64))
    assert single == pytest.approx(double, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_million_boosted_float32_steps_agree_with_float64(name, x64):
    model = jb.bnm_wu(20, target_mse=0.01, forgetting=0.999, ridge=0.01)
    single, double = (excess(model, name, 1_000_000, dtype) for dtype in (np.float32, np.float64))
    assert single == pytest.approx(double, rel=0.02)


@pytest.mark.parametrize("storage", ["root", "covariance"])
def test_a_change_is_followed_though_columns_are_collinear(storage):
    """The cap holds the direction that is never excited, and nothing else."""
    rng = np.random.default_rng(0)
    T, change = 30_000, 20_000
    a = rng.normal(size=(T, 3))
    xs = np.c_[a, a[:, 0], a[:, 1] + a[:, 2]].astype(np.float32)
    before, after = rng.normal(size=(2, 5))
    clean = np.where(np.arange(T) < change, xs @ before, xs @ after)
    ds = (clean + NOISE * rng.normal(size=T)).astype(np.float32)
    _, trace = jb.run(jb.Newton(0.999, ridge=0.01, storage=storage), xs, ds)
    error = np.asarray(trace.prediction) - clean
    assert np.mean(error[change + 8000 :] ** 2) < 5 * np.mean(error[change - 8000 : change] ** 2)


def test_silent_directions_return_without_a_burst():
    rng = np.random.default_rng(0)
    T, pause = 30_000, slice(10_000, 20_000)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    sources = rng.normal(size=(T, 4))
    sources[pause, :2] = 0
    xs = (sources @ rotation).astype(np.float32)
    clean = xs @ rng.normal(size=4).astype(np.float32)
    ds = clean + NOISE * rng.normal(size=T).astype(np.float32)
    _, trace = jb.run(jb.Newton(0.999, ridge=0.01), xs, ds)
    back = np.abs(trace.prediction - clean)[20_000:20_500]
    assert back.max() <= 10 * NOISE


@pytest.mark.parametrize(
    "model",
    [
        jb.bsgd_wu(3, target_mse=10.0, step_size=0.1),
        jb.bnm_wu(3, target_mse=10.0, forgetting=0.999, ridge=0.01),
        jb.bnm_dr(3, target_mse=10.0, forgetting=0.999, ridge=0.01),
        jb.bnm_ru(3, target_mse=10.0, forgetting=0.999, ridge=0.01),
    ],
    ids=["BSGD-WU", "BNM-WU", "BNM-DR", "BNM-RU"],
)
def test_weights_near_zero_for_long(model):
    """A target far above the error sends λ to zero; the learners must still stand at the end."""
    xs, _clean, noise = hazards("scales from 1e-3 to 1e3", 200_000)
    xs = xs / np.float32([1e-3, 1e3, 1.0, 30.0])
    ds = xs @ np.float32([0.3, -0.2, 0.1, 0.5]) + noise.astype(np.float32)
    state, trace = jb.run(model, xs, ds, jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    tail = np.asarray(ds - trace.prediction)[-10_000:]
    assert np.mean(tail**2) < 1.4 * NOISE**2


def test_half_of_the_samples_bad_equals_the_clean_half():
    xs, ds = (np.array(a) for a in jb.streams.duffing(20_000))
    bad = np.random.default_rng(0).random(40_000) < 0.5
    bad[: np.count_nonzero(bad) - 20_000] = not np.count_nonzero(bad) > 20000
    good = np.flatnonzero(~bad)[:20_000]
    wide_x = np.full((40_000, 3), np.nan, np.float32)
    wide_d = np.ones(40_000, np.float32)
    wide_x[good], wide_d[good] = xs[: len(good)], ds[: len(good)]
    model = jb.bnm_ru(3, target_mse=0.2, forgetting=0.999, ridge=0.01)
    state, trace = jb.run(model, wide_x, wide_d, jax.random.key(1))
    clean, clean_trace = jb.run(model, xs[: len(good)], ds[: len(good)], jax.random.key(1))
    assert int(trace.skipped.sum()) == 40_000 - len(good)
    np.testing.assert_array_equal(trace.prediction[jnp.asarray(good)], clean_trace.prediction)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(clean), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_huge_value_does_not_spoil_what_follows():
    xs, ds = (np.array(a) for a in jb.streams.duffing(10_000))
    model = jb.bnm_wu(3, target_mse=0.2, forgetting=0.999, ridge=0.01)
    clean = jb.run(model, xs, ds)[1].prediction
    xs[2000, 1], ds[3000] = 1e30, -1e30
    _state, trace = jb.run(model, xs, ds)
    after = slice(3001, None)
    errors = [np.asarray(p)[after] - ds[after] for p in (trace.prediction, clean)]
    spoilt, unspoilt = (float(np.mean(e**2)) for e in errors)
    assert int(trace.skipped.sum()) == 2
    assert spoilt == pytest.approx(unspoilt, rel=0.01)
