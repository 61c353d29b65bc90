"""The tree of regions: where it splits, what that gains, what it costs where there is nothing."""

import functools
import os

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.learners.tree import splits
from jboost.learners.tree.piecewise import PiecewiseLinear

KEY = jax.random.key(0)


# Most streams have one size and most trees one depth, so that they compile once.
T, R = 3000, 3
TREE = PiecewiseLinear(3)


def uniform(length=T, width=R, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (length, width)).astype(np.float32), rng


def mse(model, x, d, last=None):
    _, trace = jb.run(model, x, np.float32(d), KEY)
    error = np.asarray(trace.prediction, float) - d
    return float(np.mean(error[-last:] ** 2 if last else error**2))


def inputs_split(state, cuts=7):
    return [int(choice) // cuts for choice in np.asarray(state.choice) if choice >= 0]


def test_a_step_is_split_at_its_input_and_its_place():
    x, rng = uniform()
    d = np.where(x[:, 1] > 0.25, 2.0, -1.0) + 0.1 * rng.normal(size=len(x))
    state, trace = jb.run(TREE, x, np.float32(d))
    assert int(state.choice[1]) // TREE.cuts == 1
    assert abs(float(state.threshold[1]) - 0.25) < 0.15  # candidates are about 0.25 apart
    # Away from the step the two levels are right: the tree needs no constant among the inputs.
    for at, level in ((0.8, 2.0), (-0.8, -1.0)):
        estimate = TREE.predict(state, jnp.array([0.3, at, -0.5]))
        assert float(estimate) == pytest.approx(level, abs=0.2)
    assert mse(jb.Newton(), x, d) > 4 * np.mean((trace.prediction - d)[500:] ** 2)


def test_slopes_that_change_without_a_change_of_level_are_found():
    """d = sign(x₂) x₀: the mean of d is zero on both sides of every cut."""
    x, _ = uniform()
    d = np.sign(x[:, 2]) * x[:, 0]
    state, trace = jb.run(TREE, x, d)
    assert int(state.choice[1]) // TREE.cuts in (0, 2)
    # Of eight seeds .09 to .24: a split at x₀ gains as much evidence and explains less.
    assert np.mean((trace.prediction - d)[-500:] ** 2) < 0.25 * np.mean(d**2)


@pytest.mark.parametrize(
    "learner", [jb.Newton(), pytest.param(jb.SGD(0.05), marks=pytest.mark.slow)]
)
def test_a_linear_stream_is_not_split_and_costs_little(learner):
    model = PiecewiseLinear(3, learner)
    trees, alone = [], []
    for seed in range(2):
        x, rng = uniform(seed=seed)
        d = x @ [1.0, -0.5, 0.0] + 0.3 * rng.normal(size=len(x))
        state, trace = jb.run(model, x, np.float32(d))
        assert inputs_split(state) == [] or isinstance(learner, jb.SGD)
        trees.append(np.mean((trace.prediction - d) ** 2))
        alone.append(mse(learner, x, d))
    assert np.mean(trees) < 1.05 * np.mean(alone)


def scaled(name):
    if "JBOOST_DATA" not in os.environ:
        pytest.skip("needs the data sets")
    arrays = []
    for a in jb.datasets.load(name):
        a = np.asarray(a, float)
        low, high = a.min(0), a.max(0)
        a = 2 * (a - low) / np.where(high > low, high - low, 1) - 1
        arrays.append(a[:8192].astype(np.float32))
    return arrays


@pytest.mark.slow
@pytest.mark.parametrize(("name", "times"), [("mv", 3.0), ("puma8nh", 1.3)])
def test_real_streams_gain(name, times):
    x, d = scaled(name)
    with_level = np.hstack([x, np.ones_like(x[:, :1])])  # the tree has levels: so has the line
    assert mse(jb.Newton(), with_level, d) > times * mse(PiecewiseLinear(5), x, d)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        lambda a, b, c: np.where(a > 0.2, b, -c),
        lambda a, b, c: a * b + c,
        lambda a, b, c: np.maximum(a, np.maximum(b, c)),
    ],
    ids=["where", "product", "largest"],
)
def test_inputs_that_do_not_matter_cost_at_most_half(kind):
    wide, narrow = [], []
    for seed in range(2):
        x, rng = uniform(8192, 32, seed)
        three = x[:, [3, 17, 29]]
        d = kind(*three.T) + 0.1 * rng.normal(size=len(x))
        wide.append(mse(PiecewiseLinear(3), x, d))
        narrow.append(mse(PiecewiseLinear(3), three, d))
    assert np.mean(wide) < 1.5 * np.mean(narrow)


