"""Named columns: which of a table's columns are inputs, and how each becomes numbers.

What is decided from the first rows of a table is kept (as JSON, in a checkpoint), so that a later
table is matched by name, whatever the order of its columns.

| kind    | the column holds           | it becomes                                            |
|---------|----------------------------|-------------------------------------------------------|
| number  | numbers                    | itself                                                |
| boolean | true, false                | 1, 0                                                  |
| hashed  | text                       | ``buckets`` columns, a one in that of the text's hash |
| ordinal | text with a declared order | the place of the text in that order: 0, 1, …          |

A missing value is NaN in all columns that it becomes. The encodings hold no state: what a text
becomes depends neither on the order of the rows nor on where a stream was cut.
"""

from __future__ import annotations

import collections
import difflib
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jboost.core import checks, extras

BUCKETS = 16  # of a hashed column: five texts have one each as often as not
MOST = 16_384  # columns; beyond that a file is more likely damaged than that wide
WIDEST = MOST * BUCKETS  # columns that these become

FEW = 32  # rows, of which it takes longer to tell Arrow than to look at each

KINDS = ("number", "boolean", "hashed", "ordinal")


class DataError(ValueError):
    """Something is wrong with the data that came: one sentence that names the place.

    ``row`` is the row of a block where that is still to be named, as only the block's reader can.
    """

    def __init__(self, message: str, row: int | None = None):
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class Column:
    """One input: its name in the table, and what it becomes."""

    name: str
    kind: str = "number"
    buckets: int = 0
    values: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return self.buckets if self.kind == "hashed" else 1

    @property
    def names(self) -> list[str]:
        """The names of the columns that it becomes."""
        if self.kind != "hashed":
            return [self.name]
        return [f"{self.name}#{bucket}" for bucket in range(self.buckets)]

    def __str__(self) -> str:
        match self.kind:
            case "hashed":
                return f"{self.name} (text, hashed to {self.buckets} columns)"
            case "ordinal":
                return f"{self.name} (ordinal: {' < '.join(self.values)})"
            case "boolean":
                return f"{self.name} (true or false)"
        return self.name


