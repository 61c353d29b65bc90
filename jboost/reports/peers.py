"""Other libraries' regressors in a report: their prequential predictions on the host."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jboost.core import checks, extras
from jboost.core.numerics import LARGEST


def river_predictions(regressor: Any, xs: ArrayLike, ds: ArrayLike) -> NDArray[np.float64]:
    """(T,) predictions of a river regressor, each made before its answer was learned.

    Samples that :func:`jboost.run` would skip are not learned either (in x, unusable entries are 0
    for the prediction), so that both see the same stream.

    Args:
      regressor: anything with ``predict_one(x)`` and ``learn_one(x, y)``, x a dictionary from
        column numbers to values; it is left as it has learned. Or the name of a class of river,
        such as "tree.HoeffdingTreeRegressor", for a new one with its defaults.
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
        regressor = _made(regressor)
    for method in ("predict_one", "learn_one"):
        if not callable(getattr(regressor, method, None)):
            wanted = "an object with predict_one and learn_one, or the name of a class of river"
            raise TypeError(f"regressor must be {wanted}; got {regressor!r}")
    inputs, targets = np.asarray(xs), np.asarray(ds)
    if inputs.ndim != 2 or targets.shape != inputs.shape[:1]:
        raise ValueError(
            f"xs must have shape (T, r) and ds (T,); got {inputs.shape} and {targets.shape}"
        )
    checks.real_dtype("xs", inputs, "shape (T, r)")
    checks.real_dtype("ds", targets, "shape (T,)")
    inputs, targets = inputs.astype(np.float64), targets.astype(np.float64)
    known = np.abs(inputs) < LARGEST  # False for NaN
    learned = known.all(axis=1) & (np.abs(targets) < LARGEST)
    out = np.empty(len(targets))
    rows = zip(np.where(known, inputs, 0.0).tolist(), targets.tolist(), learned, strict=True)
    for t, (row, d, learns) in enumerate(rows):
        x = dict(enumerate(row))
        said = regressor.predict_one(x)
        out[t] = math.nan if said is None else said
        if learns:
            regressor.learn_one(x, d)
    return out


def _made(name: str) -> Any:
    """A new regressor of river by the name of its class."""
    module, _, cls = name.removeprefix("river.").rpartition(".")
    try:
        return getattr(extras.need(f"river.{module}" if module else "river", "river"), cls)()
    except (AttributeError, ModuleNotFoundError) as error:
        if isinstance(error, extras.MissingExtra):
            raise
        wanted = 'a class of river such as "tree.HoeffdingTreeRegressor"'
        raise ValueError(f"regressor must be the name of {wanted}; got {name!r}") from None
