"""What holds for any model that can be put together, on any stream: drawn by hypothesis.

Every run is 16 samples long, so that each model compiles its loop once, however it is cut.
"""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from support.drawn import (
    HOSTILE,
    NETWORK,
    R,
    T,
    around,
    boosted,
    hostile_weights,
    linear,
    nested,
    others,
    ridges,
    samples,
    steps,
    streams,
    unusable,
    with_weights,
)

import jboost as jb

KEY = jax.random.key(8)


def same(actual, expected):
    chex.assert_trees_all_equal(actual, expected)


def blocks(xs, ds, cuts):
    """The stream in blocks of at most T samples."""
    edges = sorted({0, len(ds), *range(0, len(ds), T), *cuts})
    return [(xs[a:b], ds[a:b]) for a, b in itertools.pairwise(edges)]


def check(model, stream, weights, cuts, double, path):
    """Check the promises of the library with one model on one stream, perhaps with weights."""
    with jax.enable_x64(double):
        xs, ds = samples(stream, np.float64 if double else np.float32)
        if weights is not None:
            model, xs = jb.WeightColumn(model), with_weights(xs, weights)
        run = jb.run_stream(model, blocks(xs, ds, []), KEY, ahead=0)
        whole = list(run)
        prediction, skipped = (
            np.concatenate([getattr(block, name) for block in whole])
            for name in ("prediction", "skipped")
        )
        assert prediction.dtype == xs.dtype
        chex.assert_tree_all_finite((prediction, run.state))
        bad = unusable(ds)
        if not model.takes_missing:
            bad = bad | unusable(xs).any(axis=1)
        np.testing.assert_array_equal(skipped, bad)

        # Any partition, with a checkpoint between two blocks, is the same run.
        state, position, predictions = None, 0, []
        for block in blocks(xs, ds, cuts):
            run_of_block = jb.run_stream(model, [block], KEY, state, ahead=0)
            predictions += [result.prediction for result in run_of_block]
            state, position = run_of_block.state, position + len(block[1])
            if position == T:
                supplied = "optimizer=" in repr(model)  # optax's functions are not written
                jb.save(path, model, state, KEY, supply_model=supplied)
                model, state, _ = jb.load(path, model if supplied else None)
        same(np.concatenate(predictions), prediction)
        same(state, run.state)

        # Samples that are none leave every bit.
        xs[T:] = np.roll(xs[T:], 1)
        ds[T:] = np.resize([v for v in HOSTILE if unusable(v)], T)
        after, trace = jb.run(model, xs[T:], ds[T:], KEY, state)
        assert trace.skipped.all() and np.isfinite(trace.prediction).all()
        same(after, state)


# To compile is slow, whatever is drawn, and shrinking would compile hundreds of models.
quiet = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}
circumstances = {
    "stream": streams,
    "weights": st.none() | hostile_weights,
    "cuts": st.lists(st.integers(1, 2 * T - 1), max_size=2),
    "double": st.booleans(),
}


# In three tests, so that three processes can share them.
@pytest.mark.parametrize("part", range(3))
def test_any_model_keeps_its_promises(part, tmp_path):
    @settings(max_examples=20, **quiet)
    @seed(part)
    @given(model=nested(linear), **circumstances)
    def keeps(model, **circumstances):
        check(model, path=tmp_path / "drawn.npz", **circumstances)

    keeps()


@pytest.mark.slow
@settings(max_examples=500, **quiet)
@given(model=nested(st.one_of(linear, linear, others)), **circumstances)
def test_hundreds_of_models_keep_their_promises(model, tmp_path_factory, **circumstances):
    check(model, path=tmp_path_factory.getbasetemp() / "drawn.npz", **circumstances)


