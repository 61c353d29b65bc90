"""Columns of a table: the names of streams, the inputs and the targets of its rows."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jboost.core import checks
from jboost.fleets.columns import Keys, names_of
from jboost.fleets.names import Names


def split(
    table: Any, names: str | Sequence[str], target: str, inputs: Sequence[str] | None
) -> tuple[Keys, np.ndarray, np.ndarray]:
    """Return the names, xs (n, r) and ds (n,) of the rows of an Arrow, pandas or polars table."""
    columns = getattr(table, "column_names", None) or getattr(table, "columns", None)
    if columns is None or not hasattr(table, "__getitem__"):
        raise TypeError(f"table must be one of Arrow, pandas or polars; got {checks.shown(table)}")
    labels, counts = {str(label): label for label in columns}, Counter(map(str, columns))
    checks.instance("target", target, str, "the name of a column")
    keys = _chosen("names", names)
    if inputs is None:
        inputs = [name for name in labels if name not in (*keys, target)]
    inputs = _chosen("inputs", inputs)
    for argument, chosen in (("names", keys), ("target", [target]), ("inputs", inputs)):
        for name in chosen:
            if name not in labels:
                listed = ", ".join(map(repr, [*labels][:8])) + (", …" if len(labels) > 8 else "")
                raise ValueError(
                    f"{argument} must be columns of the table, which has {listed}; got {name!r}"
                )
            if counts[name] > 1:
                raise ValueError(
                    f"{argument} must name one column each; {counts[name]} are {name!r}"
                )
    if target in inputs:
        raise ValueError(f"inputs must be other columns than the target; got {target!r}")
    xs = [_numbers("inputs", name, table[labels[name]]) for name in inputs]
    if not xs:
        raise ValueError("inputs must be at least one column; the table has no other")
    column: Keys = table[labels[keys[0]]]
    if len(keys) > 1:
        columns_of_names: list[Names] = [names_of("names", table[labels[name]]) for name in keys]
        column = list(zip(*(each.tolist() for each in columns_of_names), strict=True))
    return column, np.column_stack(xs), _numbers("target", target, table[labels[target]])


def _chosen(argument: str, names: Any) -> list[str]:
    """Return names of columns, of which there may be one or several."""
    several = [names] if isinstance(names, str) else names
    chosen: list[Any] = list(several) if isinstance(several, Iterable) else [several]
    if not all(isinstance(name, str) for name in chosen):
        shown = checks.shown(names)
        raise TypeError(f"{argument} must be the names of columns, as text; got {shown}")
    if argument == "names" and not chosen:
        raise ValueError("names must be at least one column; got none")
    return chosen


def _numbers(argument: str, name: str, column: Any) -> np.ndarray:
    """Return a column of numbers, NaN where one is missing."""
    array = np.asarray(column)
    if array.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in array], bool)
        with contextlib.suppress(TypeError, ValueError):  # no numbers, as the error below says
            array = np.where(missing, np.nan, array).astype(float)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{argument} must be columns of numbers; {name!r} is of {array.dtype}")
    return array if array.dtype == np.float32 else array.astype(float)
