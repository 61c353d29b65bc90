"""Makes numbers of pandas, polars and pyarrow tables that hold text, truth values or times."""

from __future__ import annotations

from typing import Any

import numpy as np

from jboost.adapters.named import TIMES
from jboost.core import extras
from jboost.files.choice import describe
from jboost.files.columns import Columns, DataError, RawBlock
from jboost.files.encoding import BadRows, Encoder
from jboost.files.numerals import PARTS, number_of
from jboost.files.reader import first_line, refuse_other_columns, row_numbers
from jboost.files.tables import is_table

LABEL = "X"  # what errors call a table
TEXTS = ("category", "str", "string")  # types of pandas
TARGET = "\0target"  # a name that no column has: a table of inputs has no target


def is_mixed(table: object) -> bool:
    """Whether a value is a table in which a column holds no numbers."""
    if not is_table(table) or not hasattr(table, "__len__"):
        return False
    if hasattr(table, "dtypes") and hasattr(table, "iloc"):  # of pandas
        kinds = [getattr(dtype, "kind", "O") for dtype in table.dtypes]  # type: ignore[attr-defined]
        names = [str(dtype) for dtype in table.dtypes]  # type: ignore[attr-defined]
        texts = any(name in TEXTS for name in names)
        timed = "M" in kinds or "m" in kinds  # times, or durations
        return texts or timed or any(_holds_more(c) for _, c in _objects(table))
    try:
        wrapped = extras.need("narwhals", "io").from_native(table, eager_only=True)
    except TypeError:
        return False
    return not all(dtype.is_numeric() for dtype in wrapped.schema.values())


def refuse_objects(table: Any) -> None:
    """Refuse a column of a pandas table that holds what can become no number, by its name."""
    for name, column in _objects(table):
        for value in column[column.notna()]:
            known = isinstance(value, (str, *TIMES)) or hasattr(value, "__float__")
            if not known or isinstance(value, complex):
                wanted = "numbers, text, truth values or times"
                advice = PARTS if isinstance(value, complex) else "convert the column, or drop it"
                held = f"{value!r:.60}, of the type {type(value).__name__}"
                raise TypeError(
                    f"{LABEL}: the column {name!r} must hold {wanted}; got {held}: {advice}"
                )


def refuse_texts(table: Any) -> None:
    """Refuse a text in a pandas table for a model that learned from numbers alone, by its column.

    A text that is a number, such as "1.5", is none to refuse.
    """
    if not (is_table(table) and hasattr(table, "dtypes") and hasattr(table, "iloc")):
        return
    for i, name in enumerate(table.columns):
        if getattr(table.dtypes.iloc[i], "kind", "O") != "O":
            continue
        for value in table.iloc[:, i]:
            if isinstance(value, str) and number_of(value) is None:
                raise ValueError(
                    f"{LABEL}: the column {name!r} held numbers when the model was fitted; got "
                    f"{value!r:.60}: give numbers, or fit with such texts among the rows"
                )


def _objects(table: Any) -> list[tuple[Any, Any]]:
    """Return the names and columns of a pandas table that hold neither real numbers nor text."""
    if not (hasattr(table, "dtypes") and hasattr(table, "iloc") and hasattr(table, "columns")):
        return []
    kinds = [getattr(dtype, "kind", "O") for dtype in table.dtypes]
    return [(name, table.iloc[:, i]) for i, name in enumerate(table.columns)
            if kinds[i] in "Oc" and str(table.dtypes.iloc[i]) not in TEXTS]  # fmt: skip


def _holds_more(column: Any) -> bool:
    """Whether a column of objects holds text, times or NA, which NumPy makes no numbers of."""
    lacking = column[column.isna()]
    other = any(not isinstance(value, (float, type(None))) for value in lacking)
    return other or any(isinstance(value, (str, *TIMES)) for value in column)


def encoded(table: Any, columns: Columns | None) -> tuple[Columns, np.ndarray]:
    """Return the columns of a table, with the texts that have a place, and its numbers.

    ``columns`` are those of an earlier table, in which new texts get the places that are free.
    """
    pa, nw = extras.need("pyarrow", "io"), extras.need("narwhals", "io")
    try:
        arrow = nw.from_native(table, eager_only=True).to_arrow()
    except (pa.ArrowException, TypeError, ValueError) as error:
        said = first_line("; ".join(map(str, error.args)))
        raise DataError(f"{LABEL} cannot be read: {said}") from None
    if columns is None:
        names = [name for name in arrow.column_names if not name.startswith("__index_level_")]
        inputs = tuple(describe(name, arrow.column(name), LABEL) for name in names)
        columns = Columns(TARGET, inputs)
    refuse_other_columns(columns, arrow.schema, LABEL)
    encoder = Encoder(columns, np.float64, 0.0, BadRows(None))
    x = encoder.encode(RawBlock(arrow, row_numbers(LABEL, 0)), columns.seen).x
    return encoder.columns, x
