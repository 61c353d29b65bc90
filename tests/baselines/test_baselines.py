"""The baselines: gradient boosting against a loop over its equations, bagging, river."""

import importlib.util
import json
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from experiments.shared.peers import river_predictions
from jboost import baselines
from jboost.baselines import HullBoosting, LastValue, RunningMean, SpanBoosting
from jboost.core.extras import MissingExtra

KEY = jax.random.key(2)


def stream(T=300):
    """Targets within ±1 that a linear model cannot fit."""
    rng = np.random.default_rng(4)
    xs = np.column_stack([rng.uniform(-1, 1, (T, 2)), np.ones(T)])
    return xs, np.clip(0.8 * xs[:, 0] - 0.3 + np.abs(xs[:, 1]) + 0.1 * rng.normal(size=T), -1, 1)


def span_by_loop(xs, ds, m, mu, eta, D, residual):
    """Algorithm 1; the weak learner is gradient descent on the linear loss within ±D."""
    W, sigma, out, clipped = np.zeros((m, xs.shape[1])), np.zeros(m), [], 0
    for t, (x, d) in enumerate(zip(xs, ds, strict=True), start=1):
        sums = [0.0]
        for i in range(m):
            h = min(max(W[i] @ x, -D), D)
            sums.append(min(max((1 - sigma[i] * eta) * sums[-1] + eta * h, -D), D))
        out.append(sums[-1])
        for i in range(m):
            slope = 2 * (sums[i] - d)
            beyond = W[i] @ x - min(max(W[i] @ x, -D), D)
            clipped += beyond != 0
            if residual:
                W[i] += mu * ((d - sums[i]) - W[i] @ x) * x
            else:
                W[i] -= mu * (slope / (4 * D) + beyond) * x
            sigma[i] += slope * sums[i] / (4 * D * D * np.sqrt(t))
            sigma[i] = min(max(sigma[i], 0), 1)
    return np.array(out), sigma, clipped


def hull_by_loop(xs, ds, m, mu, D):
    """Algorithm 2, where no learner leaves ±D."""
    W, out = np.zeros((m, xs.shape[1])), []
    for x, d in zip(xs, ds, strict=True):
        sums = [0.0]
        for i in range(1, m + 1):
            eta = 2 / (i + 1)
            assert abs(W[i - 1] @ x) < D
            sums.append((1 - eta) * sums[-1] + eta * W[i - 1] @ x)
        out.append(sums[-1])
        for i in range(m):
            W[i] -= mu * 2 * (sums[i] - d) / (4 * D) * x
    return np.array(out)


@pytest.mark.parametrize("D, residual", [(4.0, False), (1.0, False), (1.0, True)])
def test_span_boosting_is_the_papers_algorithm_1(D, residual, x64):
    xs, ds = stream()
    feed = "residual" if residual else "gradient"
    model = SpanBoosting(jb.SGD(0.2), m=5, shrinkage=0.4, bound=D, feed=feed)
    state, trace = jb.run(model, xs, ds)
    expected, sigma, clipped = span_by_loop(xs, ds, 5, 0.2, 0.4, D, residual)
    assert (clipped == 0) == (D == 4.0)  # once with the plain linear loss, once beyond the range
    np.testing.assert_allclose(trace.prediction, expected, atol=1e-10)
    np.testing.assert_allclose(state.sigma, sigma, atol=1e-10)
    assert ((sigma > 0) & (sigma < 1)).any()  # learned, and not at its ends


def test_hull_boosting_is_the_papers_algorithm_2(x64):
    xs, ds = stream()
    model = HullBoosting(jb.SGD(0.2), m=5, bound=8.0)
    expected = hull_by_loop(xs, ds, 5, 0.2, 8.0)
    np.testing.assert_allclose(jb.run(model, xs, ds)[1].prediction, expected, atol=1e-10)


def test_gradient_boosting_stays_within_its_bound_and_learns():
    xs, ds = stream(2000)
    alone = float(jb.mse(jb.SGD(0.1), xs, ds))
    for model in (SpanBoosting(jb.SGD(0.1)), HullBoosting(jb.SGD(0.1))):
        prediction = np.asarray(jb.run(model, xs, ds * 50)[1].prediction)
        assert np.abs(prediction).max() <= 1 + 1e-6
        assert jb.mse(model, xs, ds) < 1.1 * alone


