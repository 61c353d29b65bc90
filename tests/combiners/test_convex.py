"""EWA, BOA and ML-Poly: against loops over the printed rules, on hard streams, in their bounds."""

import dataclasses
import json
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jboost as jb
from jboost.combiners.convex import BOA, EWA, MLPoly
from jboost.combiners.mean import FromMean, from_mean

RECORD = Path(__file__).parents[2] / "experiments/bench/results/combiners.json"
RULES = {"EWA": EWA(), "EWA, rate": EWA(rate=0.3), "BOA": BOA(), "MLPoly": MLPoly()}
FADING = {
    "EWA": EWA(forgetting=0.9),
    "EWA, rate": EWA(rate=0.3, forgetting=0.9),
    "BOA": BOA(forgetting=0.9),
    "MLPoly": MLPoly(forgetting=0.9),
}


def experts(T=200, m=4, seed=0):
    """Predictions of unlike quality, one of them biased, and targets."""
    rng = np.random.default_rng(seed)
    d = np.sin(np.arange(T) / 7.0) + 0.3
    y = d[:, None] + rng.normal(size=(T, m)) * np.linspace(0.2, 1.0, m) + np.eye(m)[0] * 0.5
    return y, d


@jax.jit
def mix(rule, state):
    return rule.mix(state)


@jax.jit
def mixes(rule, y, d, weights):
    """p before every sample."""

    def step(state, sample):
        y, d, weight = sample
        return rule.update(state, y, d, weight=weight), rule.mix(state)

    return jax.lax.scan(step, rule.init(y.shape[1], y.dtype), (y, d, weights))[1]


def ewa(y, d, lam, rate, gamma):
    L, S, out = np.zeros(y.shape[1]), 0.0, []
    for t in range(len(d)):
        eta = rate if rate is not None else 1 / (2 * S) if S > 0 else 0.0
        w = np.exp(-eta * (L - L.min()))
        out.append(w / w.sum())
        loss = lam[t] * (y[t] - d[t]) ** 2
        L = gamma * L + loss
        S = gamma * S if loss.max() <= gamma * S else 2 * loss.max()
    return np.array(out)


def boa(y, d, lam, gamma):
    m = y.shape[1]
    V, R, out = np.zeros(m), np.zeros(m), []
    for t in range(len(d)):
        differed, p = V > 0, np.full(m, 1 / m)
        if differed.any():
            w = np.exp(R[differed] / np.sqrt(V[differed])) / np.sqrt(V[differed])
            p[differed] = differed.mean() * w / w.sum()
        out.append(p)
        r = lam[t] * 2 * (p @ y[t] - d[t]) * (p @ y[t] - y[t])
        V = gamma * V + 2.2 * r**2
        R = gamma * R + r - r**2 / np.sqrt(np.where(V > 0, V, 1))
    return np.array(out)


def ml_poly(y, d, lam, gamma):
    m = y.shape[1]
    squares, R, B, out = np.zeros(m), np.zeros(m), 0.0, []
    for t in range(len(d)):
        w = np.maximum(R, 0) / (B + squares) if (R > 0).any() else np.ones(m)
        p = w / w.sum()
        out.append(p)
        r = lam[t] * 2 * (p @ y[t] - d[t]) * (p @ y[t] - y[t])
        R, squares = gamma * R + r, gamma * squares + r**2
        B = max(gamma * B, (r**2).max())
    return np.array(out)


def by_loop(rule, y, d, lam):
    gamma = rule.forgetting
    if isinstance(rule, EWA):
        return ewa(y, d, lam, rule.rate, gamma)
    return (boa if isinstance(rule, BOA) else ml_poly)(y, d, lam, gamma)


