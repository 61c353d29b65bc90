"""The columns of a table: which of them are inputs, what they hold, and what they become.

:mod:`.choice` decides once what they hold, :mod:`.encoding` makes numbers of them. A checkpoint
keeps the decision as JSON, so that a later table is matched by the names of its columns, whatever
their order.

| kind     | the column holds           | it becomes                                              |
|----------|----------------------------|---------------------------------------------------------|
| number   | numbers                    | the same numbers; of durations the seconds              |
| boolean  | true, false                | 1, 0                                                    |
| category | text                       | ``buckets`` columns: 1 in the place of the text, else 0 |
| ordinal  | text with a declared order | the position of the text in that order: 0, 1, …         |
| time     | dates, times, or both      | the columns of :class:`jboost.Calendar`                 |
| hashed   | text, in older checkpoints | a category whose texts have no places of their own      |

The texts of a category get their places in the order in which they appear. When all places are
taken, further texts share them, by their hash. A missing number or time becomes NaN.
"""

from __future__ import annotations

import collections
import difflib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jboost.core import extras
from jboost.transforms import calendar

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS = 16  # places for the texts of a category, where the first rows do not tell how many
MOST_COLUMNS = 16_384  # of a table; a file that claims more is more likely damaged than that wide
MOST_INPUTS = MOST_COLUMNS * BUCKETS  # columns of x: as many as that table has if all are text

NUMERIC = ("number", "boolean")
PLACED = ("category", "hashed")  # become several columns, of which one is 1
KINDS = (*NUMERIC, *PLACED, "ordinal", "time")
PlaceOf = Callable[[int], str]  # says, for an error, where a row of a block stands in the data


