"""What all readers share: their base class, and the choice of columns from a sample of the data."""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jboost.core import checks, extras
from jboost.files import columns as table_columns
from jboost.files.columns import NUMERIC, Column, Columns, DataError, PlaceOf, RawBlock

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_ROW = 2**24  # bytes; a longer row is a sign of a damaged file


class Reader(abc.ABC):
    """Reads data of one kind, block by block, as Arrow tables."""

    label: str  # what errors call the data
    live: bool = False  # whether the data can only be read once, as they come: standard input
    decimal: str | None = None  # the sign before decimals in a text; None for other data

    @abc.abstractmethod
    def sample(self) -> RawBlock:
        """Return the first rows, with all columns, each of the Arrow type that it looks like."""

    @abc.abstractmethod
    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        """Yield the rows from ``position`` on; live data are read on from where they stand."""

    def from_position(
        self, tables: Iterable[pa.Table], position: int, start: int = 0
    ) -> Iterator[RawBlock]:
        """Yield the rows from ``position`` on; the first row of the tables is row ``start``."""
        for table in tables:
            first, end = max(start, position), start + table.num_rows
            if end > first:
                yield RawBlock(table.slice(first - start), row_numbers(self.label, first))
            start = end
        refuse_short(self.label, start, position)


def choose_columns(
    reader: Reader,
    target: str,
    drop: Collection[str],
    category: Collection[str],
    ordinal: Mapping[str, Sequence[str]],
    buckets: int,
) -> Columns:
    """Decide from the reader's sample; the arguments are :func:`jboost.files.sources.read`'s."""
    buckets = checks.whole("buckets", buckets, at_least=2)
    sample, label = reader.sample(), reader.label
    schema = sample.table.schema
    table_columns.refuse_unknown((target, *drop, *category, *ordinal), schema.names, label)
    for name, values in ordinal.items():
        if len(values) < 2 or len(set(values)) < len(values):
            expected = "at least two different values, the lowest first"
            raise ValueError(f"ordinal[{name!r}] must be {expected}; got {tuple(values)!r}")

    def column_of(name: str) -> Column:
        if name in ordinal and name not in category:
            return Column(name, "ordinal", values=tuple(ordinal[name]))
        kind = "hashed" if name in category else _kind(name, schema.field(name).type, label)
        if kind == "hashed" and name not in category:
            _refuse_numbers(name, sample, reader.decimal, advice(name == target))
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
    table_columns.refuse_unknown(columns.kinds, schema.names, label)
    for name, kind in columns.kinds.items():
        if _kind(name, schema.field(name).type, label) == "hashed" and kind in NUMERIC:
            learned = "and numbers were learned from it"
            raise DataError(f"{label}: the column {name!r} holds text, {learned}")


def refuse_short(label: str, rows: int, position: int) -> None:
    """Refuse data with fewer rows than the run to go on with has seen: it is another stream."""
    if rows < position:
        seen = f"the run to go on with had seen {position}"
        advised = "it must be the same stream from its beginning"
        raise DataError(f"{label} has {rows} rows, and {seen}: {advised}")


def row_numbers(label: str, start: int) -> PlaceOf:
    """Return the places of the rows of a block whose first row is the row ``start`` of the data."""
    return lambda row: f"row {start + row + 1} of {label}"


def first_line(error: object) -> str:
    """Return the first line of another library's error message, without control characters."""
    return checks.printable(str(error).partition("\n")[0][:200])


def advice(is_target: bool) -> str:
    """Return what a user can do about a text among numbers; the target can be no category."""
    return "correct it" if is_target else "correct it, drop the column or declare it a category"


def holds_text(arrow_type: pa.DataType) -> bool:
    """Return whether an Arrow type is a type of text."""
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


def _kind(name: str, arrow_type: pa.DataType, label: str) -> str:
    """Return what a column of an Arrow type holds."""
    types = extras.need("pyarrow.types", "io")
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if types.is_boolean(arrow_type):
        return "boolean"
    if holds_text(arrow_type):
        return "hashed"
    # The null type is that of a column whose values are all missing so far.
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    if any(test(arrow_type) for test in numeric):
        return "number"
    problem = f"{arrow_type}, which is neither number nor text"
    if types.is_temporal(arrow_type):
        problem = "dates or times; make numbers of it, such as an hour or a weekday, or drop it"
    raise DataError(f"{label}: the column {name!r} holds {problem}")


def _refuse_numbers(name: str, sample: RawBlock, decimal: str | None, advised: str) -> None:
    """Refuse a column of text if most of it are numbers, with this decimal sign or the other."""
    codes, texts = table_columns.text_codes(sample.table.column(name))
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    present = [(code, text) for code, text in enumerate(texts) if text is not None]
    odd = [code for code, text in present if not is_number(text, decimal or ".")]
    other, sign = {".": (",", "a comma"), ",": (".", "a point")}.get(decimal or "", ("", ""))
    numbers = [code for code, text in present if other and other in text and is_number(text, other)]
    if 0 < 2 * counts[odd].sum() < counts.sum():
        problem = f"is not a number, but most of the column {name!r} are; {advised}"
    elif 2 * counts[numbers].sum() > counts.sum():
        would_be = f"in the column {name!r} would be a number if {sign} stood before decimals"
        odd, problem = numbers, f"{would_be}; name the decimal sign, or {advised}"
    else:
        return
    row = int(np.flatnonzero(np.isin(codes, odd))[0])
    raise DataError(f"{sample.place_of(row)}: {texts[codes[row]]!r:.60} {problem}")
