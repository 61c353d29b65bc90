"""Detectors against river's, and flags whose rates are measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.wrappers.detectors import ADWIN, PageHinkley

KEY = jax.random.key(0)


def sequence(seed, T=2500):
    """Return numbers, or zeros and ones, whose mean changes every 500."""
    rng = np.random.default_rng(seed)
    means = np.repeat(rng.random(T // 500), 500)
    return (rng.random(T) < means).astype(float) if seed % 2 else means + 0.3 * rng.normal(size=T)


def alarms(detector, numbers, dtype):
    def step(state, x):
        return detector.update(state, x)

    return np.flatnonzero(jax.lax.scan(step, detector.init(dtype), jnp.asarray(numbers, dtype))[1])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["ADWIN", "ADWIN, small", "PageHinkley", "PageHinkley, up"])
def test_detectors_alarm_when_rivers_do(name, dtype, x64):
    drift = pytest.importorskip("river.drift")
    ours, make = {
        "ADWIN": (ADWIN(), drift.ADWIN),
        "ADWIN, small": (
            ADWIN(0.05, 8, 3, least=3),
            lambda: drift.ADWIN(0.05, clock=8, max_buckets=3, min_window_length=3),
        ),
        "PageHinkley": (PageHinkley(20.0), lambda: drift.PageHinkley(threshold=20)),
        "PageHinkley, up": (
            PageHinkley(10.0, 0.01, 0.99, 20, "up"),
            lambda: drift.PageHinkley(20, 0.01, 10, 0.99, "up"),
        ),
    }[name]
    count = 0
    for seed in range(4):
        numbers = sequence(seed)
        if dtype == "float32":
            numbers = numbers.astype(np.float32).astype(float)
        theirs, expected = make(), []
        for t, number in enumerate(numbers):
            theirs.update(number)
            expected += [t] * bool(theirs.drift_detected)
        assert alarms(ours, numbers, dtype).tolist() == expected
        count += len(expected)
    assert count >= 4


def test_a_number_that_is_not_usable_leaves_a_detector_as_it_was():
    for detector in (ADWIN(), PageHinkley(5.0)):
        state, _ = detector.update(detector.init(), 1.0)
        for number in (np.nan, np.inf, 1e30):
            after, alarm = detector.update(state, number)
            jax.tree.map(np.testing.assert_array_equal, after, state)
            assert not alarm
        with pytest.raises(ValueError, match=r"value must be one number; got shape \(2,\)"):
            detector.update(state, [1.0, 2.0])


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "skewed"])
def test_rates_hold_where_nothing_happens(noise):
    rng, T = np.random.default_rng(0), 12_000
    xs = rng.normal(size=(T, 3)).astype(np.float32)
    e = {"normal": rng.normal(size=T), "heavy tails": rng.standard_t(3, size=T),
         "skewed": rng.exponential(size=T) - 1}[noise]  # fmt: skip
    ds = (xs @ [1.0, -0.5, 0.2] + 0.3 * e).astype(np.float32)
    model = jb.Flags(jb.Newton(0.999), rate=0.01)
    found = jb.run(model, xs, ds, observe=jb.flags.flagged)[1].observed
    p = np.asarray(found["p_value"])[1000:]
    for level in (0.02, 0.1, 0.5):
        assert abs(np.mean(p <= level) - level) < 0.1 * level + 0.004
    assert abs(np.mean(found["anomaly"][1000:]) - 0.01) < 0.002
    assert np.sum(found["change"]) == 0 and np.sum(found["drifted"]) <= 1


@pytest.mark.parametrize("detector", ["PageHinkley", "ADWIN"])
def test_changes_and_drifts_are_found(detector):
    rng, T = np.random.default_rng(1), 4000
    xs = rng.normal(size=(T, 2)).astype(np.float32)
    xs[3000:, 1] += 2
    noise = rng.normal(size=T) * np.where(np.arange(T) < 2000, 0.1, 0.5)
    ds = (xs @ [1.0, -0.5] + noise).astype(np.float32)
    model = jb.Flags(jb.Newton(0.999))
    if detector == "ADWIN":
        model = jb.Flags(jb.Newton(0.999), detector=ADWIN())
    found = jb.run(model, xs, ds, observe=jb.flags.flagged)[1].observed
    changes, drifts = np.flatnonzero(found["change"]), np.argwhere(np.asarray(found["drifted"]))
    assert 2000 < changes[0] < {"PageHinkley": 2020, "ADWIN": 2040}[detector] and len(changes) <= 3
    first = drifts[drifts[:, 0] > 2900][0]
    assert 3000 < first[0] < 3070 and first[1] == 1
    assert len(drifts) <= 3


def test_the_estimates_are_the_learners_and_missing_answers_have_no_flags():
    xs = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    ds = (xs @ [1.0, 2.0]).astype(np.float32)
    plain = jb.run(jb.NLMS(0.1), xs, ds)[1].prediction
    np.testing.assert_array_equal(jb.run(jb.Flags(jb.NLMS(0.1)), xs, ds)[1].prediction, plain)
    ds[200:] = np.nan
    found = jb.run(jb.Flags(jb.NLMS(0.1)), xs, ds, observe=jb.flags.flagged)[1].observed
    assert (np.asarray(found["p_value"])[200:] == 1).all()
    assert not np.any(found["anomaly"][200:])


@pytest.mark.parametrize("detector", [ADWIN(), PageHinkley(25.0, delta=0.25, fading=1.0)])
def test_a_learner_begins_anew_where_another_detector_says_so(detector):
    rng, T = np.random.default_rng(0), 3000
    xs = rng.normal(size=(T, 3)).astype(np.float32)
    w = np.where(np.arange(T)[:, None] < 1500, [1.0, 2.0, 0.0], [0.0, -1.0, 2.0])
    ds = ((xs * w).sum(axis=1) + 0.1 * rng.normal(size=T)).astype(np.float32)
    model = jb.OnChange(jb.Newton(0.9995), detector=detector)
    state, _ = jb.run(model, xs, ds)
    assert 1500 < int(state.detector.last) < 1560 and int(state.detector.changes) == 1
    assert float(jb.mse(model, xs, ds)) < 0.3 * float(jb.mse(jb.Newton(0.9995), xs, ds))