@pytest.mark.parametrize("rules", [RULES, FADING], ids=["", "fading"])
@pytest.mark.parametrize("name", RULES)
def test_the_mix_is_that_of_a_plain_loop(rules, name, x64):
    y, d = experts()
    y[0] = [0, 1, 2, 1]  # two are the mean, so that their V stays 0
    y[90:93] = y[90:93, :1]  # nothing tells them apart
    lam = np.where(np.arange(len(d)) % 3 == 1, 0.5, 1.0)
    expected = by_loop(rules[name], y, d, lam)
    assert expected.std() > 0.05  # it moved
    np.testing.assert_allclose(mixes(rules[name], y, d, lam), expected, atol=1e-9)


def test_two_samples_by_hand():
    """m = 2, y = (1, 3), d = 1: the mean 2 has r = 2·1·(2 − y) = (2, −2)."""
    y, d = np.full((2, 2), [1, 3], np.float32), np.ones(2, np.float32)
    ewa = 1 / (1 + np.exp(-1 / 4))  # losses 0 and 4: S = 8, η = 1/16
    boa = 1 / (1 + np.exp(-4 / np.sqrt(8.8)))  # V = 8.8 for both; R/√V = ±2/√8.8 − 4/8.8
    for rule, p in ((EWA(), ewa), (BOA(), boa), (MLPoly(), 1.0)):  # one regret is negative
        np.testing.assert_allclose(mixes(rule, y, d, d), [[0.5, 0.5], [p, 1 - p]], rtol=1e-6)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_starts_at_the_mean_and_is_not_wrapped(rule):
    y = jnp.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(rule.predict(rule.init(3), y), 3.0, rtol=1e-6)
    model = jb.boost(jb.SGD(0.1), 3, target_mse=0.1, combiner=rule)
    assert model.combiner is rule and from_mean(rule) is rule
    assert isinstance(from_mean(jb.Newton()), FromMean)
    assert from_mean(from_mean(jb.Newton())).learner.ridge == 0.01  # wrapped once


@pytest.mark.parametrize(
    "rule",
    [*RULES.values(), from_mean(jb.NSGD(0.1)), jb.Refined()],
    ids=[*RULES, "from the mean", "Refined"],
)
def test_a_sample_counts_once_if_nothing_is_said(rule):
    y, state = jnp.array([1.0, 2.0, 6.0]), rule.init(3)
    plain = jax.jit(lambda state: rule.update(state, y, 1.0))(state)
    once = jax.jit(lambda state: rule.update(state, y, 1.0, weight=1.0, repeats=1))(state)
    chex.assert_trees_all_equal(plain, once)
    twice = jax.jit(rule.update)(once, y, 1.0)
    leaves = zip(jax.tree.leaves(once), jax.tree.leaves(twice), strict=True)
    assert not all(np.array_equal(*pair) for pair in leaves)  # or the test would show nothing


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_equal_experts_give_their_common_value_exactly(rule):
    y = np.full((200, 4), 0.1, np.float32)
    state, trace = jb.run(rule, y, np.linspace(-1, 1, 200, dtype=np.float32))
    assert (np.asarray(trace.prediction) == np.float32(0.1)).all()
    assert (np.asarray(mix(rule, state)) == 0.25).all()


@pytest.mark.parametrize("rule", FADING.values(), ids=FADING)
def test_nothing_to_learn_and_learning_several_times(rule):
    y, d = (a.astype(np.float32) for a in experts())
    start, _ = jb.run(rule, y, d)

    @jax.jit
    def learn(state, y, d, weight, repeats):
        return rule.update(state, y, d, weight=weight, repeats=repeats)

    bad = y[0].copy()
    bad[1] = np.nan
    unusable = [(y[0], jnp.nan, 1.0, 1), (y[0], jnp.inf, 1.0, 1), (y[0], 1e16, 1.0, 1)]
    unusable += [(bad, 0.0, 1.0, 1), (y[0], d[0], 0.0, 1), (y[0], d[0], 1.0, 0)]
    for *sample, repeats in unusable:
        after = learn(start, *map(np.float32, sample), np.int32(repeats))
        chex.assert_trees_all_equal(after, start)
    assert np.isfinite(rule.predict(start, bad))

    many = start
    for _ in range(3):
        many = learn(many, y[3], d[3], np.float32(0.7), np.int32(1))
    thrice = learn(start, y[3], d[3], np.float32(0.7), np.int32(3))
    chex.assert_trees_all_equal(thrice, many)
    assert float(jnp.abs(mix(rule, thrice) - mix(rule, start)).max()) > 1e-4


