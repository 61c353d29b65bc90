"""The literal models against an independent NumPy loop over the paper's pseudo-code, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import oracle

import jboost as jb
from jboost.boosting.modes import Mode

T = 5000
COMBINERS = {
    ("nsgd", 0.01, 0.0): jb.NSGD(step_size=0.01, epsilon=0.0),
    ("uniform",): jb.Uniform(),
    ("newton", 0.999, 1.0): jb.Newton(forgetting=0.999, ridge=1.0, max_variance=None),
}
KEY = jax.random.key(7)


def stationary():
    rng = np.random.default_rng(1)
    g = rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], T)
    x = np.c_[(g - g.min(0)) / np.ptp(g, 0), np.ones(T)]
    return x, x.sum(1) + 0.1 * rng.normal(size=T)


STREAMS = {"duffing": oracle.duffing(T), "stationary": stationary()}


def lam_y(state, info):
    return info.y, info.lam, info.delta, info.z, info.updates


def build(kind, stream, m, dependence, combiner, chain="prefix"):
    """Return a literal model, one of the paper's six, and the settings of the oracle."""
    target_mse = {
        "duffing": {"bsgd": 0.25, "bnm": 0.17},
        "stationary": {"bsgd": 0.02, "bnm": 0.004},
    }
    family, mode = kind.split("_")
    target = target_mse[stream][family]
    emphasis = {"target_mse": target, "dependence": dependence}
    if family == "bsgd":
        step = 0.1 / 5 if mode == "dr" else 0.1
        model = getattr(jb, kind)(
            m, step_size=0.1, combiner=combiner, literal=True, chain=chain, **emphasis
        )
        return model, {"learner": "sgd", "mode": mode, "m": m, "step_size": step, **emphasis}
    newton = {"forgetting": 0.999, "ridge": 0.01}
    model = getattr(jb, kind)(m, combiner=combiner, literal=True, chain=chain, **newton, **emphasis)
    return model, {"learner": "nm", "mode": mode, "m": m, **newton, **emphasis}


def assert_agree(ours, paper, bound=1e-7):
    assert np.abs(np.asarray(ours) - paper).max() <= bound * np.abs(paper).max()


# The oracle's loops are plain Python: in full length they take minutes, and are left to -m slow.
LENGTHS = [(1, 1000), (2, 1500), (20, 500)]
LENGTHS += [pytest.param(m, T, marks=pytest.mark.slow) for m in (1, 2, 20)]


@pytest.mark.parametrize(("m", "length"), LENGTHS)
@pytest.mark.parametrize("kind", ["bsgd_wu", "bsgd_dr", "bnm_wu", "bnm_dr"])
@pytest.mark.parametrize("stream", STREAMS)
def test_literal_models_are_the_papers(kind, stream, m, length, x64):
    xs, ds = (a[:length] for a in STREAMS[stream])
    for c in (0.0, 0.5, 1.0, 2.0):
        _, settings = build(kind, stream, m, c, jb.Uniform())
        paper = oracle.boosted(xs, ds, combiner=("uniform",), **settings)
        for named, combiner in COMBINERS.items():
            model, _ = build(kind, stream, m, c, combiner)
            _, trace = jb.run(model, xs, ds, observe=lam_y)
            y, lam, delta, _, updates = trace.observed
            assert_agree(y, paper.y)
            assert_agree(lam, paper.lam)
            assert_agree(delta[1:], paper.delta[:-1])
            np.testing.assert_array_equal(updates, paper.updates)
            assert_agree(trace.prediction, oracle.combined(paper.y, ds, named))


@pytest.mark.parametrize("kind", ["bsgd_ru", "bnm_ru"])
@pytest.mark.parametrize("stream", STREAMS)
def test_random_updates_given_their_decisions(kind, stream, x64):
    xs, ds = (a[:2000] for a in STREAMS[stream])
    combiner = jb.Newton(forgetting=0.999, ridge=1.0, max_variance=None)
    model, settings = build(kind, stream, 20, 1.0, combiner)
    _, trace = jb.run(model, xs, ds, KEY, observe=lam_y)
    y, lam, _, z, updates = trace.observed
    paper = oracle.boosted(
        xs, ds, decisions=np.asarray(updates), combiner=("newton", 0.999, 1.0), **settings
    )
    assert_agree(y, paper.y)
    assert_agree(lam, paper.lam)
    assert_agree(z, paper.z)
    assert_agree(trace.prediction, paper.prediction)
    assert set(np.unique(updates)) <= {0, 1}
    # The decisions are Bernoulli(λ): Σ (n − λ) over its standard deviation is standard normal.
    lam, n = np.asarray(lam), np.asarray(updates)
    assert (n[lam == 1] == 1).all()
    score = (n - lam).sum() / np.sqrt((lam * (1 - lam)).sum())
    assert abs(score) < 4


