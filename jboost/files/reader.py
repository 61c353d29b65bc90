"""What all readers share: their base class, and the choice of columns from a sample of the data."""

from __future__ import annotations

import abc
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jboost.core import checks, extras
from jboost.files import columns as table_columns
from jboost.files.columns import NUMERIC, Column, Columns, DataError, PlaceOf, RawBlock

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_ROW = 2**24  # bytes; a longer row is a sign of a damaged file

# Signs of numbers beside those of ASCII. Spaces that keep digits together become no-break spaces,
# and so does the Arabic sign between thousands. Marks that nobody sees are left out.
_SIGNS = str.maketrans(
    dict.fromkeys("−－﹣‐‑‒–", "-")
    | dict.fromkeys("\u2007\u2009\u202f٬", "\xa0")
    | dict.fromkeys([0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x202A, 0x202F)])
    | dict.fromkeys([*range(0x2060, 0x2070), 0xFEFF])
    | {"＋": "+", "﹢": "+", "．": ".", "，": ",", "ｅ": "e", "Ｅ": "e"}
)
_GROUPED = re.compile(r"[-+]?\d{1,3}(\xa0\d{3})+(\.\d*)?$")
# Between thousands, and around a number. They are not read: they may be part of a code.
_SEPARATOR, _UNITS = re.compile(r"(?<=\d)[\s'’_.,](?=\d{3}(?!\d))"), "$€£¥%‰ \xa0"


class Reader(abc.ABC):
    """Reads data of one kind, block by block, as Arrow tables."""

    label: str  # what errors call the data
    live: bool = False  # whether the data can only be read once, as they come: standard input
    # How many rows there are in all, as far as what was read tells; None where nothing tells.
    total: float | None = None
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


def plain(text: str) -> str:
    """A text with the signs of numbers as ASCII has them, without invisible marks and space."""
    return text.translate(_SIGNS).strip()


def number_of(text: str, decimal: str = ".") -> float | None:
    """The number that a text reads as, or None; ``decimal`` is the sign before decimals.

    Digits and signs of any script are read, and no-break spaces between groups of three digits.

    >>> number_of(" 1e3 "), number_of("−１２"), number_of("٣٫٥"), number_of("1\\xa0234")
    (1000.0, -12.0, 3.5, 1234.0)
    >>> number_of("1_000"), number_of("12 km"), number_of("1 234"), number_of("5²")
    (None, None, None, None)
    >>> number_of("1,5", ","), number_of("1.5", ","), number_of("1,5")
    (1.5, None, None)
    """
    text = plain(text)
    if decimal != ".":
        text = text.replace(".", "_").replace(decimal, ".")
    text = text.replace("٫", ".")  # the Arabic decimal sign, which means nothing else
    if _GROUPED.match(text):
        text = text.replace("\xa0", "")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def reads_as_number(text: str, decimal: str = ".") -> bool:
    """Whether a text reads as a number; ``decimal`` is the sign before decimals."""
    return number_of(text, decimal) is not None


def numbers_in(
    values: pa.ChunkedArray, decimal: str, missing: Collection[str]
) -> np.ndarray | None:
    """The numbers in a column of text, NaN where one is missing; None if other text is there."""
    codes, texts = table_columns.text_codes(values)
    numbers: list[float] = []
    for text in texts:
        number = None if text is None else number_of(text, decimal)
        if number is None and text is not None and plain(text) not in missing:
            return None
        numbers.append(np.nan if number is None else number)
    return np.array([*numbers, np.nan])[codes]  # the code −1, of a missing value, takes the last


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
    """Refuse a column of text that are mostly numbers, or would be if they were written plainly."""
    codes, texts = table_columns.text_codes(sample.table.column(name))
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    present = [(code, text) for code, text in enumerate(texts) if text is not None]
    odd = [code for code, text in present if not reads_as_number(text, decimal or ".")]
    other, sign = {".": (",", "a comma"), ",": (".", "a point")}.get(decimal or "", ("", ""))
    swapped = [c for c, text in present if other and other in text and reads_as_number(text, other)]
    unplain = [c for c, text in present if decimal and _looks_like_a_number(text)]
    if 0 < 2 * counts[odd].sum() < counts.sum():
        problem = f"is not a number, but most of the column {name!r} are; {advised}"
    elif 2 * counts[swapped].sum() > counts.sum():
        would_be = f"in the column {name!r} would be a number if {sign} stood before decimals"
        odd, problem = swapped, f"{would_be}; name the decimal sign, or {advised}"
    elif 2 * counts[unplain].sum() > counts.sum():
        problem = f"in the column {name!r} looks like a number, but is not written as one"
        odd, problem = [*{*odd} & {*unplain}], f"{problem}; {advised}"
    else:
        return
    row = int(np.flatnonzero(np.isin(codes, odd))[0])
    raise DataError(f"{sample.place_of(row)}: {texts[codes[row]]!r:.60} {problem}")


def _looks_like_a_number(text: str) -> bool:
    """Whether a text is a number but for signs between thousands, of a currency or of percent."""
    bare = _SEPARATOR.sub("", plain(text)).strip(_UNITS)
    return reads_as_number(bare) or reads_as_number(bare, ",")
