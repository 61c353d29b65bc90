"""Several targets: what q runs would give, shared or not, with targets missing or all there."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.wrappers.targets import Separate

KEY = jax.random.key(4)
Q = 3
SHARED = {
    "SGD": jb.SGD(0.1),
    "Newton": jb.Newton(0.99, 0.1),
    "Newton, covariance": jb.Newton(0.99, 0.1, storage="covariance"),
    "ForwardNewton": jb.ForwardNewton(0.99, 0.1),
    "pipeline": jb.pipeline(
        jb.Impute(), jb.Scale(), jb.RandomFourier(6, length_scale=1.0), jb.ScaleTarget(jb.SGD(0.1))
    ),
}
SEPARATE = {
    "bsgd_ru": jb.bsgd_ru(5, target_mse=0.2, step_size=0.1),
    "bnm_wu": jb.bnm_wu(5, target_mse=0.2, forgetting=0.99, ridge=0.1),
    "Lags": jb.pipeline(jb.Lags(targets=1), jb.NLMS(0.5)),
}
ALL = SHARED | SEPARATE


def stream(T=80):
    """Targets of different units."""
    xs, ds = map(np.array, jb.streams.duffing(T))
    return xs, np.stack([ds, 5 - 30 * ds * xs[:, 0], 0.01 * xs[:, 1] ** 2], axis=1)


@pytest.mark.parametrize("name", ALL)
def test_it_is_that_many_separate_runs(name):
    xs, ds = stream()
    ds[17] = np.nan  # of all targets: that is still one and the same inverse
    xs[40, 1] = np.inf
    model = ALL[name]
    assert isinstance(jb.targets(model, Q), Separate) == (name in SEPARATE)
    _, trace = jb.run(model, xs, ds, KEY)
    assert trace.prediction.shape == trace.skipped.shape == (80, Q)
    for j in range(Q):
        _, alone = jb.run(model, xs, ds[:, j], KEY)
        scale = np.nanstd(ds[:, j])
        np.testing.assert_allclose(
            trace.prediction[:, j] / scale, alone.prediction / scale, rtol=1e-3, atol=1e-3
        )
        np.testing.assert_array_equal(trace.skipped[:, j], alone.skipped)


@pytest.mark.parametrize("name", ["pipeline", "bsgd_ru"])
def test_a_cut_stream_is_the_same_stream_bit_for_bit(name):
    xs, ds = stream()
    state, trace = jb.run(ALL[name], xs, ds, KEY)
    half, first = jb.run(ALL[name], xs[:40], ds[:40], KEY)
    resumed, second = jb.run(ALL[name], xs[40:], ds[40:], KEY, half)
    chex.assert_trees_all_equal(resumed, state)
    chex.assert_trees_all_equal(
        jnp.concatenate([first.prediction, second.prediction]), trace.prediction
    )


def test_a_stream_in_blocks_and_resumed(tmp_path):
    xs, ds = (np.array(a, np.float32) for a in jb.streams.duffing(300))
    both = np.stack([ds, 1 - 2 * ds], axis=1)
    both[10, 0] = both[20:22] = np.nan
    model = jb.targets(jb.Newton(0.99), 2)
    state, trace = jb.run(model, xs, both)
    blocks = [(xs[i : i + 70], both[i : i + 70]) for i in range(0, 300, 70)]
    keeps = {"checkpoint": tmp_path / "c", "every": 1, "resume": True}
    with jb.run_stream(model, blocks, **keeps) as stream:
        first = [next(stream).prediction, next(stream).prediction]
    stream = jb.run_stream(model, blocks, **keeps)
    predictions = np.concatenate([*first, *(block.prediction for block in stream)])
    np.testing.assert_array_equal(predictions, trace.prediction)
    chex.assert_trees_all_equal(stream.state, state)
    assert stream.skipped == 2
    assert stream.mse == pytest.approx(np.nanmean((predictions - both) ** 2), rel=1e-5)
    for wrong, words in ((ds, r"shape \([nT], 2\), a col"), (both[:, :1], r"got \(300, 1\)")):
        with pytest.raises(ValueError, match=words):
            jb.run_stream(model, (xs, wrong)).finish()
    with pytest.raises(ValueError, match="row 10 of the stream"):
        jb.run_stream(model, (xs, both), on_bad="raise").finish()


def test_newton_keeps_one_inverse():
    xs, ds = stream()
    state, _ = jb.run(jb.Newton(0.99), xs, ds)
    assert state.w.shape == (Q, 3) and state.T.shape == (3, 3)
    alone, _ = jb.run(jb.Newton(0.99), xs, ds[:, 0])
    np.testing.assert_allclose(state.T, alone.T, rtol=1e-6)


def test_a_missing_target_is_left_out_and_the_others_are_learned():
    xs, ds = stream()
    whole, _ = jb.run(jb.Newton(), xs, ds)
    ds[30:60, 1] = np.nan
    state, trace = jb.run(jb.Newton(), xs, ds)
    for j in (0, 2):
        np.testing.assert_allclose(state.w[j], whole.w[j], rtol=1e-6)
    assert trace.skipped[30:60, 1].all() and int(trace.skipped.sum()) == 30
    before, _ = jb.run(jb.Newton(), xs[:30], ds[:30])
    after, _ = jb.run(jb.Newton(), xs[:60], ds[:60])
    np.testing.assert_array_equal(before.w[1], after.w[1])
    # Kept apart it is the run of that target alone.
    apart, _ = jb.run(jb.targets(jb.Newton(), Q, share=False), xs, ds)
    alone, _ = jb.run(jb.Newton(), xs, ds[:, 1])
    chex.assert_trees_all_equal(jax.tree.map(lambda leaf: leaf[1], apart), alone)


@pytest.mark.parametrize("name", ["Newton", "pipeline", "bsgd_ru"])
def test_without_any_target_nothing_changes(name):
    xs, ds = stream()
    state, _ = jb.run(ALL[name], xs, ds, KEY)
    untouched, trace = jb.run(ALL[name], xs, ds * np.nan, KEY, state)
    chex.assert_trees_all_equal(untouched, state)
    assert np.isfinite(trace.prediction).all() and trace.skipped.all()


def test_every_target_may_have_its_own_floats():
    xs, ds = stream()
    steps = np.array([0.01, 0.1, 0.3], np.float32)
    _, trace = jb.run(jb.SGD(steps), xs, ds)
    for j, step in enumerate(steps):
        _, alone = jb.run(jb.SGD(float(step)), xs, ds[:, j])
        np.testing.assert_allclose(trace.prediction[:, j], alone.prediction, rtol=1e-5, atol=1e-6)


def last_prediction(state, info):
    return info.prediction


@pytest.mark.parametrize("name", ["Newton", "bnm_wu"])
def test_inside_transformations_and_observed(name):
    xs, ds = stream(30)
    model = ALL[name]
    _, trace = jb.run(model, xs, ds)
    compiled = jax.jit(lambda d: jb.run(model, xs, d)[1].prediction)(jnp.asarray(ds, "float32"))
    np.testing.assert_allclose(compiled, trace.prediction, rtol=1e-3, atol=1e-3)
    _, watched = jb.run(model, xs, ds, observe=last_prediction)
    np.testing.assert_allclose(watched.observed, trace.prediction, rtol=1e-3, atol=1e-3)

    def error(v):
        prediction = jb.run(jb.Newton(0.99, v), xs, ds)[1].prediction
        return jnp.mean(jnp.square(prediction - ds.astype(np.float32)))

    if name == "Newton":
        slope, step = jax.grad(error)(0.1), (error(0.101) - error(0.099)) / 0.002
        np.testing.assert_allclose(slope, step, rtol=0.05)


def test_double_precision(x64):
    xs, ds = stream(30)
    for model in (jb.Newton(0.99), SEPARATE["Lags"]):
        _, trace = jb.run(model, xs.astype(float), ds.astype(float))
        assert trace.prediction.dtype == jnp.float64
        for j in range(Q):
            alone = jb.run(model, xs.astype(float), ds[:, j].astype(float))[1].prediction
            np.testing.assert_allclose(trace.prediction[:, j], alone, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda xs, ds: jb.run(jb.targets(jb.SGD(0.1), 2), xs, ds[:, 0]),
            r"ds must have shape \(T, 2\)",
        ),
        (lambda xs, ds: jb.run(jb.targets(jb.SGD(0.1), 2), xs, ds), "a column per target"),
        (lambda xs, ds: jb.run(jb.SGD(0.1), xs[:5], ds), "equally long"),
        (lambda xs, ds: jb.run(ALL["bsgd_ru"], xs, ds), "key is missing"),
        (lambda xs, ds: jb.run(jb.SGD(0.1), xs, ds, state=3), "state does not belong"),
        (lambda xs, ds: jb.targets(jb.SGD([0.1, 0.2]), 3), "one per learner, here 3"),
        (lambda xs, ds: jb.targets(jb.SGD(0.1), 0), "q must be a whole number"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(*stream())
