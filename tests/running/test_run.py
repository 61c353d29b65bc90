"""`run`, `mse`, `ase`: one compilation per shape, any partition, `observe`, and bad input."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export

import jboost as jb
from jboost.combiners.mean import FromMean

pytestmark = pytest.mark.core

KEY = jax.random.key(5)


def data(T=64):
    xs, ds = jb.streams.duffing(T)
    return np.asarray(xs), np.asarray(ds)


def test_three_step_sizes_one_trace():
    traces = []

    @jb.model
    class Counting(jb.Learner):
        step_size: float

        def init(self, num_features, dtype=None, *, key=None):
            return jb.SGD(self.step_size).init(num_features, dtype)

        def predict(self, state, x):
            traces.append("predict")
            return jb.SGD(self.step_size).predict(state, x)

        def learn(self, state, sample):
            return jb.SGD(self.step_size).learn(state, sample)

    xs, ds = data()
    results = []
    for step_size, target_mse in [(0.1, 0.2), (0.05, 0.3), (0.01, 0.1)]:
        model = jb.boost(Counting(step_size), 3, target_mse=target_mse, mode=jb.DataReuse(3))
        results.append(float(jb.run(model, xs, ds)[1].prediction[-1]))
    assert len(set(results)) == 3
    once = len(traces)
    jb.run(jb.boost(Counting(0.3), 3, target_mse=0.1, mode=jb.DataReuse(3)), xs, ds)
    assert len(traces) == once


@settings(max_examples=6)
@given(cuts=st.lists(st.sampled_from([0, 1, 16, 32, 48, 63, 64]), max_size=4))
@pytest.mark.parametrize(
    "model",
    [
        jb.bsgd_ru(5, target_mse=0.2, step_size=0.1),
        jb.bnm_wu(5, target_mse=0.2, forgetting=0.99, ridge=0.1),
    ],
    ids=["BSGD-RU", "BNM-WU"],
)
def test_any_partition_gives_the_same_bits(model, cuts):
    xs, ds = data()
    state, trace = jb.run(model, xs, ds, KEY)
    part, pieces = None, []
    edges = sorted({0, 64, *cuts})
    for start, stop in itertools.pairwise(edges):
        part, piece = jb.run(model, xs[start:stop], ds[start:stop], KEY, part)
        pieces.append(piece.prediction)
    np.testing.assert_array_equal(np.concatenate(pieces), trace.prediction)
    for one, other in zip(jax.tree.leaves(part), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)


def everything(state, info):
    return {"info": info, "t": state.t, "w": state.learners[0].w}


def test_observe_sees_what_the_model_reports():
    xs, ds = data()
    model = jb.bsgd_dr(4, target_mse=0.2, step_size=0.1)
    state, trace = jb.run(model, xs, ds, observe=everything)
    seen = trace.observed
    info = seen["info"]
    assert info.y.shape == info["e"].shape == info.lam.shape == info.z.shape == (64, 4)
    assert set(info) == {"x", "d", "prediction", "y", "e", "lam", "delta", "z", "updates"}
    np.testing.assert_array_equal(info.prediction, trace.prediction)
    np.testing.assert_allclose(np.sum(info.z * info.y, axis=1), trace.prediction, atol=1e-6)
    np.testing.assert_allclose(info.e, ds[:, None] - info.y, atol=1e-6)
    np.testing.assert_array_equal(info.updates, np.ceil(5 * np.asarray(info.lam)))
    np.testing.assert_array_equal(seen["t"], np.arange(1, 65))
    np.testing.assert_array_equal(seen["w"][-1], state.learners[0].w)
    assert (info.lam[:, 0] == 1).all() and (info.lam >= 0).all() and (info.lam <= 1).all()
    with pytest.raises(AttributeError, match="reports no 'weights'; it reports d, delta"):
        _ = info.weights


def test_nothing_is_stored_unless_asked_for():
    xs, ds = data()
    _, trace = jb.run(jb.bsgd_wu(4, target_mse=0.2, step_size=0.1), xs, ds)
    assert trace.observed is None and trace.prediction.shape == (64,)


def learned(**spending):
    learner = jb.Newton()
    return learner.update(learner.init(2), jnp.ones(2), 1.0, **spending)


def test_masked_entries_are_missing():
    xs, ds = data()
    masked = np.ma.masked_array(xs, mask=np.zeros_like(xs, bool))
    masked[5, 0] = np.ma.masked
    missing = xs.copy()
    missing[5, 0] = np.nan
    _, trace = jb.run(jb.SGD(0.1), masked, ds)
    chex.assert_trees_all_equal(trace, jb.run(jb.SGD(0.1), missing, ds)[1])
    assert np.flatnonzero(trace.skipped).tolist() == [5]


def test_mse_and_ase():
    xs, ds = data()
    model = jb.SGD(0.1)
    _, trace = jb.run(model, xs, ds)
    errors = (np.asarray(trace.prediction, float) - ds) ** 2
    np.testing.assert_allclose(jb.mse(model, xs, ds), errors.mean(), rtol=1e-5)
    ase = jb.ase(trace.prediction, ds)
    np.testing.assert_allclose(ase, np.cumsum(errors) / np.arange(1, 65), rtol=1e-5)
    ds = ds.copy()
    ds[10] = np.nan  # an answer that never came is neither learned nor scored
    assert np.isfinite(jb.mse(model, xs, ds)) and np.isfinite(jb.ase(trace.prediction, ds)).all()
    with pytest.raises(
        ValueError, match=r"both be \(T,\); got prediction \(64,\) and ds \(64, 1\)"
    ):
        jb.ase(trace.prediction, ds[:, None])
    assert jb.ase([1, 2], [0, 0]).tolist() == [1.0, 2.5]
    both = np.column_stack([ds, -2 * ds])  # of several targets the mean over all
    alone = [jb.mse(model, xs, column) for column in both.T]
    np.testing.assert_allclose(jb.mse(model, xs, both), np.mean(alone), rtol=1e-5)


def test_sums_of_ten_million_errors_stay_accurate():
    errors = np.abs(np.random.default_rng(0).normal(size=10_000_000)).astype(np.float32)
    ase = jb.ase(errors, np.zeros_like(errors))
    exact = np.cumsum(errors.astype(float) ** 2) / np.arange(1, errors.size + 1)
    assert np.abs(np.asarray(ase)[1000:] / exact[1000:] - 1).max() < 1e-5


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize(
    "model",
    [
        jb.bsgd_wu(4, target_mse=0.2, step_size=0.1),
        jb.bnm_ru(4, target_mse=0.2, forgetting=0.99, ridge=0.1),
        jb.boost(jb.ForwardNewton(), 2, target_mse=0.2, mode=jb.PoissonReuse(), chain="scan"),
    ],
    ids=["BSGD-WU", "BNM-RU", "forward"],
)
def test_a_step_and_a_run_lower_for_every_platform(model, platform):
    xs, ds = (jnp.asarray(a) for a in data(8))
    state = model.init(3)
    word = jax.random.key_data(KEY)

    def step(state, x, d, word):
        return model.update(state, x, d, key=jax.random.wrap_key_data(word))

    def whole(xs, ds, word):
        return jb.run(model, xs, ds, jax.random.wrap_key_data(word))[1].prediction

    for function, args in ((step, (state, xs[0], ds[0], word)), (whole, (xs, ds, word))):
        exported = export.export(jax.jit(function), platforms=[platform])(*args)
        assert exported.platforms == (platform,)


class StepVariants(chex.TestCase):
    """One step with jit, without, and batched."""

    @chex.variants(with_jit=True, without_jit=True)
    def test_a_step_is_the_same_in_every_variant(self):
        model = jb.bnm_wu(3, target_mse=0.2, forgetting=0.99, ridge=0.1)
        xs, ds = data(4)
        state, _ = jb.run(model, xs, ds)
        update = self.variant(model.update)
        many = jax.vmap(lambda x, d: model.update(state, x, d))(jnp.asarray(xs), jnp.asarray(ds))
        for i in range(2):
            one = update(state, xs[i], ds[i])
            chex.assert_trees_all_equal_shapes_and_dtypes(one, state)
            chex.assert_trees_all_close(
                one, jax.tree.map(lambda a, i=i: a[i], many), rtol=1e-4, atol=1e-5
            )


def test_inside_jit_vmap_and_grad():
    xs, ds = data()
    model = jb.bsgd_ru(3, target_mse=0.2, step_size=0.1)
    plain = jb.run(model, xs, ds, KEY)[1].prediction
    jitted = jax.jit(lambda xs, key: jb.run(model, xs, ds, key)[1].prediction)(xs, KEY)
    np.testing.assert_allclose(jitted, plain, rtol=1e-5, atol=1e-6)
    keys = jax.random.split(KEY, 3)
    trials = jax.vmap(lambda key: jb.run(model, xs, ds, key)[1].prediction)(keys)
    alone = jb.run(model, xs, ds, keys[1])[1].prediction
    np.testing.assert_allclose(trials[1], alone, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(trials[0], trials[1])


def test_dtypes_are_cast_as_documented():
    xs, ds = np.array([[1, 0], [0, 1]]), np.array([True, False])
    default = jnp.result_type(float)
    for x, d in ((xs, ds), (xs.astype(np.float64), ds.astype(int)), (xs.tolist(), [1, 0])):
        assert jb.run(jb.SGD(0.1), x, d)[1].prediction.dtype == default
    assert jb.run(jb.SGD(0.1), xs.astype(jnp.bfloat16), ds)[1].prediction.dtype == default
    _, one = jb.run(jb.SGD(0.1), xs[:1], ds[:1])
    assert one.prediction.tolist() == [0.0]


def test_float64_is_honoured_where_it_is_on(x64):
    xs, ds = data()
    assert jb.run(jb.SGD(0.1), xs.astype(float), ds)[1].prediction.dtype == jnp.float64
    assert (
        jb.run(jb.SGD(0.1), xs.astype(np.float32), ds.astype(np.float32))[1].prediction.dtype
        == jnp.float32
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaps_are_no_errors_where_nan_is_one(dtype):
    xs, ds = (array.astype(dtype) for array in data(50))  # a length that is not compiled yet
    xs[7, 0] = ds[5] = np.nan
    model = jb.SGD(0.1)
    _, wanted = jb.run(model, xs, ds)
    with jax.debug_nans(True):
        _, trace = jb.run(model, xs, ds)
        (block,) = jb.run_stream(model, [(xs, ds)])
        error = jb.ase(trace.prediction, ds)[-1]
        mse = jb.mse(model, xs, ds)
        with pytest.raises(ValueError, match="row 5 of the stream holds NaN"):
            jb.run(model, xs, ds, on_bad="raise")
    np.testing.assert_array_equal(trace.prediction, wanted.prediction)
    np.testing.assert_array_equal(block.prediction, wanted.prediction)
    np.testing.assert_allclose(error, mse, rtol=1e-5)


X, D = np.ones((4, 2), np.float32), np.ones(4, np.float32)
RU = jb.bsgd_ru(2, target_mse=0.1, step_size=0.1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: jb.run(jb.SGD(0.1), X[0], D),
            ValueError,
            r"xs must have shape \(T, r\); got \(2,\)",
        ),
        (
            lambda: jb.run(jb.SGD(0.1), X, D[:, None]),
            ValueError,
            r"ds must .* \(4,\); got \(4, 1\)",
        ),
        (lambda: jb.run(jb.SGD(0.1), X, D[:3]), ValueError, "4 rows and 3 targets"),
        (lambda: jb.run(jb.SGD(0.1), X[:0], D[:0]), ValueError, "at least one row"),
        (lambda: jb.run(jb.SGD(0.1), X[:, :0], D), ValueError, "at least one row and one column"),
        (lambda: jb.run(jb.SGD(0.1), X * 1j, D), TypeError, "xs must hold real numbers.*complex"),
        (lambda: jb.run(jb.SGD(0.1), X.astype(object), D), TypeError, "xs must hold real.*object"),
        (lambda: jb.run(jb.SGD(0.1), X, list("abcd")), TypeError, "ds must hold real numbers"),
        (lambda: jb.run(jb.SGD(0.1), [[1.0], [1.0, 2.0]], D), TypeError, "xs must be an array"),
        (lambda: jb.run("auto", X, D), TypeError, "model must be a learner.*got 'auto'"),
        (lambda: jb.run(RU, X, D), ValueError, "key is missing"),
        (lambda: jb.run(RU, X, D, key=3), TypeError, "key must be a jax.random.key, .*; got 3"),
        (lambda: jb.run(RU, X, D, key=jax.random.split(KEY)), ValueError, "one key.*vmap"),
        (lambda: jb.run(RU, X, D, key=KEY, state=()), ValueError, "state does not belong"),
        (
            lambda: jb.run(jb.SGD(0.1), X, D, state=jb.SGD(0.1).init(3, jnp.float32)),
            ValueError,
            r"state\.w has float32\[3\] where float32\[2\] fits",
        ),
        (lambda: jb.run(jb.SGD(0.1), X, D, on_bad="stop"), ValueError, "on_bad must be one of"),
        (
            lambda: jb.run(jb.SGD(0.1), X, np.float32([1, np.nan, 1, 1]), on_bad="raise"),
            ValueError,
            "row 1 of the stream holds NaN",
        ),
        (lambda: RU.update(RU.init(2, key=KEY), X[0], 1.0), ValueError, "key is missing"),
        (lambda: jb.SGD(0.0), ValueError, "step_size > 0; got 0.0"),
        (lambda: jb.SGD("fast"), TypeError, "step_size must be a finite real number.*'fast'"),
        (lambda: jb.SGD(True), TypeError, "step_size must be"),
        (lambda: jb.SGD(float("nan")), ValueError, "step_size must be a finite"),
        (lambda: jb.NLMS(2.0), ValueError, "step_size > 0 and step_size < 2; got 2.0"),
        (lambda: jb.NLMS(1.0, epsilon=-1), ValueError, "epsilon >= 0; got -1"),
        (lambda: jb.Newton(1.1), ValueError, "forgetting > 0 and forgetting <= 1; got 1.1"),
        (lambda: jb.Newton(ridge=0), ValueError, "ridge > 0; got 0"),
        (lambda: jb.Newton(max_variance=-1.0), ValueError, "max_variance > 0; got -1.0"),
        (lambda: jb.ForwardNewton(ridge=-1), ValueError, "ridge > 0"),
        (lambda: jb.DataReuse(0), ValueError, "max_reuse must be a whole number >= 1; got 0"),
        (lambda: jb.DataReuse(2.5), ValueError, "max_reuse must be a whole number"),
        (lambda: jb.boost(jb.SGD(0.1), target_mse=0.1), ValueError, "m, the number of copies"),
        (
            lambda: jb.boost(jb.SGD(0.1), 0, target_mse=0.1),
            ValueError,
            "m must be a whole number >= 1",
        ),
        (lambda: jb.boost([], target_mse=0.1), ValueError, "at least one; got an empty list"),
        (
            lambda: jb.boost([jb.SGD(0.1)], 3, target_mse=0.1),
            ValueError,
            "length of the list.*1; got 3",
        ),
        (lambda: jb.boost("SGD", 3, target_mse=0.1), TypeError, "learner must be a learner"),
        (lambda: jb.boost(jb.SGD(0.1), 3, target_mse=-1), ValueError, "target_mse >= 0; got -1"),
        (
            lambda: jb.boost(jb.SGD(0.1), 3, target_mse=0.1, dependence=-1),
            ValueError,
            "dependence >= 0; got -1",
        ),
        (
            lambda: jb.boost(jb.SGD(0.1), 3, target_mse=0.1, guarantee=0.1, dependence=1.0),
            ValueError,
            "give no dependence",
        ),
        (
            lambda: jb.boost(jb.SGD(0.1), 3, target_mse=0.1, guarantee=1.5),
            ValueError,
            "guarantee > 0 and guarantee < 1",
        ),
        (
            lambda: jb.boost(jb.SGD(0.1), 3, target_mse=0.1, mode="ru"),
            TypeError,
            "mode must be Weighted",
        ),
        (
            lambda: jb.boost(jb.SGD(0.1), 3, target_mse=0.1, combiner="rls"),
            TypeError,
            "combiner must be a learner",
        ),
        (
            lambda: jb.boost(jb.SGD(0.1), 3, target_mse=0.1, chain="sum"),
            ValueError,
            "chain must be one of 'prefix', 'scan'; got 'sum'",
        ),
        (
            lambda: jb.boost(jb.SGD(np.full(4, 0.1)), 3, target_mse=0.1),
            ValueError,
            r"step_size must be a number or one per learner, here 3; got shape \(4,\)",
        ),
        (lambda: jb.streams.duffing(0), ValueError, "T must be a whole number >= 1; got 0"),
        (
            lambda: jb.streams.stationary(0, 9),
            TypeError,
            "key must be a jax.random.key, .*; got 0",
        ),
        (
            lambda: jb.run(jb.SGD(0.1), *data(), observe=1),
            TypeError,
            r"observe must be a function of \(state, info\), or None; got 1",
        ),
        (lambda: learned(weight=-1.0), ValueError, "weight >= 0; got -1.0"),
        (lambda: learned(weight=np.nan), ValueError, "weight >= 0; got nan"),
        (lambda: learned(repeats=-1), ValueError, "repeats must be a whole number >= 0; got -1"),
        (lambda: learned(repeats=1.5), ValueError, "repeats must be a whole number >= 0; got 1.5"),
        (lambda: jb.SGD(0.1).init(2, np.int32), TypeError, "dtype must be .* real .*; got int32"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_list_of_equal_learners_is_a_stack_and_equals_copies():
    xs, ds = data()
    listed = jb.boost([jb.SGD(0.1), jb.SGD(0.05), jb.SGD(0.02)], target_mse=0.2)
    stacked = jb.boost(jb.SGD(np.array([0.1, 0.05, 0.02])), 3, target_mse=0.2)
    assert listed.sizes == (3,)
    np.testing.assert_array_equal(
        jb.run(listed, xs, ds)[1].prediction, jb.run(stacked, xs, ds)[1].prediction
    )


def test_order_in_the_chain_is_the_order_of_the_list():
    xs, ds = data()
    mixed = [jb.SGD(0.1), jb.Newton(0.99), jb.SGD(0.02)]
    model = jb.boost(mixed, target_mse=0.2, dependence=0.0, combiner=jb.Uniform())
    y = jb.run(model, xs, ds, observe=estimates)[1].observed
    for k, learner in enumerate(mixed):
        np.testing.assert_allclose(
            y[:, k], jb.run(learner, xs, ds)[1].prediction, rtol=1e-4, atol=1e-5
        )


def estimates(state, info):
    return info.y


def test_floats_of_nested_boosters_belong_to_the_inner_learners_first():
    """An array as long as both boosters is one value per inner learner."""
    xs, ds = data(16)
    steps = np.array([0.1, 0.05, 0.01])
    inner = jb.boost(jb.SGD(steps), 3, target_mse=0.2, combiner=jb.Uniform())
    outer = jb.boost(inner, 3, target_mse=0.2, dependence=0.0, combiner=jb.Uniform())
    y = jb.run(outer, xs, ds, observe=estimates)[1].observed
    alone = jb.run(inner, xs, ds)[1].prediction
    for k in range(3):
        np.testing.assert_allclose(y[:, k], alone, rtol=1e-5, atol=1e-6)


def test_any_learner_combines_and_starts_at_the_mean():
    model = jb.boost([jb.SGD(0.1), jb.SGD(0.2)], target_mse=0.1, combiner=jb.SGD(0.1))
    assert isinstance(model.combiner, FromMean)
    state = model.combiner.init(2)
    assert float(model.combiner.predict(state, jnp.array([1.0, 3.0]))) == 2.0
    state = model.combiner.update(state, jnp.array([1.0, 3.0]), 3.0)
    # e = 1: z = [½ + 0.1·1·1, ½ + 0.1·1·3]
    assert float(model.combiner.predict(state, jnp.array([1.0, 0.0]))) == pytest.approx(0.6)


def test_a_combiner_from_the_mean_is_told_weight_and_repeats():
    """y = (1, 3) and d = 3 leave 1; w = 0.05 λ·1·y at first, of which yᵀw = ½ for λ = 1."""
    combiner, y = FromMean(jb.SGD(0.05)), jnp.array([1.0, 3.0])
    state = combiner.init(2)
    half = combiner.update(state, y, 3.0, weight=0.5)
    np.testing.assert_allclose(half.w, [0.025, 0.075], rtol=1e-6)
    twice = combiner.update(state, y, 3.0, repeats=jnp.int32(2))
    np.testing.assert_allclose(twice.w, [0.075, 0.225], rtol=1e-6)
    assert float(combiner.predict(twice, y)) == pytest.approx(2.75)


@pytest.mark.parametrize("combiner", [FromMean(jb.SGD(0.05)), jb.Uniform()], ids=["SGD", "mean"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_an_estimate_that_is_none_counts_as_zero(combiner, bad):
    y = np.array([bad, 3.0], np.float32)
    assert float(combiner.predict(combiner.init(2), y)) == 1.5
