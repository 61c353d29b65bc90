"""Presents a model as a river regressor, for single samples and mini-batches."""

from __future__ import annotations

import math
import secrets
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from jboost import catalogue
from jboost.adapters.feed import Feed
from jboost.core import Learner, checks, extras
from jboost.wrappers.intervals import Intervals

extras.need("river", "river")
from river import base, conf  # noqa: E402

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

Features = Mapping[Any, SupportsFloat | None]  # values by the names of the features


class OnlineRegressor(base.MiniBatchRegressor):
    """An online model that takes features by name, any of them at any time.

    A feature gets its column of x with the first sample to learn that has it. Predictions ignore
    features that were never learned. When the columns run out, their number doubles: the model is
    compiled anew and keeps what it has learned. A feature that a sample does not have is missing.
    Models that take missing inputs fill it in from the past; for all others it is zero.

    ``learn_many`` and ``predict_many`` do what a loop over the rows does, to the last bit.
    ``jboost.adapters.compute_in_calling_thread()`` makes single calls faster.

    Parameters
    ----------
    model
        Any learner; or the name of a model (see ``jboost models``), which is then wrapped to take
        inputs and targets of any units. None is "auto".
    seed
        For models that draw at random. With None every regressor draws differently.
    intervals
        The part of the answers, in (0, 1), that the intervals of
        ``predict_one(x, with_interval=True)`` are to hold. The bounds follow the errors that were
        measured while learning.

    Examples
    --------
    >>> from jboost.adapters.river import OnlineRegressor
    >>> regressor = OnlineRegressor("newton", intervals=0.9)
    >>> for i in range(300):
    ...     regressor.learn_one({"a": i % 7, "b": i % 3}, 2 * (i % 7) + 3 * math.sin(i * i))
    >>> bool(abs(regressor.predict_one({"a": 5, "b": 1}) - 10) < 1)
    True
    >>> interval = regressor.predict_one({"a": 5, "b": 1}, with_interval=True)
    >>> 10 in interval, 3 < interval.width < 9
    (True, True)
    """

    def __init__(
        self,
        model: Learner | str | None = None,
        seed: int | None = None,
        intervals: float | None = None,
    ):
        self.model = model
        self.seed = seed
        self.intervals = intervals
        self._feed: Feed | None = None
        self._columns: dict[Hashable, int] = {}  # counted from the last, as x grows at its front
        self._empty_row = np.zeros(0)

    def learn_one(self, x: Features, y: float, w: float = 1.0) -> None:
        if not x.keys() <= self._columns.keys():
            self._add_features(x)
        if self._feed is not None:  # it is None until a sample has a feature
            self._feed.learn(self._row(x), y, w)

    @overload
    def predict_one(self, x: Features, with_interval: Literal[False] = False) -> float: ...
    @overload
    def predict_one(self, x: Features, with_interval: Literal[True]) -> conf.Interval: ...

    def predict_one(self, x: Features, with_interval: bool = False) -> float | conf.Interval:
        if with_interval and self.intervals is None and not isinstance(self.model, Intervals):
            raise ValueError("there are no intervals: make the regressor with intervals=0.9 or so")
        if self._feed is None:
            return conf.Interval(-math.inf, math.inf) if with_interval else 0.0
        estimate, *bounds = self._feed.predict(self._row(x)).tolist()
        return conf.Interval(*bounds) if with_interval else estimate

    def learn_many(self, X: IntoDataFrame, y: ArrayLike, w: ArrayLike = 1.0) -> None:
        names, values = _names_and_values(X)
        if names:
            self._add_features(names)
        if self._feed is not None and len(values):
            self._feed.learn_many(self._rows(names, values), np.asarray(y, np.float64), w)

    def predict_many(self, X: IntoDataFrame) -> Any:
        names, values = _names_and_values(X)
        estimates = np.zeros(len(values))
        if self._feed is not None and len(values):
            estimates = self._feed.predict_many(self._rows(names, values))[:, 0]
        return _series(estimates.astype(np.float64), X)

    def _row(self, x: Features) -> np.ndarray:
        row, columns = self._empty_row.copy(), self._columns
        for name, value in x.items():
            try:
                if name in columns:
                    row[columns[name]] = value
            except (TypeError, ValueError):
                advice = "encode it first, as river's OneHotEncoder does"
                raise TypeError(f"{name!r} must be a number; got {value!r:.60}: {advice}") from None
        return row

    def _rows(self, names: list[Hashable], values: np.ndarray) -> np.ndarray:
        learned = [i for i, name in enumerate(names) if name in self._columns]
        rows = np.tile(self._empty_row, (len(values), 1))
        rows[:, [self._columns[names[i]] for i in learned]] = values[:, learned]
        return rows

    def _add_features(self, names: Iterable[Hashable]) -> None:
        """Give every feature a column. The order does not depend on the order in a dict."""
        new = sorted((name for name in names if name not in self._columns), key=repr)
        self._columns |= {name: ~(len(self._columns) + i) for i, name in enumerate(new)}
        if self._feed is None:
            model = catalogue.resolve(self.model, intervals=self.intervals)
            seed = secrets.randbits(32) if model.needs_key and self.seed is None else self.seed
            if seed is not None:
                seed = checks.whole("seed", seed, at_least=0, at_most=2**32 - 1)
            key = None if seed is None else jax.random.key(seed)
            self._feed = Feed(model, len(self._columns), key)
        elif len(self._columns) > self._feed.num_features:
            self._feed.grow(max(2 * self._feed.num_features, len(self._columns)))
        missing = np.nan if self._feed.model.takes_missing else 0.0
        self._empty_row = np.full(self._feed.num_features, missing)


def _names_and_values(table: Any) -> tuple[list[Hashable], np.ndarray]:
    """Return the names of a table's columns, and its numbers."""
    if hasattr(table, "iloc"):  # only pandas can turn all of its kinds of missing values into NaN
        return list(table.columns), table.to_numpy(dtype=np.float64, na_value=np.nan)
    wrapped = extras.need("narwhals", "io").from_native(table, eager_only=True)
    return list(wrapped.columns), np.asarray(wrapped.to_numpy(), np.float64)


def _series(values: np.ndarray, table: IntoDataFrame) -> Any:
    """Return numbers as a column of the library that made the table, with the table's index."""
    nw = extras.need("narwhals", "io")
    wrapped = nw.from_native(table, eager_only=True)
    series = nw.new_series("prediction", values, backend=nw.get_native_namespace(wrapped))
    index = nw.maybe_get_index(wrapped)
    return (series if index is None else nw.maybe_set_index(series, index=index)).to_native()
