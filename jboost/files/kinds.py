"""Decides from the first rows of a table what its columns hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from jboost.core import checks, extras
from jboost.files.columns import (
    BUCKETS,
    Column,
    Columns,
    DataError,
    RawBlock,
    refuse_unknown,
    text_codes,
)
from jboost.files.reader import Reader

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
    """Decide from the reader's sample; the arguments are :func:`jboost.files.sources.read`'s."""
    buckets = checks.whole("buckets", buckets, at_least=2)
    ordinal = {name: tuple(values) for name, values in (ordinal or {}).items()}
    sample, label = reader.sample(), reader.label
    schema = sample.table.schema
    refuse_unknown((target, *drop, *category, *ordinal), schema.names, label)
    for name, values in ordinal.items():
        if len(values) < 2 or len(set(values)) < len(values):
            expected = "at least two different values, the lowest first"
            raise ValueError(f"ordinal[{name!r}] must be {expected}; got {values!r}")

    def column_of(name: str) -> Column:
        if name in ordinal and name not in category:
            return Column(name, "ordinal", values=ordinal[name])
        kind = "hashed" if name in category else _kind(name, schema.field(name).type, label)
        if kind == "hashed" and name not in category:
            _refuse_numbers(name, sample, reader.decimal, name == target)
        return Column(name, kind, buckets if kind == "hashed" else 0)

    if (kind := column_of(target).kind) != "number":
        holds = "true and false" if kind == "boolean" else "text"
        raise DataError(f"{label}: the target {target!r} must hold numbers, and holds {holds}")
    inputs = tuple(column_of(name) for name in schema.names if name not in (target, *drop))
    if not inputs:
        raise DataError(f"{label} has no column besides the target {target!r} to predict it from")
    return Columns(target, inputs)


def refuse_other_columns(columns: Columns, schema: pa.Schema, label: str) -> None:
    """Refuse a table that lacks one of the columns, or holds text where they are numbers."""
    refuse_unknown(columns.kinds, schema.names, label)
    for name, kind in columns.kinds.items():
        if _kind(name, schema.field(name).type, label) == "hashed" and kind in NUMERIC:
            raise DataError(
                f"{label}: the column {name!r} holds text, and numbers were learned from it"
            )


def holds_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type is a type of text."""
    types = extras.need("pyarrow.types", "io")
    string = types.is_string(arrow_type) or types.is_large_string(arrow_type)
    return string or types.is_string_view(arrow_type)


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
    problem = f"{arrow_type}, which is neither number nor text"
    if types.is_temporal(arrow_type):
        numbers = "an hour, a weekday, days since a beginning"
        problem = f"dates or times; make numbers of it ({numbers}), or drop it"
    raise DataError(f"{label}: the column {name!r} holds {problem}")


def _refuse_numbers(name: str, sample: RawBlock, decimal: str | None, is_target: bool) -> None:
    """Refuse a column of text if most of it are numbers, with this decimal sign or the other."""
    codes, texts = text_codes(sample.table.column(name))

    def rows_where(test: Callable[[str], bool]) -> np.ndarray:
        passed = [text is not None and test(text) for text in texts]
        return np.flatnonzero(np.array([*passed, False])[codes])  # the code −1 takes the last

    def refuse(rows: np.ndarray, problem: str) -> NoReturn:
        row = int(rows[0])
        where = f"{sample.place_of(row)}: {texts[codes[row]]!r:.60}"
        raise DataError(f"{where} {problem} {advice(is_target)}")

    present = len(rows_where(lambda text: True))
    odd = rows_where(lambda text: not is_number(text, decimal or "."))
    if 0 < 2 * len(odd) < present:
        refuse(odd, f"is not a number, but most of the column {name!r} are;")
    other, sign = {".": (",", "a comma"), ",": (".", "a point")}.get(decimal or "", ("", ""))
    numbers = (
        rows_where(lambda text: other in text and is_number(text, other)) if other else odd[:0]
    )
    if 2 * len(numbers) > present:
        would_be = f"in the column {name!r} would be a number if {sign} stood before decimals"
        refuse(numbers, f"{would_be}; name the decimal sign, or")
