"""Arguments checked where they enter, on concrete values only.

Every message says which argument, what came and what is wanted.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


def is_traced(value: Any) -> bool:
    """Whether a value is known only inside a transformation, so that it cannot be checked."""
    return isinstance(value, Tracer)


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> Any:
    """A float hyperparameter, or an array of them, within its range."""
    if is_traced(value):
        return value
    low = f"{name} > {above}" if above is not None else f"{name} >= {at_least}"
    high = f"{name} < {below}" if below is not None else f"{name} <= {at_most}"
    bounds = [low] if (above, at_least) != (None, None) else []
    bounds += [high] if (below, at_most) != (None, None) else []
    wanted = f"{name} must be a finite real number (or one per learner)"
    wanted += f" with {' and '.join(bounds)}" if bounds else ""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" and str(array.dtype) != "bfloat16":
        raise TypeError(f"{wanted}; got {value!r}")
    array = array.astype(np.float64)
    inside = np.isfinite(array)
    if above is not None:
        inside &= array > above
    if at_least is not None:
        inside &= array >= at_least
    if below is not None:
        inside &= array < below
    if at_most is not None:
        inside &= array <= at_most
    if array.size == 0 or not inside.all():
        raise ValueError(f"{wanted}; got {value!r}")
    return float(array) if array.ndim == 0 else value if isinstance(value, jax.Array) else array


def whole(name: str, value: Any, *, at_least: int) -> int:
    """A whole number that is part of a model's structure."""
    try:
        exact = not isinstance(value, (bool, np.bool_)) and int(value) == value
    except (TypeError, ValueError):
        exact = False
    if not exact or value < at_least:
        raise ValueError(f"{name} must be a whole number >= {at_least}; got {value!r}")
    return int(value)


def spending(weight: Any, repeats: Any) -> None:
    """What an update is told to make of a sample: weight ≥ 0 and repeats, a whole number ≥ 0."""
    number("weight", weight, at_least=0)
    if is_traced(repeats):
        return
    array = np.asarray(repeats)
    whole_numbers = jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == bool
    if not whole_numbers or (array < 0).any():
        raise ValueError(f"repeats must be a whole number >= 0; got {repeats!r}")


def key(name: str, value: Any) -> Any:
    """A ``jax.random.key``, or an array of them."""
    dtype: Any = getattr(value, "dtype", np.bool_)
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise TypeError(f"{name} must be a jax.random.key, as jax.random.key(0); got {value!r}")
    return value


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def instance(name: str, value: Any, wanted: type, advice: str) -> Any:
    """An object of the library's own kind."""
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be {advice}; got {value!r}")
    return value


def printable(text: object) -> str:
    """A text in one line, without what a file may have put into it to steer a terminal.

    >>> printable("a\\x1b[2J\\nb")
    'a [2J b'
    """
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def real_dtype(name: str, array: Any, wanted: str) -> None:
    """Refuse what cannot be read as real numbers."""
    if np.dtype(array.dtype).kind not in "biuf" and array.dtype != "bfloat16":
        raise TypeError(f"{name} must hold real numbers ({wanted}); got dtype {array.dtype}")
