"""The points of a grid and the models at these points, checked before anything is compiled."""

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from jboost.core import Learner, checks

RESERVED = ("key", "stream", "mse", "skipped")  # columns of a table besides the grid's names

Point = dict[str, Any]  # keyword arguments of make; a value may be of any type that make takes
Grid = Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]


def points(grid: Grid) -> tuple[list[Point], dict[str, list[Any]] | None]:
    """The points of a grid, and the values of every name; None if the grid is a list of points.

    The points of a dict are all combinations of its values, the last name fastest.

    >>> points({"m": [1, 2], "step_size": np.array([0.1])})[0]
    [{'m': 1, 'step_size': 0.1}, {'m': 2, 'step_size': 0.1}]
    """
    if isinstance(grid, Mapping):
        if not grid:
            raise ValueError("grid is empty: give at least one name with its values")
        axes = {_name(name): _values(f"grid[{name!r}]", values) for name, values in grid.items()}
        combinations = itertools.product(*axes.values())
        return [dict(zip(axes, values, strict=True)) for values in combinations], axes
    expected = "a dict of values by name, or a list of points (dicts with the same names)"
    if isinstance(grid, str) or not isinstance(grid, Iterable):
        raise TypeError(f"grid must be {expected}; got {grid!r:.200}")
    points: list[Point] = []
    for number, point in enumerate(grid):
        if not isinstance(point, Mapping):
            raise TypeError(f"grid must be {expected}; got {point!r:.200} as point {number}")
        if points and set(point) != set(points[0]):
            raise ValueError(
                f"all points of a grid must have the same names; point 0 has "
                f"{', '.join(points[0])}, point {number} has {', '.join(map(str, point)) or 'none'}"
            )
        points.append(
            {
                _name(name): _value(f"grid[{number}][{name!r}]", value)
                for name, value in point.items()
            }
        )
    if not points or not points[0]:
        raise ValueError("grid is empty: give at least one point with at least one name")
    return points, None


def models(make: Callable[..., Learner], points: list[Point]) -> list[Learner]:
    """The model ``make(**point)`` at every point."""
    if not callable(make):
        raise TypeError(f"make must be a function that returns a model; got {make!r:.200}")
    _check_names(make, list(points[0]))
    models = []
    for point in points:
        try:
            model = make(**point)
        except Exception as error:
            error.add_note(f"make was called at the grid's point {point!r}")
            raise
        if not isinstance(model, Learner):
            raise TypeError(
                f"make must return a learner such as bsgd_wu(…) or SGD(step_size=0.1); "
                f"at {point!r} it returned {model!r:.200}"
            )
        models.append(model)
    return models


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"grid's names must be strings, arguments of make; got {name!r}")
    if name in RESERVED:
        raise ValueError(
            f"grid has {name!r}, which is a column of the table already: give make's argument "
            f"another name than {', '.join(RESERVED)}"
        )
    return name


def _values(where: str, values: object) -> list[Any]:
    """The checked values of one name; ``where`` names them in an error."""
    is_scalar = isinstance(values, (str, bytes, Mapping)) or getattr(values, "ndim", 1) == 0
    if is_scalar or not isinstance(values, Iterable):
        raise ValueError(f"{where} must be a list or array of values; got {values!r:.200}")
    if any(map(checks.is_traced, jax.tree.leaves(values))):
        raise TypeError(
            f"{where} is traced: a sweep compiles its runs itself, so call it outside of jit"
        )
    checked = [_value(f"{where}[{number}]", value) for number, value in enumerate(values)]
    if not checked:
        raise ValueError(f"{where} is empty: give it at least one value")
    return checked


def _value(where: str, value: object) -> object:
    """A value that is finite if it is a number; an array's scalar becomes a Python number."""
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        array = np.asarray(value)
        value = array.item() if array.ndim == 0 else array
    numbers = value if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if any(isinstance(n, (float, np.floating)) and not np.isfinite(n) for n in numbers):
        raise ValueError(f"{where} must be finite; got {value!r:.200}")
    return value


def _check_names(make: Callable[..., Learner], names: list[str]) -> None:
    """Refuse a grid with names that ``make`` does not take, or without names that it needs."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # some builtins have none
        return
    kinds = inspect.Parameter
    keywords = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    }
    takes_any = any(p.kind is kinds.VAR_KEYWORD for p in signature.parameters.values())
    takes = ", ".join(keywords) or "no arguments"
    unknown = [name for name in names if name not in keywords]
    if unknown and not takes_any:
        raise ValueError(f"grid has {_quoted(unknown)}, which make does not take: it takes {takes}")
    required = [name for name, parameter in keywords.items() if parameter.default is kinds.empty]
    missing = [name for name in required if name not in names]
    if missing:
        stray = f"; {_quoted(unknown)} is not among what it names ({takes})" if unknown else ""
        raise ValueError(
            f"make needs {_quoted(missing)} too{stray}: put it into the grid, or fix it, as in "
            f"functools.partial(make, {missing[0]}=…)"
        )


def _quoted(names: list[str]) -> str:
    return " and ".join(map(repr, names))