def check_forms(model, seed):
    """Repeats of none, vmap and float64 of one model, on a stream without surprises."""
    xs, ds = (a[:T] for a in samples((seed, []), np.float32))
    state, trace = jb.run(model, xs, ds, KEY)
    with jax.enable_x64(True):
        double, _ = jb.run(model, xs.astype(np.float64), ds.astype(np.float64), KEY)
    for leaf, wide in zip(jax.tree.leaves(state), jax.tree.leaves(double), strict=True):
        assert wide.dtype == (jnp.float64 if leaf.dtype == jnp.float32 else leaf.dtype)
    two = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf, jnp.float32)] * 2), model)
    stacked = jax.vmap(lambda model: jb.run(model, xs, ds, KEY)[1].prediction)(two)
    np.testing.assert_allclose(stacked[0], trace.prediction, rtol=1e-3, atol=1e-3)
    same(stacked[0], stacked[1])
    update = jax.jit(model.update)
    for none in (jnp.zeros((), jnp.int32), jnp.zeros((), bool)):
        same(update(state, xs[0], ds[0], repeats=none, key=KEY), state)


@settings(max_examples=3, **quiet)
@given(model=around(linear), seed=st.integers(0, 1000))
def test_any_model_in_other_forms(model, seed):
    check_forms(model, seed)


@pytest.mark.slow
@settings(max_examples=100, **quiet)
@given(model=nested(st.one_of(linear, linear, others)), seed=st.integers(0, 1000))
def test_hundred_models_in_other_forms(model, seed):
    check_forms(model, seed)


# ------------------------------------------------------------------------------ what it found


def estimates(state, info):
    return info.y


