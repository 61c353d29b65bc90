"""Presents a model as a river regressor, for single samples and mini-batches."""

from __future__ import annotations

import datetime
import math
import secrets
from collections.abc import Hashable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, SupportsFloat, overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from jboost import catalogue
from jboost.adapters import tables, telling
from jboost.adapters.atomic import Atomic
from jboost.adapters.feed import Feed
from jboost.adapters.named import Kinds, Place, expanded, is_plain
from jboost.adapters.numbers import as_number, as_weights
from jboost.adapters.pairing import Pairing, matched
from jboost.adapters.river_forecaster import OnlineForecaster as OnlineForecaster
from jboost.core import Learner, checks, extras
from jboost.wrappers.intervals import Intervals

extras.need("river", "river")
from river import base, conf  # noqa: E402

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

# The values of the features by their names: numbers, texts, dates and times, or None.
Features = Mapping[Any, SupportsFloat | str | datetime.date | np.datetime64 | None]
FEWEST_PLACES = 16  # once columns run out; each time that they do, the model is compiled anew


class _Learned(NamedTuple):
    """What a regressor has learned."""

    columns: dict[Hashable, int]  # of the features; counted from the last, as x grows at its front
    empty_row: np.ndarray  # the x of a sample without features
    feed: Feed | None  # None until a sample has a feature, or the regressor is warmed up
    kinds: Kinds = Kinds()  # what features hold that are not numbers
    pairing: Pairing = Pairing()  # whether x comes in other forms to predict with and to learn from