@dataclass(frozen=True)
class Columns:
    """The inputs of a table in the order in which a model sees them, and its target."""

    target: str
    inputs: tuple[Column, ...]

    def __post_init__(self) -> None:
        if self.width > WIDEST:
            few = "drop some, or hash text to fewer buckets"
            raise DataError(
                f"the inputs become {self.width:,} columns; at most {WIDEST:,} are read: {few}"
            )

    @property
    def width(self) -> int:
        """How many columns x has."""
        return sum(column.width for column in self.inputs)

    @property
    def names(self) -> list[str]:
        """What each column of x is called, one per column.

        >>> Columns("y", (Column("a"), Column("b", "hashed", buckets=2))).names
        ['a', 'b#0', 'b#1']
        """
        return [name for column in self.inputs for name in column.names]

    @property
    def used(self) -> list[str]:
        """The columns of the table that are read."""
        return [*(column.name for column in self.inputs), self.target]

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; :meth:`from_dict` reads it."""
        return {"target": self.target, "inputs": [asdict(column) for column in self.inputs]}

    @classmethod
    def from_dict(cls, kept: Any) -> Columns:
        """The columns that :meth:`as_dict` described, checked: a file may hold anything.

        >>> columns = Columns("y", (Column("a", "ordinal", values=("low", "high")),))
        >>> Columns.from_dict(columns.as_dict()) == columns
        True
        """
        match kept:
            case {"target": str(target), "inputs": [*inputs]} if inputs:
                return cls(target, tuple(_column(one) for one in inputs))
        raise DataError(f"these are no columns that jboost has written: {kept!r:.100}")

    def encode(self, table: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """(x, d) of an Arrow table that has these columns, of a dtype; missing values are NaN."""
        x = np.empty((table.num_rows, self.width), dtype)
        start = 0
        with np.errstate(all="ignore"):  # beyond float32 is infinite, and so a value to refuse
            for column in self.inputs:
                end = start + column.width
                _fill(x[:, start:end], column, table.column(column.name))
                start = end
            d = np.empty((table.num_rows, 1), dtype)
            _fill(d, Column(self.target), table.column(self.target))
        return x, d[:, 0]


def choose(
    table: Any,
    target: str,
    *,
    label: str,
    drop: Collection[str] = (),
    category: Collection[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    buckets: int = BUCKETS,
    decimal: str | None = None,
) -> Columns:
    """Decide from the first rows of a table, an Arrow one, what its columns are.

    Args:
      table: the first rows.
      target: the column to predict.
      label: what the table is called in errors.
      drop: columns that are no inputs.
      category: columns to hash although they look like numbers.
      ordinal: for columns with an order, their values from the lowest to the highest.
      buckets: how many columns a hashed one becomes, at least 2.
      decimal: what stands before decimals, where the table was read from text.
    """
    buckets = checks.whole("buckets", buckets, at_least=2)
    ordinal = dict(ordinal or {})
    known = table.schema.names
    find((target, *drop, *category, *ordinal), known, label)
    inputs = []
    for name in known:
        if name in drop and name != target:
            continue
        if name in category:
            column = Column(name, "hashed", buckets=buckets)
        elif name in ordinal:
            column = _ordinal(name, ordinal[name])
        else:
            kind = _kind(name, table.schema.field(name).type, label)
            if kind == "hashed":
                _refuse_numbers(name, table.column(name), decimal, name == target)
            column = Column(name, kind, buckets=buckets if kind == "hashed" else 0)
        if name != target:
            inputs.append(column)
        elif column.kind != "number":
            holds = "true and false" if column.kind == "boolean" else "text"
            raise DataError(f"{label}: the target {name!r} must hold numbers, and holds {holds}")
    if not inputs:
        raise DataError(f"{label} has no column besides the target {target!r} to predict it from")
    return Columns(target, tuple(inputs))


def find(names: Iterable[str], known: Sequence[str], label: str) -> None:
    """Refuse names that are not among those known, with the likeliest one meant."""
    there = set(known)
    for name in names:
        if name not in there:
            lowered = {one.lower(): one for one in known}
            near = difflib.get_close_matches(str(name).lower(), lowered, n=1)
            shown = ", ".join(repr(one) for one in known[:8]) + (", …" if len(known) > 8 else "")
            hint = f"did you mean {lowered[near[0]]!r}?" if near else f"it has {shown}"
            raise DataError(f"{label} has no column {name!r}; {hint}")


def refuse_twice(names: Sequence[str], label: str) -> None:
    """Columns are told apart by their names."""
    for name, times in collections.Counter(names).most_common(1):
        if times > 1:
            raise DataError(f"{label} has two columns called {name!r}")


def text_types(columns: Columns) -> dict[str, Any]:
    """What the columns of a text file are read as, the target the last of them."""
    pa = extras.need("pyarrow", "io")
    of_kind = {"number": pa.float64(), "boolean": pa.bool_()}
    types = {column.name: of_kind.get(column.kind, pa.string()) for column in columns.inputs}
    return types | {columns.target: pa.float64()}


def refuse_other_kinds(columns: Columns, schema: Any, label: str) -> None:
    """A table whose types are known must have numbers where numbers are wanted."""
    for column in (*columns.inputs, Column(columns.target)):
        kind = _kind(column.name, schema.field(column.name).type, label)
        if column.kind in ("number", "boolean") and kind not in ("number", "boolean"):
            raise DataError(
                f"{label}: the column {column.name!r} holds text, and numbers were learned from it"
            )


def bucket(name: str, text: str, buckets: int) -> int:
    """The bucket of a text in a column: the same one in every run and on every machine.

    >>> bucket("city", "Ankara", 16), bucket("city", "Izmir", 16), bucket("code", "Ankara", 16)
    (2, 7, 0)
    """
    digest = hashlib.blake2b(f"{name}\0{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % buckets


def _column(kept: Any) -> Column:
    match kept:
        case {"name": str(name), "kind": str(kind), "buckets": int(buckets), "values": [*values]}:
            sizes = buckets >= 2 if kind == "hashed" else buckets == 0
            if kind in KINDS and sizes and all(isinstance(value, str) for value in values):
                return Column(name, kind, buckets, tuple(values))
    raise DataError(f"this is no column that jboost has written: {kept!r:.100}")


def _ordinal(name: str, values: Sequence[str]) -> Column:
    values = tuple(values)
    if len(values) < 2 or len(set(values)) < len(values):
        wanted = "at least two different values, the lowest first"
        raise ValueError(f"ordinal[{name!r}] must be {wanted}; got {values!r}")
    return Column(name, "ordinal", values=values)


def _kind(name: str, of: Any, label: str) -> str:
    """What a column of an Arrow type holds."""
    types = extras.need("pyarrow.types", "io")
    if types.is_dictionary(of):
        of = of.value_type
    if types.is_boolean(of):
        return "boolean"
    if any(test(of) for test in (types.is_integer, types.is_floating, types.is_decimal)):
        return "number"
    if types.is_null(of):  # nothing is known of it yet
        return "number"
    if types.is_temporal(of):
        raise DataError(
            f"{label}: the column {name!r} holds dates or times; make numbers of it (an hour, a "
            "weekday, days since a beginning), or drop it"
        )
    if holds_text(of):
        return "hashed"
    raise DataError(f"{label}: the column {name!r} holds {of}, which is neither number nor text")


def holds_text(of: Any) -> bool:
    """Whether an Arrow type is one of text."""
    types = extras.need("pyarrow.types", "io")
    return types.is_string(of) or types.is_large_string(of) or types.is_string_view(of)


def _refuse_numbers(name: str, values: Any, decimal: str | None, target: bool) -> None:
    """A column of text that is mostly numbers has a mistake in it, and is no category."""
    codes, texts = _encoded(values)
    known = np.array([*(text is not None for text in texts), False])[codes]

    def rows(are: Callable[[str], bool]) -> np.ndarray:
        return np.flatnonzero(np.array([*(t is not None and are(t) for t in texts), False])[codes])

    odd = rows(lambda text: not is_number(text, decimal or "."))
    if 0 < 2 * len(odd) < known.sum():
        row = int(odd[0])
        raise DataError(
            f"{texts[codes[row]]!r:.60} is not a number, but most of the column {name!r} are; "
            f"{advice(target)}",
            row,
        )
    other = {".": ",", ",": "."}.get(decimal or "")
    if other is None:
        return
    also = rows(lambda text: other in text and is_number(text, other))
    if 2 * len(also) > known.sum():
        row, sign = int(also[0]), {",": "a comma", ".": "a point"}[other]
        raise DataError(
            f"{texts[codes[row]]!r:.60} in the column {name!r} would be a number if {sign} stood "
            f"before decimals; name the decimal sign, or {advice(target)}",
            row,
        )


def advice(target: bool) -> str:
    """What can be done about a text among numbers: not all of it where it is to be predicted."""
    return "correct it" if target else "correct it, drop the column or declare it a category"


def is_number(text: str, decimal: str = ".") -> bool:
    """Whether a text reads as a real number, with that sign before decimals.

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


