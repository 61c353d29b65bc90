"""Presents a model as a scikit-learn regressor, for pipelines and searches."""

from __future__ import annotations

from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike

from jboost import catalogue
from jboost.adapters import frames, telling
from jboost.adapters.atomic import Atomic
from jboost.adapters.feed import Feed
from jboost.adapters.numbers import as_weights
from jboost.core import Learner, State, checks, extras
from jboost.settings import leaves
from jboost.wrappers.intervals import Intervals

extras.need("sklearn", "sklearn")
from sklearn.base import BaseEstimator, RegressorMixin  # noqa: E402
from sklearn.utils import Tags, check_random_state, validation  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402


def _has_intervals(regressor: OnlineRegressor) -> bool:
    return regressor.intervals is not None or isinstance(regressor.model, Intervals)


class OnlineRegressor(Atomic, RegressorMixin, BaseEstimator):
    """An online model that learns the rows of X in their order, each once.

    ``fit`` starts from the first state, ``partial_fit`` goes on. Both learn row after row: how
    rows are divided among calls makes no difference, to the last bit. ``predict`` does not learn.
    A call that raises changes nothing, and threads may share a regressor.

    X may be a table of pandas, polars or pyarrow with text, truth values, dates and times: they
    become numbers as they do in ``jboost run``.

    ``score`` on rows that were learned says how well the model knows them afterwards, which is too
    good. And it is of the model as it is after the last row: a model that follows changes knows the
    latest rows better than old ones. The honest error of a stream is that of
    ``prequential_predictions_``.

    Parameters
    ----------
    model : Learner, str or None
        Any learner; or the name of a model (see ``jboost models``), which is then wrapped to take
        inputs and targets of any units. None is "auto".
    random_state : int, RandomState instance or None
        For models that draw at random.
    intervals : float or None
        The part of the answers, in (0, 1), that is to lie between the bounds of
        ``predict_interval``. The bounds follow the errors that were measured while learning.

    Attributes
    ----------
    model_ : Learner
        The model that learns.
    state_ : pytree
        The state of the model after all rows so far.
    prequential_predictions_ : ndarray of shape (n,)
        For each row of the last ``fit`` or ``partial_fit``, the prediction that was made just
        before the row was learned.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of str
        The names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from jboost.adapters.sklearn import OnlineRegressor
    >>> X, noise = np.random.default_rng(0).normal(size=(2, 200, 2))
    >>> y = 3 * X[:, 0] + 5 + noise[:, 0]
    >>> regressor = OnlineRegressor("newton", intervals=0.9).fit(X, y)
    >>> bool(abs(regressor.predict([[1.0, 0.0]])[0] - 8) < 0.5)
    True
    >>> low, high = regressor.predict_interval(X).T
    >>> bool(0.8 < np.mean((low <= y) & (y <= high)) < 1)
    True
    >>> base, parts = regressor.explain(X)
    >>> bool(np.abs(base + parts.sum(axis=1) - regressor.predict(X)).max() < 1e-5)
    True
    """

    def __init__(
        self,
        model: Learner | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        intervals: float | None = None,
    ):
        self.model = model
        self.random_state = random_state
        self.intervals = intervals

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the rows of X, (n, r), and y, (n,), starting from the first state."""
        return self._learn(X, y, sample_weight, anew=True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn more rows of X, (n, r), and y, (n,)."""
        return self._learn(X, y, sample_weight, anew=False)

    def warm_up(self, num_features: int | None = None) -> Self:
        """Compile the model for rows of ``num_features`` columns, so that no later call needs to.

        Nothing is learned. None is for a regressor that was fitted, and has been copied to another
        process since.
        """
        feed = getattr(self, "feed_", None)
        if num_features is not None:
            model = catalogue.resolve(self.model, intervals=self.intervals)
            key = jax.random.key(0) if self._takes_key(model) else None
            feed = Feed(model, checks.whole("num_features", num_features, at_least=1), key)
        if feed is None:
            raise ValueError("warm_up got no num_features, and nothing was fitted: give the number")
        feed.warm_up()
        return self

    def _takes_key(self, model: Learner) -> bool:
        return model.needs_key or self.random_state is not None

    def _learn(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, anew: bool
    ) -> Self:
        def learn(before: dict[str, Any]) -> dict[str, Any]:
            after = self._present()  # seen by nobody else until all is learned
            after._learn_rows(X, y, sample_weight, first=anew or "feed_" not in before)
            return after.__dict__

        return self._replace("__dict__", learn)

    def _learn_rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, first: bool
    ) -> None:
        model = catalogue.resolve(self.model, intervals=self.intervals) if first else self.model_
        if first:
            self.columns_ = None
        X = self._numbers(X, reset=first)
        X, y = self._checked(model, X=X, y=y, y_numeric=True, reset=first and self.columns_ is None)
        if sample_weight is not None:
            sample_weight = as_weights(sample_weight, np.shape(y))
        weights = validation._check_sample_weight(sample_weight, X)
        if first:
            key = None
            if self._takes_key(model):
                key = jax.random.key(self._generator().randint(2**31 - 1))
            self.model_, self.feed_ = model, Feed(model, np.shape(X)[1], key)
        self.feed_, estimates = self.feed_.learn_and_predict(X, y, weights)
        self.prequential_predictions_ = estimates[:, 0].astype(np.float64)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the estimates (n,) for the rows of X, (n, r)."""
        return self._estimates(X)[:, 0]

    @available_if(_has_intervals)
    def predict_interval(self, X: ArrayLike) -> np.ndarray:
        """Return the lower and upper bounds (n, 2) for the rows of X, (n, r)."""
        return self._estimates(X)[:, 1:]

    def explain(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the base (n,) and what each column adds (n, columns); their sum is ``predict``.

        See :func:`jboost.explain`. A column of text or times is one column.
        """
        present, numbers = self._rows(X)
        groups = np.arange(numbers.shape[1])
        if present.columns_ is not None:
            groups = np.array(present.columns_.groups)
        return telling.explained(present.feed_, numbers, groups)

    def flags(self, X: ArrayLike, y: ArrayLike) -> dict[str, np.ndarray]:
        """Return the flags of rows as if they were learned next; nothing is learned.

        The model must be one with flags, such as ``jboost.Flags(jboost.auto())``; its docstring
        tells of them. Call ``partial_fit`` afterwards.
        """
        present, numbers = self._rows(X)
        present.columns_ = None  # these are numbers already
        model, options = present.model_, {"y_numeric": True, "reset": False}
        numbers, targets = present._checked(model, X=numbers, y=y, **options)
        return telling.flags(present.feed_, numbers, targets)

    @property
    def state_(self) -> State:
        """The state of the model after all rows so far."""
        validation.check_is_fitted(self, "feed_")
        return self.feed_.state

    def _estimates(self, X: ArrayLike) -> np.ndarray:
        """Return estimates and bounds, (n, 1) or (n, 3), for the rows of X."""
        present, numbers = self._rows(X)
        return present.feed_.predict_many(numbers).astype(np.float64)

    def _rows(self, X: ArrayLike) -> tuple[Self, np.ndarray]:
        """Return a copy that no other thread changes, and the rows of X as numbers."""
        validation.check_is_fitted(self, "feed_")
        present = self._present()
        X = present._numbers(X, reset=False)
        return present, present._checked(present.model_, X=X, reset=False)

    def _present(self) -> Self:
        """Return a copy that shares all, and that no other thread changes."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def _generator(self) -> np.random.RandomState:
        try:
            return check_random_state(self.random_state)
        except (TypeError, ValueError):
            allowed = "None, a whole number from 0 to 2³² − 1, or a numpy RandomState"
            got = checks.shown(self.random_state)
            raise ValueError(f"random_state must be {allowed}; got {got}") from None

    def _checked(self, model: Learner, **arguments: Any) -> Any:
        """Return X, or X and y, as arrays that the model can take."""
        finite = "allow-nan" if model.takes_missing else True
        options = {"dtype": np.float64, "ensure_all_finite": finite}
        if getattr(self, "columns_", None) is None:
            return validation.validate_data(self, **arguments, **options)
        arguments.pop("reset")  # the names were checked when the table became numbers
        if "y" in arguments:
            return validation.check_X_y(**arguments, **options)
        return validation.check_array(arguments["X"], **options)

    def _numbers(self, X: Any, *, reset: bool) -> Any:
        """Return a table with text or times as numbers, and anything else as it is."""
        frames.refuse_objects(X)
        if not frames.is_mixed(X) if reset else self.columns_ is None:
            if not reset:
                frames.refuse_texts(X)
            return X
        validation.validate_data(self, X=X, reset=reset, skip_check_array=True)
        if not hasattr(X, "columns"):
            raise TypeError("X must be a table with columns, as that of fit was; got an array")
        self.columns_, numbers = frames.encoded(X, self.columns_)
        return numbers

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; the settings of the model are called ``model__…``."""
        params = super().get_params(deep=False)
        if not deep:
            return params
        if isinstance(self.model, Learner):
            settings = leaves.paths(self.model)
            values = leaves.take(self.model, settings.values())
            nested = dict(zip((path.replace(".", "__") for path in settings), values, strict=True))
        else:
            name = catalogue.DEFAULT if self.model is None else self.model
            named = catalogue.CATALOGUE.get(name) if isinstance(name, str) else None
            nested = {} if named is None else {n: s.default for n, s in named.settings.items()}
        return params | {f"model__{name}": value for name, value in nested.items()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``model__forgetting=0.99`` sets a setting of the model.

        A model that was given by its name becomes the learner with these settings.
        """
        direct = {name: value for name, value in params.items() if not name.startswith("model__")}
        super().set_params(**direct)
        nested = {n.removeprefix("model__"): v for n, v in params.items() if n not in direct}
        if nested and isinstance(self.model, Learner):
            names = [name.replace("__", ".") for name in nested]
            places = leaves.places(self.model, names)
            self.model = leaves.put_checked(self.model, places.values(), nested.values())
        elif nested:
            name = self.model if isinstance(self.model, str) else catalogue.DEFAULT
            self.model = catalogue.named(name, nested)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = catalogue.resolve(self.model).takes_missing
        return tags