class DataError(ValueError):
    """Something is wrong with the data. The message is one sentence that says what, and where.

    ``advice`` on what a user can do follows it, after a semicolon; ``problem`` is without it.
    """

    def __init__(self, problem: str, advice: str = ""):
        super().__init__("; ".join(filter(None, (problem, advice))))
        self.problem = problem


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: str = "number"  # what the column holds; one of KINDS
    buckets: int = 0  # how many columns of x a category becomes; 0 for other kinds
    # Of an ordinal column its texts, the lowest first; of a category those that have a place.
    values: tuple[str, ...] = ()
    format: str = ""  # how times are written: see :mod:`.times`
    zone: str = ""  # the time zone of the clock whose cycles matter; "" where times have none
    cycles: tuple[str, ...] = ()  # what times become, of :data:`.calendar.CYCLES`
    origin: int = 0  # from when on elapsed time counts, in microseconds since 1970
    parts: tuple[str, ...] = ()  # the columns that make this time, where they are several

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the columns of the table that it is read from."""
        return self.parts or (self.name,)

    @property
    def width(self) -> int:
        """How many columns of x the column becomes."""
        return calendar.width(self.cycles) if self.kind == "time" else self.buckets or 1

    @property
    def names(self) -> list[str]:
        """The names of the columns of x that the column becomes."""
        if self.kind == "time":
            return [f"{self.name} {name}" for name in calendar.names(self.cycles)]
        return [f"{self.name}#{bucket}" for bucket in range(self.buckets)] or [self.name]

    def __str__(self) -> str:
        taken, texts = len(self.values), f"text in {self.buckets:,} columns"
        if taken:
            texts += f", {taken:,} of them taken" if taken < self.buckets else ", all taken"
        whole = f"time of {len(self.parts)} columns" if self.parts else "time"
        details = {
            "number": "",
            "boolean": " (true or false)",
            "category": f" ({texts})",
            "hashed": f" (text, hashed to {self.buckets} columns)",
            "ordinal": f" (ordinal: {' < '.join(self.values)})",
            "time": f" ({whole}, {self.format}: {', '.join(self.cycles)}, in {self.width} columns)",
        }
        return self.name + details[self.kind]


class RawBlock(NamedTuple):
    """A block of rows as they were read, before they become numbers."""

    table: pa.Table
    place_of: PlaceOf  # of the rows of the table
    bad: tuple[int, ...] = ()  # rows that could not be read; all of their values are missing

    def after(self, rows: int) -> RawBlock:
        """Return the block without its first rows."""
        bad = tuple(row - rows for row in self.bad if row >= rows)
        return RawBlock(self.table.slice(rows), lambda row: self.place_of(row + rows), bad)


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are read."""

    target: str  # the name of the column to predict
    inputs: tuple[Column, ...]  # in the order in which a model sees them
    time: Column | None = None  # the time of a row, which may be an input or not
    step: int = 0  # from one row to the next, in microseconds; 0 where the rows show no step
    ids: tuple[str, ...] = ()  # columns that are carried from the rows to their predictions
    # How many rows the texts of the categories come from. All rows count for a checkpoint.
    seen: int = 0
    notes: tuple[str, ...] = ()  # what a user should know of the choice, a sentence each

    def __post_init__(self) -> None:
        if self.width > MOST_INPUTS:
            limit = f"at most {MOST_INPUTS:,} are read"
            advice = "drop some columns, or give text fewer columns by --buckets"
            raise DataError(f"the inputs become {self.width:,} columns; {limit}: {advice}")

    @property
    def width(self) -> int:
        """How many columns x has."""
        return sum(column.width for column in self.inputs)

    @property
    def names(self) -> list[str]:
        """The names of the columns of x.

        >>> Columns("y", (Column("a"), Column("b", "category", buckets=2))).names
        ['a', 'b#0', 'b#1']
        """
        return [name for column in self.inputs for name in column.names]

    @property
    def groups(self) -> tuple[int, ...]:
        """For each column of x the number of the input that it was made of.

        >>> Columns("y", (Column("a"), Column("b", "category", buckets=2))).groups
        (0, 1, 1)
        """
        return tuple(i for i, column in enumerate(self.inputs) for _ in range(column.width))

    @property
    def labels(self) -> list[str]:
        """The names of the columns that label the rows: the time, and the ids."""
        return [*dict.fromkeys((*(self.time.sources if self.time else ()), *self.ids))]

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of all columns that are read, by name; the last is the target, of numbers.

        What is only carried through has the kind "label".
        """
        kinds = dict.fromkeys(self.ids, "label")
        if self.time is not None:
            kinds |= dict.fromkeys(self.time.sources, "time")
        kinds |= {name: column.kind for column in self.inputs for name in column.sources}
        kinds.pop(self.target, None)
        return kinds | {self.target: "number"}

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
            case {"target": str(target), "inputs": [*inputs], **rest} if inputs:
                columns = tuple(_column_from_dict(column) for column in inputs)
                time = rest.get("time")
                step, seen = (rest.get(name, 0) for name in ("step", "seen"))
                ids, notes = (rest.get(name, ()) for name in ("ids", "notes"))
                texts = isinstance(ids, (list, tuple)) and isinstance(notes, (list, tuple))
                texts = texts and all(isinstance(text, str) for text in (*ids, *notes))
                if texts and all(isinstance(n, int) and n >= 0 for n in (step, seen)):
                    labelled = None if time is None else _column_from_dict(time)
                    fields = labelled, step, tuple(ids), seen, tuple(notes)
                    return cls(target, columns, *fields)
        raise DataError(f"these are no columns that jboost has written: {described!r:.100}")


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
    indices = values.indices.cast(pa.int64())  # they may be unsigned
    codes = compute.fill_null(indices, -1).to_numpy(zero_copy_only=False)
    return codes, values.dictionary.cast(pa.string()).to_pylist()


def _column_from_dict(described: object) -> Column:
    match described:
        case {
            "name": str(name),
            "kind": str(kind),
            "buckets": int(buckets),
            "values": [*values],
            **rest,
        }:
            found = [rest.get(field, default) for field, default in _TIME_FIELDS.items()]
            form, zone, cycles, origin, parts = found
        case _:
            raise _no_column(described)
    typed = isinstance(form, str) and isinstance(zone, str) and isinstance(origin, int)
    listed = isinstance(cycles, (list, tuple)) and {*cycles} <= {*calendar.CYCLES}
    listed = listed and isinstance(parts, (list, tuple)) and (kind == "time" or not parts)
    texts = all(isinstance(value, str) for value in (*values, *(parts if listed else ())))
    size_fits = buckets >= 2 if kind in PLACED else buckets == 0
    fits = kind != "category" or len({*values}) == len(values) <= buckets
    cyclic = bool(form and cycles) == (kind == "time")
    if not (kind in KINDS and typed and listed and texts and size_fits and fits and cyclic):
        raise _no_column(described)
    lists = tuple(cycles), origin, tuple(parts)
    return Column(name, kind, buckets, tuple(values), form, zone, *lists)


_TIME_FIELDS: dict[str, Any] = {"format": "", "zone": "", "cycles": (), "origin": 0, "parts": ()}


def _no_column(described: object) -> DataError:
    return DataError(f"this is no column that jboost has written: {described!r:.100}")
