"""A forecaster together with other learners: what may stand inside it, and what around it."""

import chex
import jax
import numpy as np
import pytest

import jboost as jb

H, T = 2, 48
RNG = np.random.default_rng(0)
XS = RNG.normal(size=(T, 1)).astype(np.float32)
DS = (np.sin(np.arange(T)) + 0.1 * RNG.normal(size=T)).astype(np.float32)
NEWTON = jb.Newton(0.99, ridge=1.0)
INSIDE = {
    "OnChange": jb.OnChange(NEWTON),
    "Huber": jb.Huber(NEWTON),
    "Intervals": jb.Intervals(NEWTON),
    "Flags": jb.Flags(NEWTON),
    "Scored": jb.Scored(NEWTON),
    "Delayed": jb.Delayed(NEWTON, 2),
    "pipeline": jb.pipeline(jb.Scale(), jb.Bias(), NEWTON),
    "booster": jb.bnm_ru(m=3, target_mse=0.1, forgetting=0.99, ridge=1.0),
}


@pytest.mark.parametrize("learner", INSIDE.values(), ids=INSIDE.keys())
def test_any_learner_stands_inside_and_a_cut_changes_no_bit(learner, tmp_path):
    model = jb.Forecast(learner, H, longest=8)
    key = jax.random.key(0) if model.needs_key else None
    ds = DS.copy()
    ds[30] = np.nan
    state, trace = jb.run(model, XS, ds, key=key)
    assert np.isfinite(trace.prediction).all()
    half, first = jb.run(model, XS[:20], ds[:20], key=key)
    jb.save(tmp_path / "model", model, half, key=key)
    loaded, half, key = jb.load(tmp_path / "model")
    resumed, second = jb.run(loaded, XS[20:], ds[20:], state=half, key=key)
    chex.assert_trees_all_equal(resumed, state)
    joined = np.concatenate([first.prediction, second.prediction])
    chex.assert_trees_all_equal(joined, np.asarray(trace.prediction))


AROUND = {
    "Intervals": jb.Intervals,
    "OnChange": jb.OnChange,
    "Huber": jb.Huber,
    "Delayed": lambda model: jb.Delayed(model, 2),
    "Scored": jb.Scored,
    "Flags": jb.Flags,
    "ScaleTarget": jb.ScaleTarget,
    "pipeline": lambda model: jb.pipeline(jb.Bias(), model),
    "boost": lambda model: jb.boost(model, 3, target_mse=0.1),
    "regions": lambda model: jb.PiecewiseLinear(2, model),
    "targets": lambda model: jb.targets(model, 2),
    "Forecast": lambda model: jb.Forecast(model, 2),
}


@pytest.mark.parametrize("wrap", AROUND.values(), ids=AROUND.keys())
def test_nothing_stands_around_a_forecaster_and_a_sentence_says_so(wrap):
    with pytest.raises(TypeError, match=r"got a forecaster of 2 answers.*Forecast\(learner, hor"):
        wrap(jb.Forecast(horizon=H, longest=8))


def test_settings_of_the_least_squares_sweep_and_have_gradients():
    def make(beta):
        return jb.Forecast(horizon=H, longest=8, forgetting=beta)

    table = jb.sweep(make, {"beta": [0.97, 0.99]}, XS, DS)
    low, high = np.asarray(table["mse"], float).ravel()
    assert float(jb.mse(make(0.99), XS, DS)) == pytest.approx(high, rel=1e-3)
    _, slopes = jb.hypergradient(make(0.98), XS, DS, wrt=("forgetting",))
    assert float(slopes["forgetting"]) == pytest.approx((high - low) / 0.02, rel=0.3)
    coverages = [jb.Forecast(horizon=H, longest=8, coverage=part) for part in (0.5, 0.95)]
    widths = []
    for model in coverages:
        low, high = model.interval(jb.run(model, XS, DS)[0])
        widths.append(np.asarray(high - low))
    assert (widths[0] < widths[1]).all()


def test_tuning_lowers_the_error_of_the_forecasts():
    import optax

    model = jb.Forecast(jb.SGD(0.001), H, longest=8)
    before = float(jb.mse(model, XS, DS))
    tuned, _ = jb.tune(
        model, XS, DS, optimizer=optax.adam(0.3), steps=5, wrt=("learner.step_size",)
    )
    assert float(jb.mse(tuned, XS, DS)) < before
