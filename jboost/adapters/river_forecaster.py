"""Presents a forecaster as one of river: ``learn_one(y, x)`` and ``forecast(horizon, xs)``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from jboost.adapters.feed import Feed
from jboost.adapters.numbers import as_number
from jboost.core import Learner, checks, extras
from jboost.core.numerics import LARGEST
from jboost.forecasts import Forecast
from jboost.forecasts.rows import COUNTED
from jboost.transforms.calendar import ELAPSED, Calendar

extras.need("river", "river")
from river.time_series.base import Forecaster  # noqa: E402


class OnlineForecaster(Forecaster):
    """A forecaster of the next H answers that learns from each row.

    A row whose y is None or NaN has no answer: nothing is learned, and it counts as a step.

    The features of the first row are the inputs. A feature that a later row lacks is missing; one
    that the first row lacked is left out, and so is what is no number: seasons are found in the
    answers. Features that are ``known`` in advance may be passed to ``forecast`` as ``xs``.

    Parameters
    ----------
    horizon
        H: ``forecast`` may ask for as many steps or fewer.
    learner
        Any learner; None for least squares, see :class:`jboost.Forecast`.
    known
        The names of the features that are known H rows in advance.
    longest
        The longest season in rows that is looked for.

    Examples
    --------
    >>> from jboost.adapters.river import OnlineForecaster
    >>> forecaster = OnlineForecaster(horizon=3, longest=30)
    >>> for t in range(200):
    ...     forecaster.learn_one(float(t % 5))
    >>> [round(y) for y in forecaster.forecast(3)]
    [0, 1, 2]
    """

    def __init__(
        self,
        horizon: int = 24,
        learner: Learner | None = None,
        known: Collection[str] = (),
        longest: int = 1024,
    ):
        self.horizon = horizon
        self.learner = learner
        self.known = known
        self.longest = longest
        self._names: list[Any] | None = None
        self._feed: Feed | None = None
        self._rows = 0
        self._late = 0  # how many rows came after the latest one with an answer

    def learn_one(self, y: float | None, x: Mapping[Any, Any] | None = None) -> None:
        if self._feed is None:
            self._names = [name for name, value in (x or {}).items() if _is_number(value)]
            absent = [name for name in self.known if name not in self._names]
            if absent:
                raise ValueError(f"known must be features of the first row; got {absent[0]!r}")
            columns = tuple(1 + self._names.index(name) for name in self.known)
            model = Forecast(
                self.learner,
                self.horizon,
                known=columns,
                calendar=Calendar(0, cycles=(ELAPSED,)),
                longest=self.longest,
            )
            width = 1 + len(self._names) + len(columns) * self.horizon
            self._feed = Feed(model, width)
        ahead = np.full(len(self.known) * self.horizon, np.nan)
        row = np.concatenate([[self._rows % COUNTED], self._row(x), ahead])
        answer = as_number("y", y)
        self._feed = self._feed.learn(row, answer)
        self._rows += 1
        self._late = 0 if abs(answer) < LARGEST else self._late + 1

    def forecast(self, horizon: int, xs: Iterable[Mapping[Any, Any]] | None = None) -> list[float]:
        horizon = checks.whole("horizon", horizon, at_least=1)
        if horizon > self.horizon:
            advice = f"make an OnlineForecaster(horizon={horizon})"
            raise ValueError(f"horizon must be at most {self.horizon}; got {horizon}: {advice}")
        if self._feed is None:
            return [0.0] * horizon
        model = self._feed.setup.model
        ahead = None
        if xs is not None and self.known:
            numbers = self._row  # by the names of the features
            columns = [(self._names or []).index(name) for name in self.known]
            late = [np.full(len(columns), np.nan)] * self._late
            rows = [*late, *(numbers(x)[columns] for x in xs)][: self.horizon]
            unknown = [np.full(len(columns), np.nan)] * (self.horizon - len(rows))
            ahead = np.array([*rows, *unknown])
        assert isinstance(model, Forecast)
        found = np.asarray(model.forecast(self._feed.state, ahead), np.float64)
        # A forecast begins after the latest answer, and its last value holds on.
        return found[np.minimum(np.arange(horizon) + self._late, self.horizon - 1)].tolist()

    def _row(self, x: Mapping[Any, Any] | None) -> np.ndarray:
        """Return the features of a row as numbers, NaN where one is missing."""
        values: list[Any] = [(x or {}).get(name) for name in self._names or []]
        numbers = [float(value) if _is_number(value) else np.nan for value in values]
        return np.array(numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, (Real, np.number, np.bool_))