def test_regions_learn_in_any_units():
    """Their inputs are standardised: only the root's ridge, here of no effect, knows the units."""
    x, rng = uniform(seed=2)
    d = np.where(x[:, 1] > 0.25, x[:, 0], -x[:, 2]) + 0.1 * rng.normal(size=T)
    model = PiecewiseLinear(3, jb.Newton(ridge=1e-4))
    other = x * np.float32([1 / 32, 1, 1])
    plain = mse(model, x, d, last=2000)
    assert mse(model, other, d, last=2000) == pytest.approx(plain, rel=0.01)


def test_the_noise_in_the_slopes_of_a_split_root_is_not_in_the_estimate():
    """4|x₀|: no line follows it, and 32 slopes of one would add a fiftieth of its error, .03.

    A draw whose cut, .07, is near the kink; elsewhere what the cut misses hides the noise.
    """
    x, rng = uniform(width=32)
    d = 4 * np.abs(x[:, 0]) + 0.1 * rng.normal(size=T)
    model = PiecewiseLinear(1)
    assert mse(model, x, d, last=1000) < 1.2 * mse(model, x[:, :1], d, last=1000)


def held(seeds, slopes, first):
    """Error of the tree over that of its line, from ``first`` on, over the noise-free target."""
    tree, line = [], []
    for seed in range(seeds):
        x, rng = uniform(192, 32, seed)
        clean = x @ slopes(rng)
        d = np.float32(clean + 0.3 * rng.normal(size=len(x)))
        for model, errors in ((PiecewiseLinear(1), tree), (jb.Newton(), line)):
            prediction = jb.run(model, x, d, KEY)[1].prediction
            errors.append(np.mean((prediction - clean)[first:] ** 2))
    return np.mean(tree) / np.mean(line)


def test_slopes_of_inputs_that_do_not_matter_are_left_out():
    """Three of 32 slopes are not noise: of the line's error from 64 samples on most goes."""
    three = np.float32(np.isin(np.arange(32), (3, 17, 29)))
    assert held(4, lambda rng: three, 64) < 0.5


def test_slopes_that_all_matter_are_kept():
    assert held(4, lambda rng: rng.normal(size=32), 64) < 1.2


def test_what_is_expected_of_a_cut_adds_up_to_one():
    """Level and the slope of its own input a quarter each, the other slopes a half."""
    half = np.array([[2, 2, 1, 1, 1, 1], [2, 1, 2, 1, 1, 1]]) / 8
    shares = np.exp(-splits.prices(5, 3))
    np.testing.assert_allclose(shares[[0, 2, 3]], half[[0, 0, 1]])
    np.testing.assert_allclose(np.exp(-splits.prices(32, 7)).sum(1), 1)


