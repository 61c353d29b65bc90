"""The engine: which form runs, that both agree, and that what aborts XLA is never built."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.table import EVERY, SOME

import jboost as jb
from jboost.engine import fold as engine
from jboost.engine import lanes

KEY = jax.random.key(11)
with_kernel = pytest.mark.skipif(
    jax.__version_info__ < engine.FIRST_TESTED, reason="the kernel is not used with this jax"
)


@pytest.fixture
def plain():
    engine.use("plain")
    yield
    engine.use("auto")


def data(T=40):
    return (np.asarray(a) for a in jb.streams.duffing(T))


def compared(model, **settings):
    xs, ds = data()
    _, fast = jb.run(model, xs, ds, KEY, **settings)
    plan = engine.last()
    engine.use("plain")
    try:
        _, slow = jb.run(model, xs, ds, KEY, **settings)
        assert engine.last().form == "plain"
    finally:
        engine.use("auto")
    return plan, fast, slow


@with_kernel
@pytest.mark.parametrize("model", SOME)
def test_both_forms_agree(model):
    plan, fast, slow = compared(model)
    assert plan.form == "kernel", plan.reason
    np.testing.assert_allclose(fast.prediction, slow.prediction, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(fast.skipped, slow.skipped)


@with_kernel
@pytest.mark.parametrize(("r", "unrolled"), [(3, False), (14, False), (15, True), (33, False)])
def test_loops_are_unrolled_where_the_copies_are_wide_matrices(r, unrolled):
    model = jb.bnm_wu(4, target_mse=0.1, forgetting=0.99, ridge=1.0)
    jb.run(model, np.ones((2, r)), np.ones(2))
    assert engine.last().unrolled is unrolled
    jb.run(jb.Newton(), np.ones((2, r)), np.ones(2))  # no copies
    assert not engine.last().unrolled


@pytest.mark.slow
@pytest.mark.parametrize("model", EVERY)
def test_both_forms_agree_over_the_whole_table(model):
    _, fast, slow = compared(model)
    np.testing.assert_allclose(fast.prediction, slow.prediction, rtol=1e-4, atol=1e-5)


def lam(state, info):
    return info.lam


@with_kernel
def test_observing_runs_in_one_kernel_too():
    plan, fast, slow = compared(jb.bsgd_ru(4, target_mse=0.2, step_size=0.1), observe=lam)
    assert plan.form == "kernel"
    np.testing.assert_allclose(fast.observed, slow.observed, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [jb.RandomUpdate(), jb.PoissonReuse()], ids=["RU", "Poisson"])
def test_skipping_gives_the_same_run(mode, monkeypatch):
    xs, ds = data()
    learners = [jb.Newton(0.99, ridge=0.1), jb.Newton(0.98, ridge=0.1), jb.SGD(0.1)]
    model = jb.boost(learners, target_mse=0.3, mode=mode)
    state, together = jb.run(model, xs, ds, KEY)
    assert not engine.last().skips
    monkeypatch.setattr(lanes, "SMALLEST_SKIP", 0)
    engine._plans.clear()
    walked, one_by_one = jb.run(model, xs, ds, KEY)
    assert engine.last().skips
    engine._plans.clear()
    np.testing.assert_allclose(one_by_one.prediction, together.prediction, rtol=1e-4, atol=1e-5)
    for one, other in zip(jax.tree.leaves(walked), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_large_learners_that_draw_are_walked_one_by_one():
    rng = np.random.default_rng(0)
    xs, ds = rng.normal(size=(20, 30)).astype(np.float32), rng.normal(size=20)
    jb.run(jb.bnm_ru(2, target_mse=0.2, forgetting=0.99, ridge=0.1), xs, ds, KEY)
    assert engine.last().skips
    jb.run(jb.bnm_wu(2, target_mse=0.2, forgetting=0.99, ridge=0.1), xs, ds, KEY)
    assert not engine.last().skips


def test_inside_a_transformation_the_plain_form_runs():
    xs, ds = data()
    model = jb.bsgd_wu(3, target_mse=0.2, step_size=0.1)
    expected = jb.run(model, xs, ds)[1].prediction
    before = engine.last()
    jitted = jax.jit(lambda: jb.run(model, xs, ds)[1].prediction)()  # everything is concrete
    mapped = jax.vmap(lambda x: jb.run(model, x, ds)[1].prediction)(jnp.stack([xs, xs]))
    np.testing.assert_allclose(jitted, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mapped[1], expected, rtol=1e-5, atol=1e-6)
    assert engine.last() is before


@jb.learners.model
class Median(jb.learners.Learner):
    """A learner whose step sorts, which no kernel holds."""

    def init(self, num_features, dtype=None, *, key=None):
        return jnp.zeros(5, dtype)

    def predict(self, state, x):
        return jnp.sort(state)[2]

    def update(self, state, x, d, *, weight=1.0, repeats=1, key=None):
        return jnp.where(jnp.isfinite(d), jnp.roll(state, 1).at[0].set(d), state)


@with_kernel
def test_what_a_kernel_cannot_hold_runs_plain():
    xs, ds = data()
    _, trace = jb.run(Median(), xs, ds)
    assert engine.last().form == "plain" and "sort" in engine.last().reason
    assert np.isfinite(trace.prediction).all()


@with_kernel
def test_a_large_state_runs_plain():
    xs = np.zeros((2, 600), np.float32)
    jb.run(jb.Newton(), xs, np.zeros(2))
    assert engine.last().form == "plain" and "bytes" in engine.last().reason


def test_it_can_be_switched_off(plain):
    xs, ds = data()
    jb.run(jb.SGD(0.1), xs, ds)
    assert engine.last()[:2] == ("plain", "the fast form is switched off")
    with pytest.raises(ValueError, match="form must be one of 'auto', 'plain'; got 'fast'"):
        engine.use("fast")


ABORTS = """
import jax, numpy as np, jboost as jb
from jboost.engine import fold as engine
from jboost.learners import Learner, model

@model
class Constant(Learner):  # x and a leaf go unused
    value: float
    unused: float

    def init(self, num_features, dtype=None, *, key=None):
        return np.zeros((), dtype)

    def predict(self, state, x):
        return state + self.value

    def update(self, state, x, d, *, weight=1.0, repeats=1, key=None):
        return state

x, d = np.ones((3, 2), np.float32), np.ones(3, np.float32)
for m in (1, 2, 6):
    for learner in (jb.SGD(0.1), jb.Newton(0.9), Constant(1.0, 2.0)):
        for mode in (jb.Weighted(), jb.RandomUpdate()):
            for T in (1, 3):
                chain = jb.boost(learner, m, target_mse=0.1, mode=mode, combiner=jb.Uniform())
                for one in (learner, chain):
                    jb.run(one, x[:T], d[:T], jax.random.key(0))
print("alive", engine.last().form)
"""


@with_kernel
def test_unused_operands_do_not_abort_the_process():
    """One learner, one sample, a leaf or x that nothing reads: XLA would abort, uncatchably."""
    done = subprocess.run([sys.executable, "-c", ABORTS], capture_output=True, text=True)
    assert done.stdout.strip() == "alive kernel", done.stderr[-2000:]
