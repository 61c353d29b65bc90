"""Transforms and pipelines: raw streams of any units, from the first sample, gaps and outliers."""

import itertools
import math
import os
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jboost as jb
from jboost import engine
from jboost.core.learner import Learner
from jboost.core.pytree import model
from jboost.engine.plan import FIRST_TESTED, LAST_TESTED
from jboost.transforms import (
    Bias,
    Impute,
    Lags,
    Polynomial,
    RandomFourier,
    Scale,
    ScaleTarget,
)
from jboost.transforms.pipelines import pipeline
from jboost.transforms.units import Moments

KEY = jax.random.key(4)
NOISE = 0.1


def linear(T=600, seed=0):
    """Columns of unlike sizes and offsets, a linear target with an offset, some noise."""
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(T, 3))
    ds = xs @ [1.0, -0.5, 0.25] + 2 + NOISE * rng.normal(size=T)
    return xs.astype(np.float32), ds.astype(np.float32)


def raw(learner):
    return pipeline(Scale(), Bias(), ScaleTarget(learner))


@jax.jit
def walked(transform, state, xs, ds):
    def step(state, sample):
        return transform.update(state, *sample), transform.apply(state, sample[0])

    return jax.lax.scan(step, state, (xs, ds))


def walk(transform, xs, ds=None, **init):
    """x′ of every sample, in order."""
    ds = np.zeros(len(xs), np.float32) if ds is None else ds
    return np.asarray(walked(transform, transform.init(xs.shape[1], **init), xs, ds)[1])


@jax.jit
def moments_of(xs, forgetting, clip):
    """The running mean and deviation of the columns, after all rows."""
    start = Moments.zeros(xs.shape[1:], xs.dtype)
    return jax.lax.scan(lambda m, x: (m.after(x, forgetting, clip), None), start, xs)[0].frame


