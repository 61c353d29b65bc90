"""Presents a model as a river regressor, for single samples and mini-batches."""

from __future__ import annotations

import math
import secrets
from collections.abc import Hashable, Mapping, Set
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsFloat, overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from jboost import catalogue
from jboost.adapters.atomic import Atomic
from jboost.adapters.feed import Feed
from jboost.adapters.numbers import as_number, as_weights
from jboost.core import Learner, checks, extras
from jboost.wrappers.intervals import Intervals

extras.need("river", "river")
from river import base, conf  # noqa: E402

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

Features = Mapping[Any, SupportsFloat | None]  # values by the names of the features
REAL = "biuf"  # the kinds of dtypes of real numbers


class _Learned(NamedTuple):
    """What a regressor has learned."""

    columns: dict[Hashable, int]  # of the features; counted from the last, as x grows at its front
    empty_row: np.ndarray  # the x of a sample without features
    feed: Feed | None  # None until a sample has a feature


class OnlineRegressor(Atomic, base.MiniBatchRegressor):
    """An online model that takes features by name, any of them at any time.

    A feature gets its column of x with the first sample to learn that has it. Predictions ignore
    features that were never learned. When the columns run out, their number doubles: the model is
    compiled anew and keeps what it has learned. A feature that a sample does not have is missing.
    Models that take missing inputs fill it in from the past; for all others it is zero.

    ``learn_many`` and ``predict_many`` do what a loop over the rows does, to the last bit. A call
    that raises changes nothing, and threads may share a regressor.
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
        self._learned = _Learned({}, np.zeros(0), None)

    def learn_one(self, x: Features, y: float, w: float = 1.0) -> None:
        target = y if type(y) is float else as_number("y", y)

        def learn(before: _Learned) -> _Learned:
            columns, empty_row, feed = after = self._with_features(before, x.keys())
            if feed is None:
                as_weights(w, ())
                return before
            return _Learned(columns, empty_row, feed.learn(_row(after, x), target, w))

        self._replace("_learned", learn)

    @overload
    def predict_one(self, x: Features, with_interval: Literal[False] = False) -> float: ...
    @overload
    def predict_one(self, x: Features, with_interval: Literal[True]) -> conf.Interval: ...

    def predict_one(self, x: Features, with_interval: bool = False) -> float | conf.Interval:
        if with_interval and self.intervals is None and not isinstance(self.model, Intervals):
            raise ValueError("there are no intervals: make the regressor with intervals=0.9 or so")
        learned = self._learned
        if learned.feed is None:
            return conf.Interval(-math.inf, math.inf) if with_interval else 0.0
        estimate, *bounds = learned.feed.predict(_row(learned, x)).tolist()
        return conf.Interval(*bounds) if with_interval else estimate

    def learn_many(self, X: IntoDataFrame, y: ArrayLike, w: ArrayLike = 1.0) -> None:
        names, values = _names_and_values(X)
        targets, weights = _numbers("y", np.asarray(y)), as_weights(w, (len(values),))

        def learn(before: _Learned) -> _Learned:
            columns, empty_row, feed = after = self._with_features(before, {*names})
            if feed is not None and len(values):
                feed = feed.learn_many(_rows(after, names, values), targets, weights)
            return _Learned(columns, empty_row, feed)

        self._replace("_learned", learn)

    def predict_many(self, X: IntoDataFrame) -> Any:
        names, values = _names_and_values(X)
        learned, estimates = self._learned, np.zeros(len(values))
        if learned.feed is not None and len(values):
            estimates = learned.feed.predict_many(_rows(learned, names, values))[:, 0]
        return _series(estimates.astype(np.float64), X)

    def _with_features(self, learned: _Learned, names: Set[Hashable]) -> _Learned:
        """Give every feature a column. The order does not depend on the order in a dict."""
        columns, _, feed = learned
        if names <= columns.keys():
            return learned
        new = sorted(names - columns.keys(), key=repr)
        columns = columns | {name: ~(len(columns) + i) for i, name in enumerate(new)}
        if feed is None:
            model = catalogue.resolve(self.model, intervals=self.intervals)
            seed = secrets.randbits(32) if model.needs_key and self.seed is None else self.seed
            if seed is not None:
                seed = checks.whole("seed", seed, at_least=0, at_most=2**32 - 1)
            key = None if seed is None else jax.random.key(seed)
            feed = Feed(model, len(columns), key)
        elif len(columns) > feed.setup.num_features:
            feed = feed.grow(max(2 * feed.setup.num_features, len(columns)))
        missing = np.nan if feed.setup.model.takes_missing else 0.0
        return _Learned(columns, np.full(feed.setup.num_features, missing), feed)


def _row(learned: _Learned, x: Features) -> np.ndarray:
    row, columns = learned.empty_row.copy(), learned.columns
    for name, value in x.items():
        if name in columns:
            row[columns[name]] = value if type(value) is float else as_number(name, value)
    return row


def _rows(learned: _Learned, names: list[Hashable], values: np.ndarray) -> np.ndarray:
    present = [i for i, name in enumerate(names) if name in learned.columns]
    rows = np.tile(learned.empty_row, (len(values), 1))
    rows[:, [learned.columns[names[i]] for i in present]] = values[:, present]
    return rows


def _names_and_values(table: Any) -> tuple[list[Hashable], np.ndarray]:
    """Return the names of a table's columns, and its numbers."""
    if hasattr(table, "iloc"):  # only pandas can turn all of its kinds of missing values into NaN
        real = all(dtype.kind in REAL for dtype in table.dtypes)
        values = table.to_numpy(dtype=np.float64 if real else object, na_value=np.nan)
        names, arrays = list(table.columns), values.T
    else:
        wrapped = extras.need("narwhals", "io").from_native(table, eager_only=True)
        names = list(wrapped.columns)
        arrays = [column.to_numpy() for column in wrapped.iter_columns()]
    columns = [_numbers(name, array) for name, array in zip(names, arrays, strict=True)]
    return names, np.array(columns).T.reshape(len(table), len(names))


def _numbers(name: Hashable, values: np.ndarray) -> np.ndarray:
    """Return a column of a table, or the targets, as float64."""
    if values.dtype.kind in REAL and values.ndim == 1:
        return values.astype(np.float64)
    return np.array([as_number(name, value) for value in values], np.float64)


def _series(values: np.ndarray, table: IntoDataFrame) -> Any:
    """Return numbers as a column of the library that made the table, with the table's index."""
    nw = extras.need("narwhals", "io")
    wrapped = nw.from_native(table, eager_only=True)
    series = nw.new_series("prediction", values, backend=nw.get_native_namespace(wrapped))
    index = nw.maybe_get_index(wrapped)
    return (series if index is None else nw.maybe_set_index(series, index=index)).to_native()
