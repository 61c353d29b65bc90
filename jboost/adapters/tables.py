"""Reads the tables of pandas, polars and the like that river's mini-batches come in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from jboost.adapters.named import TIMES
from jboost.adapters.numbers import as_number
from jboost.core import extras

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

REAL = "biuf"  # the kinds of dtypes of real numbers
NO_TEXT = ("Boolean", "Unknown", "Object")  # columns of narwhals that may hold numbers


def mixed_rows(table: Any) -> list[dict[Hashable, Any]] | None:
    """Return the rows of a table in which a column holds texts or times, None for other tables."""
    if hasattr(table, "iloc"):
        if all(dtype.kind in REAL for dtype in table.dtypes):
            return None
        named = {n for n in table if any(isinstance(v, (str, *TIMES)) for v in table[n])}
        if not named:
            return None
        # pandas has NaN, NaT or NA where a text or a time is missing.
        held = {n: [v if isinstance(v, (str, *TIMES)) and v == v else None for v in table[n]]
                for n in named}  # fmt: skip
        numbers = names_and_values(table.drop(columns=[*named]))
        columns = held | dict(zip(numbers[0], numbers[1].T.tolist(), strict=True))
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    wrapped = extras.need("narwhals", "io").from_native(table, eager_only=True)
    numeric = all(dtype.is_numeric() or str(dtype) in NO_TEXT for dtype in wrapped.schema.values())
    return None if numeric else list(wrapped.iter_rows(named=True))


def names_and_values(table: Any) -> tuple[list[Hashable], np.ndarray]:
    """Return the names of a table's columns, and its numbers."""
    if hasattr(table, "iloc"):  # only pandas can turn all of its kinds of missing values into NaN
        real = all(dtype.kind in REAL for dtype in table.dtypes)
        values = table.to_numpy(dtype=np.float64 if real else object, na_value=np.nan)
        names, arrays = list(table.columns), values.T
    else:
        wrapped = extras.need("narwhals", "io").from_native(table, eager_only=True)
        names = list(wrapped.columns)
        arrays = [column.to_numpy() for column in wrapped.iter_columns()]
    columns = [numbers(name, array) for name, array in zip(names, arrays, strict=True)]
    return names, np.array(columns).T.reshape(len(table), len(names))


def numbers(name: Hashable, values: np.ndarray) -> np.ndarray:
    """Return a column of a table, or the targets, as float64."""
    if values.dtype.kind in REAL and values.ndim == 1:
        return values.astype(np.float64)
    return np.array([as_number(name, value) for value in values], np.float64)


def series(values: np.ndarray, table: IntoDataFrame) -> Any:
    """Return numbers as a column of the library that made the table, with the table's index."""
    nw = extras.need("narwhals", "io")
    wrapped = nw.from_native(table, eager_only=True)
    series = nw.new_series("prediction", values, backend=nw.get_native_namespace(wrapped))
    index = nw.maybe_get_index(wrapped)
    return (series if index is None else nw.maybe_set_index(series, index=index)).to_native()
