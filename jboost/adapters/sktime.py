"""Presents a forecaster as one of sktime: ``fit``, ``update`` and ``predict(fh)``."""

from __future__ import annotations

from typing import Any

import numpy as np

from jboost.core import Learner, extras
from jboost.forecasts import Forecast, with_known
from jboost.forecasts.rows import COUNTED
from jboost.running.run import run
from jboost.transforms.calendar import ELAPSED, Calendar

extras.need("sktime", "sktime")
import pandas as pd  # noqa: E402
from sktime.forecasting.base import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    BaseForecaster,
)


class OnlineForecaster(BaseForecaster):
    """A forecaster that ``update`` teaches the new rows alone.

    The columns of X are known in advance, as sktime wants them to be at ``predict``. A row whose y
    is NaN has no answer: nothing is learned, and it counts as a step.

    Parameters
    ----------
    horizon : int
        H, the farthest step ahead. A farther step that ``fit`` or ``predict`` asks for repeats the
        forecast of the last one.
    learner : a learner, or None
        None is least squares, see :class:`jboost.Forecast`.
    longest : int
        The longest season in rows that is looked for.
    coverage : float
        The part of the answers that is to lie inside the intervals of ``model_.interval``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from jboost.adapters.sktime import OnlineForecaster
    >>> y = pd.Series(np.arange(200) % 5, dtype=float)
    >>> forecaster = OnlineForecaster(horizon=3, longest=30).fit(y)
    >>> [round(value) for value in forecaster.predict([1, 2, 3])]
    [0, 1, 2]
    """

    _tags = {  # noqa: RUF012  (sktime reads a dict)
        "authors": ["jboost"],
        "maintainers": ["jboost"],
        "python_dependencies": ["jax"],
        "scitype:y": "univariate",
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
        "capability:exogenous": True,
        "requires-fh-in-fit": False,
        "capability:missing_values": True,
        "capability:insample": False,
        "capability:pred_int": False,
    }

    def __init__(
        self,
        horizon: int = 24,
        learner: Learner | None = None,
        longest: int = 1024,
        coverage: float = 0.9,
    ):
        self.horizon = horizon
        self.learner = learner
        self.longest = longest
        self.coverage = coverage
        super().__init__()

    def _fit(self, y: pd.Series, X: pd.DataFrame | None, fh: Any) -> OnlineForecaster:
        self.columns_ = 0 if X is None else X.shape[1]
        self.model_ = Forecast(
            self.learner,
            self.horizon,
            known=tuple(range(1, 1 + self.columns_)),
            calendar=Calendar(0, cycles=(ELAPSED,)),
            longest=self.longest,
            coverage=self.coverage,
        )
        self.state_: Any = None
        self.rows_ = 0
        self.late_ = 0  # how many rows came after the latest one with an answer
        self._learn(y, X)
        return self

    def _update(
        self, y: pd.Series, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> OnlineForecaster:
        # A forecast after the new rows needs them whether or not settings may change.
        self._learn(y, X)
        return self

    def _learn(self, y: pd.Series, X: pd.DataFrame | None) -> None:
        if len(y) == 0:
            return
        xs = ((self.rows_ + np.arange(len(y))) % COUNTED)[:, None].astype(float)
        if self.columns_:
            xs = np.column_stack([xs, self._numbers(X, y.index)])
            xs = with_known(xs, range(1, 1 + self.columns_), self.horizon)
        self.rows_ += len(y)
        answered = np.flatnonzero(y.notna())
        self.late_ = len(y) - 1 - answered[-1] if len(answered) else self.late_ + len(y)
        self.state_, _ = run(self.model_, xs, y.to_numpy(float), state=self.state_)
        self.last_ = y.index[-1:]

    def _numbers(self, X: pd.DataFrame | None, index: pd.Index) -> np.ndarray:
        empty = np.full((len(index), self.columns_), np.nan)
        return empty if X is None else X.reindex(index).to_numpy(float)

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.Series:
        steps = np.asarray(fh.to_relative(self.cutoff), int)
        rows = steps - 1 + self.late_  # a forecast begins after the latest answer
        ahead = None
        if self.columns_ and X is not None:
            later = fh.to_absolute_index(self.cutoff)
            values = np.full((self.horizon, self.columns_), np.nan)
            there = (rows >= 0) & (rows < self.horizon)
            values[rows[there]] = self._numbers(X, later)[there]
            ahead = values
        found = np.asarray(self.model_.forecast(self.state_, ahead), np.float64)
        index = fh.to_absolute_index(self.cutoff)
        return pd.Series(found[np.clip(rows, 0, self.horizon - 1)], index, name=self._y.name)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that sktime tests with."""
        return [{"horizon": 6, "longest": 8}, {"horizon": 5, "longest": 12, "coverage": 0.8}]
