"""Makes numbers of the rows of requests, as :mod:`jboost.files` makes them of the rows of a file.

The first rows to come fix the columns, unless a kept run has them. A text gets its place when a row
with it is learned, so that x is that of a file which has the rows in the order of their answers.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from jboost.core import extras
from jboost.core.numerics import LARGEST
from jboost.files import time_formats
from jboost.files.choice import describe
from jboost.files.columns import NUMERIC, Column, Columns, DataError, RawBlock, refuse_unknown
from jboost.files.encoding import BadRows, Encoder
from jboost.files.times import EPOCHS, TYPED
from jboost.serving.refusal import bad
from jboost.serving.rows import LONGEST_NAME, Features, is_text, shown

if TYPE_CHECKING:
    import pyarrow as pa

LABEL = "the request"  # what errors call the rows
TIME = "time"  # what the column of times is called, where no run has named it
REAL = frozenset({float, int, bool, type(None)})


class Numbers(NamedTuple):
    """Rows as numbers."""

    columns: Columns  # with the places of all texts so far
    x: np.ndarray  # (n, width)
    instants: np.ndarray | None  # (n,) times of the rows, datetime64[us]
    wall: np.ndarray | None = None  # (n,) the same as a clock on the wall shows them


def fixed(rows: Sequence[Features], target: str, most: int, key: str | None = None) -> Columns:
    """Return the columns that the first rows show.

    ``most`` is how many there may be; the column ``key`` names the stream of a row, and is no
    input.
    """
    names = [*dict.fromkeys(name for features in rows for name in features if name != key)]
    if not names:
        raise bad("features must have at least one column; the first request fixes the columns")
    if len(names) > most:
        raise bad(f"a row may have {most:,} features; got {len(names):,}")
    for name in names:
        if not 0 < len(name) <= LONGEST_NAME or not is_text(name) or not name.isprintable():
            expected = f"1 to {LONGEST_NAME} printable characters"
            raise bad(f"the name of a column must have {expected}; got {shown(name)}")
    if target in names:
        raise bad(f"{shown(target)} is the target: send it as the answer, not as a feature")
    try:
        inputs = [_recognised(name, [features.get(name) for features in rows]) for name in names]
    except DataError as error:
        raise bad(str(error)) from None
    time = next((c for c in inputs if c.name == TIME and c.kind == "time"), None)
    time = time or next((c for c in inputs if c.kind == "time" and c.cycles != ("day",)), None)
    return Columns(target, tuple(inputs), time, ids=() if key is None else (key,))


def _recognised(name: str, values: list[Any]) -> Column:
    pa = extras.need("pyarrow", "io")
    kinds = {type(value) for value in values} - {type(None)}
    if str in kinds and len(kinds) > 1:
        raise bad(f"the values of {shown(name)} must be all numbers or all texts")
    try:
        whole = kinds == {int}
        arrow = pa.string() if kinds == {str} else pa.bool_() if kinds == {bool} else pa.float64()
        column = pa.chunked_array([pa.array(values, pa.int64() if whole else arrow)])
    except (pa.ArrowException, OverflowError):
        raise bad(f"a value of {shown(name)} is too large for a number") from None
    time = time_formats.recognise(name, column, None, "", False, LABEL)
    return time or describe(name, column, LABEL)


def refuse_other(allowed: Set[str], target: str, rows: Sequence[Features]) -> None:
    """Refuse features that are not allowed."""
    for features in rows:
        if not features.keys() <= allowed:
            if target in features:
                raise bad(f"{shown(target)} is the target: send it as the answer")
            odd = next(name for name in features if name not in allowed)
            try:
                refuse_unknown([shown(odd)[1:-1]], [*allowed], "the model")
            except DataError as error:
                raise bad(str(error)) from None


def numbers(
    columns: Columns,
    rows: Sequence[Features],
    dtype: DTypeLike,
    *,
    gaps: bool,
    plain: list[str] | None = None,
) -> Numbers:
    """Return rows as numbers.

    ``gaps`` says whether values may be missing; ``plain`` is what :func:`plain_names` returned.
    """
    if plain is not None:
        x, after, instants, wall = _plain(plain, rows, dtype), columns, None, None
    else:
        encoder = Encoder(columns, dtype, 0.0 if gaps else np.nan, BadRows(None))
        try:
            table = _table(columns, rows)
            found = encoder.encode(RawBlock(table, _place_of(rows)), columns.seen)
        except DataError as error:
            raise bad(error.problem) from None
        x, after = found.x, encoder.columns
        instants, wall = found.labels.instants, found.labels.wall
    if not gaps and not (usable := np.abs(x) < LARGEST).all():
        name = columns.names[int(np.argmin(usable.all(axis=0)))]
        raise bad(f"this model takes no missing or unusable values; there is one in {shown(name)}")
    return Numbers(after, x, instants, wall)


def _place_of(rows: Sequence[Features]) -> Any:
    return (lambda row: f"row {row + 1}") if len(rows) > 1 else (lambda row: LABEL)


def plain_names(columns: Columns) -> list[str] | None:
    """Return the names of the columns if all of them hold numbers, None otherwise."""
    if columns.time is None and all(column.kind in NUMERIC for column in columns.inputs):
        return [column.name for column in columns.inputs]
    return None


def _plain(names: list[str], rows: Sequence[Features], dtype: DTypeLike) -> np.ndarray:
    """Return rows of numbers only."""
    values = [[*map(features.get, names)] for features in rows]
    if not REAL.issuperset(map(type, chain.from_iterable(values))):  # NumPy would read texts
        for row in values:
            _refuse_text(dict(zip(names, row, strict=True)))
    try:
        x = np.array(values, np.float64)
    except OverflowError:
        raise bad("a number is too large: numbers go up to 1.8e308") from None
    with np.errstate(all="ignore"):  # a number too large for float32 becomes infinite
        return x.astype(dtype)


def _refuse_text(features: Features) -> None:
    for name, value in features.items():
        if type(value) not in REAL:
            raise bad(f"{shown(name)} must be a number or null; got {shown(value)}")


def _table(columns: Columns, rows: Sequence[Features]) -> pa.Table:
    """Return rows as the Arrow table that :class:`Encoder` takes."""
    pa = extras.need("pyarrow", "io")
    by_source = {name: column for column in columns.inputs for name in column.sources}
    if columns.time is not None:
        by_source |= {name: columns.time for name in columns.time.sources}
    arrays = {}
    for name, column in by_source.items():
        values = [features.get(name) for features in rows]
        try:
            arrays[name] = _array(name, column, values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            odd = next((v for v in values if v is not None), None)
            expected = "a time" if column.kind == "time" else "a number"
            raise bad(
                f"{shown(name)} must be {expected}; got such values as {shown(odd)}"
            ) from None
    for name in columns.ids:
        arrays.setdefault(name, pa.nulls(len(rows), pa.string()))
    return pa.table(arrays)


def _array(name: str, column: Column, values: list[Any]) -> pa.Array:
    pa = extras.need("pyarrow", "io")
    kinds = {type(value) for value in values} - {type(None)}
    if column.kind in NUMERIC:
        if str in kinds:
            raise TypeError
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if column.kind != "time":
        return pa.array([_as_text(value) for value in values], pa.string())
    if column.format == TYPED:
        times = [None if v is None else datetime.datetime.fromisoformat(v) for v in values]
        zoned = any(time is not None and time.tzinfo is not None for time in times)
        return pa.array(times, pa.timestamp("us", "UTC" if zoned else None))
    if column.format in EPOCHS and str not in kinds:
        return pa.array(values, pa.int64() if kinds <= {int} else pa.float64())
    return pa.array([_as_text(value) for value in values], pa.string())


def _as_text(value: Any) -> str | None:
    """Return the text of a category; a number or a truth value is written as in a file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, str) else str(value)
