"""What every model of the library must do. The models are those of tests/support/table.py."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.table import EVERY, FEW, LEARNERS, SOME

import jboost as jb

T, R = 12, 3
KEY = jax.random.key(3)


def stream(length=T):
    """Return an asymmetric stream beyond [−1, 1], with an input of zeros and a large target."""
    x = np.random.default_rng(0).normal(size=(length, R)) * [0.3, 1.0, 2.0]
    d = x @ [1.0, -0.5, 0.25] + 0.3
    x[5], d[7] = 0.0, 40.0
    return x.astype(np.float32), d.astype(np.float32)


def wild_stream():
    """Return four bad inputs, four bad targets, then four samples that are only very large."""
    xs, ds = stream()
    bad = [np.nan, np.inf, -np.inf, 1e30]
    xs[range(4), [0, 1, 2, 0]] = bad
    ds[4:8] = bad
    xs[8:] *= 1e12
    return xs, ds


# All runs of a model have one length, so that each model compiles once.
@pytest.mark.parametrize("model", EVERY)
def test_contract(model):
    xs, ds = stream()
    init = jax.jit(lambda: model.init(R, jnp.float32, key=KEY))()
    before = jax.tree.map(np.array, init)
    first = model.predict(init, xs[0])
    assert first.shape == ((model.ahead,) if model.ahead else ())
    assert first.dtype == jnp.float32 and np.isfinite(first).all()
    chex.assert_trees_all_equal(model.predict(init, xs[0]), first)
    chex.assert_trees_all_equal(jax.tree.map(np.array, init), before)

    state, trace = jb.run(model, xs, ds, KEY)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, init)
    chex.assert_tree_all_finite(state)
    assert np.isfinite(trace.prediction).all() and not trace.skipped.any()
    assert float(jnp.abs(trace.prediction).max()) > 0

    xs, ds = wild_stream()
    after, wild = jb.run(model, xs, ds, KEY, state)
    chex.assert_tree_all_finite((after, wild.prediction))
    assert wild.skipped.tolist() == [not model.takes_missing] * 4 + [True] * 4 + [False] * 4
    ds[8:] = np.nan
    if model.takes_missing:
        ds[:4] = np.nan
    untouched, _ = jb.run(model, xs, ds, KEY, state)
    chex.assert_trees_all_equal(untouched, state)


@pytest.mark.parametrize("model", SOME)
def test_any_weight_leaves_a_model_finite_and_what_is_no_weight_leaves_every_bit(model):
    xs, ds = stream()
    state, _ = jb.run(model, xs, ds, KEY)
    update = jax.jit(lambda state, x, d, weight: model.update(state, x, d, weight=weight, key=KEY))
    for weight in (np.nan, np.inf, -np.inf, -1.0, -1e-30):
        chex.assert_trees_all_equal(update(state, xs[0], ds[0], np.float32(weight)), state)
    for weight in (3e38, 1e8, 1e-42, 0.0):
        for x, d in zip(xs, ds, strict=True):
            state = update(state, x, d, np.float32(weight))
        chex.assert_tree_all_finite((state, model.predict(state, xs[0])))


@pytest.mark.core
@pytest.mark.parametrize("model", SOME)
def test_a_cut_stream_is_the_same_stream_bit_for_bit(model):
    xs, ds = stream(24)
    state, trace = jb.run(model, xs, ds, KEY)
    for cuts in [[12], [1, 13]]:
        resumed, predictions = None, []
        edges = [0, *cuts, 24]
        for start, stop in itertools.pairwise(edges):
            resumed, block = jb.run(model, xs[start:stop], ds[start:stop], KEY, resumed)
            predictions.append(block.prediction)
        chex.assert_trees_all_equal(resumed, state)
        chex.assert_trees_all_equal(jnp.concatenate(predictions), trace.prediction)


@pytest.mark.parametrize("model", SOME)
def test_vmap_over_a_stacked_model_equals_separate_runs(model):
    xs, ds = stream()
    scales = [1.0, 0.9, 0.5]
    models = [jax.tree.map(lambda leaf, s=s: jnp.float32(leaf) * s, model) for s in scales]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    together = jax.vmap(lambda model: jb.run(model, xs, ds, KEY)[1].prediction)(stacked)
    for row, model in zip(together, models, strict=True):
        alone = jb.run(model, xs, ds, KEY)[1].prediction
        np.testing.assert_allclose(row, alone, rtol=2e-4, atol=1e-4)


# Without jit every operation compiles by itself, so a few models have to do.
EAGER = LEARNERS | {name: FEW[name] for name in ["SGD × DataReuse × NSGD", "literal"]}


@pytest.mark.parametrize("model", EAGER.values(), ids=EAGER.keys())
def test_jit_or_not_agree(model):
    xs, ds = (a[:4] for a in stream())
    plain = compiled = model.init(R, jnp.float32)
    step = jax.jit(model.update)
    for x, d in zip(xs, ds, strict=True):
        plain, compiled = model.update(plain, x, d), step(compiled, x, d)
    chex.assert_trees_all_close(plain, compiled, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", SOME)
def test_float64_where_it_is_on(model, x64):
    xs, ds = stream()
    single = jb.run(model, xs, ds, KEY)[1].prediction
    assert single.dtype == jnp.float32  # float32 input stays float32 all the same
    state, double = jb.run(model, xs.astype(float), ds.astype(float), KEY)
    floats = [a for a in jax.tree.leaves(state) if jnp.issubdtype(a.dtype, jnp.floating)]
    assert all(a.dtype == jnp.float64 for a in floats) and double.prediction.dtype == jnp.float64
    np.testing.assert_allclose(single, double.prediction, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS.keys())
@pytest.mark.parametrize("mode", [jb.Weighted(), jb.DataReuse(1), jb.RandomUpdate()])
def test_one_learner_of_full_weight_is_the_plain_learner(learner, mode):
    xs, ds = stream()
    model = jb.boost(learner, 1, target_mse=0.0, mode=mode, combiner=jb.Uniform())
    _, plain = jb.run(learner, xs, ds)
    _, boosted = jb.run(model, xs, ds, KEY)
    np.testing.assert_allclose(boosted.prediction, plain.prediction, rtol=1e-5, atol=1e-6)


@pytest.mark.core
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS.keys())
def test_repeats_are_that_many_updates(learner, x64):
    xs, ds = stream(12)
    if getattr(learner, "max_variance", None) is not None:
        learner = type(learner)(0.99, 0.1, max_variance=1e9)  # a cap acts once, not n times
    start, _ = jb.run(learner, xs.astype(float), ds.astype(float))
    for n in (0, 1, 2, 5, 40):
        x, d = jnp.asarray(xs[3], float), float(ds[3])
        many = start
        for _ in range(n):
            many = learner.update(many, x, d, weight=0.7)
        once = learner.update(start, x, d, weight=0.7, repeats=jnp.asarray(n, jnp.int32))
        chex.assert_trees_all_equal(learner.update(start, x, d, weight=0.7, repeats=n), once)
        if n == 0:
            chex.assert_trees_all_equal(once, start)
        np.testing.assert_allclose(many.w, once.w, rtol=1e-8, atol=1e-10)
        if hasattr(many, "T"):
            np.testing.assert_allclose(many.T.T @ many.T, once.T.T @ once.T, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["booster of boosters", "Algorithm 1"])
def test_a_boosters_repeats_are_that_many_updates(name):
    model = FEW[name]
    xs, ds = stream(12)
    start, _ = jb.run(model, xs, ds, KEY)
    many = start
    for j in range(3):
        many = model.update(many, xs[3], ds[3], key=jax.random.fold_in(KEY, j))
    once = model.update(start, xs[3], ds[3], repeats=jnp.asarray(3, jnp.int32), key=KEY)
    chex.assert_trees_all_close(many, once, rtol=1e-4, atol=1e-5)


def test_what_is_not_a_learner_is_told_how_to_become_one():
    class Undecorated(jb.Learner):
        def init(self, num_features, dtype=None, *, key=None):
            return ()

        def predict(self, state, x):
            return jnp.zeros(())

        def learn(self, state, sample):
            return state

    for value in (3, "SGD", jb.SGD, Undecorated()):
        for use in (
            lambda value: jb.run(value, np.ones((2, 1)), np.ones(2)),
            lambda value: jb.boost([value], target_mse=0.1),
            lambda value: jb.pipeline(jb.Scale(), value),
            lambda value: jb.Huber(value),
        ):
            with pytest.raises(TypeError, match=r"jboost\.Learner.* under @jboost\.model"):
                use(value)
