"""Changes: the detector and the actions, what they spare and what they leave alone."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.wrappers.change import OnChange


def changing(T, columns=3, noise=0.1):
    """d = wᵀx + ν, with another w from the middle on."""
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=(T, columns)), rng.normal(size=(2, columns))
    before = np.arange(T) < T // 2
    d = np.where(before, x @ w[0], x @ w[1]) + noise * rng.normal(size=T)
    return x.astype(np.float32), d.astype(np.float32)


def by_hand(xs, ds, mu, k, h, memory, warm_up):
    """SGD that starts anew at every alarm, in plain NumPy: estimates, and the alarms' times."""
    w, n, log_u, g, alarms, predictions = np.zeros(xs.shape[1]), 0, 0.0, 0.0, [], []
    for t, (x, d) in enumerate(zip(xs, ds, strict=True)):
        predictions.append(w @ x)
        log_e = np.log(abs(d - w @ x))
        v = np.clip(log_e - log_u, -2, 2) if n else 0.0
        ratio = np.exp(2 * v) / 1.7760725**2  # e²/σ²
        evidence = min((1 - k**-2) / 2 * ratio - np.log(k), 2)
        g = max(0.0, g + evidence) if n >= warm_up else 0.0
        log_u = log_u + max(4 / (n + 4), 1 / memory) * v if n else log_e
        n += 1
        if g > h:
            alarms.append(t)
            n, g, w = 0, 0.0, np.zeros_like(w)
        w = w + mu * (d - w @ x) * x
    return np.array(predictions), alarms


def test_the_detector_and_a_restart(x64):
    xs, ds = (a.astype(float) for a in changing(600))
    ds[450:] *= -3  # a second change
    model = OnChange(jb.SGD(0.1, guard=False), "restart", 2.0, 6.0, memory=80.0, warm_up=40)
    state, trace = jb.run(model, xs, ds, observe=lambda s, i: (i.alarm, i.changes, i.last))
    predictions, alarms = by_hand(xs, ds, 0.1, 2.0, 6.0, 80.0, 40)
    assert len(alarms) >= 2 and 300 < alarms[-2] < 320 and 450 < alarms[-1] < 470
    alarm, changes, last = (np.asarray(a) for a in trace.observed)
    assert np.flatnonzero(alarm).tolist() == alarms
    assert changes[-1] == state.detector.changes == len(alarms)
    assert last[-1] == state.detector.last == alarms[-1] and last[0] == 0
    np.testing.assert_allclose(trace.prediction, predictions, rtol=1e-9, atol=1e-12)


