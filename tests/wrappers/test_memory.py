"""GrowingMemory: its forgetting in closed form, and what it leaves alone."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
D = X @ [1.0, -2.0, 0.5] + 0.5 * RNG.normal(size=300)
NEWTON = jb.Newton(0.9, ridge=0.1, max_variance=None)


def test_it_is_least_squares_with_the_weights_of_its_memory(x64):
    """Sample i counts as Π_{j > i} β_j; by batch least squares, β_j = 1 − 1/(10 + j/4)."""
    model = jb.GrowingMemory(NEWTON, rate=0.25)
    state, _ = jb.run(model, X, D)
    betas = 1 - 1 / (10 + 0.25 * np.arange(300))
    fades = np.cumprod(betas[::-1])[::-1]  # of the samples before each
    weights = np.append(fades[1:], 1.0)
    A = 0.1 * fades[0] * np.eye(3) + X.T @ (weights[:, None] * X)
    exact = np.linalg.solve(A, X.T @ (weights * D))
    np.testing.assert_allclose(state.learner.w, exact, rtol=1e-6)
    assert float(state.samples) == 300


def test_without_growth_it_is_the_learner(x64):
    state, trace = jb.run(jb.GrowingMemory(NEWTON, rate=0.0), X, D)
    alone, expected = jb.run(NEWTON, X, D)
    np.testing.assert_allclose(trace.prediction, expected.prediction, rtol=1e-9)
    chex.assert_trees_all_close(state.learner, alone, rtol=1e-9)


def test_it_forgets_a_bad_start_and_then_remembers():
    d = np.where(np.arange(300) < 20, -D, D)
    growing, short, long = (
        np.mean((np.asarray(jb.run(model, X, d)[1].prediction) - d)[100:] ** 2)
        for model in (jb.GrowingMemory(NEWTON), NEWTON, jb.Newton(1.0, ridge=0.1))
    )
    assert growing < 0.9 * short and growing < long


@pytest.mark.parametrize(("d", "weight"), [(np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan)])
def test_a_bad_sample_changes_no_bit(d, weight):
    model = jb.GrowingMemory(NEWTON)
    state, _ = jb.run(model, np.float32(X), np.float32(D))
    update = jax.jit(model.update)
    after = update(state, jnp.float32(X[0]), jnp.float32(d), weight=jnp.float32(weight))
    chex.assert_trees_all_equal(after, state)


def test_the_learner_must_forget():
    with pytest.raises(TypeError, match=r"learner must have a forgetting, as Newton\(0.995\) has"):
        jb.GrowingMemory(jb.SGD(0.1))
    with pytest.raises(ValueError, match="rate must be"):
        jb.GrowingMemory(NEWTON, rate=-1.0)
