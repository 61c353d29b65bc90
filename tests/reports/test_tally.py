"""The account of a run's errors, and the pictures of learners."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from jboost.reports import pictures
from jboost.reports.tally import Tally
from jboost.running.blocks import Block


def block(start: int, d: np.ndarray, prediction: np.ndarray) -> Block:
    return Block(start, d, prediction, np.isnan(d))


def test_the_account_does_not_depend_on_the_blocks() -> None:
    rng = np.random.default_rng(0)
    d, made = rng.normal(size=(2, 5000))
    d[rng.integers(5000, size=20)] = np.nan
    whole, parts = Tally("m"), Tally("m")
    whole.add(block(0, d, made))
    start = 0
    for length in (1, 0, 700, 3, 2000, 5000):
        rows = slice(start, start + length)
        parts.add(block(start, d[rows], made[rows]))
        parts = Tally.from_dict(json.loads(json.dumps(parts.as_dict())))
        start += length
    assert parts.as_dict() == whole.as_dict()
    known = np.isfinite(d)
    error = (d - made)[known] ** 2
    assert whole.scored == known.sum() and whole.mse["m"] == pytest.approx(error.mean())
    assert whole.lately == pytest.approx(error[-1000:].mean())
    ends, so_far, within = whole.curves()
    assert ends[-1] == known.sum() and 64 <= len(ends) <= 128
    np.testing.assert_allclose(so_far["m"], [error[: int(n)].mean() for n in ends])
    edges = np.concatenate([[0], ends]).astype(int)
    expected = [error[a:b].mean() for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(within["m"], expected)


def test_what_each_learner_did_is_drawn() -> None:
    lam = np.repeat([[0.0, 0.5, 1.0]], 1000, axis=0)
    ax: Any = pictures.learners_over_time(lam, "λ")
    np.testing.assert_array_equal(ax.images[0].get_array()[:, 0], [0.0, 0.5, 1.0])
    assert ax.images[0].get_clim() == (0.0, 1.0)
    z = lam - 2
    assert pictures.learners_over_time(z[:5], "z").images[0].get_clim() == (-2.0, 2.0)
    d = np.arange(4.0)
    y = np.stack([d, -d, np.ones(4)], axis=1)
    drawn: Any = pictures.contributions(y, np.ones((4, 3)) * [3.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose([bar.get_height() for bar in drawn.patches], [1.5, -0.5, 0.0])
    with pytest.raises(ValueError, match=r"values must have shape \(T, m\)"):
        pictures.learners_over_time(d, "λ")
    with pytest.raises(ValueError, match="y, z and d must be of one run"):
        pictures.contributions(y, y[:3], d)
