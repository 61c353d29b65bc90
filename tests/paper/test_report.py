"""The run-time report: its figures against arithmetic done by hand on the record of a run."""

import json
import math

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.paper import report, theory

KEY = jax.random.key(0)


def observed(model, xs, ds):
    return jb.run(model, xs, ds, KEY, observe=report.observe)[1]


@pytest.fixture(scope="module")
def stream():
    xs, ds = jb.streams.stationary(jax.random.key(1), 1500)
    return np.asarray(xs), np.asarray(ds) - 2  # within [−1, 1]


def bounded(mode, m=5, **settings):
    return jb.boost(jb.SGD(0.1), m, target_mse=0.03, mode=mode, combiner=jb.Uniform(), **settings)


def test_its_figures_are_those_of_the_run(stream):
    xs, ds = stream
    model = bounded(jb.Weighted())
    trace = observed(model, xs, ds)
    lam = np.asarray(trace.observed["lam"], np.float64)
    kappa = float(lam[:, 3].mean()) + 1e-4  # the fourth learner's weight is the first below
    found = report.theory_report(model, trace, xs, ds, kappa=kappa)
    e = ds[:, None] - np.asarray(trace.observed["y"], np.float64)
    assert found.weight == pytest.approx(lam.mean(axis=0))
    assert found.weighted_mse == pytest.approx((lam * e**2).sum(axis=0) / lam.sum(axis=0), rel=1e-4)
    assert found.mse == pytest.approx(np.mean((np.asarray(trace.prediction) - ds) ** 2), rel=1e-5)
    assert found.desired_mse == pytest.approx(kappa + (1 - kappa) * 0.03)
    assert found.samples == 1500 and found.updates == pytest.approx(np.ones(5))
    assert found.lemma1.learners == 3
    mean = e[:, :3].mean(axis=1)
    assert found.lemma1.mse == pytest.approx(np.mean(mean**2), rel=1e-4)
    assert found.lemma1.reason == "" and found.lemma1.mse < found.desired_mse
    gamma = np.asarray(trace.observed["delta"], np.float64).mean(axis=0)
    want = theory.weight_bound(np.arange(1, 6), gamma, (e**2).mean(axis=0), 0.03)
    assert np.isfinite(want).all() and found.weight_bound == pytest.approx(want, rel=1e-4)
    assert found.bound_reasons == ("",) * 5


@pytest.mark.parametrize("mode", ["WU", "DR", "RU", "Poisson"])
def test_work_done_against_work_expected(stream, mode):
    xs, ds = stream
    modes = {
        "WU": jb.Weighted(),
        "DR": jb.DataReuse(3),
        "RU": jb.RandomUpdate(),
        "Poisson": jb.PoissonReuse(),
    }
    model = bounded(modes[mode])
    trace = observed(model, xs, ds)
    found = report.theory_report(model, trace, xs, ds)
    updates = np.asarray(trace.observed["updates"], np.float64)
    assert found.updates == pytest.approx(updates.mean(axis=0))
    drawn = mode in ("RU", "Poisson")
    assert found.updates == pytest.approx(found.expected_updates, abs=0.1 if drawn else 1e-6)
    assert found.cost["made"] == pytest.approx(3 * updates.sum(axis=1).mean() + 5 * 3)
    assert found.cost["made"] == pytest.approx(found.cost["corrected"], rel=0.05 if drawn else 1e-5)
    assert found.cost["printed"] < found.cost["corrected"]


def test_newton_costs_its_square(stream):
    xs, ds = stream
    model = jb.bnm_wu(2, target_mse=0.03, forgetting=0.999, ridge=0.1)
    found = report.theory_report(model, observed(model, xs, ds), xs, ds)
    assert found.cost == pytest.approx({"printed": 18, "corrected": 24, "made": 24})


def test_large_errors_have_no_bound_and_say_why():
    xs, ds = jb.streams.duffing(3000)
    model = jb.bsgd_wu(3, target_mse=0.25, step_size=0.1)
    found = report.theory_report(model, observed(model, xs, ds), xs, ds, kappa=0.01)
    assert found.weight_bound[0] == 1 and np.isnan(found.weight_bound[1:]).all()
    assert "is not positive" in found.bound_reasons[1]
    assert found.lemma1.learners is None and "no M" in str(found)


def test_algorithm_1_is_bounded_at_its_guarantee(stream):
    xs, ds = stream
    model = jb.boost(jb.SGD(0.1), 4, target_mse=0.1, guarantee=0.02, combiner=jb.Uniform())
    found = report.theory_report(model, observed(model, xs, ds), xs, ds)
    want = theory.weight_bound(
        np.arange(1, 5), 0.02, found.zeta2, 0.1, dependence=0.5, conditions="converged"
    )
    assert found.weight_bound == pytest.approx(want) and found.gamma == pytest.approx([0.02] * 4)


def test_independent_learners_are_bounded_by_1(stream):
    xs, ds = stream
    model = bounded(jb.Weighted(), m=2, dependence=0.0)
    found = report.theory_report(model, observed(model, xs, ds), xs, ds)
    assert found.weight_bound == pytest.approx([1, 1]) and found.weight == pytest.approx([1, 1])


def test_bad_samples_are_left_out(stream):
    xs, ds = stream[0][:300].copy(), stream[1][:300].copy()
    ds[50] = np.nan
    model = bounded(jb.Weighted(), m=2)
    found = report.theory_report(model, observed(model, xs, ds), xs, ds)
    assert found.samples == 299 and math.isfinite(found.mse)


def test_other_learners_have_no_cost(stream):
    xs, ds = stream
    model = jb.boost([jb.SGD(0.1), jb.Newton(0.99)], target_mse=0.03)
    found = report.theory_report(model, observed(model, xs, ds), xs, ds)
    assert math.isnan(found.cost["printed"]) and found.updates == pytest.approx([1, 1])


def test_the_table_and_the_data(stream):
    xs, ds = stream
    model = bounded(jb.RandomUpdate())
    found = report.theory_report(model, observed(model, xs, ds), xs, ds, kappa=0.5)
    lines = str(found).splitlines()
    assert lines[0] == "1,500 samples, 5 learners, σ_m² 0.03, κ 0.5"
    assert (
        len([line for line in lines if line.endswith(tuple("0123456789")) and " κ " in line]) == 6
    )
    assert "operations a step" in lines[-1]
    record = json.loads(json.dumps(found.as_dict()))
    assert record["lemma1"]["learners"] == found.lemma1.learners
    assert len(record["weighted_mse"]) == 5 and set(record["cost"]) == {
        "printed",
        "corrected",
        "made",
    }


def test_mistakes_are_named(stream):
    xs, ds = stream
    model = bounded(jb.Weighted())
    trace = observed(model, xs, ds)
    with pytest.raises(TypeError, match="model must be a booster"):
        report.theory_report(jb.SGD(0.1), trace, xs, ds)
    with pytest.raises(ValueError, match=r"observe=jboost\.report\.observe"):
        report.theory_report(model, jb.run(model, xs, ds)[1], xs, ds)
    with pytest.raises(ValueError, match="one target_mse"):
        many = jb.boost(jb.SGD(0.1), 2, target_mse=np.array([0.1, 0.2]))
        report.theory_report(many, observed(many, xs, ds), xs, ds)
    with pytest.raises(ValueError, match="trace must hold y"):
        report.theory_report(bounded(jb.Weighted(), m=3), trace, xs, ds)
    with pytest.raises(ValueError, match="kappa must be"):
        report.theory_report(model, trace, xs, ds, kappa=1.5)
