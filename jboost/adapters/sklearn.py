"""A model as a scikit-learn regressor: ``fit``, ``partial_fit``, ``predict``, in any pipeline."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jboost import catalogue
from jboost.adapters.feed import Feed
from jboost.core import Learner, State, extras
from jboost.wrappers.intervals import Intervals

extras.need("sklearn", "sklearn")
from sklearn.base import BaseEstimator, RegressorMixin  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.validation import (  # noqa: E402
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)


def _has_intervals(regressor: Any) -> bool:
    return regressor.intervals is not None or isinstance(regressor.model, Intervals)


class OnlineRegressor(RegressorMixin, BaseEstimator):
    """An online model that learns the rows of X in their order, each once.

    ``fit`` begins anew, ``partial_fit`` goes on: both learn sample by sample, so that it makes no
    difference, to the last bit, how rows are divided among calls. ``predict`` does not learn.

    Parameters
    ----------
    model : Learner, str or None
        Any learner; the name of one (see ``jboost models``), which then is wrapped to take inputs
        and targets of any units; None is "auto".
    random_state : int, RandomState instance or None
        For models that draw at random.
    intervals : float or None
        In (0, 1): ``predict_interval`` says between which bounds this part of the answers lies.
        The bounds follow what was measured as rows were learned.

    Attributes
    ----------
    model_ : Learner
        The model that learns.
    state_ : pytree
        What it has learned.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of str
        Their names, where X had some.

    Examples
    --------
    >>> import numpy as np
    >>> from jboost.adapters.sklearn import OnlineRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> regressor = OnlineRegressor("newton").fit(X, 3 * X[:, 0] + 5)
    >>> bool(abs(regressor.predict([[1.0, 0.0]])[0] - 8) < 0.1)
    True
    >>> noisy = X[:, 0] + np.random.default_rng(1).normal(size=200)
    >>> low, high = OnlineRegressor("newton", intervals=0.9).fit(X, noisy).predict_interval(X).T
    >>> bool(0.8 < np.mean((low <= noisy) & (noisy <= high)) < 1)
    True
    """

    def __init__(
        self,
        model: Learner | str | None = None,
        random_state: Any = None,
        intervals: float | None = None,
    ):
        self.model = model
        self.random_state = random_state
        self.intervals = intervals

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OnlineRegressor:
        """Learn the rows of X, (n, r), and y, (n,), from the beginning."""
        return self._learn(X, y, sample_weight, anew=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> OnlineRegressor:
        """Learn more rows."""
        return self._learn(X, y, sample_weight, anew=not hasattr(self, "feed_"))

    def predict(self, X: Any) -> np.ndarray:
        """The estimates for the rows of X, (n, r)."""
        X = self._checked(X)
        return self.feed_.predict_many(X).astype(np.float64)

    @available_if(_has_intervals)
    def predict_interval(self, X: Any) -> np.ndarray:
        """The bounds for the rows of X, (n, r): (n, 2), the lower ones first."""
        X = self._checked(X)
        return self.feed_.interval_many(X).astype(np.float64)

    @property
    def state_(self) -> State:
        """What the model has learned."""
        check_is_fitted(self, "feed_")
        return self.feed_.state

    def _learn(self, X: Any, y: Any, sample_weight: Any, *, anew: bool) -> OnlineRegressor:
        model = catalogue.resolve(self.model, intervals=self.intervals) if anew else self.model_
        X, y = validate_data(self, X, y, reset=anew, y_numeric=True, **self._taken(model))
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if anew:
            drawn = model.needs_key or self.random_state is not None
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            key = jax.random.key(seed) if drawn else None
            self.model_, self.feed_ = model, Feed(model, X.shape[1], key)
        self.feed_.learn_many(X, y, weight)
        return self

    def _checked(self, X: Any) -> Any:
        """X, of a regressor that has learned, as numbers."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False, **self._taken(self.model_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = catalogue.resolve(self.model).takes_missing
        return tags

    @staticmethod
    def _taken(model: Learner) -> dict[str, Any]:
        finite = "allow-nan" if model.takes_missing else True
        return {"dtype": np.float64, "ensure_all_finite": finite}
