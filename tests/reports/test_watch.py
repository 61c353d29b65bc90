"""What a run is watched for: intervals and learners, in constant memory and whatever the blocks."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jax
import numpy as np
import pytest

import jboost as jb
from jboost import catalogue
from jboost.boosting.booster import Boosted
from jboost.core.within import within
from jboost.reports import pictures
from jboost.reports.accounts import MOST_LEARNERS, Bands, Learners, Watch
from jboost.reports.spans import MOST_SPANS, Spans
from jboost.reports.tally import Tally
from jboost.running.blocks import Block

RNG = np.random.default_rng(0)
CUTS = (1, 0, 700, 3, 1297, 3000)


def block(start: int, d: Any, prediction: Any, **observed: Any) -> Block:
    return Block(start, d, prediction, np.isnan(d), observed)


def parts(n: int) -> Any:
    edges = np.minimum(np.cumsum([0, *CUTS]), n)
    return itertools.pairwise(edges.tolist())


@pytest.mark.parametrize("samples", [None, 16])
def test_means_of_spans_do_not_depend_on_the_blocks(samples: int | None) -> None:
    values = RNG.normal(size=(5001, 3))
    values[RNG.integers(5001, size=40), 1] = np.nan
    whole, cut = Spans(3, samples=samples), Spans(3, samples=samples)
    whole.add(values)
    for a, b in parts(5001):
        cut.add(values[a:b])
        cut = Spans.from_dict(json.loads(json.dumps(cut.as_dict())))
    assert cut.as_dict() == whole.as_dict()
    ends, means = whole.over_time()
    assert MOST_SPANS // 2 <= len(ends) <= MOST_SPANS and ends[-1] == 5001
    edges = np.concatenate([[0], ends])
    if samples is None:
        good = np.where(np.isfinite(values).all(axis=1)[:, None], values, np.nan)
        expected = [np.nanmean(good[a:b], axis=0) for a, b in itertools.pairwise(edges)]
        np.testing.assert_allclose(means, expected)
    else:  # of 64 rows every fourth
        assert np.abs(means.mean(axis=0)).max() < 0.1
        later = values[int(edges[-2]) :: 4]
        np.testing.assert_allclose(means[-1], later[np.isfinite(later).all(axis=1)].mean(axis=0))
    coarse, _ = whole.over_time(at_least=1000)
    assert np.diff(coarse)[:-1].min() >= 1000 and coarse[-1] == 5001


def test_rows_that_went_by_unseen_are_a_gap() -> None:
    spans = Spans(1, start=1000)
    spans.add(np.ones((24, 1)))
    ends, means = spans.over_time()
    assert ends[-1] == 1024 and np.isnan(means[ends <= 1000]).all() and means[-1, 0] == 1


def test_the_account_of_intervals() -> None:
    d = RNG.normal(size=5001)
    low, high = d - RNG.uniform(-0.1, 1, size=5001), d + 1
    low[0], high[0] = -np.inf, np.inf
    d[RNG.integers(1, 5001, size=20)] = np.nan
    whole, cut = Bands(0.9), Bands(0.9)
    whole.add(block(0, d, d, low=low, high=high))
    for a, b in parts(5001):
        cut.add(block(a, d[a:b], d[a:b], low=low[a:b], high=high[a:b]))
        cut = Bands.from_dict(json.loads(json.dumps(cut.as_dict())))
    assert cut.as_dict() == whole.as_dict()
    known = np.isfinite(d) & np.isfinite(high)
    inside = ((low <= d) & (d <= high))[known]
    assert 0.85 < inside.mean() < 0.95 and inside[-1000:].mean() != inside.mean()
    found = (whole.covered, whole.lately, whole.width)
    np.testing.assert_allclose(
        found, [inside.mean(), inside[-1000:].mean(), (high - low)[known].mean()]
    )
    np.testing.assert_array_equal(whole.last[:, 0], np.arange(4802, 5002))
    np.testing.assert_array_equal(whole.last[:, 3], low[-200:])
    assert np.isnan([Bands(0.9).covered, Bands(0.9).lately, Bands(0.9).width]).all()


def observed(model: Any, T: int, **settings: Any) -> tuple[Any, Any]:
    xs, ds = (np.asarray(a) for a in jb.streams.duffing(T))
    watch = Watch.for_model(model, **settings)
    return ds, jax.tree.map(np.asarray, jb.run(model, xs, ds, observe=watch)[1].observed)


def test_what_each_learner_did_is_what_info_says() -> None:
    model = catalogue.resolve(catalogue.named("bsgd_wu", {"m": 4}), intervals=0.9)
    booster = within(model, Boosted)
    assert booster is not None and booster.m == 4
    ds, seen = observed(model, 120, learners=True)
    learners = Learners(4)
    learners.add(block(0, ds, ds, **seen))
    np.testing.assert_allclose(learners.lam, seen["lam"], rtol=1e-6)  # spans of one row
    np.testing.assert_allclose(learners.z, seen["z"], rtol=1e-6)
    drawn: Any = pictures.contributions(np.ones((120, 4)), seen["zy"], ds)
    heights = [bar.get_height() for bar in drawn.patches]
    np.testing.assert_allclose(learners.shares, heights, rtol=1e-4)
    assert learners.shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(learners.table[:, 1], seen["lam"].mean(axis=0), rtol=1e-5)
    assert set(observed(model, 5, learners=False)[1]) == {"low", "high"}


def test_of_very_many_learners_some_are_shown() -> None:
    model = jb.bsgd_wu(100, target_mse=0.1, step_size=0.1)
    ds, seen = observed(model, 40, learners=True)
    assert seen["lam"].shape == (40, 34) and MOST_LEARNERS >= 34
    learners = Learners(100)
    learners.add(block(0, ds, ds, **seen))
    np.testing.assert_array_equal(learners.table[:3, 0], [1, 4, 7])
    left, right = pictures.learners_of(learners)
    assert left.images[0].get_array().shape == (34, 40)  # type: ignore[union-attr]
    assert left.get_ylim() == (100.5, 0.5) and right.get_title() == "z over time"


def test_a_mixture_has_weights_and_shares_and_names() -> None:
    experts = [jb.NLMS(0.1), jb.NLMS(0.5)]
    ds, seen = observed(jb.boost(experts, target_mse=0.1, dependence=0.0), 40, learners=True)
    learners = Learners(2)
    learners.add(block(0, ds, ds, **seen))
    left, right = pictures.learners_of(learners, names=["slow", "fast"])
    assert [label.get_text() for label in left.get_yticklabels()] == ["slow", "fast"]
    np.testing.assert_allclose([bar.get_height() for bar in right.patches], learners.shares)  # type: ignore[attr-defined]


def test_rows_in_which_a_learner_diverged_do_not_count() -> None:
    lam, z, d = np.ones((4, 2)), np.full((4, 2), 0.5), np.arange(4.0)
    whole, without = Learners(2), Learners(2)
    whole.add(block(0, d, d, lam=lam, z=z, zy=z * d[:, None]))
    z[2, 1] = np.inf
    without.add(block(0, d, d, lam=lam, z=z, zy=z * d[:, None]))
    assert np.isnan(without.z[2]).all() and without.spans.rows == 4
    np.testing.assert_array_equal(without.z[[0, 1, 3]], whole.z[[0, 1, 3]])


def test_equal_watches_are_one_function() -> None:
    assert Watch(True, 3) == Watch(True, 3) and hash(Watch(True, 3)) == hash(Watch(True, 3))
    assert not any(Watch.for_model(jb.Newton(), learners=True))
    assert within(jb.Newton(), Boosted) is None


def test_pictures_of_rows_with_times_have_them_below() -> None:
    n, hour = 1000, np.timedelta64(3_600_000_000, "us")
    instants = np.datetime64("2024-01-01", "us") + np.arange(n) * hour
    instants[500:] += 2000 * hour  # a gap
    d = RNG.normal(size=n)
    tally, bands, learners = Tally("mine"), Bands(0.9), Learners(2)
    ones = np.ones((n, 2))
    learner_values = {"lam": ones * [1.0, 0.5], "z": ones, "zy": ones}
    whole = block(0, d, d + 0.1, low=d - 1, high=d + 1, **learner_values)
    tally.add(whole, instants)
    bands.add(whole, instants)
    learners.add(whole)
    found = tally.times_at(np.array([0.0, 0.25, 0.75, 1.0]))
    expected = instants[[0, 250, 750, -1]]
    assert (np.abs(found - expected) < 10 * hour).all()  # a span has eight rows
    last, inside = pictures.intervals_over_time(bands, when=tally.times_at)
    left, right = pictures.learners_of(learners, when=tally.times_at)
    dates = pytest.importorskip("matplotlib.dates")
    for ax in (last, inside, left, right):
        assert isinstance(ax.xaxis.get_major_locator(), dates.AutoDateLocator)
        assert ax.get_xlabel() == ""
    assert left.get_ylim() == (2.5, 0.5)
    (mesh,) = (c for c in right.collections if c.get_array() is not None)
    assert np.asarray(mesh.get_array()).shape == learners.z.T.shape
    start, end = (dates.date2num(time) for time in instants[[0, -1]])
    assert left.get_xlim() == pytest.approx((start, end), abs=0.5)
