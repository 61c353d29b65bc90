"""A learner that tunes itself: the mathematics, the contract, and that it finds its step size."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.wrappers.selftuning import SelfTuning

KEY = jax.random.key(0)


def duffing(T):
    return tuple(np.asarray(a) for a in jb.streams.duffing(T))


def by_hand(xs, ds, step_size, trust, beta=0.999, ridge=0.03):
    """SGD with log μ moved by scalar recursive least squares, in plain NumPy."""
    w, g = np.zeros(xs.shape[1]), np.zeros(xs.shape[1])  # coefficients, and ∂w/∂φ
    phi, P, power, count = np.log(step_size), 1 / ridge, 0.0, 0.0
    predictions = []
    for x, d in zip(xs, ds, strict=True):
        mu, e, h = np.exp(phi), d - w @ x, g @ x
        predictions.append(w @ x)
        w, g = w + mu * e * x, g + mu * e * x - mu * h * x
        power, count = beta * power + e * e, beta * count + 1
        sigma = np.sqrt(power / count)
        P = 1 / ridge if ridge * P > 1.02 else P
        gain = P * (h / sigma) / (beta + P * (h / sigma) ** 2)
        P = (P - gain * (h / sigma) * P) / beta
        phi += np.clip(gain * e / sigma, -trust, trust)
    return np.array(predictions), phi


def test_the_recursion(x64):
    xs, ds = duffing(300)
    model = SelfTuning(jb.SGD(0.01, guard=False), trust=0.05)
    state, trace = jb.run(model, xs, ds)
    predictions, phi = by_hand(xs, ds, 0.01, 0.05)
    np.testing.assert_allclose(trace.prediction, predictions, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(state.phi, [phi], rtol=1e-9)
    assert abs(phi - np.log(0.01)) > 0.5  # it moved


def newton(ridge, forgetting):
    return jb.Newton(forgetting, ridge, max_variance=30.0)


def booster(step_size, forgetting):
    learners = [jb.SGD(step_size), newton(0.1, forgetting)]
    return jb.boost(learners, target_mse=0.3, combiner=jb.Uniform())


@pytest.mark.parametrize(
    ("make", "wrt"),
    [
        (newton, ("ridge", "forgetting")),
        pytest.param(booster, ("step_size", "forgetting"), marks=pytest.mark.slow),
    ],
)
def test_slopes_are_the_derivative_of_the_state(make, wrt, x64):
    """With no move allowed it is the plain learner, and its slopes those of the plain run."""
    xs, ds = duffing(40)

    def floats(phi):
        state, _ = jb.run(make(jnp.exp(phi[0]), jax.nn.sigmoid(phi[1])), xs, ds)
        return [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]

    state, _ = jb.run(SelfTuning(make(0.1, 0.95), wrt=wrt, trust=1e-30), xs, ds)
    phi = jnp.array([np.log(0.1), np.log(0.95 / 0.05)])
    expected = [jnp.moveaxis(slope, -1, 0) for slope in jax.jacfwd(floats)(phi)]
    slopes = jax.tree.leaves(state.slopes)
    chex.assert_trees_all_close(slopes, expected, rtol=1e-7, atol=1e-10)
    assert all((slope != 0).any() for slope in slopes[:2])


STREAMS = {
    "duffing": lambda: jb.streams.duffing(20_000),
    "stationary": lambda: jb.streams.stationary(KEY, 20_000),
    "kin8nm": lambda: real("kin8nm"),
    "california": lambda: real("california"),
    "compactiv": lambda: real("compactiv"),
}


def real(name):
    if name not in jb.datasets.available():
        pytest.skip(f"{name} is not on this machine")
    xs, ds = jb.datasets.load(name)
    return jb.datasets.paper_scaled(xs[:8192], ds[:8192], bias=True)


@pytest.mark.parametrize("name", STREAMS)
def test_from_ten_times_off_it_is_within_five_percent_of_the_best_step(name):
    xs, ds = (jnp.asarray(a) for a in STREAMS[name]())
    grid = np.geomspace(1e-3, 0.5, 25)
    errors = [float(jb.mse(jb.SGD(float(mu)), xs, ds)) for mu in grid]
    best = float(grid[np.argmin(errors)])
    for start in (best / 10, best * 10):
        error = float(jb.mse(SelfTuning(jb.SGD(start)), xs, ds))
        assert error < 1.05 * min(errors)
        assert error < float(jb.mse(jb.SGD(start), xs, ds))


def test_scales_do_not_matter():
    xs, ds = duffing(500)
    model = SelfTuning(jb.NLMS(0.01, epsilon=0.0))
    phi = [float(jb.run(model, 8 * s * xs, s * ds)[0].phi[0]) for s in (1.0, 2.0**10, 2.0**-10)]
    np.testing.assert_allclose(phi, phi[0], rtol=1e-3)


def test_what_must_not_be_learned_is_not():
    xs, ds = duffing(20)
    model = SelfTuning(jb.SGD(0.05))
    state, _ = jb.run(model, xs, ds)
    update = jax.jit(model.update)
    for x, d in ((xs[3], np.nan), (xs[3] * np.nan, 1.0), (xs[3], 1e30)):
        chex.assert_trees_all_equal(update(state, x, d), state)
    for more in ({"weight": 0.0}, {"repeats": jnp.int32(0)}, {"repeats": jnp.asarray(False)}):
        chex.assert_trees_all_equal(update(state, xs[3], ds[3], **more), state)
    other = update(state, xs[3], ds[3])
    assert other.phi != state.phi and (other.learner.w != state.learner.w).all()


def test_repeats_are_that_many_updates(x64):
    xs, ds = duffing(20)
    model = SelfTuning(jb.SGD(0.05))
    start, _ = jb.run(model, xs, ds)
    many, update = start, jax.jit(model.update)
    for _ in range(3):
        many = update(many, xs[3], ds[3], weight=0.7)
    once = update(start, xs[3], ds[3], weight=0.7, repeats=jnp.int32(3))
    chex.assert_trees_all_close(many, once, rtol=1e-12)


def test_as_a_learner_of_a_booster_each_copy_finds_its_own_step():
    xs, ds = duffing(300)
    model = jb.boost(SelfTuning(jb.SGD(0.01)), 3, target_mse=0.25, combiner=jb.Uniform())
    state, trace = jb.run(model, xs, ds)
    assert np.isfinite(trace.prediction).all()
    assert len(set(np.asarray(state.learners[0].phi[:, 0]))) == 3


def test_around_a_booster_that_draws_it_is_the_same_run_after_a_cut(tmp_path):
    """Step sizes of every copy at once; cut, saved, loaded and resumed."""
    xs, ds = duffing(60)
    steps = np.array([0.01, 0.02])
    inner = jb.boost(
        jb.SGD(steps), 2, target_mse=0.25, mode=jb.RandomUpdate(), combiner=jb.Uniform()
    )
    model = SelfTuning(inner, spaces={"step_size": (0, 1)})
    state, whole = jb.run(model, xs, ds, KEY)
    assert state.phi.shape == (2,) and (state.phi != jnp.log(steps / (1 - steps))).all()
    half, head = jb.run(model, xs[:30], ds[:30], KEY)
    jb.save(tmp_path / "cut.npz", model, half, KEY)
    again, half, key = jb.load(tmp_path / "cut.npz")
    end, tail = jb.run(again, xs[30:], ds[30:], key, half)
    chex.assert_trees_all_equal(end, state)
    np.testing.assert_array_equal(
        np.concatenate([head.prediction, tail.prediction]), whole.prediction
    )


def watched(state, info):
    return info.step_size, state.phi


def test_what_it_reports():
    xs, ds = duffing(50)
    _, trace = jb.run(SelfTuning(jb.SGD(0.01)), xs, ds, observe=watched)
    step_size, phi = trace.observed
    np.testing.assert_allclose(step_size[1:], np.exp(phi[:-1, 0]), rtol=1e-6)  # before the sample


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wrt": "rate"}, "does not have; it has step_size"),
        ({"trust": 0.0}, "trust > 0"),
        ({"tuner": jb.SGD(0.1)}, "tuner must be least squares"),
        ({"spaces": {"step_size": (0.5, 1)}}, "must start inside its range"),
    ],
)
def test_mistakes_are_named(settings, words):
    with pytest.raises((TypeError, ValueError), match=words):
        SelfTuning(jb.SGD(0.1), **settings)