def test_one_value_per_copy():
    xs, ds = stream()
    steps = np.array([0.1, 0.2, 0.3])
    models = (SpanBoosting(jb.SGD(step), m=3) for step in (steps, 0.1))
    different, shared = (jb.run(model, xs, ds)[1].prediction for model in models)
    assert not np.allclose(different, shared)
    with pytest.raises(ValueError, match="step_size must be a number or one per learner, here 4"):
        SpanBoosting(jb.SGD(steps), m=4)


CHAINS = {
    "span": SpanBoosting(jb.SGD(0.2), m=3),
    "hull": HullBoosting(jb.Newton(0.99), m=3, bound=2.0),
    "span of boosters": SpanBoosting(
        jb.boost(jb.SGD(0.1), 2, target_mse=0.1, mode=jb.RandomUpdate()), m=3, feed="residual"
    ),
    "mean": RunningMean(),
    "last": LastValue(),
}


@pytest.mark.parametrize("model", CHAINS.values(), ids=CHAINS)
def test_weights_repeats_and_samples_without_an_answer(model):
    xs, ds = (a.astype(np.float32) for a in stream(24))
    start, _ = jb.run(model, xs, ds, KEY)

    @jax.jit
    def learn(state, x, d, weight, repeats):
        return model.update(state, x, d, weight=weight, repeats=repeats, key=KEY)

    bad = np.array([np.nan, 0, 1], np.float32)
    nothing = [(xs[0], jnp.nan, 1.0, 1), (xs[0], 1e16, 1.0, 1), (bad, 0.5, 1.0, 1)]
    nothing += [(xs[0], 0.5, 0.0, 1), (xs[0], 0.5, 1.0, 0)]
    for *sample, repeats in nothing:
        after = learn(start, *map(np.float32, sample), np.int32(repeats))
        chex.assert_trees_all_equal(after, start)
    assert np.isfinite(model.predict(start, bad))

    many = start
    for _ in range(3):
        many = learn(many, xs[3], ds[3], np.float32(0.7), np.int32(1))
    thrice = learn(start, xs[3], ds[3], np.float32(0.7), np.int32(3))
    chex.assert_trees_all_close(thrice, many, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["span", "span of boosters"])
def test_a_cut_stream_is_the_same_stream(name):
    xs, ds = (a.astype(np.float32) for a in stream(40))
    model = CHAINS[name]
    state, trace = jb.run(model, xs, ds, KEY)
    half, first = jb.run(model, xs[:20], ds[:20], KEY)
    again, second = jb.run(model, xs[20:], ds[20:], KEY, half)
    chex.assert_trees_all_equal(again, state)
    both = jnp.concatenate([first.prediction, second.prediction])
    chex.assert_trees_all_equal(both, trace.prediction)


def test_gradients_pass_through_the_chain(x64):
    xs, ds = stream(60)

    def error(step, eta):
        return jb.mse(SpanBoosting(jb.SGD(step), m=3, shrinkage=eta), xs, ds)

    slopes = jax.grad(error, argnums=(0, 1))(0.1, 0.4)
    h = 1e-6
    expected = [(error(0.1 + h, 0.4) - error(0.1 - h, 0.4)) / (2 * h),
              (error(0.1, 0.4 + h) - error(0.1, 0.4 - h)) / (2 * h)]  # fmt: skip
    np.testing.assert_allclose(slopes, expected, rtol=1e-5)


def test_mean_and_last_value():
    ds = np.array([2.0, 4.0, np.nan, 9.0], np.float32)
    xs = np.zeros((4, 1), np.float32)
    assert jb.run(RunningMean(), xs, ds)[1].prediction.tolist() == [0, 2, 3, 3]
    assert jb.run(LastValue(), xs, ds)[1].prediction.tolist() == [0, 2, 4, 4]


def test_the_mean_of_millions_keeps_its_digits():
    """A float32 sum of so many terms without compensation is off in the second digit."""
    T = 2**21
    ds = np.random.default_rng(0).normal(1000.0, 1.0, T).astype(np.float32)
    state, _ = jb.run(RunningMean(), np.zeros((T, 1), np.float32), ds)
    mean = RunningMean().predict(state, jnp.zeros(1))
    assert float(mean) == pytest.approx(ds.mean(dtype=np.float64), rel=2e-7)


