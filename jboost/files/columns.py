"""The columns of a table: which of them are inputs, what they hold, and the numbers they become.

:mod:`.reader` decides once what they hold. A checkpoint keeps the decision as JSON, so that a later
table is matched by the names of its columns, whatever their order.

| kind    | the column holds           | it becomes                                               |
|---------|----------------------------|----------------------------------------------------------|
| number  | numbers                    | the same numbers                                         |
| boolean | true, false                | 1, 0                                                     |
| hashed  | text                       | ``buckets`` columns: 1 in the bucket of the text, else 0 |
| ordinal | text with a declared order | the position of the text in that order: 0, 1, …          |

A missing value becomes NaN in all columns of x that its column becomes. The encodings hold no
state: the numbers of a text depend neither on the order of the rows nor on where a stream was cut.
"""

from __future__ import annotations

import collections
import difflib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from jboost.core import extras

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS = 16  # of a hashed column: with 5 texts, each has a bucket for itself about half the time
MOST_COLUMNS = 16_384  # of a table; a file that claims more is more likely damaged than that wide
MOST_INPUTS = MOST_COLUMNS * BUCKETS  # columns of x: as many as that table has if all are hashed

NUMERIC = ("number", "boolean")
KINDS = (*NUMERIC, "hashed", "ordinal")
PlaceOf = Callable[[int], str]  # says, for an error, where a row of a block stands in the data


class DataError(ValueError):
    """Something is wrong with the data. The message is one sentence that says what, and where."""


@dataclass(frozen=True)
class Column:
    """An input column of a table."""

    name: str
    kind: str = "number"  # what the column holds; one of KINDS
    buckets: int = 0  # how many columns of x a hashed column becomes; 0 for other kinds
    values: tuple[str, ...] = ()  # the texts of an ordinal column, the lowest first

    @property
    def width(self) -> int:
        """How many columns of x the column becomes."""
        return self.buckets or 1

    @property
    def names(self) -> list[str]:
        """The names of the columns of x that the column becomes."""
        return [f"{self.name}#{bucket}" for bucket in range(self.buckets)] or [self.name]

    def __str__(self) -> str:
        details = {
            "number": "",
            "boolean": " (true or false)",
            "hashed": f" (text, hashed to {self.buckets} columns)",
            "ordinal": f" (ordinal: {' < '.join(self.values)})",
        }
        return self.name + details[self.kind]


class RawBlock(NamedTuple):
    """A block of rows as they were read, before they become numbers."""

    table: pa.Table
    place_of: PlaceOf  # of the rows of the table


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are read."""

    target: str  # the name of the column to predict
    inputs: tuple[Column, ...]  # in the order in which a model sees them

    def __post_init__(self) -> None:
        if self.width > MOST_INPUTS:
            limit = f"at most {MOST_INPUTS:,} are read"
            advice = "drop some columns, or hash text to fewer buckets"
            raise DataError(f"the inputs become {self.width:,} columns; {limit}: {advice}")

    @property
    def width(self) -> int:
        """How many columns x has."""
        return sum(column.width for column in self.inputs)

    @property
    def names(self) -> list[str]:
        """The names of the columns of x.

        >>> Columns("y", (Column("a"), Column("b", "hashed", buckets=2))).names
        ['a', 'b#0', 'b#1']
        """
        return [name for column in self.inputs for name in column.names]

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of all columns that are read, by name; the last is the target, of numbers."""
        return {column.name: column.kind for column in self.inputs} | {self.target: "number"}

    def as_dict(self) -> dict[str, Any]:
        """Return a dict that JSON can hold; :meth:`from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, described: object) -> Columns:
        """Return the columns that :meth:`as_dict` described; a dict from a file may be wrong.

        >>> columns = Columns("y", (Column("a", "ordinal", values=("low", "high")),))
        >>> Columns.from_dict(columns.as_dict()) == columns
        True
        """
        match described:
            case {"target": str(target), "inputs": [*inputs]} if inputs:
                return cls(target, tuple(_column_from_dict(column) for column in inputs))
        raise DataError(f"these are no columns that jboost has written: {described!r:.100}")

    def encode(self, block: RawBlock, dtype: DTypeLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs x (n, width) and targets d (n,) of a block that has these columns."""
        x = np.empty((block.table.num_rows, self.width), dtype)
        d = np.empty((block.table.num_rows, 1), dtype)
        start = 0
        with np.errstate(all="ignore"):  # a number too large for float32 becomes infinite
            for column in self.inputs:
                end = start + column.width
                _fill(x[:, start:end], column, block)
                start = end
            _fill(d, Column(self.target), block)
        return x, d[:, 0]


