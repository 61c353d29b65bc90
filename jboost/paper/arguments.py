"""Checks of the numbers and arrays that the functions of :mod:`.theory` take."""

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jboost.core import checks
from jboost.core.numerics import as_array

Floats = NDArray[np.float64]


def positive(name: str, value: float, **upper: Unpack[checks.Bounds]) -> float:
    """Return one number above 0 that is within the bounds."""
    bounds: checks.Bounds = {"above": 0, **upper}
    number = checks.number(name, value, **bounds)
    require(name, value, np.ndim(number) == 0, "one number, not an array")
    return number


def require(name: str, value: object, met: ArrayLike, requirement: str) -> None:
    """Refuse an argument where a condition, or one of several, is not met."""
    if not np.all(met):
        raise ValueError(f"{name} must be {requirement}; got {value}")


def arrays_of(**named: tuple[ArrayLike, int]) -> list[Floats]:
    """Return finite arrays, each passed with its number of axes, that are equally long."""
    arrays = [floats(name, values) for name, (values, _) in named.items()]
    for array, (name, (_, ndim)) in zip(arrays, named.items(), strict=True):
        fits = array.ndim == ndim and array.size > 0 and len(array) == len(arrays[0])
        shape = f"shape {array.shape}{'' if np.isfinite(array).all() else ', not finite'}"
        requirement = f"finite, of {ndim} axes and as long as {next(iter(named))}"
        require(name, shape, fits and np.isfinite(array), requirement)
    return arrays


def floats(name: str, values: ArrayLike) -> Floats:
    """Return a number or an array of numbers as an array; there must be one at least."""
    array = np.asarray(as_array(name, values, "of any"), np.float64)
    require(name, "an empty array", array.size > 0, "a number or an array of numbers")
    return array


def weights(lam: ArrayLike) -> Floats:
    """Return λ as an array (T, m) in [0, 1]."""
    (w,) = arrays_of(lam=(lam, 2))
    require("lam", f"{w.min():.4g} to {w.max():.4g}", (w >= 0) & (w <= 1), "in [0, 1]")
    return w
