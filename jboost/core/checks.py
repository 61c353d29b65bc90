"""Checks of arguments at the point where they enter, on concrete values only.

A function checks its arguments by ``number("T", T, above=0)``, ``whole``, ``flag``, ``choice`` or
``instance``, which return the value to work with. A model checks its fields with :func:`fields`
and rules that say the same of a field: ``a_number(above=0)``, ``a_whole_number``, ``flag``,
``one_of`` and ``of_kind``. Every message says which argument is wrong, what came and what is
wanted.
"""

import operator
import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

# A sample counts at most as so many ordinary ones, whose weight is 1: enough for ordinary uses of
# weights, and little enough that a learner recovers from a wrong one.
LARGEST_WEIGHT = 1e3

A_LEARNER = "a learner such as SGD(step_size=0.1)"  # the advice where a learner is wanted
LARGEST_WHOLE = 2**31 - 1  # of counts and sizes: the largest number of 32 bits
SINGLE = np.finfo(np.float32)  # the range of a setting: a smaller number counts as 0 in a run
# A rule takes an argument's name and value. It returns the value to work with, or raises.
Rule = Callable[[str, Any], Any]
_Kind = TypeVar("_Kind")


def fields(model: object, **rules: Rule) -> None:
    """Replace each named field by what its rule returns, in a model's ``__post_init__``.

    ``fields(self, step_size=a_number(above=0), window=or_none(a_whole_number(at_least=1)))``
    """
    for name, rule in rules.items():
        assign(model, **{name: rule(name, getattr(model, name))})


def assign(model: object, **values: Any) -> None:
    """Set fields of a frozen model. Only a model's ``__post_init__`` may do so."""
    for name, value in values.items():
        object.__setattr__(model, name, value)


def is_traced(value: object) -> bool:
    """Whether JAX is tracing the value, so that it is not known yet and cannot be checked."""
    return isinstance(value, Tracer)


class Bounds(TypedDict, total=False):
    """The ends of a range; an end that is not named is open."""

    above: float
    at_least: float
    below: float
    at_most: float


def shown(value: object) -> str:
    """Return what an error says of a value that came: how Python writes it, cut to 200 characters.

    >>> shown(10**5000), shown([0.1])
    ('a value of type int', '[0.1]')
    """
    try:
        return f"{value!r:.200}"
    except Exception:  # a whole number of many digits, or an object that fails to describe itself
        return f"a value of type {type(value).__name__}"


def number(
    name: str, value: Any, *, above: float = -np.inf, at_least: float = -np.inf,
    below: float = np.inf, at_most: float = np.inf, single: bool = False,
) -> Any:  # fmt: skip
    """Check a finite real number, or an array of them (one per learner), within its bounds.

    A number is returned as a Python float, an array of JAX as it came, other values as a NumPy
    array. A traced value is returned unchecked. With ``single`` float32 must hold the number.
    """
    if is_traced(value):
        return value
    limits = {">": above, ">=": at_least, "<": below, "<=": at_most}
    ends = [f"{name} {sign} {limit}" for sign, limit in limits.items() if np.isfinite(limit)]
    requirement = f"{name} must be a finite real number (or one per learner)"
    requirement += f" with {' and '.join(ends)}" if ends else ""
    array = array_of(value)
    if array is None or (array.dtype.kind not in "iuf" and str(array.dtype) != "bfloat16"):
        raise TypeError(f"{requirement}; got {shown(value)}")
    array = array.astype(np.float64)
    inside = (array > above) & (array >= at_least) & (array < below) & (array <= at_most)
    if array.size == 0 or not np.all(np.isfinite(array) & inside):
        raise ValueError(f"{requirement}; got {shown(value)}")
    size = np.abs(array)
    if single and not np.all((size == 0) | ((size >= SINGLE.tiny) & (size <= SINGLE.max))):
        limits = f"a size that float32 can hold, 0 or {SINGLE.tiny:.1e} to {SINGLE.max:.1e}"
        raise ValueError(f"{requirement}, of {limits}; got {shown(value)}")
    return float(array) if array.ndim == 0 else value if isinstance(value, jax.Array) else array