class OnlineRegressor(Atomic, base.MiniBatchRegressor):
    """An online model that takes features by name, any of them at any time.

    A feature gets its column of x with the first sample to learn that has it. Predictions ignore
    features that were never learned. When the columns run out, the next power of two that is at
    least twice their number, and at least 16, is reserved: the model is compiled anew and keeps
    what it has learned. A feature that a sample does not have is missing. Models that take missing
    inputs fill it in from the past; for all others it is zero.

    A feature may be text: each text gets a column, up to 64, which is 1 where the feature has that
    text. A date or a time becomes cycles of day, week and year, and elapsed time.

    Models by name, and most others, scale by themselves: leave out river's ``StandardScaler``. It
    transforms x otherwise in ``predict_one`` than in the ``learn_one`` after it. Where each
    ``learn_one`` follows the one ``predict_one`` of its sample, and the difference is small beside
    what x changes from sample to sample, the x of the prediction is learned.

    The first call compiles the model, and no later one does until the columns run out.
    ``warm_up`` does it before the first call.

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
        # The x of the last predictions, and what was known of pairs of x when they were made.
        self._predicted: tuple[Pairing | None, tuple[np.ndarray, ...]] = (None, ())

    def learn_one(self, x: Features, y: float, w: float = 1.0) -> None:
        target = y if type(y) is float else as_number("y", y)

        def learn(before: _Learned) -> _Learned:
            since, rows = self._predicted
            return self._after(before, x, target, w, rows if since is before.pairing else ())

        self._replace("_learned", learn)

    def _after(
        self,
        before: _Learned,
        x: Features,
        target: float,
        w: float,
        predicted: tuple[np.ndarray, ...] = (),
    ) -> _Learned:
        """Return what is known after one sample, with the x of predictions just before it."""
        if any(before.kinds) or not is_plain(x):
            kinds, x = expanded(before.kinds, x, before.columns, learn=True)
            before = before._replace(kinds=kinds)
        after = self._with_features(before, x.keys())
        if after.feed is None:
            as_weights(w, ())
            return before
        pairing, row = matched(after.pairing, predicted, _row(after, x))
        return after._replace(feed=after.feed.learn(row, target, w), pairing=pairing)

    @overload
    def predict_one(self, x: Features, with_interval: Literal[False] = False) -> float: ...
    @overload
    def predict_one(self, x: Features, with_interval: Literal[True]) -> conf.Interval: ...

    def predict_one(self, x: Features, with_interval: bool = False) -> float | conf.Interval:
        if with_interval and self.intervals is None and not isinstance(self.model, Intervals):
            raise ValueError("there are no intervals: make the regressor with intervals=0.9 or so")
        learned, row = self._asked(x)
        if learned.feed is None or row is None:
            return conf.Interval(-math.inf, math.inf) if with_interval else 0.0
        since, rows = self._predicted
        rows = (*rows[-1:], row) if since is learned.pairing else (row,)
        self._predicted = learned.pairing, rows
        estimate, *bounds = learned.feed.predict(row).tolist()
        return conf.Interval(*bounds) if with_interval else estimate

    def explain_one(self, x: Features) -> tuple[float, dict[Hashable, float]]:
        """Return the base of a prediction, and what each feature adds; the sum is the prediction.

        See :func:`jboost.explain`.

        Examples
        --------
        >>> from jboost.adapters.river import OnlineRegressor
        >>> regressor = OnlineRegressor("newton")
        >>> for i in range(300):
        ...     regressor.learn_one(
        ...         {"size": i % 7, "town": "Bonn" if i % 2 else "Ulm"}, 2 * (i % 7)
        ...     )
        >>> base, parts = regressor.explain_one({"size": 5, "town": "Ulm"})
        >>> round(base), round(parts["size"]), abs(parts["town"]) < 0.1
        (6, 4, True)
        """
        learned, row = self._asked(x)
        if learned.feed is None or row is None:
            return 0.0, {}
        return telling.explained_features(learned.feed, row, learned.columns)

    def flags_one(self, x: Features, y: float) -> dict[str, Any]:
        """Return the flags of a sample as if it were learned now; nothing is learned.

        The model must be one with flags, such as ``jboost.Flags(jboost.auto())``; its docstring
        tells of ``p_value``, ``anomaly`` and ``change``. ``drifted`` are the names of the features
        whose mean has moved. Call ``learn_one`` afterwards.

        Examples
        --------
        >>> import jboost as jb
        >>> from jboost.adapters.river import OnlineRegressor
        >>> regressor = OnlineRegressor(jb.Flags(jb.Newton(0.999)))
        >>> for i in range(500):
        ...     regressor.learn_one({"a": math.sin(i)}, 2 * math.sin(i) + 0.1 * math.sin(i * i))
        >>> regressor.flags_one({"a": 0.5}, 1.05)["anomaly"]
        False
        >>> regressor.flags_one({"a": 0.5}, 9.0)
        {'p_value': 0.002..., 'anomaly': True, 'change': False, 'drifted': []}
        """
        target = as_number("y", y)
        learned, row = self._asked(x)
        if learned.feed is None or row is None:
            return {"p_value": 1.0, "anomaly": False, "change": False, "drifted": []}
        return telling.flags_of_features(learned.feed, row, target, learned.columns)

    def _asked(self, x: Features) -> tuple[_Learned, np.ndarray | None]:
        """Return what is known, and the row of a sample that is asked about; None before any."""
        learned = self._learned
        if learned.feed is None:
            return learned, None
        if any(learned.kinds) or not is_plain(x):
            x = expanded(learned.kinds, x, learned.columns, learn=False)[1]
        return learned, _row(learned, x)

    def learn_many(self, X: IntoDataFrame, y: ArrayLike, w: ArrayLike = 1.0) -> None:
        if (rows := tables.mixed_rows(X)) is not None:
            answers = tables.numbers("y", np.asarray(y)).tolist()
            each = [*zip(rows, answers, as_weights(w, (len(rows),)).tolist(), strict=True)]

            def learn_each(before: _Learned) -> _Learned:
                for sample in each:
                    before = self._after(before, *sample)
                return before

            self._replace("_learned", learn_each)
            return
        names, values = tables.names_and_values(X)
        targets, weights = tables.numbers("y", np.asarray(y)), as_weights(w, (len(values),))

        def learn(before: _Learned) -> _Learned:
            after = self._with_features(before, {*names})
            if after.feed is None or not len(values):
                return after
            feed = after.feed.learn_many(_rows(after, names, values), targets, weights)
            return after._replace(feed=feed, pairing=Pairing())

        self._replace("_learned", learn)

    def predict_many(self, X: IntoDataFrame) -> Any:
        if (rows := tables.mixed_rows(X)) is not None:
            return tables.series(np.array([self.predict_one(row) for row in rows], np.float64), X)
        names, values = tables.names_and_values(X)
        learned, estimates = self._learned, np.zeros(len(values))
        if learned.feed is not None and len(values):
            estimates = learned.feed.predict_many(_rows(learned, names, values))[:, 0]
        return tables.series(estimates.astype(np.float64), X)

    def warm_up(self, features: Iterable[Hashable] | int | None = None) -> Self:
        """Compile the model now, so that no call waits for the compiler.

        Parameters
        ----------
        features
            The names of the features, which get their columns now; or how many columns to reserve,
            for names that are not known yet. None is for a regressor that knows its features.

        Examples
        --------
        >>> from jboost.adapters.river import OnlineRegressor
        >>> regressor = OnlineRegressor("newton").warm_up(["height", "weight"])
        >>> regressor.predict_one({"height": 1.8, "weight": 80})
        0.0
        """
        names, places = set(), 0
        if isinstance(features, Iterable) and not isinstance(features, str):
            names = {*features}
        elif features is not None:
            places = checks.whole("features", features, at_least=1)

        def reserve(before: _Learned) -> _Learned:
            after = self._with_features(before, names, places)
            if after.feed is None:
                raise ValueError(
                    "warm_up got no features, and none were learned: give their names, or how many"
                )
            after.feed.warm_up()
            return after

        return self._replace("_learned", reserve)

    def _with_features(self, learned: _Learned, names: Set[Hashable], places: int = 0) -> _Learned:
        """Give every feature a column. The order does not depend on the order in a dict.

        There are at least so many ``places`` for columns.
        """
        columns, empty_row, feed, kinds, pairing = learned
        if names <= columns.keys() and places <= len(empty_row):
            return learned
        new = sorted(names - columns.keys(), key=repr)
        columns = columns | {name: ~(len(columns) + i) for i, name in enumerate(new)}
        places = max(places, len(columns))
        if feed is None:
            model = catalogue.resolve(self.model, intervals=self.intervals)
            seed = secrets.randbits(32) if model.needs_key and self.seed is None else self.seed
            if seed is not None:
                seed = checks.whole("seed", seed, at_least=0, at_most=2**32 - 1)
            key = None if seed is None else jax.random.key(seed)
            feed = Feed(model, places, key)
        elif places > len(empty_row):
            least = max(places, 2 * len(empty_row), FEWEST_PLACES)
            feed = feed.grow(2 ** math.ceil(math.log2(least)))
        missing = np.nan if feed.setup.model.takes_missing else 0.0
        empty_row = np.full(feed.setup.num_features, missing)
        for name, column in columns.items():
            if isinstance(name, Place) and name.feature in kinds.texts:
                empty_row[column] = 0.0  # the feature has another text, or none
        return _Learned(columns, empty_row, feed, kinds, pairing)


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
