"""Outliers, sample weights and a budget of labels."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.wrappers.robust import GAUSSIAN, Huber, Median
from jboost.wrappers.weights import Budget, WeightColumn

KEY = jax.random.key(6)


def stationary(T=3000):
    return tuple(map(np.array, jb.streams.stationary(jax.random.key(0), T)))


def spoilt(ds, seed=1):
    """1 % of the targets at 100 times their range, the first of all among them."""
    out = np.random.default_rng(seed).random(len(ds)) < 0.01
    out[0] = True
    return np.where(out, 100 * np.ptp(ds), ds).astype(np.float32), out


MODELS = {
    "SGD": jb.SGD(0.1),
    "Newton": jb.Newton(0.999),
    "bsgd_wu": jb.bsgd_wu(5, target_mse=0.02, step_size=0.1),
    "bnm_wu": jb.bnm_wu(5, target_mse=0.02, forgetting=0.999, ridge=0.1),
}


@pytest.mark.parametrize(
    "name, acts_on",
    [*((name, "weight") for name in MODELS), ("Newton", "target"), ("bnm_wu", "target")],
)
def test_outliers_cost_at_most_a_tenth(name, acts_on):
    model = MODELS[name]
    xs, ds = stationary(5000)
    bad, out = spoilt(ds)

    def error(model, targets):
        e = np.asarray(jb.run(model, xs, targets)[1].prediction) - ds
        return np.mean(np.square(e[~out][20:]))  # the first errors are large and few

    clean = error(model, ds)
    assert error(Huber(model, acts_on=acts_on), bad) < 1.1 * clean
    assert error(model, bad) > 10 * clean


def test_for_sgd_it_is_hubers_gradient():
    """Both forms: w + μ clip(e, ±k σ̂) x, in NumPy, given the scales that were used."""
    xs, ds = stationary(60)
    ds[[20, 40]] = 300.0, -300.0
    for acts_on in ("target", "weight"):
        model = Huber(jb.SGD(0.1), threshold=2.0, reject=None, acts_on=acts_on)
        _, trace = jb.run(model, xs, ds, observe=scale_after)
        sigma = np.concatenate([[0.0], GAUSSIAN * np.asarray(trace.observed)])
        w, predictions = np.zeros(3), []
        for x, d, s in zip(xs, ds, sigma, strict=False):
            predictions.append(w @ x)
            w = w + 0.1 * np.clip(d - w @ x, -2 * s, 2 * s) * x
        np.testing.assert_allclose(trace.prediction, predictions, rtol=1e-4, atol=1e-5)


def scale_after(state, info):
    return state.scale.s


def test_for_newton_it_is_reweighted_least_squares(x64):
    xs, ds = stationary(80)
    ds[[20, 40]] = 300.0, -300.0
    model = Huber(jb.Newton(ridge=0.1, max_variance=None), reject=None)
    state, trace = jb.run(model, xs.astype(float), ds.astype(float), observe=share)
    lam = np.asarray(trace.observed)
    assert lam[0] == 0 and lam[20] < 0.1 and lam[40] < 0.1 and np.median(lam) == 1
    R = 0.1 * np.eye(3) + (xs * lam[:, None]).T @ xs
    np.testing.assert_allclose(state.learner.w, np.linalg.solve(R, xs.T @ (lam * ds)), rtol=1e-5)


def test_what_is_far_beyond_is_not_learned_at_all():
    xs, ds = stationary(60)
    for acts_on in ("target", "weight"):
        model = Huber(jb.Newton(0.99), acts_on=acts_on)
        state, _ = jb.run(model, xs, ds)
        after, _ = jb.run(model, xs[:1], np.array([1e6], np.float32), state=state)
        chex.assert_trees_all_equal(after.learner, state.learner)
        assert after.scale.s > state.scale.s


def share(state, info):
    return info.share


def test_units_do_not_matter():
    xs, ds = stationary(300)
    bad, _ = spoilt(ds)
    model = Huber(jb.Newton(0.99))
    near = jb.run(model, xs, bad)[1].prediction
    far = jb.run(model, xs, np.float32(2.0**20) * bad)[1].prediction
    np.testing.assert_array_equal(far, np.float32(2.0**20) * near)


@pytest.mark.parametrize("start", [1e-6, 1.0, 1e6])
def test_the_running_median(start):
    rng = np.random.default_rng(3)
    sizes = np.abs(rng.normal(size=4000)).astype(np.float32)
    sizes[2000:] *= 1000  # a change of scale
    sizes[0] = start

    @jax.jit
    def follow(sizes):
        def step(median, size):
            median = median.after(size)
            return median, median.s

        return jax.lax.scan(step, Median.zeros(jnp.float32), sizes)[1]

    s = np.asarray(follow(jnp.asarray(sizes)))
    median = 0.6745
    for span, scale in ((slice(40, 2000), 1), (slice(2060, 4000), 1000)):
        assert np.all(np.abs(np.log2(s[span] / (scale * median))) < 1.5)
        assert 0.9 < np.median(s[span]) / (scale * median) < 1.1


def test_an_exact_fit_leaves_the_scale():
    median = Median.zeros(jnp.float32).after(jnp.float32(3.0)).after(jnp.float32(2.0))
    chex.assert_trees_all_equal(median.after(jnp.float32(0.0)), median)


def test_weights_come_from_a_column():
    xs, ds = stationary(50)
    weights = np.random.default_rng(0).uniform(0, 2, 50).astype(np.float32)
    weights[[3, 4, 5, 6]] = 0.0, -1.0, np.nan, np.inf
    learner = jb.Newton(0.99, 0.1)
    expected, predictions = learner.init(3, jnp.float32), []
    update, predict = jax.jit(learner.update), jax.jit(learner.predict)
    for x, d, weight in zip(xs, ds, weights, strict=True):
        predictions.append(predict(expected, x))
        if np.isfinite(weight) and weight > 0:
            expected = update(expected, x, d, weight=weight)
    for column, position in ((-1, 3), (1, 1)):
        both = np.insert(xs, position, weights, axis=1)
        state, trace = jb.run(WeightColumn(learner, column), both, ds)
        np.testing.assert_allclose(trace.prediction, predictions, rtol=1e-4, atol=1e-5)
        chex.assert_trees_all_close(state, expected, rtol=1e-3, atol=1e-5)


def test_a_budget_is_kept_and_spent_at_random():
    xs, ds = stationary(20000)
    model = Budget(jb.Newton(), rate=0.05)
    state, trace = jb.run(model, xs, ds, KEY, observe=asked)
    drawn = np.asarray(trace.observed)
    assert int(state.used) == drawn.sum() and abs(drawn.mean() - 0.05) < 4 * 0.0016
    plain, _ = jb.run(jb.Newton(), xs, np.where(drawn, ds, np.nan))
    chex.assert_trees_all_equal(state.learner, plain)
    again, _ = jb.run(model, xs, np.where(drawn, ds, 7.0), KEY)  # what was not asked is not seen
    chex.assert_trees_all_equal(again, state)
    other, _ = jb.run(model, xs, ds, jax.random.key(7))
    assert int(other.t) == 20000 and not np.array_equal(other.learner.w, plain.w)


def asked(state, info):
    return info.asked


def test_doubtful_samples_are_asked_for_more():
    rng = np.random.default_rng(0)
    rare = rng.random(6000) < 0.05  # a direction that is seldom seen, so seldom known
    xs = np.stack([rng.normal(size=6000), np.where(rare, 1, 0)], axis=1).astype(np.float32)
    ds = xs @ np.array([1.0, 2.0], np.float32)
    model = Budget(jb.Newton(forgetting=0.99), rate=0.05, uncertainty="leverage")
    state, trace = jb.run(model, xs, ds, KEY, observe=asked)
    drawn = np.asarray(trace.observed)
    assert drawn[rare].mean() > 2 * drawn[~rare].mean()
    assert 0.02 < int(state.used) / 6000 < 0.07


@pytest.mark.parametrize("row", [0, 1, 500])
@pytest.mark.parametrize("size", [9e14, 1e7, 1e-15])
def test_one_wild_input_does_not_silence_a_budget(row, size):
    xs, ds = (np.array(a) for a in stationary(4000))
    model = Budget(jb.Newton(forgetting=0.99), rate=0.1, uncertainty="leverage")
    usual, _ = jb.run(model, xs, ds, KEY)
    xs[row] = size
    state, _ = jb.run(model, xs, ds, KEY)
    chex.assert_tree_all_finite(state)
    assert 0.7 < int(state.used) / int(usual.used) < 1.5


@pytest.mark.parametrize("doubt", [np.nan, np.inf, -1.0, 0.0])
def test_a_doubt_that_is_none_leaves_the_rate(doubt):
    xs, ds = stationary(2000)

    def uncertainty(state, x):
        return jnp.where(x[0] > 0, jnp.float32(doubt), 1.0)

    state, _ = jb.run(Budget(jb.SGD(0.1), 0.1, uncertainty), xs, ds, KEY)
    chex.assert_tree_all_finite(state)
    assert 0.02 < int(state.used) / 2000 < 0.2


def test_live_use_of_a_budget():
    xs, ds = stationary(40)
    model = Budget(jb.SGD(0.1), rate=0.3)
    state = model.init(3, jnp.float32)
    wants, update = jax.jit(model.wants), jax.jit(model.update)
    for x, d in zip(xs, ds, strict=True):
        answer = d if wants(state, x, KEY) else 0.0
        state = update(state, x, answer, key=KEY)
    recorded, _ = jb.run(model, xs, ds, KEY)
    assert int(state.used) == int(recorded.used) and 3 < int(state.used) < 25
    np.testing.assert_allclose(state.learner.w, recorded.learner.w, rtol=1e-5)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: Huber(jb.SGD(0.1), threshold=0.0), "threshold must be"),
        (lambda: Huber(jb.SGD(0.1), reject=0), "reject must be"),
        (lambda: Huber(jb.SGD(0.1), acts_on="loss"), "acts_on must be one of"),
        (lambda: Huber("SGD"), "learner must be"),
        (lambda: WeightColumn(jb.SGD(0.1), 0.5), "column must be a whole number"),
        (lambda: jb.run(WeightColumn(jb.SGD(0.1)), [[1.0]], [1.0]), "and at least one more"),
        (lambda: jb.run(WeightColumn(jb.SGD(0.1), 3), [[1.0, 1.0]], [1.0]), "in column 3"),
        (lambda: Budget(jb.SGD(0.1), rate=0.0), "rate must be"),
        (
            lambda: Budget(jb.SGD(0.1), 0.1, uncertainty=2),
            "uncertainty must be 'leverage'",
        ),
        (lambda: Budget(jb.SGD(0.1), 0.1, uncertainty="leverage"), "wants a Newton learner"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
