"""Every kind of model inside a fleet: the run of a name is the run that it has alone."""

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.explanations import Explained
from jboost.reports.accounts import Watch
from jboost.running.run import targets_of
from tests.support import table

R, ROWS, CUT = 2, 36, 20
SEVERAL = {
    "several targets": jb.targets(jb.bsgd_wu(2, target_mse=0.1, step_size=0.1), 2),
    "several targets, intervals": jb.targets(jb.Intervals(jb.SGD(0.1)), 2),
    "several targets, late": jb.targets(jb.Delayed(jb.SGD(0.1), 2), 2),
    "late, several targets": jb.Delayed(jb.targets(jb.SGD(0.1), 2), 2),
    "several targets, flags": jb.targets(jb.Flags(jb.SGD(0.1), rate=0.1), 2),
}
AUTOMATIC = {
    "auto, small": jb.auto(size="small"),
    "auto, medium": jb.auto(),
    "auto, intervals": jb.Intervals(jb.auto(size="small")),
    "auto, late": jb.Delayed(jb.auto(size="small"), 2),
}
MODELS = table.FEW | SEVERAL | AUTOMATIC
QUICK = {
    *("several targets, intervals", "late, several targets", "several targets, flags"),
    *("auto, small", "Delayed booster", "Intervals, quantiles", "Flags", "Forecast", "OnChange"),
    *("AffineProjection", "VariableStepLMS", "NLMS, huber", "boosted SGD, pinball"),
}


OBSERVED = {
    "booster": jb.Intervals(jb.Flags(jb.bsgd_ru(2, target_mse=0.1, step_size=0.1), rate=0.1)),
    "auto": jb.Intervals(jb.Flags(jb.auto(size="small"), rate=0.1)),
    "two targets": jb.targets(jb.bsgd_wu(2, target_mse=0.1, step_size=0.1), 2),
}


def same(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@pytest.mark.parametrize("model", table.cases(MODELS, QUICK))
def test_a_name_runs_as_it_would_alone(model):
    rng, q = np.random.default_rng(0), targets_of(model)
    names = rng.permutation(np.array(["a", "b", "c"] * (ROWS // 3)))
    xs = rng.normal(size=(ROWS, R)).astype(np.float32)
    ds = (xs @ [1.0, -0.5] + rng.normal(size=ROWS) / 10).astype(np.float32)
    ds[[3, 8]] = np.nan, 50.0  # an answer that never comes, and an outlier
    ds = ds if q is None else np.stack([ds, 1 - ds], axis=1)
    fleet = jb.Fleet(model, R, key=jax.random.key(1) if model.needs_key else None)
    first, _ = fleet.run(fleet.init(), names[:CUT], xs[:CUT], ds[:CUT])
    state, trace = fleet.run(first, names[CUT:], xs[CUT:], ds[CUT:])
    rows = np.flatnonzero(names == "b")
    after, alone = fleet.run(fleet.init(), ["b"] * len(rows), xs[rows], ds[rows])
    late = rows[rows >= CUT] - CUT
    assert same(
        jax.tree.map(lambda a: a[late], trace), jax.tree.map(lambda a: a[-len(late) :], alone)
    )
    assert same(fleet.states(state, ["b"]), fleet.states(after, ["b"]))
    _, run = jb.run(model, xs[rows], ds[rows], fleet.key_of("b"))
    np.testing.assert_allclose(alone.prediction, run.prediction, rtol=1e-4, atol=1e-5)
    # What is predicted before the answer is the prediction of the run. A forecaster's is made with
    # the answer of its row, so it is compared with that of a row whose answer never comes.
    row = slice(CUT, CUT + 1)
    answer = np.full_like(ds[row], np.nan) if model.ahead else ds[row]
    _, then = fleet.run(first, names[row], xs[row], answer)
    assert same(fleet.predict(first, names[row], xs[row]), then.prediction)


@pytest.mark.parametrize("schedule", ["rows", "rounds"])
@pytest.mark.parametrize("model", table.cases(OBSERVED, {"booster", "two targets"}))
def test_what_is_observed_of_a_name_is_what_is_observed_of_it_alone(model, schedule):
    """Flags, intervals, learners and explanations, which add up."""
    rng, q = np.random.default_rng(0), targets_of(model)
    names = rng.permutation(np.array(["a", "b", "c"] * (ROWS // 3)))
    xs = rng.normal(size=(ROWS, R)).astype(np.float32)
    ds = (xs @ [1.0, -0.5] + rng.normal(size=ROWS) / 10).astype(np.float32)
    ds = ds if q is None else np.stack([ds, 1 - ds], axis=1)
    watch = Explained(model)
    if q is None:
        watch = Watch.for_model(model, learners=True, groups=(0, 1), flags=True)
    key = jax.random.key(1) if model.needs_key else None
    fleet = jb.Fleet(model, R, key=key, schedule=schedule)
    _, trace = fleet.run(fleet.init(), names, xs, ds, observe=watch)
    rows = np.flatnonzero(names == "b")
    _, run = jb.run(model, xs[rows], ds[rows], fleet.key_of("b"), observe=watch)
    for left, right in zip(*map(jax.tree.leaves, (trace.observed, run.observed)), strict=True):
        np.testing.assert_allclose(left[rows], right, rtol=1e-3, atol=1e-4)
    base, parts = trace.observed if q else (trace.observed[name] for name in ("base", "parts"))
    np.testing.assert_allclose(base + parts.sum(axis=-1), trace.prediction, atol=1e-5)