def _encoded(values: Any) -> tuple[np.ndarray, list[str | None]]:
    """A column of text as places in a list of texts, −1 where it is missing."""
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    if not pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
        if len(values) <= FEW:
            texts = values.to_pylist()
            return np.array([-1 if t is None else i for i, t in enumerate(texts)]), texts
        values = values.dictionary_encode()
    values = values.unify_dictionaries().combine_chunks()
    codes = compute.fill_null(values.indices, -1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), values.dictionary.cast(pa.string()).to_pylist()


def _fill(x: np.ndarray, column: Column, values: Any) -> None:
    """The columns of x that a column of a table becomes."""
    pa = extras.need("pyarrow", "io")
    if column.kind in ("number", "boolean"):
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.uint8())
        x[:, 0] = values.cast(pa.float64(), safe=False).to_numpy()
        return
    codes, texts = _encoded(values)
    if column.kind == "ordinal":
        place: dict[str | None, int] = {text: i for i, text in enumerate(column.values)}
        odd = [code for code, t in enumerate(texts) if t is not None and t not in place]
        rows = np.flatnonzero(np.isin(codes, odd))  # a text may be listed and not be there
        if len(rows):
            row = int(rows[0])
            text, known = texts[codes[row]], ", ".join(column.values)
            raise DataError(f"{text!r:.60} in the column {column.name!r} is none of {known}", row)
        lookup = np.array([place.get(text, np.nan) for text in texts] + [np.nan])
        x[:, 0] = lookup[codes]
        return
    own = [bucket(column.name, t, column.buckets) if t is not None else -1 for t in texts]
    places = np.array([*own, -1])[codes]
    x[:] = places[:, None] == np.arange(column.buckets)
    x[places < 0] = np.nan
