"""Replay by hand: Adam's steps, the rows that are drawn, and the average of the parameters."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import jboost as jb
from jboost.core import Network
from jboost.core.surroundings import written_for
from jboost.learners.networks import Function, Rectified, unravelled

KEY = jax.random.key(3)
NETWORK = Rectified((4, 3))


def stream(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(rows, 2))
    return xs, np.abs(xs[:, 0]) - 0.5 * xs[:, 1] + 0.1 * rng.normal(size=rows)


def forward(layers, x):
    """Return f(x) and, for each layer, its input and what its units were before the cut at 0."""
    inputs, sums = [x], []
    for W, b in layers:
        sums.append(W.T @ inputs[-1] + b)
        inputs.append(np.maximum(sums[-1], 0))
    return sums[-1][0], inputs, sums


def slopes(layers, x, factor):
    """Return factor · ∂f/∂θ, layer by layer from the top: the chain rule by hand."""
    _, inputs, sums = forward(layers, x)
    back, found = np.array([factor]), []
    for n in reversed(range(len(layers))):
        if n < len(layers) - 1:
            back = back * (sums[n] > 0)
        found.insert(0, [np.outer(inputs[n], back), back])
        back = layers[n][0] @ back
    return found


def drawn_rows(model, state, t, filled):
    """Return the rows that the model draws at its t-th step."""
    return [int(row) for row in model._drawn(state.words, jnp.int32(t), jnp.int32(filled))]


@pytest.mark.parametrize(("batch", "rows"), [(1, 5), (4, 7)])
def test_every_step_by_hand(x64, batch, rows):
    """In float64, with weights and errors beyond 3, more rows than the ring keeps."""
    model = jb.Replay(NETWORK, rows=rows, batch=batch, step_size=0.05, decay=0.2)
    xs, ds = stream()
    ds[20] = 40.0
    weights = np.where(np.arange(60) % 3, 1.0, 20.0)
    state = model.init(2, jnp.float64, key=KEY)
    params = NETWORK.init(2, jnp.float64, KEY)
    layers = [[np.array(layer["W"]), np.array(layer["b"])] for layer in params]
    average = [[leaf.copy() for leaf in layer] for layer in layers]
    m, v = ([[np.zeros_like(leaf) for leaf in layer] for layer in layers] for _ in range(2))
    update, predict = jax.jit(model.update), jax.jit(model.predict)
    ring = [None] * rows
    for t in range(1, 61):
        x, d, weight = xs[t - 1], ds[t - 1], weights[t - 1]
        both = (forward(layers, x)[0] + forward(average, x)[0]) / 2
        np.testing.assert_allclose(predict(state, x), both, rtol=1e-9, atol=1e-12)
        state = update(state, x, d, weight=weight)
        newest = x, d, min(weight, 10.0)
        ring[(t - 1) % rows] = newest
        filled = min(t, rows)
        learned = [newest, *(ring[n] for n in drawn_rows(model, state, t, filled))]
        assert len(learned) == batch
        g = [[np.zeros_like(leaf) for leaf in layer] for layer in layers]
        for x, d, weight in learned:
            e = np.clip(forward(layers, x)[0] - d, -3, 3)
            for total, more in zip(g, slopes(layers, x, weight * e / batch), strict=True):
                total[0] += more[0]
                total[1] += more[1]
        mu = 0.05 / np.sqrt(1 + t / 2000)
        share = max(0.01, 10 / (10 + t))
        for n in range(len(layers)):
            for k in range(2):
                m[n][k] = 0.9 * m[n][k] + 0.1 * g[n][k]
                v[n][k] = 0.999 * v[n][k] + 0.001 * g[n][k] ** 2
                step = m[n][k] / (1 - 0.9**t) / (np.sqrt(v[n][k] / (1 - 0.999**t)) + 1e-8)
                layers[n][k] = layers[n][k] - mu * (step + 0.2 * layers[n][k])
                average[n][k] = average[n][k] + share * (layers[n][k] - average[n][k])
    assert np.abs(layers[0][0] - np.array(params[0]["W"])).max() > 0.3


def test_a_step_is_that_of_adamw(x64):
    """One row, no fall of the step size worth a digit: optax does the same."""
    model = jb.Replay(NETWORK, rows=3, batch=1, step_size=0.01, decay=0.3)
    state = model.init(2, jnp.float64, key=KEY)
    adam = optax.adamw(0.01 / np.sqrt(1 + 1 / 2000), weight_decay=0.3)
    x, d = np.array([0.5, -1.0]), 0.7

    def loss(theta):
        return (NETWORK.apply(unravelled(NETWORK, theta, 2), x) - d) ** 2 / 2

    with jax.numpy_dtype_promotion("standard"):
        steps, _ = adam.update(jax.grad(loss)(state.theta), adam.init(state.theta), state.theta)
    after = model.update(state, x, d)
    np.testing.assert_allclose(after.theta, state.theta + steps, rtol=1e-9)


def test_rows_are_drawn_among_those_that_are_there():
    model = jb.Replay(NETWORK, rows=50, batch=201)
    words = model.init(2, key=KEY).words
    for filled in (0, 1, 3, 50):
        drawn = np.asarray(model._drawn(words, jnp.int32(9), jnp.int32(filled)))
        assert {*drawn.tolist()} == {*range(max(filled, 1))}  # each of them, as 200 are drawn
    first, second = (np.asarray(model._drawn(words, jnp.int32(t), jnp.int32(50))) for t in (1, 2))
    assert (first != second).mean() > 0.9


def test_keys_start_it_elsewhere_and_draw_other_rows():
    xs, ds = (a.astype(np.float32) for a in stream())
    model = jb.Replay(NETWORK, rows=20, batch=4)
    (a, _), (b, _), (c, _) = (jb.run(model, xs, ds, jax.random.key(k)) for k in (0, 0, 1))
    chex.assert_trees_all_equal(a, b)
    assert not np.allclose(a.theta, c.theta) and (a.words != c.words).any()


def test_it_uses_a_row_again_and_again():
    """Of the same rows it learns more than by single steps."""
    xs, ds = (a.astype(np.float32) for a in stream(600))
    once, often = (
        np.mean(
            (np.asarray(jb.run(jb.Replay(NETWORK, batch=n), xs, ds, KEY)[1].prediction) - ds)[-200:]
            ** 2
        )
        for n in (1, 16)
    )
    assert often < 0.8 * once < 0.8 * ds.var()


def test_a_step_that_is_not_finite_is_not_taken():
    """The square of 1e15 is beyond what the sum of a large network holds."""
    square = Function(lambda params, x: params["w"] @ x**4, {"w": np.ones(2, np.float32)})
    model = jb.Replay(square, rows=4, batch=2)
    state = model.init(2, key=KEY)
    after = jax.jit(model.update)(state, np.float32([1e14, 1.0]), np.float32(1.0))
    np.testing.assert_array_equal(after.theta, state.theta)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


@pytest.mark.parametrize(("d", "weight"), [(np.nan, 1.0), (1.0, 0.0), (1.0, np.nan)])
def test_a_bad_sample_changes_no_bit(d, weight):
    xs, ds = (a.astype(np.float32) for a in stream())
    model = jb.Replay(NETWORK, rows=20, batch=4)
    state, _ = jb.run(model, xs, ds, KEY)
    after = jax.jit(model.update)(state, xs[0], np.float32(d), weight=np.float32(weight))
    chex.assert_trees_all_equal(after, state)


def test_rectified_starts_as_it_says(x64):
    params = Rectified((400, 300)).init(200, jnp.float64, KEY)
    for layer, width in zip(params[:2], (200, 400), strict=True):
        assert float(jnp.var(layer["W"])) == pytest.approx(2 / width, rel=0.05)
        assert not np.any(layer["b"])
    assert float(jnp.std(params[2]["W"])) == pytest.approx(0.1 * (2 / 300) ** 0.5, rel=0.2)


def test_rectified_by_hand(x64):
    params = [
        {"W": jnp.array([[1.0, 2.0], [-1.0, 0.5]]), "b": jnp.array([0.5, -4.0])},
        {"W": jnp.array([[3.0], [5.0]]), "b": jnp.array([-1.0])},
    ]
    # h = (max(0, 1 + 0.5 + 0.5), max(0, 2 − 0.25 − 4)) = (2, 0)
    assert float(Rectified((2,)).apply(params, jnp.array([1.0, -0.5]))) == 3 * 2 - 1
    theta, _ = ravel_pytree(params)
    chex.assert_trees_all_equal(unravelled(Rectified((2,)), theta, 2), params)


@pytest.mark.parametrize("surroundings", ["anywhere", "kernel"])
@pytest.mark.parametrize("width", [2, 4, 9])  # a kernel takes four columns at once
def test_the_gradients_of_rows_are_those_of_autodiff(x64, surroundings, width):
    network, rng = Rectified((5, 3)), np.random.default_rng(width)
    # Without constants a unit may lie at 0 exactly, where the slope is a matter of taste.
    start = network.init(width, jnp.float64, KEY)
    params = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=leaf.shape), start)
    xs, weights = rng.normal(size=(6, width)), jnp.asarray(rng.normal(size=6))
    with written_for(surroundings):
        ys, gradients = network.apply_to_rows(params, jnp.asarray(xs))
        found = gradients(weights)
    general, pull = Network.apply_to_rows(network, params, jnp.asarray(xs))
    np.testing.assert_allclose(ys, general, rtol=1e-12)
    chex.assert_trees_all_close(found, pull(weights), rtol=1e-10)


@pytest.mark.parametrize("hidden", [(), 5, (3, 0), (2.5,), "64"])
def test_wrong_widths_are_named(hidden):
    with pytest.raises((TypeError, ValueError), match="hidden"):
        Rectified(hidden)
