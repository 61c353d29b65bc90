"""Makes numbers of pandas, polars and pyarrow tables that hold text, truth values or times."""

from __future__ import annotations

from typing import Any

import numpy as np

from jboost.core import extras
from jboost.files.choice import describe
from jboost.files.columns import Columns, DataError, RawBlock
from jboost.files.encoding import BadRows, Encoder
from jboost.files.reader import first_line, refuse_other_columns, row_numbers
from jboost.files.tables import is_table

LABEL = "X"  # what errors call a table
TARGET = "\0target"  # a name that no column has: a table of inputs has no target


def is_mixed(table: object) -> bool:
    """Whether a value is a table in which a column holds no numbers."""
    if not is_table(table) or not hasattr(table, "__len__"):
        return False
    if hasattr(table, "dtypes") and hasattr(table, "iloc"):  # of pandas
        kinds = [getattr(dtype, "kind", "O") for dtype in table.dtypes]  # type: ignore[attr-defined]
        names = [str(dtype) for dtype in table.dtypes]  # type: ignore[attr-defined]
        texts = any(name in ("category", "str", "string") for name in names)
        objects = [c for c, kind in zip(table, kinds, strict=True) if kind == "O"]  # type: ignore
        return texts or "M" in kinds or any(_has_text(table[c]) for c in objects)  # type: ignore
    try:
        wrapped = extras.need("narwhals", "io").from_native(table, eager_only=True)
    except TypeError:
        return False
    return not all(dtype.is_numeric() for dtype in wrapped.schema.values())


def _has_text(column: Any) -> bool:
    return any(isinstance(value, str) for value in column)


def encoded(table: Any, columns: Columns | None) -> tuple[Columns, np.ndarray]:
    """Return the columns of a table, with the texts that have a place, and its numbers.

    ``columns`` are those of an earlier table, in which new texts get the places that are free.
    """
    pa, nw = extras.need("pyarrow", "io"), extras.need("narwhals", "io")
    try:
        arrow = nw.from_native(table, eager_only=True).to_arrow()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{LABEL} cannot be read: {first_line(error)}") from None
    if columns is None:
        names = [name for name in arrow.column_names if not name.startswith("__index_level_")]
        inputs = tuple(describe(name, arrow.column(name), LABEL) for name in names)
        columns = Columns(TARGET, inputs)
    refuse_other_columns(columns, arrow.schema, LABEL)
    encoder = Encoder(columns, np.float64, 0.0, BadRows(None))
    x = encoder.encode(RawBlock(arrow, row_numbers(LABEL, 0)), columns.seen).x
    return encoder.columns, x