def array_of(value: Any) -> np.ndarray | None:
    """Return the value as an array of NumPy, or None if it is a list of rows of unlike lengths."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        return None


def whole(name: str, value: Any, *, at_least: int, at_most: int = LARGEST_WHOLE) -> int:
    """Check a whole number, such as a count; return it as a Python int."""
    requirement = f"{name} must be a whole number >= {at_least}"
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        is_whole = isinstance(value, (float, np.floating)) and value == int(value)
        count = int(value) if is_whole else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):  # int(inf) overflows
        raise ValueError(f"{requirement}; got {shown(value)}") from None
    if count < at_least:
        raise ValueError(f"{requirement}; got {shown(value)}")
    if count > at_most:
        raise ValueError(f"{requirement} and <= {at_most}; got {shown(value)}")
    return count


def flag(name: str, value: Any) -> bool:
    """Check that the value is True or False; return it as a Python bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False; got {shown(value)}")
    return bool(value)


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Check that the value is one of a few words."""
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {words}; got {shown(value)}")
    return value


def function(name: str, value: Any, form: str) -> Any:
    """Check that the value can be called; ``form`` says with what, such as "(state, info)"."""
    if not callable(value):
        raise TypeError(f"{name} must be a function of {form}; got {shown(value)}")
    return value


def instance(name: str, value: Any, kind: type[_Kind], advice: str) -> _Kind:
    """Check that the value is of a kind; ``advice`` says what to pass, with an example."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {advice}; got {shown(value)}")
    return value


def path(name: str, value: object) -> str:
    """Check a path, as text or as a ``pathlib.Path``; return it as text."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        allowed = "a path, as text or as a pathlib.Path, without zero bytes"
        raise TypeError(f"{name} must be {allowed}; got {shown(value)}")
    return text


def a_number(**bounds: Unpack[Bounds]) -> Rule:
    """Make the rule that :func:`number` checks with these bounds, for a setting in float32."""
    return partial(number, single=True, **bounds)


def a_whole_number(*, at_least: int, at_most: int = LARGEST_WHOLE) -> Rule:
    """Make the rule that :func:`whole` checks."""
    return partial(whole, at_least=at_least, at_most=at_most)


def one_of(*allowed: str) -> Rule:
    """Make the rule that :func:`choice` checks."""
    return partial(choice, allowed=allowed)


def of_kind(kind: type, advice: str) -> Rule:
    """Make the rule that :func:`instance` checks."""
    return partial(instance, kind=kind, advice=advice)


def or_none(rule: Rule) -> Rule:
    """Make the rule of a field that may be None, and otherwise follows ``rule``."""
    return lambda name, value: None if value is None else rule(name, value)


def spending(weight: Any, repeats: Any) -> Any:
    """Check that repeats is whole and >= 0, and weight >= 0; return the weight, clipped."""
    weight = number("weight", weight, at_least=0)
    if isinstance(weight, float):  # one beyond float32 would become infinite
        weight = min(weight, LARGEST_WEIGHT)
    if not is_traced(repeats):
        array = array_of(repeats)
        if array is None or array.dtype.kind not in "biu" or (array < 0).any():
            raise ValueError(f"repeats must be a whole number >= 0; got {shown(repeats)}")
        if (array > LARGEST_WHOLE).any():
            raise ValueError(f"repeats must be <= {LARGEST_WHOLE}; got {shown(repeats)}")
    return weight


def key(name: str, value: Any) -> Array:
    """Check a ``jax.random.key``, or an array of them."""
    if not (hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)):
        example = "a jax.random.key, as jax.random.key(0)"
        raise TypeError(f"{name} must be {example}; got {shown(value)}")
    return value


def real_dtype(name: str, array: Array | np.ndarray, detail: str) -> None:
    """Check that an array holds real numbers; ``detail`` says more of it, such as its shape."""
    if np.dtype(array.dtype).kind not in "biuf" and array.dtype != "bfloat16":
        raise TypeError(f"{name} must hold real numbers ({detail}); got dtype {array.dtype}")


def refuse_complex(name: str, value: Any) -> None:
    """Refuse complex numbers, which a cast to real ones would only warn of."""
    array = value if hasattr(value, "dtype") else array_of(value)
    if array is not None and jnp.issubdtype(array.dtype, jnp.complexfloating):
        advice = "pass its real and imaginary parts as separate columns, or targets"
        raise TypeError(f"{name} must hold real numbers; got complex ones: {advice}")


def printable(text: object) -> str:
    """Replace by a space each character that a terminal would obey instead of showing it.

    >>> printable("a\\x1b[2J\\nb")
    'a [2J b'
    """
    return "".join(letter if letter.isprintable() else " " for letter in str(text))
