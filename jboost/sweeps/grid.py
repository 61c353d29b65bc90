"""The points of a grid and the models at them, checked before anything is compiled."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jboost.core import checks
from jboost.core.learner import Learner

TAKEN = ("key", "stream", "mse", "skipped")  # columns that a table has besides the grid's


class Points(NamedTuple):
    """Every setting as keyword arguments of ``make``; of a product also the values by name."""

    points: list[dict[str, Any]]
    axes: dict[str, list[Any]] | None


def points(grid: Any) -> Points:
    """All combinations of a dict's values, the last name fastest; or a list of points as it is.

    >>> points({"m": [1, 2], "step_size": np.array([0.1])}).points
    [{'m': 1, 'step_size': 0.1}, {'m': 2, 'step_size': 0.1}]
    """
    if isinstance(grid, Mapping):
        if not grid:
            raise ValueError("grid is empty: give at least one name with its values")
        axes = {_name(name): _values(f"grid[{name!r}]", values) for name, values in grid.items()}
        combined = itertools.product(*axes.values())
        return Points([dict(zip(axes, point, strict=True)) for point in combined], axes)
    wanted = "a dict of values by name, or a list of points (dicts with the same names)"
    if isinstance(grid, str) or not isinstance(grid, Iterable):
        raise TypeError(f"grid must be {wanted}; got {grid!r:.200}")
    listed: list[dict[str, Any]] = []
    for number, point in enumerate(grid):
        if not isinstance(point, Mapping):
            raise TypeError(f"grid must be {wanted}; got {point!r:.200} as point {number}")
        if listed and set(point) != set(listed[0]):
            had, has = ", ".join(listed[0]), ", ".join(map(str, point))
            raise ValueError(
                f"all points of a grid must have the same names; point 0 has {had}, "
                f"point {number} has {has or 'none'}"
            )
        plain = {_name(name): _plain(value) for name, value in point.items()}
        for name, value in plain.items():
            _check_finite(f"grid[{number}][{name!r}]", value)
        listed.append(plain)
    if not listed or not listed[0]:
        raise ValueError("grid is empty: give at least one point with at least one name")
    return Points(listed, None)


def models(make: Callable[..., Any], settings: list[dict[str, Any]]) -> list[Learner]:
    """make(**point) for every point."""
    if not callable(make):
        raise TypeError(f"make must be a function that returns a model; got {make!r:.200}")
    _check_names(make, list(settings[0]))
    made = []
    for point in settings:
        try:
            one = make(**point)
        except Exception as error:
            error.add_note(f"make was called at the grid's point {point!r}")
            raise
        if not isinstance(one, Learner):
            raise TypeError(
                f"make must return a learner such as bsgd_wu(…) or SGD(step_size=0.1); "
                f"at {point!r} it returned {one!r:.200}"
            )
        made.append(one)
    return made


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"grid's names must be strings, arguments of make; got {name!r}")
    if name in TAKEN:
        raise ValueError(
            f"grid has {name!r}, which is a column of the table already: give make's argument "
            f"another name than {', '.join(TAKEN)}"
        )
    return name


def _values(where: str, values: Any) -> list[Any]:
    """The values of one name, as Python numbers where they are numbers."""
    single = isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable)
    if single or getattr(values, "ndim", 1) == 0:
        raise ValueError(f"{where} must be a list or array of values; got {values!r:.200}")
    if any(map(checks.is_traced, jax.tree.leaves(values))):
        raise TypeError(
            f"{where} is traced: a sweep compiles its runs itself, so call it outside of jit"
        )
    listed = [_plain(value) for value in values]
    if not listed:
        raise ValueError(f"{where} is empty: give it at least one value")
    for number, value in enumerate(listed):
        _check_finite(f"{where}[{number}]", value)
    return listed


def _plain(value: Any) -> Any:
    """A number as Python's own, several as an array, anything else as it is."""
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        array = np.asarray(value)
        return array.item() if array.ndim == 0 else array
    return value


def _check_finite(where: str, value: Any) -> None:
    numbers = value if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if any(isinstance(one, (float, np.floating)) and not np.isfinite(one) for one in numbers):
        raise ValueError(f"{where} must be finite; got {value!r:.200}")


def _check_names(make: Callable[..., Any], given: list[str]) -> None:
    """Name what make does not take, and what it needs besides."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # some builtins have none
        return
    kinds = inspect.Parameter
    named = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    }
    anything = any(p.kind is kinds.VAR_KEYWORD for p in signature.parameters.values())
    takes = ", ".join(named) or "no arguments"
    unknown = [name for name in given if name not in named]
    if unknown and not anything:
        raise ValueError(f"grid has {_quoted(unknown)}, which make does not take: it takes {takes}")
    required = [name for name, parameter in named.items() if parameter.default is kinds.empty]
    missing = [name for name in required if name not in given]
    if missing:
        stray = f"; {_quoted(unknown)} is not among what it names ({takes})" if unknown else ""
        raise ValueError(
            f"make needs {_quoted(missing)} too{stray}: put it into the grid, or fix it, as in "
            f"functools.partial(make, {missing[0]}=…)"
        )


def _quoted(names: list[str]) -> str:
    return " and ".join(repr(name) for name in names)
