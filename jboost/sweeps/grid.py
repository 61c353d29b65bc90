"""The points of a grid and the models at these points, checked before anything is compiled."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from jboost.core import Learner, checks

RESERVED = ("key", "stream", "mse", "skipped")  # columns of a table besides the grid's names

Point = dict[str, Any]  # keyword arguments of make; a value may be of any type that make takes
Grid = Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]


def points(grid: Grid) -> list[Point]:
    """Return the points of a grid: all combinations of a dict's values, the last name fastest.

    >>> points({"m": [1, 2], "step_size": np.array([0.1])})
    [{'m': 1, 'step_size': 0.1}, {'m': 2, 'step_size': 0.1}]
    """
    if isinstance(grid, Mapping):
        axes: dict[Any, list[Any]] = {n: _values(f"grid[{n!r}]", v) for n, v in grid.items()}
        points = [dict(zip(axes, v, strict=True)) for v in itertools.product(*axes.values())]
    else:
        points = _listed_points(grid)
    if not points or not points[0]:
        raise ValueError("grid is empty: give at least one name with its values")
    for name in points[0]:
        if not isinstance(name, str):
            raise TypeError(f"grid's names must be strings, arguments of make; got {name!r}")
        if name in RESERVED:
            advice = f"give make's argument another name than {', '.join(RESERVED)}"
            raise ValueError(f"grid has {name!r}, which is a column of the table: {advice}")
    return points


def _listed_points(grid: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return the checked points of a grid that is a list of points."""
    expected = "a dict of values by name, or a list of points (dicts with the same names)"
    if isinstance(grid, str) or not isinstance(grid, Iterable):
        raise TypeError(f"grid must be {expected}; got {checks.shown(grid)}")
    points: list[Point] = []
    for number, point in enumerate(grid):
        if not isinstance(point, Mapping):
            raise TypeError(f"grid must be {expected}; got {checks.shown(point)} as point {number}")
        where = f"grid[{number}]"
        points.append({name: _value(f"{where}[{name!r}]", v) for name, v in point.items()})
        if point.keys() != points[0].keys():
            first, other = (", ".join(map(str, names)) or "none" for names in (points[0], point))
            got = f"point 0 has {first}, point {number} has {other}"
            raise ValueError(f"all points of a grid must have the same names; {got}")
    return points


def models(make: Callable[..., Learner], points: list[Point]) -> list[Learner]:
    """Return the model ``make(**point)`` at every point."""
    if not callable(make):
        raise TypeError(f"make must be a function that returns a model; got {checks.shown(make)}")
    models = []
    for point in points:
        try:
            model = make(**point)
        except Exception as error:
            advice = "the grid's names are arguments of make; functools.partial can fix the others"
            error.add_note(f"make was called with the grid's point {checks.shown(point)}: {advice}")
            raise
        if not isinstance(model, Learner):
            got = f"at {checks.shown(point)} it returned {checks.shown(model)}"
            raise TypeError(f"make must return {checks.A_LEARNER}; {got}")
        models.append(model)
    return models


def _values(where: str, values: object) -> list[Any]:
    """Return the checked values of one name; ``where`` names them in an error."""
    is_scalar = isinstance(values, (str, bytes, Mapping)) or getattr(values, "ndim", 1) == 0
    if is_scalar or not isinstance(values, Iterable):
        raise ValueError(f"{where} must be a list or array of values; got {checks.shown(values)}")
    if any(map(checks.is_traced, jax.tree.leaves(values))):
        raise TypeError(f"{where} is traced: a sweep compiles its runs, so call it outside of jit")
    checked = [_value(f"{where}[{number}]", value) for number, value in enumerate(values)]
    if not checked:
        raise ValueError(f"{where} is empty: give it at least one value")
    return checked


def _value(where: str, value: object) -> object:
    """Check that a number is finite, and return a scalar of an array as a Python number."""
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        array = np.asarray(value)
        value = array.item() if array.ndim == 0 else array
    numbers = value if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if any(isinstance(n, (float, np.floating)) and not np.isfinite(n) for n in numbers):
        raise ValueError(f"{where} must be finite; got {checks.shown(value)}")
    return value
