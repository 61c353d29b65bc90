"""Weights are part of the stream: none of them makes a model useless."""

import jax
import numpy as np
import optax
import pytest

import jboost as jb

T, HEAVY = 1500, 700
NETWORK = jb.networks.Perceptron(4)
MODELS = {
    "SGD": jb.SGD(0.1),
    "NLMS": jb.NLMS(0.1),
    "NLMS, no epsilon": jb.NLMS(1.0, 0.0),
    "Newton": jb.Newton(0.99),
    "Newton, covariance": jb.Newton(0.99, storage="covariance"),
    "booster, NSGD": jb.boost(jb.SGD(0.1), 5, target_mse=0.1, combiner=jb.NSGD(0.1)),
    "booster, data reuse": jb.bsgd_dr(5, target_mse=0.1, step_size=0.1, max_reuse=3),
    "booster, default": jb.bnm_wu(5, target_mse=0.1, forgetting=0.99, ridge=0.1),
    **{
        type(combiner).__name__: jb.boost(
            [jb.SGD(0.01), jb.Newton(0.99)], target_mse=0.1, combiner=combiner
        )
        for combiner in (jb.EWA(), jb.BOA(), jb.MLPoly(), jb.Refined())
    },
    "Gradient": jb.Gradient(NETWORK, optimizer=optax.sgd(0.05)),
    "Gradient, Adam": jb.Gradient(NETWORK, optimizer=optax.adam(0.01)),
    "GaussNewton": jb.GaussNewton(NETWORK),
    "PiecewiseLinear": jb.PiecewiseLinear(1, jb.Newton(0.99)),
    "SelfTuning": jb.SelfTuning(jb.SGD(0.1)),
    "span boosting": jb.baselines.SpanBoosting(jb.SGD(0.1), 3),
    "auto": jb.auto("small"),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_heavy_samples_do_not_undo_what_was_learned(model):
    """Ten ordinary rows get an absurd weight; afterwards the model is of use as before."""
    xs, ds = map(np.asarray, jb.streams.duffing(T))
    ds = ds + 0.1 * np.random.default_rng(0).normal(size=T).astype(np.float32)
    errors = {}
    for weight in (1.0, 1e3, 1e8, 9e14):
        weights = np.ones(T, np.float32)
        weights[HEAVY : HEAVY + 10] = weight
        weighted = jb.WeightColumn(model), np.column_stack([xs, weights])
        prediction = jb.run(*weighted, ds, jax.random.key(0))[1].prediction
        errors[weight] = np.square(np.asarray(prediction) - ds)[HEAVY + 10 :].mean()
    assert max(errors.values()) < 2 * errors[1.0], errors


def test_a_weight_given_as_an_argument_is_refused_where_it_is_none():
    learner = jb.Newton()
    state = learner.init(2)
    for weight in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="weight must be a finite real number"):
            learner.update(state, np.ones(2, np.float32), 1.0, weight=weight)
    heavy, most = (learner.update(state, np.ones(2), 1.0, weight=w) for w in (1e300, 1e3))
    np.testing.assert_array_equal(heavy.w, most.w)


def test_inputs_of_extreme_sizes_do_not_overflow_a_normalised_step():
    xs = np.where(np.arange(400)[:, None] % 2, 9e14, 1e-18) * np.ones((1, 3))
    ds = np.where(np.arange(400) % 3, 9e14, -9e14)
    for model in (
        jb.NLMS(1.0, 0.0),
        jb.NLMS(1.9, 0.0),
        jb.boost(jb.NLMS(1.0, 0.0), 3, target_mse=1),
    ):
        state, trace = jb.run(model, xs.astype(np.float32), ds.astype(np.float32))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, trace.prediction)))
