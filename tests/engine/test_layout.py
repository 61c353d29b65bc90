"""Copies side by side, and idle ones behind them, change how a run is laid out and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.kernels import KERNELS

import jboost as jb
from jboost import engine
from jboost.engine import layout as layouts
from jboost.engine import trailing
from jboost.engine.layout import Layout, Walk

KEY = jax.random.key(3)

with_kernel = pytest.mark.skipif(not KERNELS, reason="one kernel is not tested with this jax")


def data(r=3, T=60):
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(T, r)).astype(np.float32)
    return xs, (xs[:, 0] - 0.5 * xs[:, -1] + 0.1 * rng.normal(size=T)).astype(np.float32)


@with_kernel
@pytest.mark.parametrize(
    ("model", "r", "walk"),
    [
        (jb.bsgd_wu(20, target_mse=0.1, step_size=0.01), 3, Walk("side by side", 4)),
        (jb.bsgd_wu(8, target_mse=0.1, step_size=0.01), 3, Walk("side by side", 0)),
        (jb.bsgd_wu(20, target_mse=0.1, step_size=0.001), 40, Walk("together", 4)),
        (jb.bsgd_wu(4, target_mse=0.1, step_size=0.01), 3, Walk("together", 0)),
        (jb.bnm_wu(5, target_mse=0.1, forgetting=0.99, ridge=1), 40, Walk("together", 0)),
        (jb.bnm_ru(5, target_mse=0.1, forgetting=0.99, ridge=1), 40, Walk("one by one", 0)),
        (jb.bpl_wu(2, target_mse=0.1, depth=1), 3, Walk("one by one", 0)),
        (jb.bpl_wu(2, target_mse=0.1, depth=3), 12, Walk("together", 0)),
    ],
    ids=[
        "20 of 3",
        "8 of 3",
        "20 of 40",
        "4 of 3",
        "large",
        "large, drawn",
        "trees",
        "large trees",
    ],
)
def test_the_size_of_the_learners_decides(model, r, walk):
    jb.run(model, *data(r, 5), KEY)
    assert engine.last().layout.walks == (walk,)


PER_LEARNER = jb.boost(
    jb.Newton(forgetting=np.linspace(0.9, 0.99, 6), ridge=0.1),
    6,
    target_mse=np.linspace(0.01, 0.2, 6),
    mode=jb.RandomUpdate(),
)


def everything(state, info):
    return state, dict(info)


@with_kernel
@pytest.mark.parametrize(
    "model",
    [
        PER_LEARNER,
        jb.bsgd_dr(7, target_mse=0.1, step_size=0.1),
        jb.bpl_wu(3, target_mse=0.1, depth=1),
    ],
    ids=["a value per learner", "repeats", "trees"],
)
def test_states_and_reports_are_those_of_the_plain_form(model):
    xs, ds = data()
    fast = jb.run(model, xs, ds, KEY, observe=everything)
    walk = engine.last().layout.walks[0]
    assert walk.idle > 0 or walk.order == "one by one"
    engine.use("plain")
    try:
        slow = jb.run(model, xs, ds, KEY, observe=everything)
    finally:
        engine.use("auto")
    assert jax.tree.structure(fast) == jax.tree.structure(slow)
    for one, other in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)


@with_kernel
def test_reused_trees_split_alike_in_both_forms():
    """Samples that come five times leave few groups, so that many cuts have the same evidence."""
    rng = np.random.default_rng(2)
    xs = rng.uniform(-1, 1, (150, 4)).astype(np.float32)
    ds = np.float32(np.abs(xs[:, 0]) - (xs[:, 1] > 0) + 0.1 * rng.normal(size=150))
    model = jb.bpl_dr(2, target_mse=0.01, depth=2)
    fast_state, fast = jb.run(model, xs, ds, observe=lambda state, info: info.updates)
    assert engine.last().form == "kernel"
    engine.use("plain")
    try:
        slow_state, slow = jb.run(model, xs, ds, observe=lambda state, info: info.updates)
    finally:
        engine.use("auto")
    choices = np.asarray(fast_state.learners[0].choice)
    assert (choices >= 0).sum() > 2
    np.testing.assert_array_equal(choices, slow_state.learners[0].choice)
    np.testing.assert_array_equal(fast.observed, slow.observed)
    np.testing.assert_allclose(fast.prediction, slow.prediction, atol=1e-3)


def test_a_state_spread_and_gathered_is_itself():
    state = jb.run(PER_LEARNER, *data(), KEY)[0]
    for walk in (Walk("side by side", 2), Walk("together", 2), Walk("one by one", 0)):
        layout = Layout((walk,), whole_vectors=16)
        model, laid_out = layouts.lay_out(layout, PER_LEARNER, state)
        assert sum(model.sizes) == 6 + walk.idle
        back = layouts.put_back(layout, laid_out)
        assert jax.tree.structure(back) == jax.tree.structure(state)
        for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(state), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("storage", ["root", "covariance"])
def test_rows_of_large_matrices_are_filled_up_and_cut_again(storage):
    """Also where a learner starts anew inside the loop."""
    layout = Layout((), whole_vectors=16)
    for r, filled in ((32, 32), (33, 48), (48, 48)):
        model = jb.OnChange(jb.Newton(0.99, storage=storage))
        state = model.init(r)
        wide_model, wide = layouts.lay_out(layout, model, state)
        started = wide_model.init(r)
        matrix = "T" if storage == "root" else "P"
        assert getattr(wide.learner, matrix).shape == (r, filled)
        assert getattr(started.learner, matrix).shape == (r, filled)
        back = layouts.put_back(layout, wide)
        np.testing.assert_array_equal(getattr(back.learner, matrix), getattr(state.learner, matrix))


@with_kernel
@pytest.mark.parametrize("storage", ["root", "covariance"])
def test_filled_up_rows_give_the_same_run(storage):
    xs, ds = data(35, 200)
    ds[100:] = -ds[100:]
    model = jb.OnChange(jb.Newton(0.99, ridge=1.0, storage=storage), threshold=1.0, warm_up=20)
    state, fast = jb.run(model, xs, ds)
    assert engine.last().form == "kernel" and int(state.detector.changes) > 0
    engine.use("plain")
    try:
        slow_state, slow = jb.run(model, xs, ds)
    finally:
        engine.use("auto")
    np.testing.assert_allclose(fast.prediction, slow.prediction, rtol=1e-3, atol=1e-3)
    assert jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, slow_state)


def test_boosters_inside_other_stacks_are_left_alone():
    """Where a state holds more boosters than the model, or stacked ones, nothing is rearranged."""
    state = jb.run(PER_LEARNER, *data(), KEY)[0]
    assert layouts.choose(PER_LEARNER, (state, state), kernel=True).walks == ()
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    assert layouts.choose(PER_LEARNER, stacked, kernel=True).walks == ()


def mixed(a, b, s):
    """Broadcasts, reductions, reshapes, calls, and operations that have no rule."""
    outer = jnp.where(a[:, None] > b[None, :], a[:, None] * b[None, :], s)
    total = jax.nn.relu(jnp.sum(outer, axis=1)) + jnp.max(outer, axis=0)
    flat = jnp.reshape(outer, (-1,)) @ jnp.arange(9.0)
    repeated = jax.lax.fori_loop(0, 3, lambda _, c: c * s + 1, total)
    return jnp.sort(total), {"flat": flat, "turned": jnp.sin(outer.T), "again": repeated}


def test_the_trailing_vmap_is_vmap():
    rng = np.random.default_rng(2)
    a, b, s = (jnp.asarray(rng.normal(size=shape)) for shape in [(3, 5), (3, 5), (5,)])
    expected = jax.vmap(mixed, -1, -1)(a, b, s)
    got = trailing.vmap(mixed, 5)(a, b, s)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_trailing_vmap_keeps_the_axis_last():
    """What it is for: no intermediate of the program has the copies in front."""

    def step(w, x):
        return w + jnp.sum(w * x) * x

    program = jax.make_jaxpr(trailing.vmap(lambda w: step(w, jnp.ones(3)), 8))(jnp.ones((3, 8)))
    shapes = [var.aval.shape for equation in program.eqns for var in equation.outvars]
    assert (3, 8) in shapes and (8, 3) not in shapes
