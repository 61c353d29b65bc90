"""Losses: their derivatives, river's numbers, quantiles that hold, and the chain of a booster."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.table import LOSSES

import jboost as jb
from jboost.core.losses import SquaredLoss

KEY = jax.random.key(0)


def noisy(T=4000, seed=0):
    """Return a stream whose noise is skewed and depends on x, with a constant column."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(T, 2))
    noise = (0.5 + 0.4 * np.abs(x[:, 0])) * (rng.exponential(size=T) - 1)
    d = x @ [1.0, -0.5] + 0.3 + noise
    return np.column_stack([x, np.ones(T)]).astype(np.float32), d.astype(np.float32)


FORMULAS = {  # ℓ(v, d) as printed
    "absolute": lambda v, d: np.abs(d - v),
    "pinball": lambda v, d: np.where(d >= v, 0.8 * (d - v), 0.2 * (v - d)),
    "huber": lambda v, d: np.where(
        np.abs(d - v) <= 0.5, (d - v) ** 2 / 2, 0.5 * (np.abs(d - v) - 0.25)
    ),
    "log-cosh": lambda v, d: 0.25 * np.log(np.cosh((d - v) / 0.5)),
    "poisson": lambda v, d: np.exp(v) - d * v,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_residuals_and_deviances_are_those_of_the_printed_loss(name, x64):
    loss, ell = LOSSES[name], FORMULAS[name]
    v = np.linspace(-2, 2, 41)[:, None] + 0.013
    d = np.array([0.0, 0.3, 1.0, 3.0])[None, :]
    v, d = np.broadcast_arrays(v, d)
    slope = (ell(v + 1e-6, d) - ell(v - 1e-6, d)) / 2e-6
    np.testing.assert_allclose(loss.residual(jnp.asarray(v), jnp.asarray(d)), -slope, atol=1e-5)
    least = ell(np.log(np.maximum(d, 1e-300)), d) if name == "poisson" else 0.0
    deviance = loss.deviance(loss.mean(jnp.asarray(v)), jnp.asarray(d))
    np.testing.assert_allclose(deviance, 2 * (ell(v, d) - least), atol=1e-6)
    # A step of weight h towards v + ρ/h goes downhill and never beyond where it began to rise.
    v, d = jnp.asarray(v[:, 2:]), jnp.asarray(d[:, 2:])  # a count of 0 has no least loss
    gap, h, rho = loss.gap(v, d), loss.curvature(v, d), loss.residual(v, d)
    assert (np.asarray(h) > 0).all()
    assert (np.abs(rho / h) <= 2 * np.abs(gap) + 0.21).all()  # the width adds 0.1 or twice that


@pytest.mark.parametrize("name", ["Absolute", "Huber", "Poisson", "Quantile", "Squared"])
def test_sgd_has_the_numbers_of_river(name):
    pytest.importorskip("river")
    from river import linear_model, optim

    ours, theirs = {
        "Absolute": (jb.losses.absolute(), optim.losses.Absolute()),
        "Huber": (jb.losses.huber(0.5), optim.losses.Huber(0.5)),
        "Poisson": (jb.losses.poisson(), optim.losses.Poisson()),
        "Quantile": (jb.losses.pinball(0.8), optim.losses.Quantile(0.8)),
        "Squared": (jb.losses.squared(), optim.losses.Squared()),
    }[name]
    xs, ds = noisy(150)
    if name == "Poisson":
        ds = np.abs(ds).round()
    # The squared loss of river is (d − y)², twice ours, and Huber's is half of ours at its edge.
    step = 0.02
    rates = {"Squared": step / 2}
    peer = linear_model.LinearRegression(
        optimizer=optim.SGD(rates.get(name, step)), loss=theirs, intercept_lr=0.0,
        clip_gradient=1e12,
    )  # fmt: skip
    _, trace = jb.run(jb.SGD(step, loss=ours), xs, ds)
    for x, d, prediction in zip(xs, ds, trace.prediction, strict=True):
        row = dict(enumerate(x.tolist()))
        np.testing.assert_allclose(prediction, peer.predict_one(row), rtol=2e-4, atol=2e-5)
        peer.learn_one(row, float(d))


def test_the_squared_loss_is_the_learner_without_one():
    xs, ds = noisy(50)
    network = jb.networks.Perceptron(2)
    for make in (
        lambda **loss: jb.SGD(0.1, **loss),
        lambda **loss: jb.NLMS(0.5, **loss),
        lambda **loss: jb.GaussNewton(network, **loss),
    ):
        assert make(loss=jb.losses.squared()).loss is None
    plain, squared = (jb.run(jb.SGD(0.1, **loss), xs, ds)[1].prediction
                      for loss in ({}, {"loss": SquaredLoss()}))  # fmt: skip
    np.testing.assert_array_equal(plain, squared)


@pytest.mark.parametrize("name", ["pinball", "poisson", "huber"])
def test_gauss_newton_is_reweighted_least_squares(name, x64):
    """Against a loop in NumPy over the covariance form, for a linear network."""
    loss = LOSSES[name]
    xs, ds = (a.astype(float) for a in noisy(60))
    xs = xs * 0.3
    if name == "poisson":
        ds = np.abs(ds).round()
    model = jb.GaussNewton(
        jb.Gradient(lambda w, x: w @ x, np.zeros(3), optimizer=_no_optimizer()).apply,
        jb.Newton(0.98, 0.5, max_variance=None),
        loss=loss,
    )
    _, trace = jb.run(model, xs, ds)
    w, P = np.zeros(3), np.eye(3) / 0.5
    for x, d, prediction in zip(xs, ds, trace.prediction, strict=True):
        v = w @ x
        np.testing.assert_allclose(prediction, np.exp(v) if name == "poisson" else v, atol=1e-8)
        e = d - v
        if name == "poisson":
            gap = np.log(max(d, 0.5)) - v
            rho = d - np.exp(v)
            h = max(np.exp(v), rho / gap)
        elif name == "pinball":
            rho, h = (0.8 if e >= 0 else -0.2), 0.5 / (abs(e) + 0.1)
        else:
            rho, h = np.clip(e, -0.5, 0.5), min(1, 0.5 / abs(e))
        k = P @ x / (0.98 / h + x @ P @ x)
        w = w + k * rho / h
        P = (P - np.outer(k, P @ x)) / 0.98


def _no_optimizer():
    import optax

    return optax.sgd(0.1)


@pytest.mark.parametrize("tau", [0.1, 0.9])
def test_quantiles_hold_alone_and_boosted(tau):
    loss, (xs, ds) = jb.losses.pinball(tau), noisy(6000)
    alone = jb.SGD(0.02, loss=loss)
    boosted = jb.boost(alone, 8, target_mse=0.3, loss=loss)
    errors = {}
    for name, model in {"alone": alone, "boosted": boosted, "mean": jb.SGD(0.02)}.items():
        p = np.asarray(jb.run(model, xs, ds, KEY)[1].prediction)[2000:]
        e = ds[2000:] - p
        errors[name] = np.mean(np.maximum(tau * e, (tau - 1) * e))
        if name != "mean":
            assert abs(np.mean(e <= 0) - tau) < 0.02, name
    assert errors["alone"] < 0.8 * errors["mean"] and errors["boosted"] < 0.85 * errors["mean"]


def test_intervals_lie_between_two_quantiles():
    xs, ds = noisy(6000)
    model = jb.intervals.from_quantiles(
        lambda tau: jb.SGD(0.02, loss=jb.losses.pinball(tau)), coverage=0.8
    )
    state, trace = jb.run(model, xs, ds, observe=jb.intervals.band)
    low, high = (np.asarray(a)[2000:] for a in trace.observed)
    inside = (low <= ds[2000:]) & (ds[2000:] <= high)
    assert abs(inside.mean() - 0.8) < 0.03 and (low <= high).all()
    ends = jb.intervals.interval(model, state, xs[0])
    assert float(ends[0]) < float(model.predict(state, xs[0])) < float(ends[1])
    with pytest.raises(ValueError, match=r"^low must be a learner of a quantile"):
        jb.Intervals(jb.SGD(0.1), method="quantiles")
    with pytest.raises(ValueError, match=r"^high must be .* None otherwise"):
        jb.Intervals(jb.SGD(0.1), high=jb.SGD(0.1))


def test_the_chain_of_a_booster_takes_the_deviance(x64):
    loss, (xs, ds) = jb.losses.pinball(0.8), noisy(40)
    xs, ds = xs.astype(float), ds.astype(float)
    model = jb.boost(jb.SGD(0.1, loss=loss), 4, target_mse=0.3, dependence=2.0, loss=loss)
    observed = jb.run(model, xs, ds, observe=lambda state, info: info)[1].observed
    y, delta, lam = (np.asarray(observed[name]) for name in ("y", "delta", "lam"))
    e = ds[:, None] - y
    deviance = 2 * np.where(e >= 0, 0.8 * e, -0.2 * e)
    before = np.cumsum(0.3 - deviance, axis=1) - (0.3 - deviance)
    expected = np.minimum(1, delta ** (2.0 * before))
    np.testing.assert_allclose(lam, expected, rtol=1e-9)
    expected = np.cumsum(lam * np.minimum(deviance / 4, 1), axis=0) / np.cumsum(lam, axis=0)
    np.testing.assert_allclose(delta[1:], np.maximum(expected[:-1], 1e-6), rtol=1e-9)
    with pytest.raises(ValueError, match=r"^loss must be None in a literal model"):
        jb.boost(jb.SGD(0.1), 2, target_mse=0.1, literal=True, loss=loss)
