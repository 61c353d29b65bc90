"""Prediction intervals: the recursion, coverage also after a change, units, who may have them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.wrappers.intervals import Intervals, band, interval

Z = 1.6448536269514722  # of 90 %


def changing(T, noise=0.1):
    """Three coefficients, others from the middle on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(T, 3))
    before = np.arange(T) < T // 2
    d = np.where(before, x @ [1.0, -2.0, 0.5], x @ [-1.0, 1.0, 2.0]) + noise * rng.normal(size=T)
    return x.astype(np.float32), d.astype(np.float32)


def by_hand(xs, ds, mu, coverage, step, memory):
    """SGD with intervals, no local part, in plain NumPy."""
    w, log_u, log_q = np.zeros(xs.shape[1]), 0.0, np.log(1.7760725 * Z)
    limits = []
    for n, (x, d) in enumerate(zip(xs, ds, strict=True)):
        y = w @ x
        h = np.exp(log_q + log_u) if n else np.inf
        limits.append((y - h, y + h))
        e = d - y
        if n:
            log_q += max(step, 1 / np.sqrt(n + 9)) * ((abs(e) > h) - (1 - coverage))
            v = np.clip(np.log(abs(e)) - log_u, -2, 2)
            log_u += max(4 / (n + 4), 1 / memory) * v
        else:
            log_u = np.log(abs(e))
        w = w + mu * e * x
    return np.array(limits)


def test_the_recursion(x64):
    xs, ds = (np.asarray(a) for a in jb.streams.duffing(400))
    model = Intervals(jb.SGD(0.05, guard=False), 0.9, step=0.1, memory=50.0, local=None)
    _, trace = jb.run(model, xs, ds, observe=band)
    expected = by_hand(xs, ds, 0.05, 0.9, 0.1, 50.0)
    assert np.isinf(expected[0]).all() and np.ptp(expected[1:, 1] - expected[1:, 0]) > 0.1
    np.testing.assert_allclose(np.stack(trace.observed, axis=1), expected, rtol=1e-6)


def test_newtons_variance_with_the_noise_level_learned(x64):
    """Against R inverted in NumPy; σ̂ finds the noise and 90 % lie inside."""
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(3000, 2)) * [1.0, 3.0]
    ds = xs @ [2.0, -1.0] + 0.5 * rng.normal(size=3000)
    model = Intervals(jb.Newton(1.0, ridge=0.1), method="gaussian")
    state, trace = jb.run(model, xs, ds, observe=lambda s, i: i.covered)
    assert 0.88 < np.mean(trace.observed) < 0.92
    x = np.array([4.0, -20.0])
    R = 0.1 * np.eye(2) + xs.T @ xs
    low, high = interval(model, state, x)
    sigma = (high - low) / 2 / (Z * np.sqrt(1 + x @ np.linalg.inv(R) @ x))
    np.testing.assert_allclose(sigma, 0.5, rtol=0.06)
    np.testing.assert_allclose((low + high) / 2, model.predict(state, x), rtol=1e-9)


def test_the_leverage_of_an_input_far_from_all_others(x64):
    """xᵀR⁻¹x, through a pipeline and a scaled target; a network's x is its slope."""
    xs, ds = changing(50)
    ones = np.column_stack([xs, np.ones(50)])
    far = np.array([30.0, 0.0, 0.0])
    R = 0.1 * np.eye(4) + ones.T @ ones
    expected = np.append(far, 1) @ np.linalg.inv(R) @ np.append(far, 1)
    for storage in ("root", "covariance"):
        newton = jb.Newton(1.0, 0.1, storage=storage)
        model = jb.pipeline(jb.Bias(), jb.ScaleTarget(newton))
        state, _ = jb.run(model, xs.astype(float), ds.astype(float))
        np.testing.assert_allclose(model.leverage(state, far), expected, rtol=1e-6)
    assert expected > 3
    network = jb.GaussNewton(jb.networks.Perceptron(3), jb.Newton(0.999, ridge=0.5))
    state = network.init(3, float, key=jax.random.key(0))

    def estimate(theta):
        return network.predict(state._replace(newton=state.newton._replace(w=theta)), far)

    J = jax.grad(estimate)(state.newton.w)
    np.testing.assert_allclose(network.leverage(state, far), J @ J / 0.5, rtol=1e-9)


def test_leverage_is_that_of_the_learner_inside():
    newton, x = jb.Newton(0.9, ridge=0.5), jnp.array([1.0, 2.0, 3.0])
    for model in (
        jb.ScaleTarget(newton),
        jb.Huber(newton),
        jb.OnChange(newton),
        jb.Scored(newton),
        jb.Delayed(newton, 2),
        jb.SelfTuning(newton, wrt=("forgetting",)),
        Intervals(newton),
    ):
        assert model.knows_leverage
        assert float(model.leverage(model.init(3), x)) == pytest.approx(14 / 0.5)
    column = jb.WeightColumn(newton, 1)
    assert float(column.leverage(column.init(3), x)) == pytest.approx(10 / 0.5)
    for model in (jb.SGD(0.1), jb.PiecewiseLinear(2), jb.boost(newton, 2, target_mse=0.1)):
        assert not model.knows_leverage
        with pytest.raises(TypeError, match="method='conformal'"):
            Intervals(model, method="newton")
    with pytest.raises(TypeError, match="SGD has no leverage"):
        jb.SGD(0.1).leverage(None, x)


