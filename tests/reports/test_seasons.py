"""The seasonal control, against a dictionary of times."""

import numpy as np
import pytest

from jboost.reports.horizons import Horizons
from jboost.reports.seasons import Season, seasons_of
from jboost.reports.tally import Tally
from jboost.running.blocks import Block

HOUR = 3_600_000_000


def by_hand(slots, answers, rows):
    """Row by row, with a dictionary of the last answers by their time."""
    found, known, latest = [], {}, None
    for slot, answer in zip(slots.tolist(), answers.tolist(), strict=True):
        recent = latest is None or slot - rows >= latest - rows
        found.append(known.get(slot - rows, np.nan) if recent else np.nan)
        known[slot] = answer
        latest = slot if latest is None else max(latest, slot)
    return found


@pytest.mark.parametrize("order", ["regular", "gaps", "repeats"])
def test_a_season_before(order):
    rng = np.random.default_rng(0)
    slots = np.arange(300)
    if order == "gaps":
        slots = np.sort(rng.choice(600, 300, replace=False))
    elif order == "repeats":
        slots = np.sort(rng.integers(0, 200, 300))
    answers = rng.normal(size=300)
    expected = by_hand(slots, answers, 24)
    for cuts in ([300], [1] * 300, [7, 100, 193]):
        season, found, start = Season.empty(24), [], 0
        for n in cuts:
            rows = slice(start, start + n)
            nothing = np.full(n, np.nan)
            season, made = season.after(slots[rows], answers[rows], nothing)
            season = Season.from_dict(season.as_dict())
            found += made.tolist()
            start += n
        np.testing.assert_array_equal(found, expected)
        assert len(season.slots) <= 25


def test_an_answer_of_later_is_never_known():
    slots = np.array([0, 24, 48, 24, 72, 30])
    _, found = Season.empty(24).after(slots, np.arange(6.0), np.full(6, -1.0))
    assert found.tolist() == [-1, 0, 1, -1, 2, -1]


def test_the_seasons_of_a_step():
    assert seasons_of(HOUR) == {"a day": 24, "a week": 168}
    assert seasons_of(24 * HOUR) == {"a week": 7, "a year": 365}
    assert seasons_of(HOUR // 3600) == {} == seasons_of(0)


def test_a_tally_with_times_does_not_depend_on_the_cut():
    rng = np.random.default_rng(0)
    d, p = rng.normal(size=(2, 500))
    times = np.datetime64("2024-01-01", "us") + np.arange(500) * np.timedelta64(HOUR, "us")
    times[100] = np.datetime64("NaT")
    kept = []
    for cuts in ([500], [1] * 500, [3, 250, 247]):
        tally, start = Tally("mine", HOUR), 0
        for n in cuts:
            rows = slice(start, start + n)
            block = Block(start, d[rows], p[rows], np.zeros(n, bool))
            tally.add(block, times[rows])
            tally = Tally.from_dict(tally.as_dict())
            start += n
        kept.append(tally.as_dict())
    assert kept[0] == kept[1] == kept[2]
    assert tally.mae["mine"] == pytest.approx(np.mean(np.abs(d - p)))
    when = tally.when
    assert when is None or (np.diff(when) > np.timedelta64(0)).all()


def test_a_control_is_told_of_once_it_has_had_a_season():
    d = np.arange(200.0)
    times = np.datetime64("2024-01-01", "us") + np.arange(200) * np.timedelta64(HOUR, "us")
    tally, told = Tally("mine", HOUR), []
    for start, stop in ((0, 24), (24, 25), (25, 168), (168, 169), (169, 200)):
        n = stop - start
        tally.add(Block(start, d[start:stop], np.zeros(n), np.zeros(n, bool)), times[start:stop])
        tally = Tally.from_dict(tally.as_dict())
        assert [*tally.mse] == [*tally.mae] == [*tally.curves()[1]]
        told.append([name.removeprefix("seasonal last value, ") for name in [*tally.mse][3:]])
    assert told == [[], ["a day"], ["a day"], ["a day", "a week"], ["a day", "a week"]]
    # The last value stood in for it in the first week.
    assert tally.mae["seasonal last value, a week"] == (167 * 1 + 32 * 168) / 200


def test_a_forecaster_shows_no_season_before_there_was_one():
    """With 30 hourly rows there was a day before, and no week; an account that is kept knows it."""
    rng = np.random.default_rng(0)
    account, d, due = Horizons("mine", 2, HOUR), rng.normal(size=30), rng.normal(size=(30, 2))
    block = Block(0, d, np.zeros((30, 2)), np.zeros(30, bool), due=due)
    account.add(block, np.arange(30))
    assert account.names == ["mine", "last value", "a day before"]
    again = Horizons.from_dict(account.as_dict())
    assert again.mae == account.mae and [*again.mse] == again.names
    day = account.mae_by_horizon["a day before"]
    last = np.abs(d[1:24] - d[:23])  # the last value stands in on the first day
    assert day[0] == pytest.approx(np.append(last, np.abs(d[24:] - d[:6])).sum() / 30)
    account.add(Block(30, d, np.zeros((30, 2)), np.zeros(30, bool), due=due), np.arange(160, 190))
    assert account.names[-1] == "a week before" and set(account.mae) == set(account.names)
