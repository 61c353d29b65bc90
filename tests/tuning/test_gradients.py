"""The error is differentiable in the hyperparameters, and no gradient is ever NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.table import FEW, LEARNERS, cases

import jboost as jb

KEY = jax.random.key(0)


def wu(step_size=None, forgetting=None, **settings):
    if forgetting is None:
        return jb.bsgd_wu(4, step_size=step_size, **settings)
    return jb.bnm_wu(4, forgetting=forgetting, ridge=0.1, **settings)


@pytest.mark.parametrize(
    "combiner", [None, jb.Uniform(), jb.NSGD(0.05)], ids=["Newton", "Uniform", "NSGD"]
)
@pytest.mark.parametrize("base", [{"step_size": 0.1}, {"forgetting": 0.98}], ids=["SGD", "NM"])
def test_weighted_updates_match_finite_differences(base, combiner, x64):
    xs, ds = jb.streams.duffing(200)
    point = base | {"target_mse": 0.25, "dependence": 0.7}
    names = list(point)

    @jax.jit
    def loss(values):
        return jb.mse(wu(**dict(zip(names, values, strict=True)), combiner=combiner), xs, ds)

    values = jnp.array(list(point.values()))
    slope = jax.grad(loss)(values)
    for i in range(len(names)):
        h = 1e-6 * jnp.eye(len(names))[i]
        numeric = (loss(values + h) - loss(values - h)) / 2e-6
        np.testing.assert_allclose(slope[i], numeric, rtol=1e-4, atol=1e-7, err_msg=names[i])


@pytest.mark.parametrize("base", [{"step_size": 0.1}, {"forgetting": 0.98}], ids=["SGD", "NM"])
def test_through_the_first_sample_alone(base, x64):
    """y = 0, δ₀ = 0 and z = 1/m all meet in the first steps."""
    xs, ds = jb.streams.duffing(2)
    point = base | {"target_mse": 0.005, "dependence": 0.7}
    names = list(point)

    def loss(values):
        return jb.mse(wu(**dict(zip(names, values, strict=True))), xs, ds)

    values = jnp.array(list(point.values()))
    forward, reverse = jax.jacfwd(loss)(values), jax.grad(loss)(values)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-12)
    for i in range(len(names)):
        h = 1e-6 * jnp.eye(len(names))[i]
        numeric = (loss(values + h) - loss(values - h)) / 2e-6
        np.testing.assert_allclose(reverse[i], numeric, rtol=1e-4, atol=1e-7, err_msg=names[i])


# Reverse mode compiles for seconds: one part of each kind, the others in slow runs.
SMOOTH = {
    *LEARNERS,
    *("SGD × Weighted × Newton", "SGD × RandomUpdate × MLPoly", "Scale, Bias, ScaleTarget"),
    *("GaussNewton", "Huber", "Intervals"),
}


@pytest.mark.parametrize("model", cases(FEW, SMOOTH))
def test_no_gradient_is_nan(model):
    xs, ds = (np.array(a) for a in jb.streams.duffing(16))
    xs[3], ds[5], xs[7, 1], ds[9] = 0.0, np.nan, np.inf, 1e30
    model = jax.tree.map(jnp.float32, model)
    # Forward mode: a booster used as a learner repeats its updates in a loop of unknown length.
    tangents = jax.jacfwd(lambda model: jb.mse(model, xs, ds, KEY))(model)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tangents))


@pytest.mark.parametrize(
    "name", ["SGD × Weighted × Newton", "Newton × Weighted × Newton", "literal"]
)
def test_reverse_mode_agrees_with_forward_mode_over_bad_samples(name):
    xs, ds = (np.array(a) for a in jb.streams.duffing(16))
    xs[3], ds[5], xs[7, 1], ds[9] = 0.0, np.nan, np.inf, 1e30
    model = jax.tree.map(jnp.float32, FEW[name])
    loss = lambda model: jb.mse(model, xs, ds, KEY)  # noqa: E731
    for reverse, forward in zip(
        jax.tree.leaves(jax.grad(loss)(model)),
        jax.tree.leaves(jax.jacfwd(loss)(model)),
        strict=True,
    ):
        np.testing.assert_allclose(reverse, forward, rtol=1e-3, atol=1e-4)


def test_one_step_size_per_learner():
    xs, ds = jb.streams.duffing(64)
    steps = jnp.linspace(0.05, 0.2, 4)
    slope = jax.grad(lambda mu: jb.mse(jb.bsgd_wu(4, target_mse=0.2, step_size=mu), xs, ds))(steps)
    assert slope.shape == (4,) and np.isfinite(slope).all() and (slope != 0).all()


def test_weights_too_small_to_square_have_a_gradient():
    """Learners of a long chain get λ below 1e-19, whose squares float32 does not have."""
    xs, ds = jb.streams.duffing(2000)

    def loss(step_size):
        return jb.mse(jb.bsgd_wu(20, target_mse=0.25, step_size=step_size), xs, ds)

    _, slope = jax.jvp(loss, (0.1,), (1.0,))
    near = (loss(0.11) - loss(0.09)) / 0.02
    np.testing.assert_allclose(slope, near, rtol=0.1)
