"""The chain by itself, against its formulas written out one learner after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jboost.boosting.emphasis import Emphasis
from jboost.boosting.modes import DataReuse
from jboost.core.products import sums_before
from jboost.core.surroundings import written_for

M = 4


def by_hand(
    samples: Any, target_mse: Any, c: float, guarantee: float | None, literal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """λ of every learner at every sample, and δ after the last, in float64."""
    m = samples[0][0].shape[0]
    s = np.broadcast_to(target_mse, m)
    Lam, loss, out = np.zeros(m), np.zeros(m), []
    for y, d, weight in samples:
        total, lam = 0.0, np.zeros(m)
        for k in range(m):
            delta = loss[k] / Lam[k] if Lam[k] > 0 else 0.0
            delta = delta if literal else max(delta, 1e-6)
            base, power = (delta, c * total) if guarantee is None else (guarantee, total / 2)
            lam[k] = (0.0 if power > 0 else 1.0) if base == 0 else min(1.0, base**power)
            error = d - (np.clip(y[k], -1, 1) if literal else y[k])
            Lam[k] += weight * lam[k]
            loss[k] += weight * lam[k] * (error**2 / 4 if literal else min(error**2 / 4, 1))
            total += s[k] - (d - y[k]) ** 2
        out.append(lam)
    delta = np.divide(loss, Lam, out=np.zeros(m), where=Lam > 0)
    return np.array(out), delta if literal else np.maximum(delta, 1e-6)


def samples(m: int = M, size: float = 1.0, T: int = 30) -> list[Any]:
    """Errors that shrink and grow along the chain; a perfect first sample; uneven weights."""
    rng = np.random.default_rng(5)
    y = size * rng.normal(size=(T, m)) * np.linspace(0.2, 1.2, m)
    d = size * 0.4 * rng.normal(size=T)
    y[0] = d[0]  # δ = 0 for all
    return list(zip(y, d, rng.uniform(0.2, 2.0, size=T), strict=True))


def chained(emphasis: Emphasis, stream: Any) -> tuple[np.ndarray, np.ndarray]:
    state = emphasis.init(len(stream[0][0]), jnp.float64)
    step, out = jax.jit(emphasis.weigh), []
    for y, d, weight in stream:
        lam, state = step(state, jnp.asarray(y), jnp.asarray(d), jnp.asarray(weight))
        out.append(lam)
    return np.array(out), np.asarray(emphasis.delta(state))


@pytest.mark.parametrize("chain", ["prefix", "scan"])
@pytest.mark.parametrize("literal", [False, True], ids=["", "literal"])
@pytest.mark.parametrize(
    ("dependence", "guarantee", "size"), [(1.0, None, 1.0), (0.4, None, 3.0), (1.0, 0.3, 1.0)]
)
def test_the_chain_is_the_formulas(
    chain: str, literal: bool, dependence: float, guarantee: Any, size: float, x64: None
) -> None:
    target = np.array([0.3, 0.2, 0.5, 0.1])
    emphasis = Emphasis(target, dependence, guarantee, chain, literal)
    stream = samples(size=size)
    lam, delta = chained(emphasis, stream)
    expected, expected_delta = by_hand(stream, target, dependence, guarantee, literal)
    assert 0.01 < (expected < 1).mean() < 0.9  # some are less important, some are not
    np.testing.assert_allclose(lam, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(delta, expected_delta, rtol=1e-9)
    assert (lam[:, 0] == 1).all()


@pytest.mark.parametrize("m", [1, 2, 3, 8, 20, 100])
def test_sums_before_are_the_same_in_a_kernel(m: int, x64: None) -> None:
    gains = np.random.default_rng(m).normal(size=m)
    with written_for("kernel"):
        sums = sums_before(jnp.asarray(gains))
    np.testing.assert_allclose(sums, [gains[:k].sum() for k in range(m)], atol=1e-12)


@pytest.mark.parametrize("m", [1, 64, 65, 100])
def test_long_chains_are_summed_another_way(m: int, x64: None) -> None:
    stream = samples(m, T=4)
    lam, _ = chained(Emphasis(0.3), stream)
    np.testing.assert_allclose(lam, by_hand(stream, 0.3, 1.0, None, False)[0], rtol=1e-7)


@pytest.mark.parametrize("m", [64, 65])
@pytest.mark.parametrize("chain", ["prefix", "scan"])
def test_an_error_counts_for_the_learners_after_it_alone(chain: str, m: int) -> None:
    """δ = 1e-6 and l = 0, ¼, ½, ¾ up to the learner that is 1e5 off, −1e10 after it."""
    emphasis = Emphasis(0.25, chain=chain)
    y, unit = jnp.zeros(m).at[3].set(1e5), jnp.ones(())
    lam, _ = emphasis.weigh(emphasis.init(m, jnp.float32), y, 0 * unit, unit)
    expected = np.ones(m)
    expected[:4] = 10.0 ** np.array([0, -1.5, -3, -4.5])
    np.testing.assert_allclose(lam, expected, rtol=1e-5)


def test_the_chain_asked_for_is_the_one_that_runs() -> None:
    """They give the same numbers: what tells them apart is the loop in the program."""
    for chain, settings in (
        ("prefix", {}),
        ("prefix", {"chain": "prefix"}),
        ("scan", {"chain": "scan"}),
    ):
        emphasis = Emphasis(0.1, **settings)
        unit, state = jnp.ones(()), emphasis.init(3, jnp.float32)
        program = jax.make_jaxpr(emphasis.weigh)(state, jnp.zeros(3), unit, unit)
        assert ("scan" in {step.primitive.name for step in program.eqns}) == (chain == "scan")


@pytest.mark.parametrize("literal", [False, True], ids=["", "literal"])
@pytest.mark.parametrize("weight", [1e-15, 1.0, 1e15])
def test_only_ratios_of_the_weights_of_samples_count(literal: bool, weight: float) -> None:
    """Errors of 1, then of 0: δ = ¼ and l = ½ make λ = ½."""
    emphasis = Emphasis(0.5, literal=literal)
    unit = jnp.ones(())
    _, state = emphasis.weigh(emphasis.init(2, jnp.float32), jnp.ones(2), 0 * unit, weight * unit)
    np.testing.assert_allclose(emphasis.delta(state), 0.25, rtol=1e-6)
    lam, _ = emphasis.weigh(state, jnp.zeros(2), 0 * unit, weight * unit)
    np.testing.assert_allclose(lam, [1.0, 0.5], rtol=1e-6)


@pytest.mark.parametrize(("error", "expected"), [(1e9, 1.0), (1e8, 0.0)])
def test_squares_count_in_full_up_to_the_largest(error: float, expected: float) -> None:
    """σ_m² = 1e17: l is 1e17 − 1e18, or 1e17 − 1e16."""
    emphasis, unit = Emphasis(1e17), jnp.ones(())
    y = jnp.array([error, 0.0])
    lam, _ = emphasis.weigh(emphasis.init(2, jnp.float32), y, 0 * unit, unit)
    np.testing.assert_allclose(lam, [1.0, expected], atol=1e-30)


def test_what_is_not_literal_never_stands_still(x64: None) -> None:
    """A perfect start makes δ = 0: literally nothing is learned ever after, else a little is."""
    y, d, ahead = jnp.zeros(2), jnp.asarray(0.0), jnp.asarray(1.0)
    for literal, expected in ((True, 0.0), (False, 1e-6**0.5)):
        emphasis = Emphasis(0.5, literal=literal)
        _, state = emphasis.weigh(emphasis.init(2, jnp.float64), y, d, ahead)
        lam, _ = emphasis.weigh(state, y, d, ahead)
        np.testing.assert_allclose(lam, [1.0, expected], rtol=1e-9)
    huge = Emphasis(0.5).record(emphasis.init(2, jnp.float64), y + 1e9, d, ahead)
    np.testing.assert_allclose(Emphasis(0.5).delta(huge), 1.0)  # at most, for any target


@pytest.mark.parametrize("literal", [False, True], ids=["", "literal"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", [0.3, 300.0])  # at the latter δ^(c·l) is 0 in either dtype
def test_gradients_are_finite_from_the_first_sample(
    literal: bool, dtype: str, target: float, x64: None
) -> None:
    def last(numbers: Any) -> Any:
        emphasis = Emphasis(numbers[0], numbers[1], literal=literal)
        state = emphasis.init(3, dtype)
        for y, d in (([0.0, 0.0, 0.0], 0.0), ([0.1, -2.0, 0.3], 0.2), ([0.3, 0.2, 0.1], 0.0)):
            unit = jnp.ones((), dtype)
            lam, state = emphasis.weigh(state, jnp.asarray(y, dtype), jnp.asarray(d, dtype), unit)
        return lam.sum()

    slope = jax.jit(jax.grad(last))(jnp.asarray([target, 0.7], dtype))
    assert slope.dtype == dtype and np.isfinite(slope).all()
    if not literal and target < 1:  # literally, a perfect start has ended all learning
        assert (slope < 0).all()


def test_a_setting_is_one_float_leaf_whatever_it_was() -> None:
    """Whole numbers too have a gradient; a list is one value per learner."""
    leaves = jax.tree.leaves(Emphasis([1, 2], 3, [0.25, 0.5]))
    assert [np.shape(leaf) for leaf in leaves] == [(2,), (), (2,)]
    leaves += jax.tree.leaves(Emphasis(1, [2, 3], np.float32(0.5)))
    assert [np.shape(leaf) for leaf in leaves[3:]] == [(), (2,), ()]
    assert all(np.asarray(leaf).dtype == np.float64 for leaf in leaves)


def test_the_slope_at_no_dependence_is_the_one_towards_some(x64: None) -> None:
    """At c = 0 every λ is 1, and more of c can only make some of them smaller."""

    def weights(c: Any) -> Any:
        emphasis = Emphasis(0.3, c)
        state = emphasis.init(3, jnp.float64)
        y, d = jnp.array([0.1, 2.0, 0.3]), jnp.array(0.2)
        _, state = emphasis.weigh(state, y, d, jnp.ones(()))
        return emphasis.weigh(state, y, d, jnp.ones(()))[0]

    lam, slope = weights(0.0), jax.jacfwd(weights)(0.0)
    assert lam.tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(slope, (weights(1e-7) - lam) / 1e-7, rtol=1e-4, atol=1e-9)
    assert slope[1] < -0.01 and slope[2] == 0.0  # the second leaves much to do: the third's is 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target_mse": -0.1}, "target_mse >= 0"),
        ({"dependence": -0.1}, "dependence >= 0"),
        ({"guarantee": 0.0}, "guarantee > 0 and guarantee < 1"),
        ({"guarantee": 1.0}, "guarantee > 0 and guarantee < 1"),
        ({"chain": "sum"}, "chain must be one of"),
    ],
)
def test_settings_out_of_range(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Emphasis(**{"target_mse": 0.1} | wrong)
    for edge in ({"target_mse": 0.0}, {"dependence": 0.0}):
        Emphasis(**{"target_mse": 0.1} | edge)


@pytest.mark.parametrize("literal", [False, True])
def test_a_weight_beyond_the_smallest_number_is_not_zero(literal: bool) -> None:
    """δ > 0 makes λ > 0, so that data reuse learns a sample at least once."""
    emphasis, unit = Emphasis(100.0, literal=literal), jnp.ones(())
    state = emphasis.record(emphasis.init(20, jnp.float32), jnp.zeros(20), unit / 2, jnp.ones(20))
    lam, _ = emphasis.weigh(state, jnp.zeros(20), 0 * unit, unit)  # l = 100, 200, … and δ = 1/16
    assert (lam > 0).all() and (lam[1:] < 1e-36).all()
    assert DataReuse(5).spend(lam, None)[1].tolist() == [5, *[1] * 19]
