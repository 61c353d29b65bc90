"""The learners one by one: hand-sized numbers, stability, and what keeps float32 alive."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jboost as jb
from jboost.core.numerics import Sum, geometric

pytestmark = pytest.mark.core


def learn(learner, *samples, **how):
    state = learner.init(len(samples[0][0]))
    for x, d in samples:
        state = learner.update(state, jnp.asarray(x, jnp.float32), d, **how)
    return state


def test_sgd_by_hand():
    state = learn(jb.SGD(0.1), ([1.0, -2.0], 3.0), ([2.0, 0.0], 1.0))
    # w = 0.1·3·[1, −2] = [0.3, −0.6]; e = 1 − 0.6 = 0.4; w += 0.1·0.4·[2, 0]
    np.testing.assert_allclose(state.w, [0.38, -0.6], rtol=1e-6)
    half = learn(jb.SGD(0.1), ([1.0, -2.0], 3.0), weight=0.5)
    np.testing.assert_allclose(half.w, [0.15, -0.3], rtol=1e-6)


def test_nlms_by_hand():
    state = learn(jb.NLMS(0.5, epsilon=5.0), ([1.0, -2.0], 3.0))
    np.testing.assert_allclose(state.w, [0.15, -0.3], rtol=1e-6)
    nothing = learn(jb.NLMS(0.5, epsilon=0.0), ([0.0, 0.0], 3.0))
    np.testing.assert_array_equal(nothing.w, [0.0, 0.0])


def test_the_guard_of_sgd():
    # μ‖x‖² = 10: the printed step overshoots ninefold, the guarded one lands on the target.
    x, d = [10.0, 0.0], 1.0
    assert float(learn(jb.SGD(0.1, guard=False), (x, d)).w[0]) == pytest.approx(1.0)
    assert float(learn(jb.SGD(0.1), (x, d)).w[0]) == pytest.approx(0.1)
    # Up to μ‖x‖² = 2 the two are one.
    for guard in (True, False):
        assert float(learn(jb.SGD(0.1, guard=guard), ([4.0, 0.0], d)).w[0]) == pytest.approx(0.4)
    xs = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32) * 30
    ds = xs @ np.float32([1, -1, 0.5, 0])
    assert float(jb.run(jb.SGD(0.1), xs, ds)[1].prediction[-100:].max()) < 1e4


@given(
    p=st.floats(0, 2.5, width=32),
    n=st.integers(0, 7) | st.integers(8, 60),
    scale=st.sampled_from([1.0, 1e-3, 1e-7]),
)
def test_geometric_sums(p, n, scale):
    p = np.float32(p * scale)
    q = 1 - np.float64(p)
    for most in (None, n, 2 * n):
        power, total = geometric(jnp.float32(p), jnp.int32(n), most)
        np.testing.assert_allclose(power, q**n, rtol=3e-5, atol=1e-6)
        np.testing.assert_allclose(total, sum(q**j for j in range(n)), rtol=3e-5, atol=1e-6)


def test_compensated_sums():
    def naive_and_kahan(carry, _):
        naive, kahan = carry
        return (naive + jnp.float32(0.1), kahan.add(jnp.float32(0.1))), None

    start = (jnp.float32(0), Sum.zeros((), jnp.float32))
    (naive, kahan), _ = jax.jit(lambda: jax.lax.scan(naive_and_kahan, start, length=3_000_000))()
    exact = 3_000_000 * float(np.float32(0.1))
    assert abs(float(kahan.total) / exact - 1) < 2e-7
    assert abs(float(naive) / exact - 1) > 1e-3  # or the test would show nothing


@given(
    seed=st.integers(0, 50),
    weight=st.floats(0, 1, width=32),
    kind=st.sampled_from([jb.SGD(0.3), jb.NLMS(1.5, 0.01), jb.Newton(0.95, 0.01)]),
)
def test_learning_a_sample_brings_its_estimate_closer(seed, weight, kind):
    rng = np.random.default_rng(seed)
    xs, ds = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    state = kind.init(3, jnp.float32)
    for x, d in zip(xs, ds, strict=True):
        before = float(d - kind.predict(state, x))
        state = kind.update(state, x, d, weight=weight)
        assert abs(float(d - kind.predict(state, x))) <= abs(before) * (1 + 1e-4) + 1e-5


def variances(state):
    T = np.asarray(state.T, np.float64)
    with np.errstate(over="ignore"):  # of what was not capped
        return T.T @ T


@pytest.mark.parametrize("repeats", [1, 5])
@pytest.mark.parametrize("forgetting", [0.1, 0.9])
def test_memories_shorter_than_the_input_is_wide(forgetting, repeats):
    """P grows faster than its entries are looked at, one a step: by 1e2 to 1e200 in r steps."""
    rng = np.random.default_rng(3)
    xs = rng.uniform(-1, 1, (4000, 40)).astype(np.float32)
    ds = (xs @ rng.normal(size=40) / 6 + 0.1 * rng.normal(size=4000)).astype(np.float32)
    learner = jb.Newton(forgetting, ridge=0.01)

    def step(state, sample):
        y = learner.predict(state, sample[0])
        return learner.update(state, *sample, repeats=jnp.int8(repeats)), y

    state, ys = jax.lax.scan(step, learner.init(40), (xs, ds))
    assert np.isfinite(np.asarray(state.T)).all()
    assert np.abs(ys).max() < 20 * np.abs(ds).max()


@pytest.mark.parametrize("learner", [jb.Newton(0.9), jb.ForwardNewton(0.9, storage="covariance")])
def test_a_state_is_as_wide_as_the_input_whatever_a_run_does_in_between(learner):
    xs = np.random.default_rng(4).normal(size=(300, 37)).astype(np.float32)
    state, _ = jb.run(learner, xs, xs[:, 0])
    assert state[1].shape == (37, 37)
    by_steps, update = learner.init(37, jnp.float32), jax.jit(learner.update)
    for x in xs[:20]:
        by_steps = update(by_steps, x, x[0])
    run, _ = jb.run(learner, xs[:20], xs[:20, 0])
    chex.assert_trees_all_close(by_steps, run, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("beta", [0.9, 0.99, 0.999])
def test_silence_does_not_wind_up(beta):
    learner = jb.Newton(beta, ridge=0.01)
    xs, ds = (np.array(a) for a in jb.streams.duffing(500))
    state, _ = jb.run(learner, xs, ds)
    silent, _ = jb.run(learner, np.zeros((100_000, 3), np.float32), np.zeros(100_000), state=state)
    np.testing.assert_array_equal(silent.w, state.w)
    assert np.diag(variances(silent)).max() <= 102 * beta**-3 * 1.001
    uncapped = jb.Newton(beta, ridge=0.01, max_variance=None)
    windup, _ = jb.run(uncapped, np.zeros((100_000, 3), np.float32), np.zeros(100_000))
    assert np.isfinite(variances(windup)).all() == (beta == 0.999)  # what the cap is for


def test_what_is_held_shrinks_as_it_is_forgotten_if_asked(x64):
    """The coefficients follow the variance that is taken away: in both storages, and by hand."""
    xs, ds = (np.array(a) for a in jb.streams.duffing(300))
    silent = np.zeros((300, 3))
    silent[:, 0] = xs[:, 0]  # one input goes on
    w = {}
    for storage in ("root", "covariance"):
        learner = jb.Newton(0.9, ridge=0.1, storage=storage, shrink=True)
        state, _ = jb.run(learner, xs, ds)
        w[storage] = jb.run(learner, silent, ds, state=state)[0].w
    np.testing.assert_allclose(w["root"], w["covariance"], rtol=1e-6, atol=1e-9)
    plain = jb.Newton(0.9, ridge=0.1)
    unshrunk, _ = jb.run(plain, silent, ds, state=jb.run(plain, xs, ds)[0])
    assert np.abs(unshrunk.w[1:]).max() > 0.1 and np.abs(w["root"][1:]).max() < 1e-6
    # One coefficient, P = 2 above a cap of 1: w_j and P_jj are halved, then P grows by 1/β.
    learner = jb.Newton(0.5, ridge=1.0, shrink=True)
    state = learner.init(1)._replace(w=jnp.array([3.0]), T=jnp.sqrt(jnp.array([[2.0]])))
    after = learner.update(state, jnp.zeros(1), 0.0)
    np.testing.assert_allclose([after.w[0], after.T[0, 0] ** 2], [1.5, 2.0], rtol=1e-12)


def test_the_cap_is_held_from_two_percent_beyond_it(x64):
    learner = jb.Newton(0.99, ridge=1.0)
    for before, after in ((1.015, 1.015), (1.025, 1.0)):
        state = learner.init(1)._replace(T=jnp.sqrt(jnp.array([[before]])))
        held = learner.update(state, jnp.zeros(1), 0.0)
        np.testing.assert_allclose(variances(held), [[after / 0.99]], rtol=1e-12)


@pytest.mark.parametrize("storage", ["root", "covariance"])
def test_no_memory_is_so_short_that_the_coefficients_overflow(storage):
    """Inputs that walk: each step solves its own sample, and must not amplify the last one."""
    rng = np.random.default_rng(0)
    xs = np.cumsum(rng.normal(size=(4000, 9)), axis=0)
    xs = np.float32(xs / np.abs(xs).max(axis=0))
    ds = np.float32(rng.uniform(-1, 1, 4000))
    trace = jb.run(jb.Newton(0.1, storage=storage), xs, ds)[1]
    assert np.abs(trace.prediction).max() < 100


def test_collinear_columns_do_not_disturb_the_others(x64):
    """Rounding errors that are the same at every step would add up: see `_excess`."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 60_000)).astype(np.float32)
    xs = np.column_stack([a, b, a - b])
    single, _ = jb.run(jb.Newton(0.9999, ridge=1.0), xs, a)
    double, _ = jb.run(jb.Newton(0.9999, ridge=1.0), xs.astype(float), a.astype(float))
    assert single.T.dtype == np.float32 and double.T.dtype == np.float64
    across = np.array([1.0, -1.0, -1.0]) / np.sqrt(3)  # what the columns never show
    excited = np.eye(3) - np.outer(across, across)
    P, exact = (excited @ variances(state).astype(float) @ excited for state in (single, double))
    assert np.abs(P - exact).max() < 6e-3 * np.abs(exact).max()  # 1.4e-2 without the slack


