"""What all readers share: their base class, and how they name what is wrong."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jboost.core import checks, extras
from jboost.files import columns as table_columns
from jboost.files.columns import NUMERIC, Columns, DataError, PlaceOf, RawBlock

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_ROW = 2**24  # bytes; a longer row is a sign of a damaged file


class Reader(abc.ABC):
    """Reads data of one kind, block by block, as Arrow tables."""

    label: str  # what errors call the data
    live: bool = False  # whether the data can only be read once, as they come: standard input
    # How many rows there are in all, as far as what was read tells; None where nothing tells.
    total: float | None = None
    decimal: str | None = None  # the sign before decimals in a text; None for other data
    tolerant: bool = False  # whether rows that cannot be read are left out
    notes: tuple[str, ...] = ()  # what a user should know of how the data are read, a sentence each

    @abc.abstractmethod
    def sample(self) -> RawBlock:
        """Return the first rows, with all columns, each of the Arrow type that it looks like."""

    @abc.abstractmethod
    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        """Yield the rows from ``position`` on; live data are read on from where they stand.

        A column of targets may be absent.
        """

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


def kinds_in(columns: Columns, names: Iterable[str], label: str) -> dict[str, str]:
    """Return the kinds of the columns to read; of those, only the target may be absent."""
    available = [*names]
    kinds = columns.kinds
    if columns.target not in available:
        del kinds[columns.target]
    table_columns.refuse_unknown(kinds, available, label)
    return kinds


def refuse_other_columns(columns: Columns, schema: pa.Schema, label: str) -> None:
    """Refuse a table that lacks one of the columns, or holds text where they are numbers."""
    for name, kind in kinds_in(columns, schema.names, label).items():
        if kind_of(name, schema.field(name).type, label) == "category" and kind in NUMERIC:
            learned = "and numbers were learned from it"
            raise DataError(f"{label}: the column {name!r} holds text, {learned}")


def refuse_short(label: str, rows: int, position: int) -> None:
    """Refuse data with fewer rows than the run to go on with has seen: it is another stream."""
    if rows < position:
        seen = f"the run to go on with had seen {position}"
        advised = "it must be the same stream from its beginning, or new rows with --append"
        raise DataError(f"{label} has {rows} rows, and {seen}: {advised}")


def row_numbers(label: str, start: int) -> PlaceOf:
    """Return the places of the rows of a block whose first row is the row ``start`` of the data."""
    return lambda row: f"row {start + row + 1} of {label}"


def first_line(error: object) -> str:
    """Return the first line of another library's error message, without control characters."""
    return checks.printable(str(error).partition("\n")[0][:200])


def advice(is_target: bool) -> str:
    """Return what a user can do about a text among numbers; the target can be no category."""
    if is_target:
        return "correct it, or pass --bad-rows skip"
    return "correct it, drop the column or declare it a category"


def holds_text(arrow_type: pa.DataType) -> bool:
    """Return whether an Arrow type is a type of text."""
    types = extras.need("pyarrow.types", "io")
    string = types.is_string(arrow_type) or types.is_large_string(arrow_type)
    return string or types.is_string_view(arrow_type)


def kind_of(name: str, arrow_type: pa.DataType, label: str) -> str:
    """Return what a column of an Arrow type holds."""
    kind = likely_kind(arrow_type)
    if kind is None:
        advised = ", or ".join(filter(None, (cure(arrow_type), "drop it")))
        raise DataError(f"{label}: the column {name!r} holds {unread(arrow_type)}", advised)
    return kind


def unread(arrow_type: pa.DataType) -> str:
    """Return, for a sentence, what a column holds that is not read."""
    types = extras.need("pyarrow.types", "io")
    held = "lists" if types.is_nested(arrow_type) else arrow_type
    if _holds_objects(arrow_type):
        held = "Python objects"
    return f"{held}, which are neither numbers, texts nor times"


def cure(arrow_type: pa.DataType) -> str:
    """Return what a user can do to have a column read that is not; "" for most types."""
    return "cast it to text or numbers" if _holds_objects(arrow_type) else ""


def objects(count: int) -> pa.Array:
    """Return an array that stands for Python objects, which Arrow has no type for."""
    pa = extras.need("pyarrow", "io")
    return pa.nulls(count, pa.struct([]))


def _holds_objects(arrow_type: pa.DataType) -> bool:
    types = extras.need("pyarrow.types", "io")
    return types.is_struct(arrow_type) and arrow_type.num_fields == 0


@functools.lru_cache(maxsize=256)
def likely_kind(arrow_type: pa.DataType) -> str | None:
    """Return what a column of an Arrow type holds, None if it is nothing that is read."""
    types = extras.need("pyarrow.types", "io")
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if types.is_boolean(arrow_type):
        return "boolean"
    if holds_text(arrow_type):
        return "category"
    # The null type is that of a column whose values are all missing so far; a duration is seconds.
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_null,
               types.is_duration)  # fmt: skip
    if any(test(arrow_type) for test in numeric):
        return "number"
    return "time" if types.is_temporal(arrow_type) and not types.is_interval(arrow_type) else None
