"""Explanations add up, are Shapley values where they say so, and reach the raw columns."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.table import BOOSTED, NESTED, PIPED, WRAPPED, cases

import jboost as jb
from jboost.explanations import Explained
from jboost.explanations.usual import usual_input

KEY = jax.random.key(3)
R = 4


def stream(length=60, r=R, seed=0):
    """Return inputs with means far from 0, and targets in which columns act together."""
    x = np.random.default_rng(seed).normal(size=(length, r)) * 0.7 + np.arange(1, r + 1)
    d = x[:, 0] * x[:, 1] - 2 * x[:, 2] + 0.5
    return x.astype(np.float32), d.astype(np.float32)


def shapley(f, x, usual):
    """Return the Shapley values by their definition: a sum over all subsets, in float64."""
    r, values = len(x), {}
    subsets = [s for n in range(r + 1) for s in itertools.combinations(range(r), n)]
    rows = np.array([[x[i] if i in s else usual[i] for i in range(r)] for s in subsets], np.float32)
    for subset, value in zip(subsets, np.asarray(jax.jit(jax.vmap(f))(rows), float), strict=True):
        values[subset] = value
    parts = np.zeros(r)
    for i, subset in itertools.product(range(r), subsets):
        if i not in subset:
            n = len(subset)
            weight = math.factorial(n) * math.factorial(r - n - 1) / math.factorial(r)
            parts[i] += weight * (values[tuple(sorted((*subset, i)))] - values[subset])
    return values[()], parts


def learned(model, r=R):
    xs, ds = stream(r=r)
    return jb.run(model, xs, ds, KEY)[0], xs[7]


MODELS = {
    "NLMS": jb.NLMS(0.5),
    "ForwardNewton": jb.ForwardNewton(0.99, 0.1),
    **{name: BOOSTED[name] for name in ("SGD × Weighted × Newton", "SGD × RandomUpdate × Uniform")},
    **{name: NESTED[name] for name in ("BoostedTrees", "PiecewiseLinear", "mixture", "literal")},
    **{name: PIPED[name] for name in ("GaussNewton", "Past", "Select", "Impute", "Lags")},
    **{name: PIPED[name] for name in ("Scale('held')", "boosted RandomFourier")},
    **{name: WRAPPED[name] for name in ("Delayed", "Huber", "Intervals", "WeightColumn")},
}


QUICK = ("SGD × Weighted × Newton", "BoostedTrees", "Past", "Impute", "WeightColumn")


@pytest.mark.parametrize("model", cases(MODELS, QUICK))
def test_parts_add_up_and_are_near_the_shapley_values(model):
    state, x = learned(model)
    base, parts = jb.explain(model, state, x, pairs=4)
    prediction = model.predict(state, x)
    size = max(1.0, abs(float(prediction)))
    assert parts.shape == (R,) and parts.dtype == jnp.float32
    assert abs(float(base + parts.sum() - prediction)) <= 1e-5 * size
    exact_base, exact = shapley(lambda x: model.predict(state, x), x, usual_input(model, state, R))
    np.testing.assert_allclose(base, exact_base, atol=2e-5 * size)
    # Four columns have 24 orders, of which eight are taken.
    np.testing.assert_allclose(parts, exact, atol=2e-5 * size + 0.25 * np.abs(exact).max())


@pytest.mark.parametrize(
    "name", ["Polynomial", pytest.param("trees", marks=pytest.mark.slow), "linear behind a scaler"]
)
def test_parts_are_the_shapley_values_where_they_must_be(name):
    model, r = {
        "Polynomial": (jb.pipeline(jb.Scale(), jb.Polynomial(), jb.Newton(0.99, 0.1)), 6),
        "trees": (jb.pipeline(jb.Scale(), jb.PiecewiseLinear(3, cuts=2, grace=2)), 3),
        "linear behind a scaler": (jb.pipeline(jb.Scale(), jb.ScaleTarget(jb.SGD(0.1))), 6),
    }[name]
    state, x = learned(model, r)
    _, parts = jb.explain(model, state, x, pairs=1)
    _, exact = shapley(lambda x: model.predict(state, x), x, usual_input(model, state, r))
    np.testing.assert_allclose(parts, exact, atol=2e-5)


@pytest.mark.parametrize("model", [jb.SGD(0.05), jb.NLMS(0.5), jb.Newton(0.99, 0.1)])
def test_a_linear_learner_is_explained_by_its_coefficients(model):
    state, x = learned(model)
    base, parts = jb.explain(model, state, x)
    np.testing.assert_array_equal(parts, np.asarray(state.w) * x)
    np.testing.assert_allclose(base, 0.0, atol=1e-6)
    x[2] = np.nan  # it counts as 0
    parts = jb.explain(model, state, x)[1]
    assert parts[2] == 0 and np.isfinite(parts).all()


def test_the_usual_input_is_the_running_mean_of_the_raw_columns():
    xs, ds = stream(400)
    inner = jb.pipeline(jb.Scale(), jb.SGD(0.1))
    models = {
        "scaled": inner,
        "behind columns that are added": jb.pipeline(jb.Lags(1, 1), jb.Bias(), inner),
        "filled": jb.pipeline(jb.Impute(), jb.SGD(0.1)),
        "held": jb.ScaleTarget(jb.pipeline(jb.Scale("held"), jb.SGD(0.1))),
        "list with copies": jb.boost([jb.SGD(0.1), inner, inner], target_mse=0.2),
    }
    for name, model in models.items():
        state, _ = jb.run(model, xs, ds, KEY)
        usual = usual_input(model, state, R)
        np.testing.assert_allclose(usual, xs.mean(axis=0), atol=0.15, err_msg=name)
    state, _ = jb.run(jb.SGD(0.01), xs, ds)
    assert not usual_input(jb.SGD(0.01), state, R).any()
    weighted = jb.WeightColumn(inner, column=1)
    state, _ = jb.run(weighted, xs, ds)
    expected = np.where(np.arange(R) == 1, 0, xs.mean(axis=0))
    np.testing.assert_allclose(usual_input(weighted, state, R), expected, atol=0.3)
    ranged = jb.pipeline(jb.Scale("range"), jb.SGD(0.1))
    middle = (xs.min(axis=0) + xs.max(axis=0)) / 2
    state, _ = jb.run(ranged, xs, ds)
    np.testing.assert_allclose(usual_input(ranged, state, R), middle, atol=0.1)


def test_a_column_of_times_is_explained_as_a_whole():
    hours = np.arange(600, dtype=np.float32)
    other = np.random.default_rng(1).normal(size=600).astype(np.float32)
    ds = (2 * np.cos(2 * np.pi * hours / 24) + other).astype(np.float32)
    calendar = jb.Calendar(column=1, unit="hours", cycles=("day",))
    model = jb.pipeline(calendar, jb.Scale(), jb.Bias(), jb.Newton(0.999, 0.1))
    xs = np.column_stack([other, hours])
    state, _ = jb.run(model, xs, ds)
    usual = usual_input(model, state, 2)
    assert abs(usual[0]) < 0.2 and np.isnan(usual[1])
    for row in (0, 6, 12):  # midnight, six o'clock, noon
        base, parts = jb.explain(model, state, xs[row])
        np.testing.assert_allclose(parts[1], 2 * np.cos(2 * np.pi * row / 24), atol=0.3)
        np.testing.assert_allclose(base + parts.sum(), ds[row], atol=0.25)


def test_what_past_answers_tell_is_in_the_base():
    ds = np.sin(np.arange(200) / 5).astype(np.float32)
    xs = np.random.default_rng(0).normal(size=(200, R)).astype(np.float32) * 1e-3
    model = jb.pipeline(jb.Lags(targets=2), jb.Newton(0.999))
    state, _ = jb.run(model, xs, ds)
    base, parts = jb.explain(model, state, xs[-1])
    assert abs(base - np.sin(40)) < 0.02 and np.abs(parts).max() < 0.02


def test_columns_of_one_group_change_together():
    model = jb.pipeline(jb.Scale(), jb.Polynomial(), jb.Newton(0.99, 0.1))
    state, x = learned(model)
    groups = [1, 0, 1, 2]
    base, parts = jb.explain(model, state, x, groups=groups)
    usual = np.asarray(usual_input(model, state, R))

    def of_groups(flags):
        return model.predict(state, jnp.where(flags[jnp.array(groups)] > 0, x, usual))

    exact_base, exact = shapley(of_groups, np.ones(3), np.zeros(3))
    np.testing.assert_allclose(parts, exact, atol=2e-5)
    np.testing.assert_allclose(base, exact_base, atol=2e-5)
    linear = jb.SGD(0.1)
    state, _ = jb.run(linear, *stream())
    _, parts = jb.explain(linear, state, x, groups=groups)
    w = np.asarray(state.w)
    expected = [w[1] * x[1], w[0] * x[0] + w[2] * x[2], w[3] * x[3]]
    np.testing.assert_allclose(parts, expected, rtol=1e-5)


def test_it_is_jitted_and_vmapped_and_takes_several_targets():
    model = jb.pipeline(jb.Scale(), jb.NLMS(0.5))
    xs, ds = stream()
    state, _ = jb.run(model, xs, ds)
    base, parts = jax.jit(jax.vmap(lambda x: jb.explain(model, state, x)))(xs[:5])
    for row in range(5):
        alone = jb.explain(model, state, xs[row])
        np.testing.assert_allclose(base[row], alone[0], atol=1e-5)
        np.testing.assert_allclose(parts[row], alone[1], atol=1e-5)
    several = jb.targets(model, 2)
    state, _ = jb.run(several, xs, np.stack([ds, -ds], axis=1))
    base, parts = jb.explain(several, state, xs[0])
    assert base.shape == (2,) and parts.shape == (2, R)
    np.testing.assert_allclose(base + parts.sum(axis=1), several.predict(state, xs[0]), atol=1e-5)
    np.testing.assert_allclose(parts[0], -parts[1], atol=1e-4)


@pytest.mark.parametrize("name", ["Scale, Bias, ScaleTarget", "SGD × RandomUpdate × Uniform"])
def test_a_run_is_explained_row_by_row_and_no_bit_of_it_changes(name):
    model = (PIPED | BOOSTED)[name]
    xs, ds = stream(40)
    state, plain = jb.run(model, xs, ds, KEY)
    after, trace = jb.run(model, xs, ds, KEY, observe=Explained(model))
    base, parts = trace.observed
    np.testing.assert_array_equal(trace.prediction, plain.prediction)
    jax.tree.map(np.testing.assert_array_equal, after, state)
    sums = base + parts.sum(axis=1)
    np.testing.assert_allclose(sums, trace.prediction, rtol=1e-5, atol=1e-5)
    before, _ = jb.run(model, xs[:25], ds[:25], KEY)  # the state that predicted row 25
    expected = jb.explain(model, before, xs[25], pairs=1)
    np.testing.assert_allclose(parts[25], expected[1], rtol=1e-4, atol=1e-5)
    assert Explained(model) == Explained(model) != Explained(model, pairs=2)
    assert len({Explained(model), Explained(model)}) == 1


def test_a_run_of_auto_keeps_its_bits_where_it_is_explained():
    model = jb.auto("small")
    xs, ds = stream(24)
    state, plain = jb.run(model, xs, ds)
    _, trace = jb.run(model, xs, ds, observe=Explained(model))
    np.testing.assert_array_equal(trace.prediction, plain.prediction)
    base, parts = trace.observed
    np.testing.assert_allclose(base + parts.sum(axis=1), trace.prediction, atol=1e-5)
    np.testing.assert_allclose(usual_input(model, state, R), xs.mean(axis=0), atol=0.6)
    gap = np.where(np.arange(R) == R - 1, np.nan, xs[5])
    assert abs(float(jb.explain(model, state, gap)[1][-1])) < 1e-5  # missing is as usual


@pytest.mark.parametrize("learner", [None, jb.pipeline(jb.Scale(), jb.SGD(0.1))])
def test_forecasts_are_made_before_x_is_known_and_so_are_all_base(learner):
    model = jb.Forecast(learner, 2, longest=8)
    state, x = learned(model)
    base, parts = jb.explain(model, state, x)
    np.testing.assert_array_equal(base, model.forecast(state))
    assert parts.shape == (2, R) and not parts.any()


def test_wrong_arguments_are_named():
    state, x = learned(jb.SGD(0.1))
    for wrong, name in (
        ({"x": np.ones((2, 2))}, "x"),
        ({"x": np.array([1j, 1, 1, 1])}, "x"),
        ({"x": np.ones(3, np.float32)}, "state"),
        ({"groups": [0, 1]}, "groups"),
        ({"groups": [0, 1, 3, 3]}, "groups"),
        ({"groups": [0.5, 1, 1, 1]}, "groups"),
        ({"pairs": 0}, "pairs"),
        ({"model": 3}, "model"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{name}"):
            jb.explain(**{"model": jb.SGD(0.1), "state": state, "x": x} | wrong)
