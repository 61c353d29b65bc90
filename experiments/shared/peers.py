"""Predictions of other libraries' regressors, each made before its target was learned."""

import math
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jboost.core import checks, extras
from jboost.core.numerics import LARGEST


@runtime_checkable
class RiverRegressor(Protocol):
    """A regressor of river: x is a dictionary from column numbers to values."""

    def predict_one(self, x: dict[int, float]) -> float | None: ...

    def learn_one(self, x: dict[int, float], y: float) -> object: ...


def river_predictions(
    regressor: RiverRegressor | str, xs: ArrayLike, ds: ArrayLike
) -> NDArray[np.float64]:
    """(T,) predictions of a river regressor, each made before its target was learned.

    The regressor does not learn the samples that :func:`jboost.run` would skip. To predict them,
    it sees 0 in the place of unusable inputs. So both see the same stream.

    Args:
      regressor: anything with ``predict_one(x)`` and ``learn_one(x, y)``; afterwards it has learned
        the stream. Or the name of a class of river, such as "tree.HoeffdingTreeRegressor", for a
        new regressor with the defaults of that class.
      xs: (T, r) inputs.
      ds: (T,) targets.

    >>> class Zero:
    ...     def predict_one(self, x):
    ...         return 0.0
    ...
    ...     def learn_one(self, x, y):
    ...         pass
    >>> river_predictions(Zero(), [[1.0], [2.0]], [3.0, 4.0]).tolist()
    [0.0, 0.0]
    """
    if isinstance(regressor, str):
        regressor = _new_regressor(regressor)
    if not isinstance(regressor, RiverRegressor):
        allowed = "an object with predict_one and learn_one, or the name of a class of river"
        raise TypeError(f"regressor must be {allowed}; got {regressor!r}")
    inputs, targets = np.asarray(xs), np.asarray(ds)
    if inputs.ndim != 2 or targets.shape != inputs.shape[:1]:
        raise ValueError(
            f"xs must have shape (T, r) and ds (T,); got {inputs.shape} and {targets.shape}"
        )
    checks.real_dtype("xs", inputs, "shape (T, r)")
    checks.real_dtype("ds", targets, "shape (T,)")
    inputs, targets = inputs.astype(np.float64), targets.astype(np.float64)
    usable = np.abs(inputs) < LARGEST  # False for NaN
    learned = usable.all(axis=1) & (np.abs(targets) < LARGEST)
    predictions = np.empty(len(targets))
    rows = zip(np.where(usable, inputs, 0.0).tolist(), targets.tolist(), learned, strict=True)
    for t, (row, d, learns) in enumerate(rows):
        x = dict(enumerate(row))
        prediction = regressor.predict_one(x)
        predictions[t] = math.nan if prediction is None else prediction
        if learns:
            regressor.learn_one(x, d)
    return predictions


def _new_regressor(name: str) -> RiverRegressor:
    module, _, cls = name.removeprefix("river.").rpartition(".")
    try:
        return getattr(extras.need(f"river.{module}" if module else "river", "river"), cls)()
    except (AttributeError, ModuleNotFoundError) as error:
        if isinstance(error, extras.MissingExtra):
            raise
        example = 'a class of river such as "tree.HoeffdingTreeRegressor"'
        raise ValueError(f"regressor must be the name of {example}; got {name!r}") from None