def refuse_unknown(names: Iterable[str], available: Sequence[str], label: str) -> None:
    """Refuse names that are no columns of the table, and suggest the likeliest column meant."""
    existing = set(available)
    for name in (name for name in names if name not in existing):
        lowered = {column.lower(): column for column in available}
        near = difflib.get_close_matches(str(name).lower(), lowered, n=1)
        shown = ", ".join(map(repr, available[:8])) + (", …" if len(available) > 8 else "")
        hint = f"did you mean {lowered[near[0]]!r}?" if near else f"it has {shown}"
        raise DataError(f"{label} has no column {name!r}; {hint}")


def refuse_names(names: Sequence[str], label: str) -> None:
    """Refuse more columns than are read, and two columns of one name."""
    if len(names) > MOST_COLUMNS:
        raise DataError(f"{label} has {len(names):,} columns; at most {MOST_COLUMNS:,} are read")
    for name, times in collections.Counter(names).most_common(1):
        if times > 1:
            raise DataError(f"{label} has two columns called {name!r}")


def bucket(name: str, text: str, buckets: int) -> int:
    """Return the bucket of a text in a column: the same in every run and on every machine.

    >>> bucket("city", "Ankara", 16), bucket("city", "Izmir", 16), bucket("code", "Ankara", 16)
    (2, 7, 0)
    """
    digest = hashlib.blake2b(f"{name}\0{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % buckets


def text_codes(values: pa.ChunkedArray) -> tuple[np.ndarray, list[str | None]]:
    """Return a column of text as codes and texts: row i holds ``texts[codes[i]]``.

    The code of a missing value is −1. ``texts`` may hold texts, and None, that no row has.
    """
    pa, compute = extras.need("pyarrow", "io"), extras.need("pyarrow.compute", "io")
    if not pa.types.is_dictionary(values.type):
        values = values.cast(pa.string()).dictionary_encode()
    values = values.unify_dictionaries().combine_chunks()
    codes = compute.fill_null(values.indices, -1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), values.dictionary.cast(pa.string()).to_pylist()


def _column_from_dict(described: object) -> Column:
    match described:
        case {"name": str(name), "kind": str(kind), "buckets": int(buckets), "values": [*values]}:
            size_fits = buckets >= 2 if kind == "hashed" else buckets == 0
            if kind in KINDS and size_fits and all(isinstance(value, str) for value in values):
                return Column(name, kind, buckets, tuple(values))
    raise DataError(f"this is no column that jboost has written: {described!r:.100}")


def _fill(x: np.ndarray, column: Column, block: RawBlock) -> None:
    """Fill x, the columns that a column of the block becomes."""
    pa = extras.need("pyarrow", "io")
    values = block.table.column(column.name)
    if column.kind in NUMERIC:
        x[:, 0] = values.cast(pa.float64(), safe=False).to_numpy()
        return
    codes, texts = text_codes(values)  # below, the code −1 takes the last of an array
    if column.kind == "ordinal":
        ranks_of = {text: rank for rank, text in enumerate((*column.values, None))}
        ranks = np.array([*(ranks_of.get(text, -1) for text in texts), ranks_of[None]])[codes]
        for row in np.flatnonzero(ranks < 0)[:1]:
            value = f"{texts[codes[row]]!r:.60} in the column {column.name!r}"
            order = ", ".join(column.values)
            raise DataError(f"{block.place_of(int(row))}: {value} is none of {order}")
        x[:, 0] = np.where(ranks == ranks_of[None], np.nan, ranks)
        return
    hashes = [-1 if text is None else bucket(column.name, text, column.buckets) for text in texts]
    buckets = np.array([*hashes, -1])[codes]
    x[:] = buckets[:, None] == np.arange(column.buckets)
    x[buckets < 0] = np.nan