def test_bagging_is_poisson_1_repeats_of_each_and_the_plain_mean():
    xs, ds = (a.astype(np.float32) for a in stream(2000))
    model = baselines.bagging(jb.SGD(0.05), m=8)
    _, trace = jb.run(
        model, xs, ds, KEY, observe=lambda state, info: (info.lam, info.updates, info.y)
    )
    lam, updates, y = (np.asarray(a) for a in trace.observed)
    assert (lam == 1).all()
    np.testing.assert_allclose(trace.prediction, y.mean(axis=1), atol=1e-6)
    share = np.bincount(updates.ravel(), minlength=4)[:4] / updates.size
    np.testing.assert_allclose(share, np.exp(-1) / np.array([1, 1, 2, 6]), atol=0.012)
    between = np.corrcoef(updates.T)[np.triu_indices(8, 1)]
    assert np.abs(between).max() < 0.1  # each copy draws for itself
    boosted = baselines.poisson_boosting(jb.SGD(0.05), m=8, target_mse=0.1)
    _, trace = jb.run(boosted, xs, ds, KEY, observe=lambda state, info: info.updates)
    assert np.asarray(trace.observed)[:, 1:].mean() < 0.9  # λ < 1 where those before do well


@pytest.mark.parametrize(
    "wrong",
    [{"m": 0}, {"shrinkage": 0.01, "m": 20}, {"shrinkage": 1.5}, {"bound": 0.0}, {"feed": "x"}],
    ids=str,
)
def test_what_is_wrong_is_named(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        SpanBoosting(jb.SGD(0.1), **wrong)


def test_what_the_docstrings_say_of_the_record():
    """Where span boosting gains and loses, that hull boosting seldom gains, and bagging little."""
    path = Path(__file__).parents[2] / "experiments/bench/results/baselines.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    assert not record["quick"]
    errors = {
        (name, kind): {model: cell["mse"] for model, cell in block[kind].items()}
        for name, block in record["results"].items()
        for kind in record["settings"]["grids"]
        if kind in block
    }
    assert len(errors) >= 14
    newton = {name: cells for (name, kind), cells in errors.items() if kind == "Newton"}
    for name in ("puma8nh", "mv", "compactiv"):
        assert newton[name]["span"] < newton[name]["alone"]
    drifts, noisy = newton["california"], newton["puma8nh"]
    assert drifts["span, residual"] < drifts["alone"] < drifts["span"]
    assert noisy["span"] < noisy["alone"] < noisy["span, residual"]
    assert sum(cells["hull"] < cells["alone"] for cells in errors.values()) < len(errors) / 3
    for (name, _), cells in errors.items():
        assert name == "compactiv" or abs(cells["bagging"] / cells["alone"] - 1) < 0.05


class Fake:
    """A stand-in with river's two methods that remembers its inputs and targets."""

    def __init__(self):
        self.seen, self.learned = [], []

    def predict_one(self, x):
        self.seen.append(x)
        return self.learned[-1] if self.learned else None

    def learn_one(self, x, y):
        self.learned.append(y)


def test_river_predicts_before_it_learns_and_skips_what_run_skips():
    fake = Fake()
    xs = [[1, 2], [np.nan, 3], [5, 6], [7, 8]]
    predictions = river_predictions(fake, xs, [10, 20, np.nan, 40])
    np.testing.assert_array_equal(predictions, [np.nan, 10, 10, 10])
    assert fake.seen == [{0: 1, 1: 2}, {0: 0, 1: 3}, {0: 5, 1: 6}, {0: 7, 1: 8}]
    assert fake.learned == [10, 40]


def test_river_refuses_what_it_cannot_run():
    with pytest.raises(TypeError, match="predict_one and learn_one"):
        river_predictions(object(), [[1.0]], [1.0])
    with pytest.raises(ValueError, match=r"got \(1,\) and \(1,\)"):
        river_predictions(Fake(), [1.0], [1.0])
    with pytest.raises(TypeError, match="real numbers"):
        river_predictions(Fake(), [["a"]], [1.0])


@pytest.mark.skipif(importlib.util.find_spec("river") is not None, reason="river is installed")
def test_a_missing_river_is_said():
    with pytest.raises(MissingExtra, match=r"jboost\[river\]"):
        river_predictions("linear_model.LinearRegression", [[1.0]], [1.0])


def test_river_itself():
    river = pytest.importorskip("river")
    xs, ds = stream(200)
    by_name = river_predictions("linear_model.LinearRegression", xs, ds)
    model = river.linear_model.LinearRegression()
    np.testing.assert_array_equal(by_name, river_predictions(model, xs, ds))
    loop = river.linear_model.LinearRegression()
    expected = []
    for x, d in zip(xs.tolist(), ds.tolist(), strict=True):
        expected.append(loop.predict_one(dict(enumerate(x))))
        loop.learn_one(dict(enumerate(x)), d)
    np.testing.assert_allclose(by_name, expected)
    with pytest.raises(ValueError, match="name of a class of river"):
        river_predictions("linear_model.NoSuch", xs, ds)
