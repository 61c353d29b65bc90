"""Refined and ScaleAlike: combiners that are safe at once and better in the end, in any units."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.combiners.mean import FromMean, Uniform
from jboost.combiners.refined import Refined, ScaleAlike

T, M = 2000, 4
REFINED = Refined()


def estimates(noise, seed=0):
    """A target that nobody knows, and experts with errors of these sizes."""
    rng = np.random.default_rng(seed)
    d = np.sin(np.arange(T) / 20) + 0.1 * rng.normal(size=T)
    y = d[:, None] + rng.normal(size=(T, M)) * noise
    return y.astype(np.float32), d.astype(np.float32)


def error(combiner, y, d):
    return float(np.mean((np.asarray(jb.run(combiner, y, d)[1].prediction) - d) ** 2))


@pytest.mark.parametrize("noise", [[0.3, 1.0, 1.0, 1.0], [0.3, 30.0, 0.4, 3.0]])
def test_hardly_worse_than_the_best_expert_even_at_first(noise):
    y, d = estimates(noise)
    best = float(np.mean((y[:, 0] - d) ** 2))
    prediction = np.asarray(jb.run(REFINED, y, d)[1].prediction)
    assert np.mean((prediction - d) ** 2) < 1.1 * best
    early = slice(20, 220)
    assert np.mean((prediction - d)[early] ** 2) < 1.6 * np.mean((y[:, 0] - d)[early] ** 2)


def test_better_than_each_and_than_any_convex_mix_where_a_linear_mix_is():
    """Two experts err alike, one twice as much: 2 y₀ − y₁ is the target."""
    y, d = estimates([0.0, 0.0, 0.5, 0.5])
    common = 0.4 * np.random.default_rng(9).normal(size=T)
    y[:, 0] += common
    y[:, 1] += 2 * common
    each = np.mean((y - d[:, None]) ** 2, axis=0)
    assert error(REFINED, y, d) < 0.25 * each.min()
    assert error(REFINED, y, d) < 0.5 * error(jb.BOA(), y, d)


def test_equal_experts_give_their_common_value():
    y, d = estimates([0.3, 1.0, 1.0, 1.0])
    same = np.repeat(y[:, :1], M, axis=1)
    for combiner in (REFINED, ScaleAlike(REFINED, jb.Scale(clip=1e6))):
        prediction = np.asarray(jb.run(combiner, same, d)[1].prediction)
        np.testing.assert_allclose(prediction[2:], same[2:, 0], rtol=1e-4, atol=1e-5)


def test_its_parts_start_at_the_mean_whatever_they_are():
    combiner = Refined(mix=jb.NSGD(0.1), judge=jb.Newton())
    assert float(combiner.predict(combiner.init(2), jnp.array([1.0, 3.0]))) == 2.0


def test_the_correction_learns_what_the_mix_leaves():
    """By hand: p by exponential weights, w by plain SGD of (y − p, d − p), d̂ half p and half q.

    The numbers that SGD sees are in units of the root of the running mean of (d − p)².
    """
    y, d = estimates([0.3, 1.0, 2.0, 1.0])
    d[20] += 100  # counts as an error of ten units
    combiner = Refined(jb.EWA(rate=0.1), jb.SGD(0.05, guard=False), Uniform())
    state, update, predict = combiner.init(M), jax.jit(combiner.update), jax.jit(combiner.predict)
    w, losses, power = np.zeros(M), np.zeros(M), 0.0
    for t in range(40):
        shares = np.exp(-0.1 * (losses - losses.min()))
        shares /= shares.sum()
        p, weight = shares @ y[t], (1.0, 0.5)[t % 2]
        x = y[t] - p
        np.testing.assert_allclose(predict(state, y[t]), p + w @ x / 2, rtol=1e-4, atol=1e-5)
        state = update(state, y[t], d[t], weight=np.float32(weight))
        e = d[t] - p
        if power > 0:
            e = np.clip(e, -10 * power**0.5, 10 * power**0.5)
        power += 4 / (t + 4) * (e**2 - power)
        w += weight * 0.05 * (e - w @ x) * x / power
        losses += weight * (y[t] - d[t]) ** 2
    assert abs(w.sum()) > 0.04  # or an offset of x would not show
    np.testing.assert_allclose(state.correction.w, w, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_units_do_not_matter_without_scaling(unit):
    """The correction's ridge is the same whatever the units; powers of two round alike."""
    y, d = estimates([0.3, 0.4, 1.0, 1.0])
    near, far = (
        np.asarray(jb.run(REFINED, np.float32(u) * y, np.float32(u) * d)[1].prediction) / u
        for u in (1.0, unit)
    )
    np.testing.assert_allclose(far[3:], near[3:], rtol=1e-3, atol=1e-3)


