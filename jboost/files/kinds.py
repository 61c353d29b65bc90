"""Decides from the first rows of a table what its columns hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jboost.core import checks, extras
from jboost.files.columns import BUCKETS, Column, Columns, DataError, refuse_unknown, text_codes
from jboost.files.reader import RawBlock, Reader

if TYPE_CHECKING:
    import pyarrow as pa

NUMERIC = ("number", "boolean")


def choose_columns(
    reader: Reader,
    target: str,
    *,
    drop: Collection[str] = (),
    category: Collection[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    buckets: int = BUCKETS,
) -> Columns:
    """Decide from the reader's sample what the columns of its data are.

    The other arguments are those of :func:`jboost.files.sources.read`.
    """
    buckets = checks.whole("buckets", buckets, at_least=2)
    ordinal = dict(ordinal or {})
    sample, label = reader.sample(), reader.label
    schema = sample.table.schema
    refuse_unknown((target, *drop, *category, *ordinal), schema.names, label)

    def column_of(name: str) -> Column:
        if name in ordinal and name not in category:
            return _ordinal(name, ordinal[name])
        kind = "hashed" if name in category else _kind(name, schema.field(name).type, label)
        if kind == "hashed" and name not in category:
            _refuse_numbers(name, sample, reader.decimal, name == target)
        return Column(name, kind, buckets if kind == "hashed" else 0)

    inputs = []
    for name in schema.names:
        if name != target and name not in drop:
            inputs.append(column_of(name))
        elif name == target and (kind := column_of(name).kind) != "number":
            holds = "true and false" if kind == "boolean" else "text"
            raise DataError(f"{label}: the target {name!r} must hold numbers, and holds {holds}")
    if not inputs:
        raise DataError(f"{label} has no column besides the target {target!r} to predict it from")
    return Columns(target, tuple(inputs))


def refuse_other_kinds(columns: Columns, schema: pa.Schema, label: str) -> None:
    """Refuse a table that holds text where the columns are numbers."""
    for name, kind in columns.kinds.items():
        if _kind(name, schema.field(name).type, label) == "hashed" and kind in NUMERIC:
            raise DataError(
                f"{label}: the column {name!r} holds text, and numbers were learned from it"
            )


def holds_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type is a type of text."""
    types = extras.need("pyarrow.types", "io")
    tests = (types.is_string, types.is_large_string, types.is_string_view)
    return any(test(arrow_type) for test in tests)


def is_number(text: str, decimal: str = ".") -> bool:
    """Whether a text reads as a real number, with the sign ``decimal`` before decimals.

    >>> is_number(" 1e3 "), is_number("nan"), is_number("1_000"), is_number("12 km")
    (True, True, False, False)
    >>> is_number("1,5", ","), is_number("1.5", ","), is_number("1,5")
    (True, False, False)
    """
    if decimal != ".":
        text = text.replace(".", "_").replace(decimal, ".")
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def advice(is_target: bool) -> str:
    """What a user can do about a text among numbers; the target can be no category."""
    return "correct it" if is_target else "correct it, drop the column or declare it a category"


def _ordinal(name: str, values: Sequence[str]) -> Column:
    values = tuple(values)
    if len(values) < 2 or len(set(values)) < len(values):
        expected = "at least two different values, the lowest first"
        raise ValueError(f"ordinal[{name!r}] must be {expected}; got {values!r}")
    return Column(name, "ordinal", values=values)


def _kind(name: str, arrow_type: pa.DataType, label: str) -> str:
    """What a column of an Arrow type holds."""
    types = extras.need("pyarrow.types", "io")
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if types.is_boolean(arrow_type):
        return "boolean"
    # The null type is that of a column whose values are all missing so far.
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    if any(test(arrow_type) for test in numeric):
        return "number"
    if holds_text(arrow_type):
        return "hashed"
    if types.is_temporal(arrow_type):
        raise DataError(
            f"{label}: the column {name!r} holds dates or times; make numbers of it (an hour, a "
            "weekday, days since a beginning), or drop it"
        )
    raise DataError(
        f"{label}: the column {name!r} holds {arrow_type}, which is neither number nor text"
    )


def _refuse_numbers(name: str, sample: RawBlock, decimal: str | None, is_target: bool) -> None:
    """Refuse a text column of which most values are numbers: it has a mistake and is no category.

    A value that only the other decimal sign, a comma or a point, makes a number counts as well.
    """
    codes, texts = text_codes(sample.table.column(name))

    def rows_where(test: Callable[[str], bool]) -> np.ndarray:
        passed = [text is not None and test(text) for text in texts]
        return np.flatnonzero(np.array([*passed, False])[codes])  # the code −1 takes the last

    def first(rows: np.ndarray) -> str:
        row = int(rows[0])
        return f"{sample.place_of(row)}: {texts[codes[row]]!r:.60}"

    present = len(rows_where(lambda text: True))
    odd = rows_where(lambda text: not is_number(text, decimal or "."))
    if 0 < 2 * len(odd) < present:
        raise DataError(
            f"{first(odd)} is not a number, but most of the column {name!r} are; "
            f"{advice(is_target)}"
        )
    if decimal not in (".", ","):
        return
    other, called = (",", "a comma") if decimal == "." else (".", "a point")
    also_numbers = rows_where(lambda text: other in text and is_number(text, other))
    if 2 * len(also_numbers) > present:
        raise DataError(
            f"{first(also_numbers)} in the column {name!r} would be a number if {called} stood "
            f"before decimals; name the decimal sign, or {advice(is_target)}"
        )
