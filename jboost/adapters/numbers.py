"""Checks of the numbers that come one by one from other libraries. What is no number is named."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

# NumPy would turn these kinds of values into numbers silently: text, times and complex numbers.
_NOT_REAL = "SUMmc"


def as_number(name: object, value: Any) -> float:
    """Return the value of a feature or a target; None is a missing value, NaN.

    >>> as_number("colour", "red")
    Traceback (most recent call last):
    TypeError: 'colour' must be a number; got 'red': encode it first, as river's OneHotEncoder does
    """
    if value is None:
        return math.nan
    try:
        if not isinstance(value, (int, float)):
            array = np.asarray(value)
            if array.ndim or array.dtype.kind in _NOT_REAL:
                raise TypeError
        return float(value)
    except OverflowError:
        limit = "one beyond 1.8e308, the largest float: leave it out, or take its logarithm"
        raise ValueError(f"{name!r:.60} must be a number; got {limit}") from None
    except (TypeError, ValueError):
        advice = "encode it first, as river's OneHotEncoder does"
        if isinstance(value, (complex, np.complexfloating)):
            advice = "pass its real and its imaginary part as two features"
        raise TypeError(f"{name!r:.60} must be a number; got {value!r:.60}: {advice}") from None


def as_weights(weights: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Return the weights of samples, of one or of as many as the shape says, as float64."""
    array = np.asarray(weights)
    try:
        if array.dtype.kind in _NOT_REAL:
            raise TypeError
        if array.dtype.kind == "O":
            array = np.vectorize(as_number, [np.float64], excluded=[0])("weight", array)
        array = array.astype(np.float64)
    except TypeError:
        raise TypeError(f"a weight must be a finite number >= 0; got {weights!r:.60}") from None
    bad = ~((array >= 0) & (array < np.inf))
    if bad.any():
        row = f" in row {int(np.argmax(bad))}" if array.ndim == 1 else ""
        advice = "give 0 to a sample that is not to count, a large number to one that counts most"
        raise ValueError(
            f"a weight must be a finite number >= 0; got {array[bad][0]}{row}: {advice}"
        )
    if array.shape not in ((), shape):
        raise ValueError(f"weights must be one number or have the shape {shape}; got {array.shape}")
    return np.broadcast_to(array, shape)
