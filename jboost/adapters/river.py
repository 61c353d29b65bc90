"""A model as a river regressor: ``learn_one``, ``predict_one``, and the same for mini-batches."""

import math
import secrets
from collections.abc import Iterable
from typing import Any, Literal, overload

import jax
import numpy as np

from jboost import catalogue
from jboost.adapters.feed import Feed
from jboost.core import Learner, extras
from jboost.wrappers.intervals import Intervals

extras.need("river", "river")
from river import base, conf  # noqa: E402


class OnlineRegressor(base.MiniBatchRegressor):
    """An online model that takes features by name, any of them at any time.

    A feature has its place from the first sample that is learned with it; predictions leave out
    what was never learned. When there are more features than places, their number doubles (which
    compiles the model anew), and what was learned is kept. A feature that is not given is missing:
    filled in from the past by models that do so, and zero to others.

    ``learn_many`` and ``predict_many`` do what a loop over the rows does, to the last bit.

    Parameters
    ----------
    model
        Any learner; the name of one (see ``jboost models``), which then is wrapped to take inputs
        and targets of any units; None is "auto".
    seed
        For models that draw at random; None is another one each time.
    intervals
        In (0, 1): ``predict_one(x, with_interval=True)`` gives an interval that holds this part of
        the answers, as river's ``conf`` does. The bounds follow what was measured while learning.

    Examples
    --------
    >>> from jboost.adapters.river import OnlineRegressor
    >>> regressor = OnlineRegressor("newton")
    >>> for i in range(100):
    ...     regressor.learn_one({"a": i % 7, "b": i % 3}, 2 * (i % 7) + 10)
    >>> bool(abs(regressor.predict_one({"a": 5, "b": 1}) - 20) < 0.5)
    True
    >>> regressor = OnlineRegressor("newton", intervals=0.9)
    >>> for i in range(300):
    ...     regressor.learn_one({"a": i % 7}, 2 * (i % 7) + 3 * math.sin(i * i))
    >>> interval = regressor.predict_one({"a": 5}, with_interval=True)
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
        self._places: dict[Any, int] = {}  # from the last column of x, where growing leaves them
        self._blank = np.zeros(0)

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        try:
            row = self._row(x)
        except KeyError:
            self._make_room(x)
            row = self._row(x)
        if self._feed is not None:  # there are no features at all
            self._feed.learn(row, y, w)

    @overload
    def predict_one(self, x: dict[Any, Any], with_interval: Literal[False] = False) -> float: ...
    @overload
    def predict_one(self, x: dict[Any, Any], with_interval: Literal[True]) -> conf.Interval: ...

    def predict_one(self, x: dict[Any, Any], with_interval: bool = False) -> float | conf.Interval:
        if with_interval and self.intervals is None and not isinstance(self.model, Intervals):
            raise ValueError("there are no intervals: make the regressor with intervals=0.9 or so")
        if self._feed is None:
            return conf.Interval(-math.inf, math.inf) if with_interval else 0.0
        try:
            row = self._row(x)
        except KeyError:
            row = self._row({name: x[name] for name in x if name in self._places})
        if with_interval:
            return conf.Interval(*self._feed.interval(row))
        return self._feed.predict(row)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        names, values = _columns(X)
        self._make_room(names)
        if self._feed is not None and len(values):
            weights = np.broadcast_to(np.asarray(w, np.float64), len(values))
            self._feed.learn_many(self._rows(names, values), np.asarray(y, np.float64), weights)

    def predict_many(self, X: Any) -> Any:
        names, values = _columns(X)
        made = np.zeros(len(values))
        if self._feed is not None and len(values):
            made = self._feed.predict_many(self._rows(names, values)).astype(np.float64)
        return _series(made, X)

    def _key(self, model: Learner) -> Any:
        if self.seed is not None:
            return jax.random.key(self.seed)
        return jax.random.key(secrets.randbits(32)) if model.needs_key else None

    def _row(self, x: dict[Any, Any]) -> np.ndarray:
        row, places = self._blank.copy(), self._places
        for name, value in x.items():
            try:
                row[places[name]] = value
            except (TypeError, ValueError):
                advice = "encode it first, as river's OneHotEncoder does"
                raise TypeError(f"{name!r} must be a number; got {value!r:.60}: {advice}") from None
        return row

    def _rows(self, names: list[Any], values: np.ndarray) -> np.ndarray:
        known = [i for i, name in enumerate(names) if name in self._places]
        rows = np.tile(self._blank, (len(values), 1))
        rows[:, [self._places[names[i]] for i in known]] = values[:, known]
        return rows

    def _make_room(self, names: Iterable[Any]) -> None:
        """A place for every feature; in an order that does not depend on that of a dict."""
        new = sorted((name for name in names if name not in self._places), key=repr)
        self._places |= {name: ~(len(self._places) + i) for i, name in enumerate(new)}
        if not self._places:
            return
        if self._feed is None:
            model = catalogue.resolve(self.model, intervals=self.intervals)
            self._feed = Feed(model, len(self._places), self._key(model))
        elif len(self._places) > self._feed.num_features:
            self._feed.grow(max(2 * self._feed.num_features, len(self._places)))
        absent = np.nan if self._feed.model.takes_missing else 0.0
        self._blank = np.full(self._feed.num_features, absent)


def _columns(X: Any) -> tuple[list[Any], np.ndarray]:
    """The names of a table's columns, and its numbers."""
    if hasattr(X, "iloc"):  # pandas itself knows best what its missing values are as numbers
        return list(X.columns), X.to_numpy(dtype=np.float64, na_value=np.nan)
    wrapped = extras.need("narwhals", "io").from_native(X, eager_only=True)
    return list(wrapped.columns), np.asarray(wrapped.to_numpy(), np.float64)


def _series(values: np.ndarray, like: Any) -> Any:
    """Numbers as a column of the library that a table is of, with its index."""
    nw = extras.need("narwhals", "io")
    wrapped = nw.from_native(like, eager_only=True)
    series = nw.new_series("prediction", values, backend=nw.get_native_namespace(wrapped))
    native = series.to_native()
    index = nw.maybe_get_index(wrapped)
    if index is not None:
        native.index = index
    return native
