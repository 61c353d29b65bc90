"""Columns of a table: the names of streams, the inputs and the targets of its rows."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
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
    available = list(map(str, columns))
    keys = [names] if isinstance(names, str) else list(names)
    checks.instance("target", target, str, "the name of a column")
    if inputs is None:
        inputs = [name for name in available if name not in (*keys, target)]
    for argument, chosen in (("names", keys), ("target", [target]), ("inputs", inputs)):
        for name in chosen:
            if name not in available:
                listed = ", ".join(map(repr, available[:8])) + (", …" if len(available) > 8 else "")
                raise ValueError(
                    f"{argument} must be columns of the table, which has {listed}; got {name!r}"
                )
    xs = [_numbers("inputs", name, table[name]) for name in inputs]
    if not xs:
        raise ValueError("inputs must be at least one column; the table has no other")
    column: Keys = table[keys[0]]
    if len(keys) > 1:
        columns_of_names: list[Names] = [names_of("names", table[name]) for name in keys]
        column = list(zip(*(each.tolist() for each in columns_of_names), strict=True))
    return column, np.column_stack(xs), _numbers("target", target, table[target])


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