def recovery(model, xs, ds):
    """Samples after the change until 30 squared errors in a row are below 0.02 on average."""
    _, trace = jb.run(model, xs, ds)
    errors = np.square(np.asarray(trace.prediction) - ds)[len(ds) // 2 :]
    means = np.convolve(errors, np.ones(30) / 30, "valid")
    return int(np.argmax(means < 0.02)) + 30 if (means < 0.02).any() else len(errors)


@pytest.mark.parametrize("action", ["restart", pytest.param("inflate", marks=pytest.mark.slow)])
def test_a_change_is_recovered_in_half_the_time(action):
    xs, ds = changing(4000)
    learner = jb.pipeline(jb.Scale(), jb.Bias(), jb.ScaleTarget(jb.Newton(0.99)))
    with_action, alone = (recovery(m, xs, ds) for m in (OnChange(learner, action), learner))
    assert with_action <= alone / 2, (with_action, alone)


def test_where_nothing_changes_it_is_the_learner():
    xs, ds = jb.streams.stationary(jax.random.key(1), 5000)
    wild = jnp.where(jnp.arange(5000) % 400 == 399, 20.0, ds)  # 200 deviations now and then
    for answers in (ds, wild):
        state, trace = jb.run(OnChange(jb.Newton(0.999)), xs, answers)
        assert int(state.detector.changes) == int(state.detector.last) == 0
        plain = jb.run(jb.Newton(0.999), xs, answers)[1].prediction
        np.testing.assert_allclose(trace.prediction, plain, rtol=1e-4, atol=1e-4)


def at_an_alarm(learner, action):
    """The state before a sample that raises an alarm, after it, and after it without the alarm."""
    xs, ds = changing(200)
    eager = OnChange(learner, action, threshold=0.5, warm_up=0)
    state, _ = jb.run(OnChange(learner, action), xs[:100], ds[:100])
    sample = xs[100], jnp.float32(1e4)
    after = jax.jit(eager.update)(state, *sample)
    assert int(after.detector.changes) == 1 and int(after.detector.last) == 100
    assert int(after.detector.samples) == 101 and float(after.detector.usual.samples) == 0
    return state.learner, after.learner, jax.jit(learner.update)(state.learner, *sample)


def test_inflating_keeps_what_is_known():
    learner = jb.Newton(1.0, ridge=0.1, max_variance=None)
    xs, _ = changing(200)
    before, after, _ = at_an_alarm(learner, "inflate")
    start = learner.init(3)._replace(w=before.w)
    expected = jax.jit(learner.update)(start, xs[100], jnp.float32(1e4))
    chex.assert_trees_all_close(after.w, expected.w, rtol=1e-5)
    chex.assert_trees_all_close(after.T, expected.T, rtol=1e-5)


def test_restarting_forgets_all_but_the_scales():
    learner = jb.pipeline(jb.Scale(), jb.ScaleTarget(jb.SGD(0.01)))
    _, after, plain = at_an_alarm(learner, "restart")
    chex.assert_trees_all_close(after.transforms, plain.transforms)
    chex.assert_trees_all_close(after.learner.scale, plain.learner.scale)
    knew, knows = (jnp.linalg.norm(state.learner.learner.w) for state in (plain, after))
    assert float(knows) < 0.3 * float(knew)


def test_in_a_booster_the_copies_that_suffer():
    xs, ds = changing(2000)
    learners = [OnChange(jb.Newton(beta), threshold=15.0) for beta in (1.0, 0.8)]
    model = jb.boost(learners, target_mse=0.01, combiner=jb.Uniform())
    state, _ = jb.run(model, xs, ds)
    slow, quick = np.concatenate([np.ravel(copy.detector.changes) for copy in state.learners])
    assert slow >= 1 and quick == 0


def test_a_booster_restarts_in_whatever_order_its_copies_lie():
    """8 copies of 8 columns: the engine moves the axis of the copies, and shapes do not tell."""
    xs, ds = changing(600, columns=8)
    booster = jb.bnm_wu(8, target_mse=0.1, forgetting=0.999, ridge=0.1)
    model = OnChange(booster, "restart", threshold=5.0)
    state, trace = jb.run(model, xs, ds)
    assert int(state.detector.changes) == 1

    def step(state, sample):
        return model.update(state, *sample), model.predict(state, sample[0])

    _, plain = jax.lax.scan(step, model.init(8, jnp.float32), (jnp.array(xs), jnp.array(ds)))
    np.testing.assert_allclose(trace.prediction, plain, rtol=1e-3, atol=1e-3)


def test_no_answer_no_change():
    xs, ds = changing(100)
    model = OnChange(jb.SGD(0.1), "restart", threshold=0.1, warm_up=0)
    state, _ = jb.run(model, xs, ds)
    update = jax.jit(model.update)
    large, normal = jnp.float32(1e4), {"weight": jnp.float32(1), "repeats": jnp.bool_(True)}
    assert update(state, xs[0], large, **normal).detector.changes != state.detector.changes
    for change, d in [
        ({}, np.nan),
        ({"weight": jnp.float32(0)}, large),
        ({"repeats": jnp.bool_(False)}, large),
    ]:
        chex.assert_trees_all_equal(update(state, xs[0], jnp.float32(d), **normal | change), state)
    look = jax.jit(lambda state, x, d: model.info(state, model.sample(state, x, d)))
    assert not look(state, xs[0], jnp.float32(jnp.nan))["alarm"]
    assert look(state, xs[0], large)["alarm"]


@pytest.mark.slow
def test_a_network_starts_anew_and_two_runs_are_the_same_run():
    xs, ds = changing(300)
    network = jb.GaussNewton(jb.networks.Perceptron(3))
    model = OnChange(network, "restart", threshold=3.0, warm_up=50)
    first, second = (jb.run(model, xs, ds, jax.random.key(0))[0] for _ in range(2))
    assert int(first.detector.changes) >= 1
    chex.assert_trees_all_equal(first, second)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: OnChange(jb.SGD(0.1), "inflate").init(2), ValueError, "action='restart'"),
        (lambda: OnChange(jb.SGD(0.1), "panic"), ValueError, "'restart', 'inflate'"),
        (lambda: OnChange(jb.Newton(), factor=1.0), ValueError, "factor > 1"),
        (lambda: OnChange(jb.Newton(), threshold=0.0), ValueError, "threshold > 0"),
        (lambda: OnChange(jb.Newton(), warm_up=-1), ValueError, "warm_up"),
        (lambda: OnChange("newton"), TypeError, "learner"),
    ],
)
def test_nonsense_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()