def test_the_cap_does_nothing_where_it_is_not_reached(x64):
    xs, ds = jb.streams.duffing(2000)
    capped = jb.run(jb.Newton(0.99, ridge=0.01), xs, ds)[1].prediction
    plain = jb.run(jb.Newton(0.99, ridge=0.01, max_variance=None), xs, ds)[1].prediction
    np.testing.assert_allclose(capped, plain, rtol=1e-9, atol=1e-11)


def test_newton_does_not_depend_on_the_order_or_units_of_features(x64):
    rng = np.random.default_rng(2)
    xs, ds = rng.normal(size=(300, 3)), rng.normal(size=300)
    learner = jb.Newton(1.0, ridge=1e-8, max_variance=1e9)
    plain = jb.run(learner, xs, ds)[1].prediction[20:]
    np.testing.assert_allclose(
        jb.run(learner, xs[:, [2, 0, 1]], ds)[1].prediction[20:], plain, rtol=1e-6
    )
    scaled = jb.run(learner, xs * [10.0, 1.0, 0.1], ds)[1].prediction[20:]
    np.testing.assert_allclose(scaled, plain, rtol=1e-4, atol=1e-5)


def test_forgetting_by_weight_keeps_what_unimportant_samples_do_not_replace():
    x = jnp.array([1.0])
    for by_weight in (True, False):
        learner = jb.Newton(0.9, ridge=0.01, max_variance=1e4, forget_by_weight=by_weight)
        state = learn(learner, ([1.0], 1.0))
        variance = variances(state)[0, 0]
        for _ in range(50):
            state = learner.update(state, x, 1.0, weight=0.0)
        assert (variances(state)[0, 0] < 1.01 * variance) == by_weight


def test_lowered_matmul_precision_changes_nothing():
    xs, ds = jb.streams.duffing(300)
    model = jb.bnm_wu(4, target_mse=0.2, forgetting=0.99, ridge=0.1)
    plain = jb.run(model, xs, ds)[1].prediction
    with jax.default_matmul_precision("bfloat16"):
        lowered = jb.run(model, xs, ds)[1].prediction
    np.testing.assert_array_equal(plain, lowered)