def test_small_errors_are_corrected_as_large_ones_are():
    """An offset that experts share, far smaller than the target, is found."""
    y, d = estimates([0.0, 0.0, 1e-3, 1e-3])
    common = 1e-3 * np.random.default_rng(9).normal(size=T)
    y[:, 0] += common
    y[:, 1] += 2 * common
    assert error(REFINED, y, d) < 0.5 * error(jb.BOA(), y, d)


DRAWN = jb.pipeline(
    jb.RandomFourier(3), jb.boost(jb.SGD(0.1), 2, target_mse=0.1, mode=jb.RandomUpdate())
)


@pytest.mark.parametrize(
    "combiner",
    [FromMean(DRAWN), *(Refined(**{name: DRAWN}) for name in ("mix", "correction", "judge"))],
    ids=["from the mean", "mix", "correction", "judge"],
)
def test_a_part_that_draws_is_given_the_key(combiner):
    assert combiner.needs_key and not REFINED.needs_key and not FromMean(jb.SGD(0.1)).needs_key
    y, d = (a[:8] for a in estimates([0.3, 1.0, 1.0, 1.0]))
    first, second = (jb.run(combiner, y, d, jax.random.key(n))[1].prediction for n in range(2))
    assert np.isfinite(first).all() and (first != second).any()


def test_an_estimate_that_is_none_leaves_every_bit():
    y, d = estimates([0.3, 1.0, 1.0, 1.0])
    for combiner in (REFINED, ScaleAlike(REFINED)):
        state, _ = jb.run(combiner, y, d)
        bad, answers = y.copy(), d.copy()
        bad[range(4), range(4)] = [np.nan, np.inf, -np.inf, 1e30]
        answers[4:] = np.nan
        after, trace = jb.run(combiner, bad, answers, state=state)
        chex.assert_trees_all_equal(after, state)
        assert np.isfinite(trace.prediction).all()


@pytest.mark.parametrize("inner", [REFINED, jb.NSGD(0.1, 0.01), jb.Newton(0.999, 1.0)])
def test_units_and_offsets_of_the_target_do_not_matter(inner):
    y, d = estimates([0.3, 1.0, 1.0, 1.0])
    near, far = (
        np.asarray(jb.run(ScaleAlike(inner), u * y + v, u * d + v)[1].prediction)
        for u, v in ((np.float32(1), np.float32(0)), (np.float32(1e6), np.float32(3e6)))
    )
    np.testing.assert_allclose((far - 3e6)[2:] / 1e6, near[2:], atol=5e-3)


def test_a_wild_estimate_counts_as_one_of_ten_deviations():
    y, d = estimates([0.3, 0.3, 0.3, 0.3])
    state, _ = jb.run(ScaleAlike(Uniform()), y, d)
    wild = jax.jit(ScaleAlike(Uniform()).predict)(state, np.float32([1e12, 0.0, 0.0, 0.0]))
    m, s = (float(a[0]) for a in state.scale.frame)
    assert float(wild) == pytest.approx((m + 10 * s) / 4, rel=1e-4, abs=1e-4)


def test_a_convex_combiner_loses_nothing_when_scaled():
    y, d = estimates([0.3, 0.4, 1.0, 1.0])
    assert error(ScaleAlike(jb.BOA()), y, d) < 1.02 * error(jb.BOA(), y, d)


def test_errors_say_what_is_wanted():
    for name, example in (("mix", "BOA"), ("correction", "Newton"), ("judge", "MLPoly")):
        message = rf"{name} must be a learner such as {example}\(\); got 'boa'"
        with pytest.raises(TypeError, match=message):
            Refined(**{name: "boa"})
    with pytest.raises(TypeError, match="combiner must be a learner such as BOA"):
        ScaleAlike(jb.Scale())
    with pytest.raises(TypeError, match="scale must be a Scale"):
        ScaleAlike(jb.BOA(), jb.Bias())
