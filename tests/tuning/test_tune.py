"""Tuning: it finds what a grid finds, on rows that are not those it is scored on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jboost as jb
from jboost.settings import spaces
from jboost.tuning import plots as tune_plots
from jboost.tuning.tune import tune

DUFFING = tuple(np.asarray(a) for a in jb.streams.duffing(3000))


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_it_finds_the_best_of_a_grid_in_few_evaluations(factor):
    grid = np.geomspace(1e-3, 1, 31)
    errors = jax.vmap(lambda mu: jb.mse(jb.SGD(mu), *DUFFING))(jnp.asarray(grid))
    start = jb.SGD(factor * grid[np.argmin(errors)])
    model, history = tune(start, *DUFFING, train=1.0)
    assert len(history.value) < 40
    assert float(jb.mse(model, *DUFFING)) < 1.005 * float(errors.min())
    assert history.value[0] == pytest.approx(float(jb.mse(start, *DUFFING)), rel=1e-5)
    assert history.value[history.best[0]] == history.value.min()
    assert model.step_size == pytest.approx(history.parameters["step_size"][history.best[0]])
    assert np.isnan(history.held_out).all()  # every row was tuned on


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_booster_on_the_chaotic_stream(factor):
    stream = jb.streams.duffing(20_000)

    def error(step_size):
        return float(jb.mse(jb.bsgd_wu(target_mse=0.25, step_size=step_size), *stream))

    grid = np.geomspace(1e-3, 1, 25)
    errors = [error(float(mu)) for mu in grid]
    best = float(grid[np.argmin(errors)])
    model, history = tune(jb.bsgd_wu(target_mse=0.25, step_size=factor * best), *stream)
    assert len(history.value) < 50
    assert float(jb.mse(model, *stream)) < 1.01 * min(errors)


def test_nothing_after_the_rows_to_tune_on_matters_to_the_choice():
    xs, ds = DUFFING
    other = np.where(np.arange(3000) < 1000, ds, 100.0)
    model, history = tune(jb.SGD(0.001), xs, ds, train=1000, steps=6)
    same, _ = tune(jb.SGD(0.001), xs, other, train=1 / 3, steps=6)
    assert same.step_size == model.step_size
    for score, scored in ((history.held_out, model), (history.untuned, jb.SGD(0.001))):
        late = (np.asarray(jb.run(scored, xs, ds)[1].prediction) - ds)[1000:]
        assert score[0] == pytest.approx(np.mean(late**2), rel=1e-4)


def test_windows_move_along_and_are_scored_on_the_next():
    xs, ds = (a[:403] for a in DUFFING)
    model, history = tune(jb.SGD(0.01), xs, ds, windows=3, steps=4)
    assert history.window.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    chosen = history.parameters["step_size"][history.best]
    assert history.parameters["step_size"][4] == pytest.approx(chosen[0])  # goes on from there
    assert model.step_size == pytest.approx(chosen[-1])
    last = slice(203, 403)  # tuned on 100 rows, scored on the last 100
    error = np.asarray(jb.run(model, xs[last], ds[last])[1].prediction) - ds[last]
    assert history.held_out[-1] == pytest.approx(np.mean(error[100:] ** 2), rel=1e-4)


def test_several_settings_each_in_its_space():
    model = jb.boost(jb.NLMS(1.9), 2, target_mse=1.0, combiner=jb.Newton(0.9, ridge=1.0))
    wrt = ("learner.step_size", "target_mse", "combiner.forgetting")
    tuned, history = tune(model, *(a[:300] for a in DUFFING), wrt=wrt, steps=5, train=1.0)
    steps, targets, betas = (history.parameters[name] for name in wrt)
    assert (steps > 0).all() and (steps < 2).all() and len(set(steps)) == 5
    assert (targets > 0).all() and (betas > 0).all() and (betas < 1).all()
    assert float(jb.mse(tuned, *(a[:300] for a in DUFFING))) < history.value[0]


def test_any_optimiser_and_what_diverges_is_taken_back():
    xs, ds = (a[:200] for a in DUFFING)
    wild = optax.sgd(-1000.0)  # uphill, and far: the next error is infinite
    model, history = tune(jb.SGD(0.1, guard=False), xs, ds, optimizer=wild, steps=4)
    assert model.step_size == pytest.approx(0.1) and not np.isfinite(history.value[1])
    with pytest.raises(ValueError, match="start from values at which it runs"):
        tune(jb.SGD(10.0, guard=False), xs, ds)


@pytest.mark.slow
def test_an_optimiser_with_a_line_search():
    _, history = tune(jb.SGD(0.001), *DUFFING, optimizer=optax.lbfgs(), steps=8)
    adam, _ = tune(jb.SGD(0.001), *DUFFING)
    assert history.value.min() < 1.001 * float(jb.mse(adam, *(a[:1500] for a in DUFFING)))


def absolute(trace, ds):
    return jnp.mean(jnp.abs(trace.prediction - ds))


def test_a_metric_and_a_float_whose_range_is_given():
    xs, ds = (a[:400] for a in DUFFING)
    model, history = tune(
        jb.SGD(0.01), xs, ds, metric=absolute, spaces={"step_size": (0, 0.05)}, steps=12
    )
    assert 0.01 < model.step_size < 0.05
    late = jb.run(model, xs, ds)[1].prediction[200:] - ds[200:]
    assert history.held_out[0] == pytest.approx(float(jnp.mean(jnp.abs(late))), rel=1e-4)


def test_it_stops_when_nothing_gets_better():
    still = optax.sgd(0.0)
    _, history = tune(jb.SGD(0.1), *(a[:100] for a in DUFFING), optimizer=still, patience=3)
    assert len(history.value) == 4 and history.settled.all()


def test_the_picture_has_the_error_and_every_setting():
    xs, ds = (a[:100] for a in DUFFING)
    _, history = tune(jb.SGD(0.01), xs, ds, windows=2, steps=3)
    axes = tune_plots.tuning(history)
    assert [ax.get_ylabel() for ax in axes] == ["error on the rows tuned on", "step_size"]
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), history.parameters["step_size"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"wrt": "momentum"}, "does not have; it has step_size"),
        ({"steps": 0}, "steps must be a whole number >= 1"),
        ({"train": 0}, "train must be a fraction of the stream or a number of rows"),
        ({"train": 1.5}, "train <= 1"),
        ({"windows": 99}, "windows must leave at least two rows"),
        ({"optimizer": "adam"}, "one of optax's"),
        ({"spaces": {"step_size": (1, 0)}}, "low < high"),
        ({"spaces": {"stepsize": (0, 1)}}, "names in wrt"),
        ({"spaces": {"step_size": (0, 0.1)}}, "must start inside its range, 0 < step_size < 0.1"),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        tune(jb.SGD(0.1), *(a[:100] for a in DUFFING), **arguments)


@pytest.mark.parametrize(
    "space", [spaces.Space(0, 1), spaces.Space(0), spaces.Space(high=3), spaces.Space()]
)
def test_spaces_go_there_and_back(space, x64):
    inside = jnp.array([1e-6, 0.3, 0.999999])
    np.testing.assert_allclose(space.value(space.natural(inside)), inside, rtol=1e-8)
    far = space.value(jnp.array([-30.0, 30.0]))
    assert space.low <= far[0] < far[1] <= space.high


def test_a_float_of_unknown_range_asks_for_it():
    from jboost.core.pytree import model

    @model
    class Shifted(jb.SGD):
        shift: float = 0.0

    with pytest.raises(ValueError, match=r"pass spaces=\{'shift': \(low, high\)\}"):
        tune(Shifted(0.1), *(a[:100] for a in DUFFING), wrt="shift")