@pytest.mark.parametrize("rule", [EWA(), BOA(), MLPoly()], ids=["EWA", "BOA", "MLPoly"])
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e2, 1e4, 1e12])
def test_the_scale_of_the_targets_does_not_matter(rule, scale):
    """Losses from 1e-24 to 1e24, whose squares do not fit float32."""
    y, d = (a.astype(np.float32) for a in experts())
    plain = jb.run(rule, y, d)[1].prediction
    scaled = jb.run(rule, y * np.float32(scale), d * np.float32(scale))[1].prediction
    np.testing.assert_allclose(scaled / scale, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rule", FADING.values(), ids=FADING)
def test_nothing_is_left_of_what_is_forgotten(rule):
    """An estimate of 1e14, and 2000 steps at γ = 0.9: 1e-92 of a loss of 1e28."""
    y, d = (a.astype(np.float32) for a in experts(2000))
    wild = y.copy()
    wild[0, 0] = 1e14
    calm, after = (jb.run(rule, rows, d)[0] for rows in (y, wild))
    np.testing.assert_allclose(mix(rule, after), mix(rule, calm), rtol=1e-3)
    assert np.asarray(mix(rule, calm)).std() > 0.01


def test_the_range_grows_when_a_loss_is_beyond_it():
    """Losses of 4, of 8 = S and of 9."""
    state = EWA().init(2)
    for y, weight, expected in ((2.0, 1.0, 8.0), (4.0, 0.5, 8.0), (3.0, 1.0, 18.0)):
        state = EWA().update(state, jnp.array([0.0, y]), 0.0, weight=weight)
        assert float(state.S) == expected


def test_experts_are_told_apart_right_after_another_was_far_off():
    """By hand: losses of 0 and 1 after one of 1e10, 1/(1 + exp(−1))."""
    rule = EWA(rate=1.0)
    state = rule.update(rule.init(3), jnp.array([0.0, 0.0, 1e5]), 0.0)
    state = rule.update(state, jnp.array([0.0, 1.0, 0.0]), 0.0)
    np.testing.assert_allclose(rule.mix(state), [0.7311, 0.2689, 0.0], atol=1e-4)


@pytest.mark.parametrize("rule", [EWA, BOA, MLPoly])
@pytest.mark.parametrize("value", [0, -0.1, 1.001, np.nan])
def test_settings_out_of_range(rule, value):
    with pytest.raises(ValueError, match=r"forgetting > 0 and forgetting <= 1; got"):
        rule(forgetting=value)
    if value != 1.001:
        with pytest.raises(ValueError, match=r"rate must be .* with rate > 0; got"):
            EWA(rate=value)


def test_a_setting_is_one_float_leaf_whatever_it_was():
    """Whole numbers too have a gradient; a list is one value per model."""
    leaves = jax.tree.leaves([EWA(1, 1), BOA(1), MLPoly(1), EWA([1, 2], [1, 0.5])])
    assert [np.shape(leaf) for leaf in leaves] == [(), (), (), (), (2,), (2,)]
    assert all(np.asarray(leaf).dtype == np.float64 for leaf in leaves)


numbers = st.sampled_from([0.0, 1.0, -1.0, 0.3, -2.0, 1e-20, 1e4, -1e4, 1e8, 1e14, 3e38])


@pytest.mark.parametrize("rule", [*RULES.values(), FADING["BOA"], FADING["MLPoly"]])
@given(rows=st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=8, max_size=8))
def test_the_mix_stays_on_the_simplex_whatever_comes(rule, rows):
    rows = np.array(rows, np.float32)
    state, trace = jb.run(rule, rows[:, 1:], rows[:, 0])
    p = np.asarray(mix(rule, state))
    assert (p >= 0).all() and abs(p.sum() - 1) < 1e-5
    chex.assert_tree_all_finite((state, trace.prediction))


