"""Networks and what trains them: steps of an optimiser, and least squares on the tangent."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jboost as jb
from jboost.learners.networks import Function, Perceptron

KEY = jax.random.key(1)
SGD, ADAM = optax.sgd(0.05), optax.adam(0.02)  # once: another one would compile anew


def line(params, x):
    return params["w"] @ x


ZERO = {"w": np.zeros(3)}
LINE = jb.Gradient(line, ZERO, SGD)
STEPPED = jb.Gradient(line, ZERO, ADAM)
NET = jb.GaussNewton(Perceptron(2), jb.Newton(0.99, ridge=1.0))


def stream(T=300, seed=0):
    rng = np.random.default_rng(seed)
    xs = rng.uniform(-1, 1, (T, 3)).astype(np.float32)
    return xs, (xs[:, 0] * xs[:, 1] + 0.3 * xs[:, 2]).astype(np.float32)


def prediction(model, xs, ds, key=None):
    return np.asarray(jb.run(model, xs, ds, key)[1].prediction)


@jax.jit
def update(model, state, x, d, weight=1.0, repeats=True):
    return model.update(state, x, d, weight=weight, repeats=repeats)


# Steps of an optimiser


def test_a_line_under_sgd_is_the_paper_s_learner():
    xs, ds = stream()
    for ours, theirs in (
        (LINE, jb.SGD(0.05)),
        (jb.boost(LINE, 3, target_mse=0.05), jb.boost(jb.SGD(0.05), 3, target_mse=0.05)),
    ):
        ours, theirs = prediction(ours, xs, ds), prediction(theirs, xs, ds)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_adam_by_hand(x64):
    xs, ds = (a[:40].astype(float) for a in stream())
    w, m, v = np.zeros((3, 3))
    for t, (x, d) in enumerate(zip(xs, ds, strict=True), 1):
        g = (w @ x - d) * x
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.02 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(jb.run(STEPPED, xs, ds)[0].params["w"], w, rtol=1e-6)


def test_the_weight_scales_the_step_and_repeats_repeat_it():
    xs, ds = stream(60)
    state, _ = jb.run(STEPPED, xs, ds)
    x, d = jnp.asarray(xs[0]), 2.0
    whole, half = (update(STEPPED, state, x, d, weight) for weight in (1.0, 0.5))
    moved = [after.params["w"] - state.params["w"] for after in (whole, half)]
    np.testing.assert_allclose(moved[1], moved[0] / 2, rtol=1e-3)
    chex.assert_trees_all_equal(whole.optimizer, half.optimizer)
    many = state
    for n in range(3):
        once = update(STEPPED, state, x, d, 0.7, jnp.asarray(n, jnp.int32))
        chex.assert_trees_all_close(once, many, rtol=1e-5)
        many = update(STEPPED, many, x, d, 0.7)


@pytest.mark.parametrize(
    ("start", "size"),
    [
        (lambda key, r: {"w": jax.random.normal(key, (r,))}, 1.0),
        (lambda key: {"w": jax.random.normal(key, (3,))}, 1.0),
        (lambda key, r, size=2.0: {"w": size * jax.random.normal(key, (r,))}, 2.0),
        (lambda key, size=2.0: {"w": size * jax.random.normal(key, (3,))}, 2.0),
        ({"w": np.array([1, 2, 3])}, None),
    ],
    ids=["key and r", "key", "key, r and an option", "key and an option", "params"],
)
def test_where_parameters_start(start, size):
    model, draws = jb.Gradient(line, start, SGD), size is not None
    assert model.needs_key == draws
    w = model.init(3, jnp.float32, key=KEY if draws else None).params["w"]
    expected = size * jax.random.normal(KEY, (3,)) if draws else [1, 2, 3]
    assert w.dtype == jnp.float32
    np.testing.assert_allclose(w, expected, rtol=1e-6)


# Least squares on the tangent


def test_a_line_under_gauss_newton_is_newton():
    xs, ds = stream()
    newton = jb.Newton(0.99, ridge=0.1)
    ours = prediction(jb.GaussNewton(Function(line, ZERO), newton), xs, ds)
    np.testing.assert_allclose(ours, prediction(newton, xs, ds), rtol=1e-3, atol=1e-4)


def test_it_is_the_extended_kalman_filter(x64):
    """One hidden step, derivatives by hand, the covariance as a plain matrix."""
    xs, ds = (a[:60].astype(float) for a in stream())
    model = jb.GaussNewton(Perceptron(1), jb.Newton(0.98, ridge=0.5, max_variance=None))
    start = Perceptron(1).init(3, jnp.float64, KEY)
    a, b, c, v, w = (np.array(start[name]).ravel() for name in "abcvw")
    theta, P, guesses = np.concatenate([a, b, c, v, w]), np.eye(9) / 0.5, []
    for x, d in zip(xs, ds, strict=True):
        a, b, c, v, w = np.split(theta, [3, 4, 5, 6])
        step = np.tanh(w @ x + c)
        f, inner = (b + a @ x + v * step).item(), v * (1 - step**2)
        J = np.concatenate([x, [1.0], inner, step, inner * x])
        k = P @ J / (0.98 + J @ P @ J)
        theta, P = theta + k * (d - f), (P - np.outer(k, J @ P)) / 0.98
        guesses.append(f)
    np.testing.assert_allclose(prediction(model, xs, ds, KEY), guesses, rtol=1e-4, atol=1e-6)


def test_networks_learn_what_a_line_cannot():
    xs, ds = stream(2000)
    noise = 0.05 * np.random.default_rng(2).normal(size=len(ds)).astype(np.float32)
    errors = {}
    for name, model in {
        "line": jb.Newton(),
        "second order": jb.GaussNewton(Perceptron(8)),
        "first order": jb.Gradient(Perceptron(8), optimizer=ADAM),
    }.items():
        errors[name] = np.mean((prediction(model, xs, ds + noise, KEY) - ds)[-1000:] ** 2)
    assert errors["second order"] < 0.05 * errors["line"]
    assert errors["first order"] < 0.5 * errors["line"]


def test_the_number_of_parameters_decides_the_width():
    for r, h in ((3, 30), (8, 15), (90, 3)):
        init = Perceptron(parameters=150).init
        shapes = jax.eval_shape(lambda r=r, init=init: init(r, jnp.float32, KEY))
        assert shapes["w"].shape == (h, r)


# Both


BOTH = {"Gradient": STEPPED, "GaussNewton": NET}


@pytest.mark.parametrize("model", BOTH.values(), ids=BOTH.keys())
def test_a_sample_that_is_none_leaves_every_bit(model):
    xs, ds = stream(60)
    state, _ = jb.run(model, xs, ds, KEY)
    predict = jax.jit(model.predict)
    for d in (np.nan, np.inf, -1e15):
        chex.assert_trees_all_equal(update(model, state, xs[0], d), state)
    for bad in (np.nan, -np.inf, 1e30):
        x = np.float32([0.5, bad, 0.1])
        chex.assert_trees_all_equal(update(model, state, x, 0.5), state)
        assert np.isfinite(predict(state, x))
    chex.assert_trees_all_equal(update(model, state, xs[0], 0.5, 1.0, False), state)


def test_a_weight_of_zero_moves_no_parameter():
    xs, ds = stream(60)
    state, _ = jb.run(STEPPED, xs, ds)
    chex.assert_trees_all_equal(update(STEPPED, state, xs[0], 2.0, 0.0), state)
    state, _ = jb.run(NET, xs, ds, KEY)  # it forgets all the same, as Newton does
    after = update(NET, state, xs[0], 2.0, 0.0)
    chex.assert_trees_all_equal(after.newton.w, state.newton.w)


def test_what_the_optimiser_could_not_hold_is_left_out():
    """The square of a gradient of 1e24 is not a float32."""
    xs, ds = stream(60)
    state, _ = jb.run(STEPPED, xs, ds)
    chex.assert_trees_all_equal(update(STEPPED, state, 1e12 * xs[0], 1e12), state)


def test_copies_in_a_booster_start_differently():
    xs, ds = stream()
    boosted = jb.boost(NET, 3, target_mse=0.01)
    _, trace = jb.run(boosted, xs, ds, KEY, observe=lambda state, info: info.y)
    assert np.isfinite(trace.prediction).all()
    assert len({round(float(y), 5) for y in trace.observed[0]}) == 3


def test_the_error_is_differentiable_in_the_settings(x64):
    xs, ds = (a.astype(float) for a in stream(60))

    @jax.jit
    @jax.value_and_grad
    def loss(beta):
        model = jb.GaussNewton(Perceptron(2), jb.Newton(beta, ridge=0.7))
        return jb.mse(model, xs, ds, KEY)

    h = 1e-6
    numeric = (loss(0.98 + h)[0] - loss(0.98 - h)[0]) / (2 * h)
    np.testing.assert_allclose(loss(0.98)[1], numeric, rtol=1e-4)


def test_vmap_over_samples_is_separate_updates():
    xs, ds = stream(60)
    state, _ = jb.run(NET, xs, ds, KEY)
    together = jax.vmap(lambda x, d: update(NET, state, x, d))(xs[:3], ds[:3])
    for k in range(3):
        alone = update(NET, state, xs[k], ds[k])
        copy = jax.tree.map(lambda a, k=k: a[k], together)
        chex.assert_trees_all_close(copy, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", BOTH.values(), ids=BOTH.keys())
def test_saved_runs_go_on_bit_for_bit(model, tmp_path):
    xs, ds = stream(100)
    whole, _ = jb.run(model, xs, ds, KEY)
    half, _ = jb.run(model, xs[:50], ds[:50], KEY)
    functions = isinstance(model, jb.Gradient)
    if functions:
        with pytest.raises(TypeError, match="supply_model"):
            jb.save(tmp_path / "run.npz", model, half, KEY)
    jb.save(tmp_path / "run.npz", model, half, KEY, supply_model=functions)
    loaded, state, key = jb.load(tmp_path / "run.npz", model if functions else None)
    chex.assert_trees_all_equal(jb.run(loaded, xs[50:], ds[50:], key, state)[0], whole)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Perceptron(), "hidden or parameters, and only one"),
        (lambda: Perceptron(3, parameters=9), "hidden or parameters, and only one"),
        (lambda: Perceptron(0), "hidden must be a whole number >= 1; got 0"),
        (lambda: jb.Gradient(line, optimizer=SGD), "init_params is missing"),
        (lambda: jb.Gradient(3, ZERO, SGD), "apply must be a function of .params, x.*got 3"),
        (lambda: jb.Gradient(line, ZERO, 0.1), "one of optax's, such as optax.adam.*got 0.1"),
        (lambda: jb.Gradient(line, ZERO), "one of optax's.*got None"),
        (lambda: jb.Gradient(Perceptron(2), ZERO, SGD), "init_params must be left out"),
        (lambda: jb.Gradient(line, lambda a, b, c: a, SGD), "got one that takes 3 arguments"),
        (lambda: jb.Gradient(line, {}, SGD).init(3), "must have numbers to learn"),
        (lambda: jb.Gradient(line, {"w": 1j}, SGD).init(3), "init_params must hold real numbers"),
        (lambda: jb.GaussNewton(line), "a network such as jboost.networks.Perceptron"),
        (lambda: jb.GaussNewton(newton=jb.SGD(0.1)), "newton must be a Newton"),
        (lambda: jb.GaussNewton().init(3), "key is missing"),
        (lambda: jb.Gradient(lambda p, x: x, ZERO, SGD).predict(LINE.init(3), [1.0, 2.0, 3.0]),
         r"must return one number; got an array of shape \(3,\)"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wanted(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()