def late_error(model, xs, ds, true=None):
    prediction = np.asarray(jb.run(model, xs, ds, KEY)[1].prediction, np.float64)
    assert np.isfinite(prediction).all()
    return np.mean((prediction - (ds if true is None else true))[len(ds) // 2 :] ** 2)


# The running moments


@given(seed=st.integers(0, 999))
def test_moments_are_weighted_ones_of_all_values(seed):
    """In one go: a value's weight is its gain, times 1 − gain of all that came after it."""
    x = np.random.default_rng(seed).permutation(25).astype(np.float32)
    m, s = moments_of(x, 1.0, 1e6)
    gain = 4 / (np.arange(1, 26) + 3)
    v = gain * np.append(np.cumprod((1 - gain)[::-1])[::-1][1:], 1)
    assert float(m) == pytest.approx(v @ x, rel=1e-5)
    assert float(s) == pytest.approx(math.sqrt(v @ (x - v @ x) ** 2), rel=1e-5)


def test_moments_hold_for_a_million_float32_samples():
    offset, unit = np.float32([0, 1e4, 5, 0]), np.float32([1, 1, 1e-2, 1e-25])
    xs = offset + unit * np.random.default_rng(0).normal(size=(1_000_000, 4)).astype(np.float32)
    m, s = (np.asarray(a, np.float64) for a in moments_of(xs, 1.0, 5.0))
    np.testing.assert_allclose(s, xs.std(axis=0, dtype=np.float64), rtol=5e-3)
    assert (np.abs(m - xs.mean(axis=0, dtype=np.float64)) < 5e-3 * unit + 1e-7 * offset).all()


def test_forgetting_follows_a_change_of_scale():
    xs = np.random.default_rng(0).normal(size=4000).astype(np.float32)
    xs[2000:] = 100 * xs[2000:] + 1000
    m, s = moments_of(xs, 0.99, 5.0)
    assert abs(float(m) - 1000) < 50 and float(s) == pytest.approx(100, rel=0.3)
    assert float(moments_of(xs, 1.0, 5.0)[1]) > 200  # or forgetting would not be needed


# Scale


@given(
    powers=st.lists(st.integers(-18, 14), min_size=3, max_size=3),
    kind=st.sampled_from(["moments", "range"]),
)
def test_scaling_does_not_see_units(powers, kind):
    xs = linear(30)[0]
    units = np.exp2(np.float32(powers) * 2)  # powers of two: exactly the same digits
    np.testing.assert_array_equal(walk(Scale(kind), xs * units), walk(Scale(kind), xs))


@pytest.mark.parametrize("kind", ["moments", "range"])
def test_the_first_samples_are_sensible(kind):
    xs = np.float32([[1e6, 3.0], [1e6 + 4, 3.0], [1e6 - 4, 3.0], [1e6 + 1, 3.0]])
    scaled = walk(Scale(kind), xs)
    np.testing.assert_array_equal(scaled[0], 0)
    np.testing.assert_array_equal(scaled[:, 1], 0)  # has not changed yet
    assert 0 < scaled[1, 0] <= 1 and scaled[2, 0] < 0 and np.abs(scaled).max() <= 5


def test_range_by_hand():
    xs = np.float32([[2.0], [6.0], [3.0], [0.0], [1e14], [0.0]])
    # 1e14 counts as the middle, 3, and five half widths: 18
    expected = [0, 1, 2 * (3 - 2) / 4 - 1, -1, 1, -1]
    np.testing.assert_allclose(walk(Scale("range"), xs)[:, 0], expected, atol=1e-6)
    assert float(walk(Scale("range"), np.r_[xs, [[18.0]]].astype(np.float32))[-1, 0]) == 1


@pytest.mark.parametrize("learner", [jb.SGD(0.02), jb.Newton()], ids=["SGD", "Newton"])
def test_units_and_offsets_of_a_stream_do_not_matter(learner):
    xs, ds = linear()
    _, plain = jb.run(raw(learner), xs, ds)
    units = np.float32(10 ** np.random.default_rng(1).uniform(-6, 6, 3))
    for far_x, far_d in [(xs * units, 1e4 * ds), ((xs + 100) * units, 1e4 * ds + 1e6)]:
        _, far = jb.run(raw(learner), far_x, far_d)
        errors = far.prediction - far_d, 1e4 * (plain.prediction - ds)
        theirs, ours = (float(jnp.mean(jnp.square(e[1:]))) for e in errors)
        assert theirs == pytest.approx(ours, rel=0.02)
        assert float(jnp.abs(errors[0][1:]).max()) < 1.1 * float(jnp.abs(errors[1][1:]).max())
    assert ours / 1e8 < 0.2  # of a variance of 1.3, the start included


@pytest.mark.parametrize("learner", [jb.SGD(0.05), jb.Newton()], ids=["SGD", "Newton"])
def test_an_absurd_value_spoils_nothing_whenever_it_comes(learner):
    xs, ds = linear()
    clean = late_error(raw(learner), xs, ds)
    assert clean < 2 * NOISE**2
    for t in (0, 1, 2, 3, 40, 200):
        wild_x, wild_d = xs.copy(), ds.copy()
        wild_x[t, 0] = 1e14
        assert late_error(raw(learner), wild_x, ds) < clean + NOISE**2, f"x at {t}"
        wild_d[t] = -1e14
        assert late_error(raw(learner), xs, wild_d) < clean + 2 * NOISE**2, f"d at {t}"


def test_columns_that_are_rarely_anything_keep_their_scale():
    rng = np.random.default_rng(0)
    T = 4000
    rare = (rng.random((T, 2)) < 0.01) * rng.uniform(1, 3, (T, 2))
    late = np.where(np.arange(T) < 2000, 0, 100 + rng.normal(size=T))
    xs = np.c_[rng.normal(size=T), rare, late].astype(np.float32)
    scaled = walk(Scale(), xs)
    seen = scaled[2000:, 1][rare[2000:, 0] > 0]
    assert seen.min() > 0.5 and seen.max() < 5 and np.ptp(seen) > 0.5  # sizes are told apart
    assert 0.5 < scaled[2500:, 3].std() < 2
    ds = (xs @ np.float32([1, 2, -2, 0]) + NOISE * rng.normal(size=T)).astype(np.float32)
    assert late_error(pipeline(Scale(), Bias(), jb.Newton()), xs, ds) < 1.3 * NOISE**2


# Units that hold


def test_held_units_hold_once_there_are_any():
    """The first eight samples have no x′; the units of the ninth are those of the last."""
    xs = np.random.default_rng(0).normal(3.0, 2.0, (400, 2)).astype(np.float32)
    seen = walk(Scale("held"), xs)
    assert np.isnan(seen[:8]).all() and np.isfinite(seen[8:]).all()
    slope = np.diff(seen[8:], axis=0) / np.diff(xs[8:], axis=0)
    np.testing.assert_allclose(slope, np.broadcast_to(slope[:1], slope.shape), rtol=1e-2)
    assert 0.2 < slope[0, 0] < 2  # about 1/2, and need not be more than that


def test_a_cubic_in_held_units_is_exact():
    """The Duffing map is a cubic: in units that move, what was learned is wrong ever after."""
    xs, ds = (np.asarray(a) for a in jb.streams.duffing(1500))
    late = {}
    for kind in ("held", "moments"):
        scale = Scale(kind, clip=10.0)
        cubic = pipeline(scale, Polynomial(3), Bias(), jb.Newton(0.999, ridge=0.01))
        prediction = np.asarray(jb.run(ScaleTarget(cubic, scale), xs[:, :2], ds)[1].prediction)
        late[kind] = np.mean((prediction - ds)[500:] ** 2) / np.var(ds)  # both wings were seen
    assert late["held"] < 1e-4 < 1e-2 < late["moments"]


def test_units_are_replaced_when_they_are_clearly_wrong():
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(600, 1)).astype(np.float32)
    xs[300:] *= 100  # an s within ten times is kept, and no more
    scale = Scale("held", forgetting=0.95)
    held = [walked(scale, scale.init(1), xs[:n], np.zeros(n, np.float32))[0] for n in (300, 600)]
    assert held[0].unit < 3 and 10 < held[1].unit < 300
    late = walk(scale, xs)[-100:]
    assert 0.05 < np.std(late) < 20


def test_a_column_that_changes_late_gets_its_units_then():
    xs = np.full((300, 2), 7.0, np.float32)
    xs[:, 1] = np.random.default_rng(0).normal(size=300)
    xs[200:, 0] += 1e-3 * xs[200:, 1]
    seen = walk(Scale("held"), xs)
    assert (seen[8:200, 0] == 0).all()
    assert np.isfinite(seen[200:]).all() and 0.01 < np.std(seen[250:, 0]) < 11


@pytest.mark.parametrize("absurd", [1e14, -1e14, 1e30, np.nan])
def test_held_units_survive_absurd_values(absurd):
    xs = np.random.default_rng(0).normal(size=(300, 1)).astype(np.float32)
    clean = walk(Scale("held"), xs)
    xs[50] = absurd
    seen = walk(Scale("held"), xs)
    assert np.isnan(seen[50]) if not abs(absurd) < 1e15 else abs(seen[50]) < 100
    np.testing.assert_allclose(np.std(seen[100:]), np.std(clean[100:]), rtol=0.01)


# Maps and lags


def test_bias_and_polynomial():
    x = np.float32([2, -3, 5])
    assert Bias().apply((), x).tolist() == [2, -3, 5, 1]
    for degree in (2, 3):
        products = [
            math.prod(factors)
            for p in range(1, degree + 1)
            for factors in itertools.combinations_with_replacement(x.tolist(), p)
        ]
        polynomial = Polynomial(degree).apply((), x)
        assert polynomial.tolist() == products and Polynomial(degree).width(3) == len(products)


def test_a_polynomial_counts_its_columns_without_building_them():
    for degree in (2, 3, 7):
        for columns in (1, 2, 5, 9):
            x = jax.ShapeDtypeStruct((columns,), jnp.float32)
            made = jax.eval_shape(Polynomial(degree).apply, (), x)
            assert Polynomial(degree).width(columns) == made.shape[0]
    assert Polynomial(2).width(2894) == 2894 * 2897 // 2
    for degree in (2, 40):
        with pytest.raises(ValueError, match="60,000 columns have more than 4,194,304 products"):
            Polynomial(degree).width(60_000)
    with pytest.raises(ValueError, match="degree must be a whole number >= 2 and <= 64"):
        Polynomial(65)


def test_random_features_approach_the_gaussian_kernel():
    xs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    distance = ((xs[:, None] - xs[None]) ** 2).sum(-1)
    for length in (0.7, 2.0):
        fourier = RandomFourier(4000, length_scale=length)
        features = walk(fourier, xs, key=KEY)
        kernel = np.exp(-distance / (2 * length**2))
        assert np.abs(features @ features.T - kernel).max() < 0.1  # 4/√D is 0.06


def test_lags_are_the_samples_before():
    rng = np.random.default_rng(0)
    xs, ds = rng.normal(size=(9, 2)).astype(np.float32), rng.normal(size=9).astype(np.float32)
    lagged = walk(Lags(inputs=2, targets=3), xs, ds)
    for t in range(9):
        earlier = [xs[max(t - j, 0)] for j in range(3)]
        targets = [ds[max(t - j, 0)] if t else np.nan for j in range(1, 4)]
        np.testing.assert_array_equal(lagged[t], np.r_[np.ravel(earlier), targets])
    assert walk(Lags(targets=1), xs, ds)[1:, 2].tolist() == ds[:-1].tolist()
    np.testing.assert_array_equal(walk(Lags(inputs=1), xs)[1:, 2:], xs[:-1])


def test_lagged_targets_forecast():
    rng = np.random.default_rng(0)
    ds = np.zeros(2000)
    for t in range(2, 2000):
        ds[t] = 1.6 * ds[t - 1] - 0.7 * ds[t - 2] + rng.normal()
    ds = (1e3 * ds + 1e6).astype(np.float32)
    model = pipeline(Lags(targets=2), Scale(), Bias(), ScaleTarget(jb.Newton()))
    assert late_error(model, np.ones((2000, 1), np.float32), ds) / 1e6 < 1.1  # the noise alone: 1


def test_random_features_learn_what_a_line_cannot():
    rng = np.random.default_rng(0)
    xs = rng.uniform(-1, 1, (1500, 2)).astype(np.float32)
    ds = (np.sin(4 * xs[:, 0]) * xs[:, 1]).astype(np.float32)
    straight = late_error(raw(jb.Newton()), xs, ds)
    curved = late_error(pipeline(RandomFourier(60, 0.7), jb.Newton(ridge=1e-3)), xs, ds)
    assert curved < 0.05 * straight


@pytest.mark.skipif("JBOOST_DATA" not in os.environ, reason="needs the data sets")
def test_the_figure_of_kin8nm():
    xs, ds = jb.datasets.paper_scaled(*jb.datasets.load("kin8nm"), bias=False)
    model = pipeline(RandomFourier(300, length_scale=1.5), jb.Newton(ridge=0.01))
    assert float(jb.mse(model, xs[:8192], ds[:8192], KEY)) <= 0.036


# Missing values


def test_impute_by_hand():
    nan = np.nan
    xs = np.float32([[nan, 1.0], [4.0, np.inf], [nan, 1.0], [4.0, -1e30]])
    filled = walk(Impute(indicators=True), xs)
    expected = [[0, 1, 1, 0], [4, 1, 0, 1], [4, 1, 1, 0], [4, 1, 0, 1]]
    np.testing.assert_array_equal(filled, expected)


@pytest.mark.parametrize(
    ("parts", "takes"),
    [
        ([Impute()], True),
        ([Scale(), Bias(), Impute(), Polynomial()], True),
        ([Scale(), Bias()], False),
        ([Polynomial(), Impute()], False),
        ([Lags(inputs=1), Impute()], False),
        ([RandomFourier(3), Impute()], False),
    ],
)
def test_what_takes_missing_values(parts, takes):
    xs, ds = linear(8)
    xs[3, 1] = np.nan
    model = pipeline(*parts, jb.SGD(0.1))
    assert model.takes_missing is takes
    assert pipeline(model).takes_missing is takes and ScaleTarget(model).takes_missing is takes
    state, trace = jb.run(model, xs, ds, KEY)
    chex.assert_tree_all_finite((state, trace.prediction))
    assert trace.skipped.tolist() == [t == 3 and not takes for t in range(8)]


def test_gaps_are_learned_from():
    """Half of the samples have a gap: what is known of them must still count."""
    xs, ds = linear(1000)
    gaps = np.random.default_rng(1).random(xs.shape) < 0.2
    holed = np.where(gaps, np.nan, 1e3 * xs + 1e4).astype(np.float32)
    true = np.where(gaps, 0, xs) @ [1.0, -0.5, 0.25] + 2
    model = pipeline(Scale(), Impute(), Bias(), ScaleTarget(jb.Newton()))
    assert late_error(model, holed, ds, true) < 0.03


# The pipeline as a learner


class Seen(NamedTuple):
    x: jax.Array
    d: jax.Array


@model
class Probe(Learner):
    """A learner that keeps the last sample it learned."""

    def init(self, num_features, dtype=None, *, key=None):
        return Seen(jnp.zeros(num_features, dtype), jnp.zeros((), dtype))

    def predict(self, state, x):
        return jnp.sum(x)

    @property
    def takes_missing(self):
        return True

    def learn(self, state, sample):
        return Seen(sample.x, sample.d)


def test_a_learner_learns_what_it_predicted_from_and_transforms_after_it():
    xs, ds = linear(6)
    scale, lags = Scale(), Lags(targets=1)
    probe = pipeline(scale, lags, Probe())
    state = probe.init(3, jnp.float32)
    for x, d in zip(xs, ds, strict=True):
        scaled = scale.apply(state.transforms[0], x)
        lagged = lags.apply(state.transforms[1], scaled)
        assert float(probe.predict(state, x)) == pytest.approx(float(jnp.sum(lagged)), nan_ok=True)
        expected = (
            scale.update(state.transforms[0], x, d),
            lags.update(state.transforms[1], scaled, d),
        )
        state = probe.update(state, x, d)
        np.testing.assert_array_equal(state.learner.x, lagged)
        assert float(state.learner.d) == d
        chex.assert_trees_all_equal(state.transforms, expected)


MODELS = {
    "moments": raw(jb.SGD(0.1)),
    "range": pipeline(Scale("range"), Bias(), ScaleTarget(jb.SGD(0.1), Scale("range"))),
    "fourier": pipeline(Scale(), Impute(True), RandomFourier(5, 2.0), jb.NLMS(0.5)),
    "lags": pipeline(Lags(1, 2), Scale(), Polynomial(), Bias(), ScaleTarget(jb.Newton(0.99))),
    "of a booster": raw(jb.bnm_ru(2, target_mse=0.2, forgetting=0.99, ridge=0.1)),
}


@pytest.mark.parametrize("name", ["fourier", "of a booster"])
def test_what_is_not_learned_leaves_every_bit(name):
    model = MODELS[name]
    xs, ds = linear(12)
    state, _ = jb.run(model, xs, ds, KEY)
    update = jax.jit(lambda x, d, n: model.update(state, x, d, repeats=n, key=KEY))
    for d in (np.nan, np.inf, -1e15):
        chex.assert_trees_all_equal(update(xs[0], jnp.float32(d), jnp.int32(1)), state)
    chex.assert_trees_all_equal(update(xs[0], jnp.float32(1), jnp.int32(0)), state)
    if not model.takes_missing:
        hole = jnp.asarray(xs[0]).at[1].set(jnp.nan)
        chex.assert_trees_all_equal(update(hole, jnp.float32(1), jnp.int32(1)), state)
    learned = update(xs[0], jnp.float32(1), jnp.int32(1))
    differs = jax.tree.map(lambda a, b: bool((a != b).any()), learned, state)
    assert any(jax.tree.leaves(differs))


def test_weights_and_repeats_are_the_learners():
    xs, ds = linear(12)
    model = raw(jb.SGD(0.1))
    state, _ = jb.run(model, xs, ds)
    x, d = xs[0], ds[0]
    chex.assert_trees_all_equal(model.update(state, x, d, weight=0.0), state)
    chex.assert_trees_all_equal(model.update(state, x, d, weight=jnp.float32(0)), state)
    chex.assert_trees_all_equal(model.update(state, x, d, repeats=jnp.zeros((), bool)), state)
    once = model.update(state, x, d)
    thrice = model.update(state, x, d, repeats=jnp.int32(3))
    light = model.update(state, x, d, weight=0.25)
    for other in (thrice, light):
        chex.assert_trees_all_equal(other.transforms, once.transforms)
        chex.assert_trees_all_equal(other.learner.scale, once.learner.scale)
    start, w = state.learner.learner.w, once.learner.learner.w
    np.testing.assert_allclose(light.learner.learner.w - start, (w - start) / 4, atol=1e-7)
    assert float(jnp.abs(thrice.learner.learner.w - start).sum()) > 1.5 * float(
        jnp.abs(w - start).sum()
    )


@pytest.mark.parametrize("name", ["range", "lags"])
def test_saved_and_cut_runs_go_on_bit_for_bit(name, tmp_path):
    model = MODELS[name]
    xs, ds = linear(16)
    whole, trace = jb.run(model, xs, ds, KEY)
    half, first = jb.run(model, xs[:8], ds[:8], KEY)
    jb.save(tmp_path / "run", model, half, KEY)
    loaded, half, key = jb.load(tmp_path / "run")
    end, second = jb.run(loaded, xs[8:], ds[8:], key, half)
    chex.assert_trees_all_equal(end, whole)
    np.testing.assert_array_equal(np.r_[first.prediction, second.prediction], trace.prediction)


def test_small_pipelines_run_in_one_kernel():
    if FIRST_TESTED <= jax.__version_info__[:3] <= LAST_TESTED:
        for name in ("moments", "lags"):
            jb.run(MODELS[name], *linear(16), KEY)
            assert engine.last().form == "kernel", engine.last().reason


def test_the_target_alone():
    xs, ds = linear(200)
    model = ScaleTarget(jb.SGD(0.1))
    _, trace = jb.run(model, xs, 1e4 * ds + 1e6)
    assert trace.prediction[0] == 0
    assert float(trace.prediction[1]) == pytest.approx(1e4 * float(ds[0]) + 1e6, rel=1e-6)
    wild = model.init(3)
    for d in (1.0, 2.0, 1e14, 1.5):
        wild = model.update(wild, xs[0], d)
    assert float(jnp.abs(model.predict(wild, 1e6 * xs[0]))) < 50  # estimates stay near the targets


def test_info_is_the_learners_own():
    xs, ds = linear(10)
    model = raw(jb.bsgd_wu(3, target_mse=0.2, step_size=0.1))
    _, trace = jb.run(model, xs, 1e6 * ds, observe=lambda _, info: (info.y, info.lam, info.x))
    y, lam, x = trace.observed
    assert y.shape == lam.shape == (10, 3) and float(jnp.abs(y).max()) < 10
    np.testing.assert_array_equal(x, xs)


# Boosters of pipelines


def test_each_copy_draws_its_own_map():
    model = jb.boost(pipeline(RandomFourier(4), jb.SGD(0.1)), 3, target_mse=0.1)
    W = model.init(2, jnp.float32, key=KEY).learners[0].transforms[0].W
    assert W.shape == (3, 4, 2)
    assert len({tuple(np.ravel(w)) for w in np.asarray(W)}) == 3


def test_a_list_of_maps_is_one_stack_and_equals_separate_runs():
    xs, ds = linear(40)
    lengths = [0.5, 1.0, 2.0]
    pipes = [pipeline(Scale(), RandomFourier(6, length), jb.SGD(0.2)) for length in lengths]
    model = jb.boost(pipes, target_mse=0.1, dependence=0.0, combiner=jb.Uniform())
    assert model.sizes == (3,)
    together = jb.run(model, xs, ds, KEY)[1].prediction
    alone = [
        jb.run(pipe, xs, ds, jax.random.fold_in(KEY, k))[1].prediction
        for k, pipe in enumerate(pipes)
    ]
    np.testing.assert_allclose(together, np.mean(alone, axis=0), rtol=1e-4, atol=1e-5)


# As a function of the settings


def make(length, ridge, forgetting, clip):
    scale = Scale(forgetting=forgetting, clip=clip)
    learner = ScaleTarget(jb.Newton(0.99, ridge=ridge), scale)
    return pipeline(scale, RandomFourier(5, length), learner)


def test_gradients_match_finite_differences(x64):
    xs, ds = (a[:50].astype(float) for a in linear())
    xs[20, 0], ds[30] = 30.0, 40.0  # beyond the clip
    xs[40], ds[41] = np.nan, np.nan
    loss = jax.jit(lambda point: jb.mse(make(*point), xs, ds, KEY))
    point = jnp.array([1.5, 0.1, 0.95, 4.0])
    slope = jax.grad(loss)(point)
    for i, h in enumerate(1e-6 * jnp.eye(4)):
        numeric = (loss(point + h) - loss(point - h)) / 2e-6
        assert abs(float(numeric)) > 1e-6
        np.testing.assert_allclose(slope[i], numeric, rtol=1e-4, atol=1e-7)


def test_a_sweep_of_length_scales_equals_separate_runs():
    xs, ds = linear(40)
    lengths = jnp.array([0.5, 1.0, 3.0])

    def run(length):
        return jb.run(make(length, 0.1, 1.0, 5.0), xs, ds, KEY)[1].prediction

    for row, length in zip(jax.vmap(run)(lengths), lengths, strict=True):
        np.testing.assert_allclose(row, run(float(length)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: pipeline(), "needs parts"),
        (lambda: pipeline(Scale()), "the last part must be a learner .* got Scale"),
        (lambda: pipeline(Scale, jb.SGD(0.1)), "part 1 of the pipeline must be a transform"),
        (lambda: pipeline(Scale(), jb.SGD(0.1), jb.SGD(0.1)), "part 2 .* learner comes last"),
        (lambda: ScaleTarget(Scale()), "learner must be a learner"),
        (lambda: ScaleTarget(jb.SGD(0.1), "range"), "scale must be a Scale"),
        (lambda: Scale("variance"), "kind must be one of 'moments', 'range'"),
        (lambda: Scale(forgetting=0.0), "forgetting > 0"),
        (lambda: Scale(clip=1.0), "clip > 1"),
        (lambda: RandomFourier(0), "num_features must be a whole number >= 1"),
        (lambda: RandomFourier(3, length_scale=0.0), "length_scale > 0"),
        (lambda: Polynomial(1), "degree must be a whole number >= 2"),
        (lambda: Lags(), "inputs or targets must be above 0"),
        (lambda: Lags(inputs=-1), "inputs must be a whole number >= 0"),
        (lambda: pipeline(RandomFourier(3), jb.SGD(0.1)).init(2), "key is missing"),
    ],
)
def test_what_is_refused(wrong, message):
    with pytest.raises((TypeError, ValueError), match=message):
        wrong()