@pytest.mark.parametrize("kind", ["bsgd_wu", "bnm_dr", "bsgd_ru"])
def test_the_literal_inner_scan_and_the_prefix_sum_agree(kind, x64):
    xs, ds = (a[:1000] for a in STREAMS["duffing"])
    for literal in (True, False):
        runs = []
        for chain in ("prefix", "scan"):
            model, _ = build(kind, "duffing", 20, 1.0, jb.Uniform(), chain)
            if not literal:
                model = jb.boost(
                    model.learner,
                    20,
                    target_mse=0.25,
                    mode=model.mode,
                    combiner=jb.Uniform(),
                    chain=chain,
                )
            runs.append(jb.run(model, xs, ds, KEY, observe=lam_y)[1].observed)
        for prefix, scan in zip(*runs, strict=True):
            np.testing.assert_allclose(prefix, scan, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("chain", ["prefix", "scan"])
def test_algorithm_1(chain, x64):
    xs, ds = (a[:1000] for a in STREAMS["stationary"])
    model = jb.boost(
        jb.SGD(0.1, guard=False),
        8,
        target_mse=0.02,
        guarantee=0.1,
        combiner=jb.Uniform(),
        literal=True,
        chain=chain,
    )
    paper = oracle.boosted(
        xs,
        ds,
        learner="sgd",
        m=8,
        target_mse=0.02,
        guarantee=0.1,
        step_size=0.1,
        combiner=("uniform",),
    )
    _, trace = jb.run(model, xs, ds, observe=lam_y)
    assert_agree(trace.observed[1], paper.lam)
    assert_agree(trace.prediction, paper.prediction)


def test_first_sample_and_silence(x64):
    """δ₀ = 0, y = 0 and λ = 0: what the recursion leaves open, as the oracle says."""
    xs = np.array([[0.0, 0.0], [1.0, 0.5], [0.0, 0.0], [0.5, -1.0], [1.0, 1.0]])
    ds = np.array([0.0, 0.3, 0.9, -0.4, 0.1])
    model = jb.bsgd_wu(4, target_mse=0.2, step_size=0.3, literal=True)
    paper = oracle.boosted(
        xs, ds, learner="sgd", m=4, target_mse=0.2, step_size=0.3, combiner=("nsgd", 0.01, 0.0)
    )
    _, trace = jb.run(model, xs, ds, observe=lam_y)
    y, lam, delta, z, _ = trace.observed
    assert 0 in paper.lam  # the deadlock is reached, so the convention is tested
    for ours, theirs in ((y, paper.y), (lam, paper.lam), (z, paper.z)):
        np.testing.assert_allclose(ours, theirs, atol=1e-14)
    np.testing.assert_allclose(delta[1:], paper.delta[:-1], atol=1e-14)


def test_single_learners_and_the_forward_algorithm(x64):
    xs, ds = (a[:1000] for a in STREAMS["duffing"])
    newton = jb.Newton(0.99, ridge=0.1, max_variance=None)
    forward = jb.ForwardNewton(0.99, ridge=0.1, max_variance=None)
    for model, paper in [
        (jb.SGD(0.1), oracle.single(xs, ds, learner="sgd", step_size=0.1).prediction),
        (newton, oracle.single(xs, ds, learner="nm", forgetting=0.99, ridge=0.1).prediction),
        (forward, oracle.forward_newton(xs, ds, 0.1, 0.99)),
    ]:
        assert_agree(jb.run(model, xs, ds)[1].prediction, paper)


def test_newton_is_weighted_batch_least_squares(x64):
    xs, ds = (a[:300] for a in STREAMS["duffing"])
    weights = np.random.default_rng(0).uniform(size=300)
    learner = jb.Newton(0.98, ridge=0.5, max_variance=None)
    state = learner.init(3)
    update = jax.jit(learner.update)
    for x, d, weight in zip(xs, ds, weights, strict=True):
        state = update(state, x, d, weight=jnp.asarray(weight))
    assert_agree(state.w, oracle.batch_least_squares(xs, ds, weights, 0.5, 0.98))


def test_no_dependence_is_the_mixture_of_experts(x64):
    """c = 0: every learner learns everything, as if it were alone."""
    xs, ds = (a[:500] for a in STREAMS["duffing"])
    steps = np.array([0.01, 0.05, 0.2])
    model = jb.boost(jb.SGD(steps), 3, target_mse=0.2, dependence=0.0, combiner=jb.Uniform())
    alone = [oracle.single(xs, ds, learner="sgd", step_size=s).prediction for s in steps]
    assert_agree(jb.run(model, xs, ds)[1].prediction, np.mean(alone, axis=0))


@jb.model
class HalfTwice(Mode):
    """Every learner learns every sample twice, with half of its weight."""

    def spend(self, lam, uniform):
        return 0.5, 2


def test_a_mode_may_return_one_number_for_all_learners(x64):
    xs, ds = (a[:200] for a in STREAMS["duffing"])
    model = jb.boost(jb.SGD(0.1), 3, target_mse=0.2, mode=HalfTwice(), combiner=jb.Uniform())
    learner, ys = jb.SGD(0.1), []
    state = learner.init(3)
    for x, d in zip(xs, ds, strict=True):
        ys.append(learner.predict(state, x))
        for _ in range(2):
            state = learner.update(state, x, d, weight=0.5)
    np.testing.assert_allclose(jb.run(model, xs, ds)[1].prediction, ys, rtol=1e-9, atol=1e-12)