def test_boosters_in_a_list_keep_their_own_settings():
    """Stacked, the two step sizes would be taken for those of the learners inside each."""
    experts = [jb.boost(jb.SGD(mu), 2, target_mse=0.1) for mu in (0.1, 0.5)]
    xs, ds = (a[:T] for a in samples((0, []), np.float32))
    model = jb.boost(experts, target_mse=0.1, dependence=0.0)
    _, trace = jb.run(model, xs, ds, observe=estimates)
    for k, expert in enumerate(experts):
        alone = jb.run(expert, xs, ds)[1].prediction
        np.testing.assert_allclose(trace.observed[:, k], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dependence", [0.0, 1.0])
def test_errors_whose_squares_overflow_do_not_end_a_booster(dependence):
    """A target of 9e14, then an input of 9e14: an estimate of 1e28, and a square beyond float32."""
    combiner = jb.Newton(0.999, ridge=1.0, max_variance=100.0)
    model = jb.boost(jb.SGD(0.5), 3, target_mse=0.1, dependence=dependence, combiner=combiner)
    hostile = [(2, R, 9e14), (5, 0, 9e14), (6, 0, 9e14), (9, R, 9e14), (10, 1, -9e14)]
    xs, ds = (a[:T] for a in samples((0, hostile), np.float32))
    state, trace = jb.run(model, xs, ds)
    assert not trace.skipped.any() and float(jnp.abs(trace.prediction).max()) > 1e20
    chex.assert_tree_all_finite((state, trace.prediction))


@pytest.mark.parametrize(
    "model",
    [
        jb.pipeline(jb.Select(2), jb.boost(jb.Newton(0.9), 2, target_mse=0.1)),
        jb.pipeline(jb.Select(2), jb.Polynomial(), jb.SGD(0.1)),
        jb.WeightColumn(jb.WeightColumn(jb.pipeline(jb.Scale(), jb.GaussNewton(NETWORK)))),
        jb.WeightColumn(jb.WeightColumn(jb.WeightColumn(jb.Newton()))),
    ],
    ids=["Select", "Select, Polynomial", "two weights", "three weights"],
)
@pytest.mark.parametrize("r", [4, 20])
def test_the_width_of_a_state_is_found_where_narrow_ones_are_different(model, r, tmp_path):
    state = model.init(r, jnp.float32, key=KEY)
    jb.save(tmp_path / "saved.npz", model, state, KEY)
    same(jb.load(tmp_path / "saved.npz")[1], state)


# ------------------------------------------------------------------------------ what theory says


def weights(state, info):
    return info.lam, info.delta, info.updates


@given(
    target_mse=st.floats(0, 100, width=32, allow_subnormal=False),
    dependence=st.floats(0, 100, width=32, allow_subnormal=False),
    guarantee=st.none() | st.floats(0.01, 0.99),
    spent=st.sampled_from([(jb.DataReuse(3), "prefix"), (jb.RandomUpdate(), "scan")]),
    stream=streams,
)
def test_weights_are_weights(target_mse, dependence, guarantee, spent, stream):
    """0 ≤ λ ≤ 1, λ of the first learner is 1, 0 ≤ δ ≤ 1, whatever the stream holds."""
    xs, ds = samples(stream, np.float32)
    mode, chain = spent
    emphasis = {"dependence": dependence} if guarantee is None else {"guarantee": guarantee}
    model = jb.boost(jb.SGD(0.5), 4, target_mse=target_mse, mode=mode, chain=chain, **emphasis)
    for half in (slice(T), slice(T, None)):
        _, trace = jb.run(model, xs[half], ds[half], KEY, observe=weights)
        lam, delta, updates = (np.asarray(a) for a in trace.observed)
        good = ~np.asarray(trace.skipped)
        assert (lam[good, 0] == 1).all() and (lam[~good] == 0).all() and (updates[~good] == 0).all()
        for a in (lam, delta):
            assert ((a >= 0) & (a <= 1)).all()
        most = 3 if isinstance(mode, jb.DataReuse) else 1
        assert ((updates >= 0) & (updates <= most)).all()
        assert (updates[good, 0] == most).all()


def around_the_sample(state, info):
    return info.d - info.prediction, info.d - jnp.dot(state.w, info.x), state


@given(
    learner=st.one_of(
        st.builds(jb.SGD, st.floats(1e-4, 1)),
        st.builds(jb.NLMS, st.floats(1e-4, 1.9)),
        st.builds(
            jb.Newton,
            st.floats(0.5, 1),
            st.floats(1e-3, 10),
            storage=st.sampled_from(["root", "covariance"]),
        ),
    ),
    stream=streams,
)
def test_a_sample_is_never_estimated_worse_for_having_been_learned(learner, stream):
    """… and what Newton keeps is a variance, within its cap but for the growth between turns.

    P itself, "covariance", is for inputs whose condition number stays below about 1e4: an input of
    9e14 beside others of 1 leaves it indefinite, and Newton then learns nothing in that direction.
    """
    xs, ds = samples(stream, np.float32)
    if getattr(learner, "storage", "root") == "covariance":
        xs = np.clip(xs, -10, 10)
    _, trace = jb.run(learner, xs[:T], ds[:T], observe=around_the_sample)
    before, after, state = jax.tree.map(np.asarray, trace.observed)
    good = ~np.asarray(trace.skipped)
    x, d, w = (a[good].astype(np.float64) for a in (xs[:T], ds[:T], state.w))
    rounding = 1e-5 * (np.abs(d) + (np.abs(x) * np.abs(w)).sum(axis=1))
    assert (np.abs(after[good]) <= np.abs(before[good]) * (1 + 1e-5) + rounding).all()
    if not isinstance(learner, jb.Newton):
        return
    if learner.storage == "root":
        P = np.einsum("tij,tik->tjk", state.T.astype(np.float64), state.T.astype(np.float64))
    else:
        P = state.P.astype(np.float64)
        np.testing.assert_array_equal(P, P.transpose(0, 2, 1))
    variance = np.einsum("tjj->tj", P)
    most = float(learner.max_variance) * float(learner.forgetting) ** -R
    assert (variance <= most * (1 + 1e-4)).all()
    assert (variance >= (0 if learner.storage == "root" else -1e-4 * most)).all()


@given(learner=linear, power=st.integers(-20, 20), seed=st.integers(0, 100))
def test_linear_learners_are_linear_in_the_target_bit_for_bit(learner, power, seed):
    xs, ds = samples((seed, []), np.float32)
    factor = np.float32(2.0**power)
    for model in (learner, jb.pipeline(jb.Scale(), jb.Bias(), learner), jb.ScaleTarget(learner)):
        plain, scaled = (jb.run(model, xs[:T], d[:T])[1].prediction for d in (ds, factor * ds))
        same(np.asarray(scaled), factor * np.asarray(plain))


orderless = st.one_of(
    st.builds(jb.SGD, steps), st.builds(jb.NLMS, steps), st.builds(jb.Newton, st.just(1.0), ridges)
)


@settings(max_examples=8, **quiet)
@given(
    model=st.one_of(
        boosted(orderless),
        st.builds(
            lambda steps, learner: jb.pipeline(*steps, jb.ScaleTarget(learner)),
            st.sampled_from([[jb.Scale()], [jb.Impute(), jb.Scale("range")], [jb.Bias()]]),
            boosted(orderless),
        ),
        boosted(st.builds(jb.Huber, orderless)),
    ),
    order=st.permutations(range(R)),
    seed=st.integers(0, 100),
)
def test_the_order_of_the_columns_does_not_matter(model, order, seed):
    with jax.enable_x64(True):
        xs, ds = samples((seed, []), np.float64)
        plain, reordered = (
            jb.run(model, x[:T], ds[:T], KEY)[1].prediction for x in (xs, xs[:, list(order)])
        )
    np.testing.assert_allclose(plain, reordered, rtol=1e-6, atol=1e-8)


# ------------------------------------------------------------------------------ counters

COUNTING = {
    "OnChange": jb.OnChange(jb.Newton(0.99), threshold=1.0, warm_up=2),
    "Delayed booster": jb.Delayed(jb.bnm_wu(2, target_mse=0.1, forgetting=0.99, ridge=0.1), 2),
}


@pytest.mark.parametrize("name", COUNTING)
@pytest.mark.parametrize("start", [2**24 - 3, 2**31 - 3])
def test_nothing_happens_when_counters_become_large(name, start):
    """2²⁴ is where float32 stops counting, 2³¹ where int32 does."""
    model = COUNTING[name]
    xs, ds = samples((0, []), np.float32)
    state, _ = jb.run(model, xs[:T], ds[:T])

    def is_counter(leaf):
        return leaf.dtype == jnp.uint32

    def forward(leaf):
        return leaf + jnp.uint32(start) if is_counter(leaf) and leaf.ndim == 0 else leaf

    usual, plain = jb.run(model, xs[T:], ds[T:], state=state)
    late = jax.tree.map(forward, state)
    after, trace = jb.run(model, xs[T:], ds[T:], state=late)
    same(trace.prediction, plain.prediction)
    counted = False
    for a, b, c, d in zip(*map(jax.tree.leaves, (late, after, state, usual)), strict=True):
        if is_counter(a):
            same(b - a, d - c)
            counted = counted or bool((b != a).any())
        else:
            same(b, d)
    assert counted


def test_the_sum_of_the_weights_goes_on_beyond_what_float32_counts():
    model = jb.bsgd_wu(2, target_mse=0.1, step_size=0.1)
    xs, ds = samples((0, []), np.float32)
    state, _ = jb.run(model, xs[:T], ds[:T])
    long = jax.tree.map(lambda a: jnp.full_like(a, 2.0**24), state.emphasis.Lam.total)
    Lam = state.emphasis.Lam._replace(total=long, lost=jnp.zeros_like(long))
    state = state._replace(emphasis=state.emphasis._replace(Lam=Lam))
    for _ in range(4):
        state, _ = jb.run(model, xs[T:], ds[T:], state=state)
    total, lost = (float(a[0]) for a in state.emphasis.Lam)
    assert total - lost == 2**24 + 4 * T  # the first learner's weights are 1