@pytest.mark.parametrize("method", ["conformal", pytest.param("newton", marks=pytest.mark.slow)])
def test_coverage_also_after_a_change(method):
    xs, ds = changing(8000)
    model = Intervals(jb.pipeline(jb.Scale(), jb.Newton(0.999)), 0.9, method=method)
    _, trace = jb.run(model, xs, ds, observe=band)
    low, high = trace.observed
    inside = np.asarray((low <= ds) & (ds <= high)).reshape(4, 2000)
    width = np.asarray(high - low)
    assert width[4500:4600].mean() > 3 * width[3900:4000].mean()  # there was a change to survive
    assert (np.abs(inside.mean(axis=1) - 0.9) < 0.02).all(), inside.mean(axis=1)


def test_other_coverages_and_a_stream_without_noise():
    xs, ds = jb.streams.duffing(4000)
    for coverage in (0.5, 0.95):
        model = Intervals(jb.NLMS(0.1), coverage)
        _, trace = jb.run(model, xs, ds, observe=lambda s, i: i.covered)
        assert abs(np.mean(trace.observed) - coverage) < 0.02
    exact = np.asarray(xs) @ np.array([1.0, 2.0, 3.0], np.float32)
    state, trace = jb.run(Intervals(jb.Newton(1.0)), xs, exact, observe=band)
    chex.assert_tree_all_finite(state)
    low, high = trace.observed
    assert float((high - low)[-1]) < 1e-3


@pytest.mark.parametrize("zeros", [1, 500])
def test_a_stream_that_begins_with_zeros(zeros):
    """Of which a learner that knows nothing is right, by exactly nothing."""
    xs, ds = changing(zeros + 4000)
    ds[:zeros] = 0
    _, trace = jb.run(Intervals(jb.NLMS(0.1)), xs, ds, observe=band)
    low, high = (np.asarray(a)[zeros:] for a in trace.observed)
    inside = ((low <= ds[zeros:]) & (ds[zeros:] <= high)).reshape(2, 2000)
    assert (np.abs(inside.mean(axis=1) - 0.9) < 0.02).all()


def test_units_of_the_target_are_the_units_of_the_interval():
    xs, ds = changing(2000)
    model = Intervals(jb.SGD(0.05))
    plain, scaled = (
        np.stack(jb.run(model, xs, unit * ds, observe=band)[1].observed)[:, 1:]
        for unit in (1.0, 2.0**20)
    )
    np.testing.assert_allclose(scaled / 2.0**20, plain, rtol=1e-3, atol=1e-3)


def test_intervals_are_narrow_where_errors_are_small():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, size=(6000, 1)).astype(np.float32)
    noise = np.exp(2 * x[:, 0]) / 4
    d = 2 * x[:, 0] + noise * rng.normal(size=6000).astype(np.float32)
    widths = []
    for settings in ({}, {"local": None}):
        _, trace = jb.run(Intervals(jb.Newton(1.0), **settings), x, d, observe=band)
        low, high = (np.asarray(a)[1000:] for a in trace.observed)
        inside = (low <= d[1000:]) & (d[1000:] <= high)
        widths.append((np.mean(high - low), inside[x[1000:, 0] > 0.8].mean()))
        assert abs(inside.mean() - 0.9) < 0.02
    (width, where_noisy), (constant, where_noisy_constant) = widths
    assert width < 0.85 * constant
    assert where_noisy > where_noisy_constant + 0.1  # half of the way to 0.9, from about 0.6


def test_no_answer_no_change_and_what_info_says():
    xs, ds = changing(100)
    model = Intervals(jb.SGD(0.1))
    state, _ = jb.run(model, xs, ds)
    update = jax.jit(model.update)
    normal = {"weight": jnp.float32(1), "repeats": jnp.bool_(True)}
    assert update(state, xs[0], ds[0], **normal).log_q != state.log_q
    for change in (
        {"d": jnp.float32(jnp.nan)},
        {"weight": jnp.float32(0)},
        {"repeats": jnp.bool_(False)},
    ):
        same = update(state, xs[0], **{"d": ds[0]} | normal | change)
        chex.assert_trees_all_equal(same, state)
    look = jax.jit(lambda state, x, d: model.info(state, model.sample(state, x, d)))
    info = look(state, xs[0], jnp.float32(jnp.nan))
    assert not info["covered"] and info["low"] < info["high"]
    assert look(state, xs[0], info["high"])["covered"]
    assert not look(state, xs[0], info["high"] + 1)["covered"]
    first = look(jax.jit(lambda: model.init(3))(), xs[0], ds[0])
    assert np.isinf([first["low"], first["high"]]).all() and first["covered"]


def test_estimates_are_the_learners_and_its_reports_too():
    xs, ds = changing(60)
    learner = jb.boost(jb.SGD(0.1), 3, target_mse=0.1, mode=jb.RandomUpdate())
    model = Intervals(learner)
    assert model.needs_key
    key = jax.random.key(0)
    _, trace = jb.run(model, xs, ds, key, observe=lambda s, i: (i.lam, i.low))
    _, plain = jb.run(learner, xs, ds, key, observe=lambda s, i: i.lam)
    np.testing.assert_allclose(trace.prediction, plain.prediction, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(trace.observed[0], plain.observed, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Intervals(jb.SGD(0.1), 1.0), ValueError, "coverage < 1"),
        (lambda: Intervals(jb.SGD(0.1), method="newton"), TypeError, "method='conformal'"),
        (lambda: Intervals(jb.Newton(), method="bayes"), ValueError, "'gaussian'"),
        (lambda: Intervals(0.1), TypeError, "learner"),
        (lambda: interval(jb.SGD(0.1), None, None), TypeError, "Intervals"),
    ],
)
def test_nonsense_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()