def test_rounding_does_not_choose_between_cuts_that_part_the_samples_alike():
    """Two inputs of opposite sign have the same cuts in a mirror: both gain the same."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=40).astype(np.float32)
    errors = np.where(first > 0, 1.0, -1.0).astype(np.float32)
    search = splits.start(2, 1, np.float32)
    search = search._replace(mass=jnp.float32(50), spread=jnp.ones(2, np.float32))  # cuts at 0
    for x, e in zip(first, errors, strict=True):
        both = jnp.array([-x, x])
        search = splits.add(search, both, jnp.float32(e), jnp.float32(1), 50)
    assert float(splits.best(search).evidence) > 5
    for row in (0, 1):
        for tiny in (-1e-6, 1e-6):
            score = search.score.at[row].multiply(1 + tiny)
            assert int(splits.best(search._replace(score=score)).number) == 0


@pytest.mark.parametrize("learner", [jb.NLMS(1.0), jb.Newton(0.5)])
def test_learners_of_a_path_do_not_overshoot_together(learner):
    """Each takes most of an error it meets: at once they would take it several times."""
    x, _ = uniform(1500, 2)
    d = np.sign(x[:, 0]) + np.abs(x[:, 1])
    model = PiecewiseLinear(5, learner, evidence=0.0, cuts=3, grace=5)
    state, _ = jb.run(model, x, d, KEY)
    assert len(inputs_split(state, 3)) > 7
    assert mse(model, x, d, last=500) < 0.75 * mse(learner, x, d, last=500)


def test_as_many_samples_as_inputs_do_not_raise_the_error():
    """Least squares through every sample has its largest error there; held slopes have not."""
    peaks = {}
    for name, model in (("tree", PiecewiseLinear(1)), ("line", jb.Newton())):
        errors = []
        for seed in range(8):
            x, rng = uniform(48, 32, seed)
            d = x[:, 3] + 0.3 * rng.normal(size=len(x))
            errors.append(mse(model, x, d, last=24))
        peaks[name] = np.mean(errors)
    assert peaks["tree"] < 0.6 * peaks["line"]


def test_a_stream_that_changes_is_followed():
    """The step moves to another input, upside down, when the tree has long been settled."""
    x, rng = uniform()
    noise = 0.1 * rng.normal(size=T)
    before, after = np.sign(x[:, 0]) + noise, noise - np.sign(x[:, 1])
    errors = {}
    for model in (PiecewiseLinear(3, jb.Newton(0.995)), jb.Newton(0.995)):
        state, _ = jb.run(model, x, np.float32(before))
        _, trace = jb.run(model, x, np.float32(after), state=state)
        errors[type(model)] = np.mean((trace.prediction - after)[-1000:] ** 2)
    assert errors[PiecewiseLinear] < 0.85 * errors[jb.Newton]


BOOSTER = jb.boost(jb.SGD(0.1), 3, target_mse=0.05, mode=jb.RandomUpdate())


@pytest.mark.parametrize("learner", [jb.SGD(0.1), pytest.param(BOOSTER, marks=pytest.mark.slow)])
def test_any_learner_gains_from_regions(learner):
    x, rng = uniform()
    d = np.abs(x[:, 0]) - 0.5 + 0.05 * rng.normal(size=T)
    assert mse(PiecewiseLinear(1, learner), x, d, last=1000) < 0.5 * mse(learner, x, d, last=1000)


SMALL = PiecewiseLinear(1, jb.Newton(0.99, 0.1), evidence=0.0, cuts=3, grace=5)


PREDICT = jax.jit(SMALL.predict)


@jax.jit
def report(state, x):
    return SMALL.info(state, SMALL.sample(state, x, 0.0))


@jax.jit
def step(state, x, d, weight, repeats):
    return SMALL.update(state, x, d, weight=weight, repeats=repeats)


ONCE = np.int32(1)


@functools.cache
def settled():
    x, _ = uniform(200, 2)
    return jb.run(SMALL, x, np.abs(x[:, 0]), KEY)[0]


@pytest.mark.parametrize(
    ("x", "d", "weight"),
    [
        ([0.5, 0.1], np.nan, 1.0),
        ([0.5, 0.1], np.inf, 1.0),
        ([0.5, 0.1], 1e15, 1.0),
        ([np.nan, 0.1], 0.5, 1.0),
        ([0.5, -1e30], 0.5, 1.0),
        ([0.5, 0.1], 0.5, 0.0),
    ],
)
def test_a_sample_that_is_none_leaves_every_bit(x, d, weight):
    state = settled()
    assert inputs_split(state, SMALL.cuts)  # bits of a tree that has grown
    x = np.float32(x)
    chex.assert_trees_all_equal(step(state, x, d, weight, ONCE), state)
    assert np.isfinite(PREDICT(state, x))


def test_repeats_are_that_many_updates():
    state = settled()
    x = np.float32([0.7, -0.2])
    many = state
    for n in range(3):
        once = step(state, x, 0.9, 0.7, np.int32(n))
        chex.assert_trees_all_close(once, many, rtol=1e-5, atol=1e-6)
        if n == 0:
            chex.assert_trees_all_equal(once, state)
        many = step(many, x, 0.9, 0.7, ONCE)


@pytest.mark.slow
def test_boosted_trees_are_cut_and_resumed_bit_for_bit():
    x, _ = uniform(256, 2)
    d = np.abs(x[:, 0])
    model = jb.boost(SMALL, 3, target_mse=1e-3, mode=jb.RandomUpdate())
    whole, trace = jb.run(model, x, d, KEY)
    half, first = jb.run(model, x[:128], d[:128], KEY)
    resumed, second = jb.run(model, x[128:], d[128:], KEY, half)
    chex.assert_trees_all_equal(resumed, whole)
    together = jnp.concatenate([first.prediction, second.prediction])
    chex.assert_trees_all_equal(together, trace.prediction)


def test_outliers_do_not_move_the_tree():
    x, rng = uniform()
    d = x @ [1.0, 0.5, 0.0] + 0.1 * rng.normal(size=T)
    d[rng.random(T) < 0.01] += 1e4  # one in a hundred is damaged
    state, _ = jb.run(PiecewiseLinear(1, jb.SGD(1e-3)), x, np.float32(d), KEY)
    assert inputs_split(state) == []
    assert float(np.max(state.error)) < 200  # the damage is 1e4, and on average 100


@pytest.mark.slow
def test_the_error_is_differentiable_in_the_settings_of_the_learner():
    x, _ = uniform(200, 2)
    d = np.abs(x[:, 0])

    def loss(step_size):
        model = PiecewiseLinear(1, jb.SGD(step_size), evidence=0.0, cuts=3, grace=5)
        return jb.mse(model, x, d)

    h = 1e-3
    slope = float(jax.grad(loss)(jnp.float32(0.05)))
    finite = float(loss(0.05 + h) - loss(0.05 - h)) / (2 * h)
    assert np.isfinite(slope) and slope == pytest.approx(finite, rel=0.3)


def test_what_is_reported_is_the_region():
    state = settled()
    info = report(state, np.float32([0.9, 0.0]))
    assert int(info["regions"]) == 1 + len(inputs_split(state, SMALL.cuts))
    other = report(state, np.float32([-0.9, 0.0]))
    assert int(info["region"]) != int(other["region"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"depth": 0}, "depth must be a whole number >= 1; got 0"),
        ({"depth": 2.5}, "depth must be a whole number >= 1; got 2.5"),
        ({"depth": 40}, "at most 12, as every level doubles the state; got 40"),
        ({"depth": 2, "learner": "newton"}, "a learner such as jb.Newton.*got 'newton'"),
        ({"depth": 2, "evidence": -1.0}, "evidence >= 0; got -1.0"),
        ({"depth": 2, "cuts": 0}, "cuts must be a whole number >= 1; got 0"),
        ({"depth": 2, "grace": 0}, "grace must be a whole number >= 1; got 0"),
    ],
)
def test_errors_say_what_is_wanted(settings, words):
    with pytest.raises((ValueError, TypeError), match=words):
        PiecewiseLinear(**settings)
