"""The engine: which form runs, that both agree, and that what aborts XLA is never built."""

import gc
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.kernels import KERNELS
from support.table import EVERY, SOME

import jboost as jb
from jboost import engine
from jboost.engine import layout, loop, plan

KEY = jax.random.key(11)
with_kernel = pytest.mark.skipif(not KERNELS, reason="one kernel is not tested with this jax")


@pytest.fixture
def plain():
    engine.use("plain")
    yield
    engine.use("auto")


def data(T=40):
    return (np.asarray(a) for a in jb.streams.duffing(T))


def compared(model, stream=None, **settings):
    xs, ds = stream or data()
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
    assert plan.form in ("kernel", "stages"), plan.reason
    np.testing.assert_allclose(fast.prediction, slow.prediction, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(fast.skipped, slow.skipped)


@with_kernel
@pytest.mark.parametrize("r", [3, 14])  # columns are found otherwise from 12 entries on
def test_a_kernel_differentiates_the_cap_of_a_newton_learner(r):
    xs = np.random.default_rng(r).normal(size=(40, r)).astype(np.float32)
    xs[10:] /= 100  # so that P grows beyond its cap
    newton = jb.Newton(0.8, 1.0)
    for model in (
        jb.SelfTuning(newton, wrt="forgetting"),
        jb.boost(jb.SelfTuning(newton, wrt="forgetting"), 6, target_mse=0.1),
    ):
        plan, fast, slow = compared(model, stream=(xs, xs.sum(axis=1)))
        assert plan.form == "kernel"
        np.testing.assert_allclose(fast.prediction, slow.prediction, rtol=1e-4, atol=1e-4)


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
    assert not engine.last().layout.skips
    monkeypatch.setattr(layout, "SMALLEST_SKIP", 0)
    monkeypatch.setattr(loop, "_plans", plan.Plans())
    walked, one_by_one = jb.run(model, xs, ds, KEY)
    assert engine.last().layout.skips
    np.testing.assert_allclose(one_by_one.prediction, together.prediction, rtol=1e-4, atol=1e-5)
    for one, other in zip(jax.tree.leaves(walked), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_large_learners_that_draw_are_walked_one_by_one():
    rng = np.random.default_rng(0)
    xs, ds = rng.normal(size=(20, 30)).astype(np.float32), rng.normal(size=20)
    jb.run(jb.bnm_ru(2, target_mse=0.2, forgetting=0.99, ridge=0.1), xs, ds, KEY)
    assert engine.last().layout.skips
    jb.run(jb.bnm_wu(2, target_mse=0.2, forgetting=0.99, ridge=0.1), xs, ds, KEY)
    assert not engine.last().layout.skips


def test_a_jit_shows_in_concrete_arguments_and_a_vmap_does_not():
    """Inside a vmap a run of concrete arrays is the run that it is outside."""
    found = {}

    def look(name):
        def f(x):
            found[name] = plan.inside_a_transformation(np.zeros(2)), plan.inside_a_transformation(x)
            return x

        return f

    look("neither")(np.zeros(1))
    jax.jit(look("jit"))(np.zeros(1))
    jax.vmap(look("vmap"))(np.zeros(1))
    jax.grad(look("grad"))(0.0)
    inside = (False, True)
    assert found == {"neither": (False, False), "jit": (True, True), "vmap": inside, "grad": inside}


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


@jb.model
class Median(jb.Learner):
    """A learner whose step sorts, which no kernel holds."""

    def init(self, num_features, dtype=None, *, key=None):
        return jnp.zeros(5, dtype)

    def predict(self, state, x):
        return jnp.sort(state)[2]

    def learn(self, state, sample):
        return sample.repeat(lambda state: jnp.roll(state, 1).at[0].set(sample.d), state)


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

@jb.model
class Constant(jb.Learner):  # x and a leaf go unused
    value: float
    unused: float

    def init(self, num_features, dtype=None, *, key=None):
        return np.zeros((), dtype)

    def predict(self, state, x):
        return state + self.value

    def learn(self, state, sample):
        return state

x, d = np.ones((3, 2), np.float32), np.ones(3, np.float32)
for m in (1, 2, 6):
    for learner in (jb.SGD(0.1), jb.Newton(0.9), Constant(1.0, 2.0)):
        for mode in (jb.Weighted(), jb.RandomUpdate()):
            for T in (1, 3):
                chain = jb.boost(learner, m, target_mse=0.1, mode=mode, combiner=jb.Uniform())
                for one in (learner, chain):
                    jb.run(one, x[:T], d[:T], jax.random.key(0))
print("alive", jb.engine.last().form)
"""


@with_kernel
def test_unused_operands_do_not_abort_the_process():
    """One learner, one sample, a leaf or x that nothing reads: XLA would abort, uncatchably."""
    done = subprocess.run([sys.executable, "-c", ABORTS], capture_output=True, text=True)
    assert done.stdout.strip() == "alive kernel", done.stderr[-2000:]


def test_an_untested_version_of_jax_runs_plain_and_says_so_once(monkeypatch, caplog):
    xs, ds = data()
    monkeypatch.setattr(loop, "_plans", plan.Plans())
    plan._warn_of_version.cache_clear()
    monkeypatch.setattr(plan, "LAST_TESTED", (0, 9, 9))
    with caplog.at_level("WARNING", logger="jboost.engine"):
        jb.run(jb.SGD(0.1), xs, ds)
        jb.run(jb.NLMS(0.1), xs, ds)
    assert engine.last().form == "plain" and "not tested with jax" in engine.last().reason
    (record,) = caplog.records
    assert "to 0.9.9" in record.message


def test_plans_are_bounded_and_let_go_of_what_a_user_observed(monkeypatch):
    xs, ds = data()
    monkeypatch.setattr(plan, "MOST_PLANS", 4)
    monkeypatch.setattr(loop, "_plans", plan.Plans())
    for r in range(1, 9):
        jb.run(jb.SGD(0.1), np.ones((2, r)), np.ones(2))
    assert len(loop._plans._without) == 4

    def observed():
        large = np.zeros(10)

        def observe(state, info):
            return info.prediction + large.sum()

        jb.run(jb.SGD(0.1), xs, ds, observe=observe)
        return weakref.ref(observe)

    reference = observed()
    jax.clear_caches()
    gc.collect()
    assert reference() is None


def test_work_that_xla_divides_between_cores_is_no_kernel():
    """A stack of covariances of 648 kB: as one kernel it would fail to load."""
    model = jb.bnm_wu(m=5, target_mse=0.1, forgetting=0.99, ridge=1.0)
    xs, ds = np.ones((3, 180), np.float32), np.ones(3, np.float32)
    plan = loop.plan_for(model, model.init(180), xs, ds, None)
    assert plan.form == "plain" and "divides" in plan.reason
    assert np.isfinite(jb.run(model, xs, ds)[1].prediction).all()


def test_many_matrices_that_are_not_wide_are_a_kernel():
    """Twenty covariances of 90 columns have 648 kB too; the plain form takes twice as long."""
    model = jb.bnm_wu(m=20, target_mse=0.1, forgetting=0.99, ridge=1.0)
    rows = np.ones((3, 90), np.float32), np.ones(3, np.float32)
    assert loop.plan_for(model, model.init(90), *rows, None).form == "kernel"
    assert np.isfinite(jb.run(model, *rows)[1].prediction).all()


def test_stages_with_wide_matrices_are_no_kernels():
    """The four lines of auto are a stack of covariances, here of 692 kB."""
    xs, ds = np.ones((3, 200), np.float32), np.ones(3, np.float32)
    prediction = jb.run(jb.auto("small"), xs, ds)[1].prediction
    assert np.isfinite(prediction).all()