@pytest.mark.parametrize("rule", [EWA(), BOA(), MLPoly()], ids=["EWA", "BOA", "MLPoly"])
def test_gradients_are_finite_and_right(rule, x64):
    y, d = experts(40)
    y[:5] = d[:5, None]  # nothing to tell the experts apart: V = 0
    y[5:8, 1] = y[5:8].mean(axis=1)

    @jax.jit
    def error(offset, gamma):
        fading = dataclasses.replace(rule, forgetting=gamma)
        return jax.value_and_grad(lambda model, o: jb.mse(model, y * (1 + o), d), (0, 1))(
            fading, offset
        )

    assert np.isfinite(jax.tree.leaves(error(0.1, 1.0))).all()
    model, offset = error(0.1, 0.97)[1]
    h = 1e-6
    by_offset = (error(0.1 + h, 0.97)[0] - error(0.1 - h, 0.97)[0]) / (2 * h)
    by_gamma = (error(0.1, 0.97 + h)[0] - error(0.1, 0.97 - h)[0]) / (2 * h)
    np.testing.assert_allclose(offset, by_offset, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(model.forgetting, by_gamma, rtol=1e-4, atol=1e-7)


def test_an_expert_far_behind_comes_back():
    """Weights that underflow are zero for ever; log weights are not."""
    T = 4000
    d = np.zeros(2 * T, np.float32)
    y = np.ones((2 * T, 2), np.float32)
    y[:T, 0], y[T:, 1] = 0, 0
    for rule in (EWA(rate=0.5), BOA(), MLPoly()):
        state, _ = jb.run(rule, y[:T], d[:T])
        assert mix(rule, state)[0] > 0.99
        state, _ = jb.run(rule, y[T:], d[T:], state=state)
        assert mix(rule, state)[1] > 0.4  # by now both have lost as much
    fading = EWA(rate=0.5, forgetting=0.99)
    state, _ = jb.run(fading, y[: T + 200], d[: T + 200])
    assert mix(fading, state)[1] > 0.99


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_mixture_is_a_booster_without_dependence(rule):
    """Every expert learns every sample in full, and the combiner sees what they say."""
    xs, ds = jb.streams.duffing(300)
    learners = [jb.SGD(0.05), jb.SGD(0.5), jb.Newton(0.99)]
    model = jb.boost(learners, target_mse=0.2, dependence=0.0, combiner=rule)
    state, trace = jb.run(model, xs, ds, observe=lambda state, info: (info.y, info.lam, info.z))
    y, lam, z = trace.observed
    assert (np.asarray(lam) == 1).all()
    for k, learner in enumerate(learners):
        np.testing.assert_allclose(y[:, k], jb.run(learner, xs, ds)[1].prediction, atol=1e-5)
    outside, combined = jb.run(rule, y, ds)
    np.testing.assert_allclose(trace.prediction, combined.prediction, atol=1e-5)
    np.testing.assert_allclose(mix(rule, state.combiner), mix(rule, outside), atol=1e-4)
    np.testing.assert_allclose(z.sum(axis=1), 1, atol=1e-5)  # z is the mix


@pytest.fixture
def bounds():
    from experiments.bench import regret_bounds

    return regret_bounds


def hostile(seed):
    """Random streams of many kinds: heavy tails, switches, growth, constants, ties."""
    rng = np.random.default_rng(seed)
    T, m = 400, 5
    y = rng.standard_t(rng.choice([1, 2, 30]), (T, m)) * rng.choice([0.01, 1, 100], m)
    y = np.where(rng.random((T, m)) < rng.choice([0, 0.3, 0.95]), np.arange(m) % 3 - 1.0, y)
    d = rng.choice([0, 1]) * rng.standard_t(2, T) + y[:, int(rng.integers(m))]
    growth = np.exp(rng.choice([0, 10]) * np.arange(T) / T)
    return y * growth[:, None], np.roll(d, int(rng.integers(2))) * growth


@pytest.mark.parametrize("name", RULES)
def test_no_regret_is_beyond_its_bound(bounds, name, x64):
    rule, slack = RULES[name], []
    for seed in range(60):
        y, d = hostile(seed)
        if rule is RULES["EWA, rate"]:  # the largest rate that has a bound
            rule = EWA(rate=0.5 / np.square(y - d[:, None]).max())
        guess = np.asarray(jb.run(rule, y[:, :], d)[1].prediction)
        regret = np.square(guess - d).sum() - np.square(y - d[:, None]).sum(axis=0)
        if isinstance(rule, EWA):
            bound = bounds.ewa(guess, y, d, rule.rate)
            rule = RULES[name]
        else:
            bound = (bounds.boa if isinstance(rule, BOA) else bounds.ml_poly)(guess, y, d)
            regret = bounds.linearised(guess, y, d).sum(axis=0)  # as large, and as bounded
        slack.append((regret / bound).max())
    assert max(slack) < 1
    assert max(slack) > 0.1  # the bounds say something


def test_a_rate_beyond_its_range_has_no_bound(bounds):
    y, d = np.array([[0.0, 2.0]]), np.array([0.0])
    assert np.isnan(bounds.ewa(d, y, d, 0.2)).all()  # 1/(2·2²) is the largest
    np.testing.assert_allclose(bounds.ewa(d, y, d, 0.125), 8 * np.log(2))


def test_the_best_mix_in_hindsight(bounds):
    y, d = experts()
    q = bounds.best_mix(y, d)
    assert (q >= 0).all() and q.sum() == pytest.approx(1)
    gradient = y.T @ (y @ q - d)
    assert (gradient >= gradient[q > 1e-9].max() - 1e-6).all()  # the conditions of a minimum


def test_what_the_docstrings_say_of_the_record():
    """The measured advice, from the JSON of record."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert not record["quick"]
    results = record["results"]
    cells = [cell for block in results["streams"].values() for cell in block["regret"].values()]
    assert len(cells) >= 90 and all(cell["holds"] for cell in cells)
    over = results["over the best expert"]
    steadiest, others = over["BOA"], [over["EWA"], over["ML-Poly"]]
    for figure in ("mean", "largest"):
        assert all(steadiest[figure] < other[figure] for other in others)
    assert over["ForwardNewton"]["mean"] < steadiest["mean"] < 1  # a linear mix gains more
    assert over["EWA"]["mean"] > over["ML-Poly"]["mean"] > 1
    switching = results["streams"]["switching"]["mse"]
    assert switching["ML-Poly, γ 0.99"] < switching["ML-Poly"] < switching["BOA"]
    assert switching["BOA"] < switching["the default, γ 0.999"] < switching["EWA"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_million_steps_in_float32(rule, x64):
    """Two close experts, a bad one and a switch: the same mix as in float64, to three digits."""
    T = 1_000_000
    rng = np.random.default_rng(1)
    d = rng.normal(size=T)
    y = d[:, None] + rng.normal(size=(T, 3)) * [0.3, 0.301, 0.6]
    y[T // 2 :] = y[T // 2 :, ::-1]
    single, _ = jb.run(rule, y.astype(np.float32), d.astype(np.float32))
    double, _ = jb.run(rule, y, d)
    np.testing.assert_allclose(mix(rule, single), mix(rule, double), atol=2e-3)
