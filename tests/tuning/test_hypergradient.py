"""The error's gradient in hyperparameters: right, cheap in memory, never silently zero."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.engine import loop
from jboost.settings import leaves
from jboost.settings.surrogates import relaxed
from jboost.tuning.hypergradient import hypergradient

KEY = jax.random.key(0)
METHODS = ("forward", "reverse")
# The cap on P away from 1/ridge: there the error has a kink, and no derivative.
NEWTON = jb.Newton(0.99, ridge=0.1, max_variance=30.0)

MIXED = jb.boost(
    [jb.SGD(0.1), jb.SGD(0.05), NEWTON, jb.NLMS(0.2, 0.05)],
    target_mse=0.2,
    dependence=0.7,
    combiner=jb.NSGD(0.01, 0.02),
)
WEIGHTED = {
    "mixed": MIXED,
    "bsgd_wu": jb.bsgd_wu(3, target_mse=0.25, step_size=0.1),
    "bsgd_wu, NSGD": jb.bsgd_wu(3, target_mse=0.25, step_size=0.1, combiner=jb.NSGD(0.01, 0.02)),
    "bsgd_wu, uniform": jb.bsgd_wu(3, target_mse=0.25, step_size=0.1, combiner=jb.Uniform()),
    "bnm_wu": jb.boost(NEWTON, 3, target_mse=0.17),
    "bnm_wu, NSGD": jb.boost(NEWTON, 3, target_mse=0.17, combiner=jb.NSGD(0.01, 0.02)),
    "bnm_wu, uniform": jb.boost(NEWTON, 3, target_mse=0.17, combiner=jb.Uniform()),
    "ForwardNewton": jb.boost(jb.ForwardNewton(0.99, 0.1, 30.0), 3, target_mse=0.2),
    "by weight": jb.boost(
        jb.Newton(0.99, 0.1, max_variance=30.0, forget_by_weight=True), 3, target_mse=0.2
    ),
    "covariance": jb.boost(
        jb.Newton(0.99, 0.1, max_variance=30.0, storage="covariance"), 3, target_mse=0.2
    ),
    "Algorithm 1": jb.boost(jb.SGD(0.1), 3, target_mse=0.2, guarantee=0.1, chain="scan"),
    "literal": jb.bnm_wu(3, target_mse=0.2, forgetting=0.99, ridge=0.1, literal=True),
    "boosters": jb.boost(jb.boost(jb.SGD(0.1), 2, target_mse=0.2), 2, target_mse=0.2),
}


def duffing(T):
    return tuple(np.asarray(a) for a in jb.streams.duffing(T))


def assert_matches_finite_differences(model, xs, ds, tolerance=1e-4):
    """Every float of the model, every entry of it, by differences of two widths."""
    settings = leaves.paths(model)
    value, grads = hypergradient(model, xs, ds, wrt=settings)
    base = [np.asarray(leaf, float) for leaf in leaves.take(model, settings.values())]
    flat, shapes = np.concatenate([a.ravel() for a in base]), [a.shape for a in base]
    ends = np.cumsum([a.size for a in base])[:-1]

    def error(flat):
        parts = [a.reshape(s) for a, s in zip(jnp.split(flat, ends), shapes, strict=True)]
        return jb.mse(leaves.put(model, settings.values(), parts), xs, ds)

    np.testing.assert_allclose(value, error(jnp.asarray(flat)), rtol=1e-9)
    slopes = np.concatenate([np.ravel(grads[name]) for name in settings])
    names = [name for name, a in zip(settings, base, strict=True) for _ in range(a.size)]
    room = np.array([1 - v if "forgetting" in n else v for n, v in zip(names, flat, strict=True)])
    # Kinks (λ = 1 begins or ends) spoil wide differences, rounding narrow ones: one must agree.
    h = np.array([1e-4, 1e-5, 1e-6])[:, None, None] * np.diag(room)
    points = flat + np.stack([h, -h])
    errors = jax.jit(jax.vmap(error))(jnp.asarray(points.reshape(-1, flat.size)))
    up, down = np.asarray(errors).reshape(points.shape[:3])
    numeric = (up - down) / (2 * h.sum(axis=2))
    off = np.min(np.abs(numeric - slopes) / (np.abs(slopes) + 1e-12), axis=0)
    assert (off < tolerance).all(), dict(zip(names, off, strict=True))


def test_every_float_matches_finite_differences(x64):
    few = jb.boost([jb.SGD(0.1), jb.NLMS(0.2, 0.05)], target_mse=0.2, combiner=jb.NSGD(0.01, 0.02))
    assert_matches_finite_differences(few, *duffing(200))


@pytest.mark.slow
@pytest.mark.parametrize("model", WEIGHTED.values(), ids=WEIGHTED.keys())
def test_every_float_of_weighted_models_over_ten_thousand_steps(model, x64):
    assert_matches_finite_differences(model, *duffing(10_000))


def test_by_hand():
    """w₁ = μ d₁ x₁, so the second estimate is μ d₁ x₁ x₂; the third target is no answer."""
    xs, ds = np.array([[2.0], [3.0], [1.0]]), np.array([1.0, 2.0, np.nan])
    value, grads = hypergradient(jb.SGD(step_size=0.1), xs, ds)
    assert float(value) == pytest.approx((1 + (2 - 0.6) ** 2) / 2)
    assert float(grads["step_size"]) == pytest.approx(-(2 - 0.6) * 6)


STEP_EACH = jb.boost(jb.SGD(np.array([0.05, 0.1])), 2, target_mse=0.2, combiner=jb.Uniform())


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (jb.NLMS(0.2, epsilon=0.05), {"step_size": (), "epsilon": ()}),
        pytest.param(STEP_EACH, {"step_size": (2,), "dependence": ()}, marks=pytest.mark.slow),
    ],
)
def test_both_methods_agree_over_bad_samples_and_a_length_that_is_no_square(model, shapes, x64):
    xs, ds = (np.array(a, float) for a in duffing(61))
    xs[3], ds[5], xs[7, 1], ds[9] = 0.0, np.nan, np.inf, 1e30
    forward, reverse = (hypergradient(model, xs, ds, wrt=shapes, method=m) for m in METHODS)
    np.testing.assert_allclose(forward[0], jb.mse(model, xs, ds), rtol=1e-12)
    np.testing.assert_allclose(reverse[0], forward[0], rtol=1e-12)
    assert {name: slope.shape for name, slope in forward[1].items()} == shapes
    for name in shapes:
        assert np.isfinite(forward[1][name]).all() and (forward[1][name] != 0).all()
        np.testing.assert_allclose(reverse[1][name], forward[1][name], rtol=1e-9)


def test_memory():
    """Forward mode keeps nothing over time; reverse mode grows as √T."""
    model = jb.NLMS(step_size=0.1)

    def temporary(method, T):
        f = jax.jit(lambda xs, ds: hypergradient(model, xs, ds, method=method))
        shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((T, 3), (T,))]
        return f.lower(*shapes).compile().memory_analysis().temp_size_in_bytes

    assert temporary("forward", 10**6) == temporary("forward", 10**4)
    assert temporary("reverse", 10**6 + 3) < 15 * temporary("reverse", 10**4)


def test_other_values_do_not_compile_again():
    xs, ds = duffing(300)

    def programs():
        return sum(program._cache_size() for program in loop._calls.values())

    def ask(step_size, target_mse):
        model = jb.boost(jb.SGD(step_size), 2, target_mse=target_mse, combiner=jb.Uniform())
        return float(hypergradient(model, xs, ds)[1]["step_size"])

    first, count = ask(0.1, 0.2), programs()
    assert ask(0.01, 0.1) != first and programs() == count


def test_inside_jit_and_vmap():
    xs, ds = duffing(200)

    def slope(step_size):
        return hypergradient(jb.SGD(step_size=step_size), xs, ds)[1]["step_size"]

    steps = jnp.array([0.01, 0.1])
    together = jax.jit(jax.vmap(slope))(steps)
    np.testing.assert_allclose(together, [slope(float(s)) for s in steps], rtol=1e-4)


def late(trace, ds):
    return jnp.mean(jnp.abs(trace.prediction - ds)[100:]) + trace.observed.mean()


def lam(state, info):
    return info.lam


def test_a_metric_of_the_trace(x64):
    xs, ds = duffing(200)

    def model(target_mse):
        return jb.boost(jb.SGD(0.1), 2, target_mse=target_mse, combiner=jb.Uniform())

    value, grads = hypergradient(model(0.2), xs, ds, wrt="target_mse", metric=late, observe=lam)
    up, down = (late(jb.run(model(0.2 + h), xs, ds, observe=lam)[1], ds) for h in (1e-7, -1e-7))
    assert float(value) == pytest.approx(float(up + down) / 2)
    assert float(grads["target_mse"]) == pytest.approx(float(up - down) / 2e-7, rel=1e-4)


UNIFORM = {"target_mse": 0.25, "combiner": jb.Uniform()}
SPENT = {
    "RU": jb.boost(jb.SGD(0.05), 3, mode=jb.RandomUpdate(), **UNIFORM),
    "DR": jb.boost(jb.SGD(0.05), 3, mode=jb.DataReuse(3), **UNIFORM),
}
MORE_SPENT = {
    "Poisson": jb.boost(jb.SGD(0.05), 3, mode=jb.PoissonReuse(), **UNIFORM),
    "NM-RU": jb.bnm_ru(3, target_mse=0.17, forgetting=0.98, ridge=0.1),
    "boosters": jb.boost(SPENT["RU"], 2, mode=jb.DataReuse(2), **UNIFORM),
}
SPENT_SLOWLY = [pytest.param(m, id=name, marks=pytest.mark.slow) for name, m in MORE_SPENT.items()]


@pytest.mark.parametrize(
    "model", [pytest.param(m, id=name) for name, m in SPENT.items()] + SPENT_SLOWLY
)
def test_straight_through_is_the_run_itself_with_a_slope_in_lambda(model):
    xs, ds = duffing(100)
    name = "emphasis.target_mse"
    value, grads = hypergradient(model, xs, ds, KEY, wrt=name)
    np.testing.assert_allclose(value, jb.mse(model, xs, ds, KEY), rtol=1e-5)
    assert np.isfinite(grads[name]) and abs(grads[name]) > 1e-5


@pytest.mark.slow
def test_straight_through_is_nearly_the_slope_of_the_mean_error(x64):
    """Random updates, mean over keys, against differences of the mean error at the same keys."""
    xs, ds = duffing(200)
    keys = jax.random.split(KEY, 600)
    where = leaves.places(SPENT["RU"], ("step_size", "target_mse"))

    @jax.jit
    def slopes(key):
        return hypergradient(SPENT["RU"], xs, ds, key, wrt=where)[1]

    @jax.jit
    def error(values, key):
        return jb.mse(leaves.put(SPENT["RU"], where.values(), values), xs, ds, key)

    by_gradient = jax.lax.map(slopes, keys, batch_size=100)
    base = leaves.take(SPENT["RU"], where.values())
    for i, name in enumerate(where):
        h = 0.15 * base[i]
        up, down = (
            jax.lax.map(lambda key, v=v: error(v, key), keys, batch_size=100)
            for v in ([b + s * h * (j == i) for j, b in enumerate(base)] for s in (1, -1))
        )
        numeric = (up - down) / (2 * h)
        noise = 3 * (numeric.std() + by_gradient[name].std()) / np.sqrt(len(keys))
        assert abs(by_gradient[name].mean() - numeric.mean()) < 0.1 * abs(numeric.mean()) + noise


@pytest.mark.parametrize(
    "mode", [jb.RandomUpdate(), pytest.param(jb.DataReuse(3), marks=pytest.mark.slow)]
)
def test_expected_is_smooth_and_needs_no_key(mode, x64):
    xs, ds = duffing(150)

    def model(target_mse):
        return jb.boost(jb.SGD(0.05), 3, target_mse=target_mse, mode=mode, combiner=jb.Uniform())

    def error(target_mse):
        return jb.mse(relaxed(model(target_mse), "expected"), xs, ds)

    at = 0.25
    value, grads = hypergradient(model(at), xs, ds, wrt="target_mse", surrogate="expected")
    assert float(value) == pytest.approx(float(error(at)), rel=1e-9)
    numeric = (error(at + 1e-7) - error(at - 1e-7)) / 2e-7
    assert float(grads["target_mse"]) == pytest.approx(float(numeric), rel=1e-4)


def test_a_loop_of_unknown_length_goes_forward(monkeypatch):
    xs, ds = duffing(20)
    model = jb.boost(jb.EWA(rate=0.1), 1, mode=jb.DataReuse(2), **UNIFORM)
    with pytest.raises(ValueError, match="use method='forward'"):
        hypergradient(model, xs, ds, wrt="rate", method="reverse")
    monkeypatch.setattr(sys.modules["jboost.tuning.hypergradient"], "MOST_FORWARD", 0)
    slope = hypergradient(model, xs, ds, wrt="rate")[1]["rate"]
    assert np.isfinite(slope) and slope != 0


def test_twenty_learners_in_float32_have_a_slope():
    """The last of a long chain have weights of 1e-20 at first, whose squares are zero."""
    xs, ds = duffing(50)
    model = jb.boost(jb.SGD(0.1), 20, **UNIFORM)
    _, grads = hypergradient(model, xs, ds, wrt=("step_size", "target_mse"))
    assert all(np.isfinite(slope) for slope in grads.values())


def test_names():
    model = jb.bsgd_wu(3, target_mse=0.2, step_size=0.1, combiner=jb.NSGD(0.01))
    assert leaves.places(model, "learner.step_size") == {"learner.step_size": 0}
    full = leaves.paths(model)["combiner.learner.step_size"]
    assert leaves.places(model, ["combiner.step_size"]) == {"combiner.step_size": full}
    several = jb.boost([jb.SGD(0.1), jb.Newton(0.9)], target_mse=0.2)
    ridge = leaves.paths(several)["learner[1].ridge"]
    assert leaves.places(several, ("learner[1].ridge", "learner.1.forgetting")) == {
        "learner[1].ridge": ridge,
        "learner.1.forgetting": ridge - 1,
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"wrt": "step_size"}, "may be learner.step_size or combiner.learner.step_size"),
        ({"wrt": "stepsize"}, "does not have; it has learner.step_size, emphasis.target_mse"),
        ({"wrt": "m"}, "'m', which this model does not have"),
        ({"wrt": ()}, "must name at least one"),
        ({"wrt": ("target_mse", "emphasis.target_mse")}, "each float once"),
        ({"wrt": (3,)}, "must hold names"),
        ({"wrt": 3}, "must hold names"),
        ({"wrt": "target_mse", "method": "both"}, "method must be one of 'forward', 'reverse'"),
        ({"wrt": "target_mse", "surrogate": "none"}, "surrogate must be one of"),
        (
            {"wrt": "target_mse", "metric": lambda trace, ds: ds},
            "metric must return one real number",
        ),
    ],
)
def test_mistakes_are_named(arguments, words):
    model = jb.bsgd_wu(3, target_mse=0.2, step_size=0.1, combiner=jb.NSGD(0.01))
    with pytest.raises((TypeError, ValueError), match=words):
        hypergradient(model, *duffing(5), **arguments)


def test_a_model_that_draws_wants_its_key():
    with pytest.raises(ValueError, match="key is missing"):
        hypergradient(SPENT["RU"], *duffing(5))
