"""Turns files, tables, arrays and rows into blocks of numbers for :func:`jboost.run_stream`.

:func:`read` opens the data with a reader (:mod:`.delimited`, :mod:`.tables`), and :mod:`.reader`
decides from the first rows what the columns hold. Each pass over the :class:`Source` reads the data
again, and :mod:`.columns` turns each block of rows into inputs x and targets d.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jboost.core import checks
from jboost.core.numerics import LARGEST
from jboost.files.choice import Wishes, choose_columns
from jboost.files.columns import Column, Columns, DataError, PlaceOf, refuse_unknown
from jboost.files.delimited import Delimited
from jboost.files.dialect import TextFormat
from jboost.files.encoding import BadRows, Encoded, Encoder, Labels
from jboost.files.folder import ParquetFolder
from jboost.files.json_lines import JsonLines
from jboost.files.lines import Text
from jboost.files.predictions import JSON_ENDINGS
from jboost.files.reader import Reader, refuse_short, row_numbers
from jboost.files.tables import BLOCK_ROWS, GATHERED_ROWS, Parquet, Peeked, Rows, Tables, is_table

Numbers = tuple[np.ndarray, np.ndarray]  # the inputs x (n, r) and the targets d (n,) of a block
Blocks = Callable[[int], Iterator[tuple[Encoded, PlaceOf]]]  # the blocks from a row on


def read(
    data: object,
    target: str | ArrayLike | None = None,
    *,
    columns: Columns | None = None,
    drop: Collection[str] = (),
    category: Collection[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    buckets: int | None = None,
    time: str | None = None,
    date_format: str | None = None,
    time_zone: str = "",
    ids: Collection[str] = (),
    missing: str = "keep",
    bad_rows: str | Callable[[str], object] = "raise",
    start: int = 0,
    block: int | None = None,
    names: Sequence[str] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
) -> Source:
    """Make a stream of a file, a table, an array or any iterable of rows.

    The texts of a column get a column of x each, as they appear, and share columns when all are
    taken; or they are numbered in a declared order. Dates and times become cycles and elapsed time,
    as by :class:`jboost.Calendar`. The result is an iterable of blocks (x, d), for
    :func:`jboost.run_stream`.

    Args:
      data: the path of a file of CSV, JSON lines or Parquet, the first two also compressed by gzip
        or zstd; a folder of Parquet files; ``"-"`` for CSV or JSON lines from standard input; a
        pandas, polars or pyarrow table; an array or memory map (T, r); or an iterable of rows
        (dicts or sequences) or of tables.
      target: the name of the column to predict; for an array also the targets themselves, (T,).
      columns: the columns of an earlier source, to read the same columns by name.
      drop: columns that are no inputs.
      category: columns of numbers that are codes, to be treated like text.
      ordinal: the values of columns that have an order, from the lowest to the highest.
      buckets: how many columns a column of text becomes, at least 2; by default as many as the
        first rows have texts, and a few more, at most 64.
      time: the column that says when a row was; by default the first column of dates.
      date_format: how dates are written, such as "%d/%m/%Y %H:%M", where that is not clear.
      time_zone: the clock by which days and weeks are told, where times are in UTC: "Europe/Rome".
      ids: columns that are no inputs, and that label the rows.
      missing: what becomes of a row with missing, infinite or absurdly large (1e15) inputs. "keep"
        leaves them, as NaN where missing: a model with ``Impute`` fills them in from the past, any
        other model skips the row. "skip" makes the target of the row missing too, so that no model
        learns from the row. "raise" refuses the row, and also a row without a target. With "keep" a
        missing text is 0 in all columns of its own.
      bad_rows: what becomes of a row that cannot be read. "raise" refuses it, after the rows before
        it. "skip" makes all of its values missing, and so does a function, which is also called
        with a sentence about each.
      start: the number of the first row in its stream, where a run goes on with new data.
      block: how many rows of a table, an array or an iterable make a block; 1 for slow rows.
      names: the names of the columns of an array or of sequences; by default "1", "2", ….
      delimiter, decimal, encoding, header: see :class:`jboost.files.dialect.TextFormat`.

    Raises:
      DataError: something is wrong with the data; the message says what, and where.
      OSError: the system does not let the file be read.

    >>> rows = [{"a": 1.0, "b": "x", "y": 2.0}, {"a": None, "b": "z", "y": 3.0}]
    >>> source = read(rows, target="y", buckets=2)
    >>> source.columns.names
    ['a', 'b#0', 'b#1']
    >>> [(x.tolist(), d.tolist()) for x, d in source]
    [([[1.0, 1.0, 0.0], [nan, 0.0, 1.0]], [2.0, 3.0])]
    """
    checks.choice("missing", missing, ("keep", "skip", "raise"))
    block = None if block is None else checks.whole("block", block, at_least=1)
    start = checks.whole("start", start, at_least=0)
    say = bad_rows if callable(bad_rows) else None
    if not callable(bad_rows) and checks.choice("bad_rows", bad_rows, ("raise", "skip")) == "skip":
        say = _say_nothing
    policy = BadRows(say)
    wishes = Wishes(drop, category, ordinal or {}, buckets, time, date_format, time_zone, ids)
    if columns is not None and wishes._replace(buckets=None) != Wishes():
        said = "give no drop, category, ordinal, time, date_format, time_zone or ids with them"
        raise ValueError(f"columns say what is read; {said}")
    text_format = TextFormat(delimiter, decimal, encoding, header)
    needed = [name for name in (target, time) if isinstance(name, str)]
    reader = _reader(data, names, block, text_format, policy, {*drop}.difference(needed))
    if reader is None:
        array = np.asanyarray(data)
        return Source(*_from_array(array, target, columns, names, drop, block), missing)
    if columns is None:
        name = checks.instance("target", target, str, "the name of a column")
        columns = choose_columns(reader, name, wishes)
    dtype = np.dtype(jnp.result_type(float))  # here: it may differ in the thread that reads
    encoder = Encoder(columns, dtype, 0.0 if missing == "keep" else np.nan, policy)

    def blocks(position: int) -> Iterator[tuple[Encoded, PlaceOf]]:
        row = position if reader.live else encoder.unseen_before(position)
        row = max(row, start)  # the texts of rows before the data are known
        for raw in reader.blocks(columns, row - start):
            n, before = raw.table.num_rows, min(max(position - row, 0), raw.table.num_rows)
            if before:
                encoder.see(raw._replace(table=raw.table[:before]), row)
                raw = raw.after(before)
            row += before
            if n > before:
                yield encoder.encode(raw, row), raw.place_of
            row += n - before

    return Source(columns, blocks, missing, reader, encoder)


class Source:
    """A stream of blocks (x, d), made by :func:`read`; ``columns`` tells what was decided.

    ``source(position)`` is an iterator of the blocks from the row ``position`` on. A source that is
    ``live`` can be read only once, as the rows come; its next row is taken to be that row.
    """

    def __init__(
        self,
        columns: Columns,
        blocks: Blocks,
        missing: str,
        reader: Reader | None = None,
        encoder: Encoder | None = None,
    ):
        self._columns, self.live = columns, reader is not None and reader.live
        self._blocks, self._missing, self._reader = blocks, missing, reader
        self._encoder = encoder

    @property
    def columns(self) -> Columns:
        """What the columns hold, with the texts that have a column so far."""
        return self._columns if self._encoder is None else self._encoder.columns

    @property
    def is_json(self) -> bool:
        """Whether the data are JSON lines."""
        return isinstance(self._reader, JsonLines)

    @property
    def total(self) -> float | None:
        """How many rows there are in all, as far as what was read tells; None if unknown."""
        return None if self._reader is None else self._reader.total

    def __call__(self, position: int) -> Iterator[Numbers]:
        for x, d, _ in self.labelled(position):
            yield x, d

    def labelled(self, position: int) -> Iterator[Encoded]:
        """Yield blocks (x, d, labels), from the row ``position`` on."""
        for (x, d, labels), place_of in self._blocks(position):
            if self._missing == "raise":
                self._refuse_bad(x, d, labels.bad, place_of)
            elif self._missing == "skip":
                d = np.where(_is_bad(x).any(axis=1), np.asarray(np.nan, d.dtype), d)
            yield Encoded(x, d, labels)

    def __iter__(self) -> Iterator[Numbers]:
        return self(0)

    def _refuse_bad(
        self, x: np.ndarray, d: np.ndarray, left_out: np.ndarray, place_of: PlaceOf
    ) -> None:
        """Refuse a block with an input or a target that is missing or too large."""
        bad = _is_bad(np.column_stack([x, d])) & ~left_out[:, None]
        for row, column in np.argwhere(bad)[:1]:
            name = [*self.columns.names, self.columns.target][column]
            value = float([*x[row], d[row]][column])
            problem = "is missing" if np.isnan(value) else f"{value:g} is beyond 1e15"
            raise DataError(f"{place_of(int(row))}: the value of {name!r} {problem}")


def _say_nothing(_: str) -> None:
    """Leave out a bad row without a word."""


def _is_bad(values: np.ndarray) -> np.ndarray:
    return ~(np.abs(values) < LARGEST)  # a comparison with NaN is False


def _reader(
    data: object,
    names: Sequence[str] | None,
    block: int | None,
    text_format: TextFormat,
    bad_rows: BadRows,
    unread: Collection[str],
) -> Reader | None:
    """Return the reader of the data; None for an array, which needs none.

    Values of columns that are ``unread`` are not needed.
    """
    path = os.fspath(data) if isinstance(data, (str, os.PathLike)) else None
    is_folder = path is not None and path != "-" and os.path.isdir(path)
    if path is not None and not is_folder and not _is_parquet(path):
        text = Text(path, text_format.encoding, tolerant=bad_rows.allowed)
        if not (text.start.lstrip().startswith(b"{") or text.name.endswith(JSON_ENDINGS)):
            return Delimited(text, text_format, bad_rows)
        for option, value in text_format._replace(encoding=None)._asdict().items():
            if value is not None:
                raise ValueError(f"{option} is for CSV, and {text.label} holds JSON lines")
        return JsonLines(text, bad_rows)
    for option, value in text_format._asdict().items():
        if value is not None and path is not None:
            holds = "a folder of Parquet files" if is_folder else "a Parquet file"
            raise ValueError(f"{option} is for text, and {path} is {holds}")
        if value is not None:
            raise TypeError(f"{option} is for text files; got {type(data).__name__}")
    if path is not None:
        return (ParquetFolder if is_folder else Parquet)(path, unread)
    if is_table(data):
        return Tables(Peeked([data]), block)
    if hasattr(data, "dtype") and hasattr(data, "shape"):
        return None
    if not isinstance(data, Iterable) or isinstance(data, (bytes, Mapping)):
        expected = "a path, a table, an array, or an iterable of rows or tables"
        raise TypeError(f"data must be {expected}; got {data!r:.100}")
    items = Peeked(data, block or GATHERED_ROWS)
    if not items.head:
        raise DataError("the stream has no rows")
    first = items.head[0]
    if is_table(first):
        return Tables(items, block)
    if not isinstance(first, Mapping) and not hasattr(first, "__len__"):
        raise TypeError(f"a row must be a dict or a sequence; got {first!r:.100}")
    return Rows(items, names, block)


def _is_parquet(path: str) -> bool:
    if path == "-":  # standard input, which is text
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def _from_array(
    array: np.ndarray,
    target: str | ArrayLike | None,
    columns: Columns | None,
    names: Sequence[str] | None,
    drop: Collection[str],
    block: int | None,
) -> tuple[Columns, Blocks]:
    """Yield the columns and blocks of an array (T, r); the targets are in a column or beside it."""
    checks.real_dtype("data", array, "shape (T, r)")
    if array.ndim != 2:
        raise ValueError(f"data must have shape (T, r); got {array.shape}")
    names = list(names or (str(i) for i in range(1, array.shape[1] + 1)))
    if len(names) != array.shape[1]:
        raise ValueError(f"names must be {array.shape[1]}, one per column; got {len(names)}")
    if columns is None:
        called = target if isinstance(target, str) else "target"
        inputs = (Column(name) for name in names if name not in (*drop, called))
        columns = Columns(called, tuple(inputs))
    elif target is None:
        target = columns.target
    in_column, needed = isinstance(target, str), [column.name for column in columns.inputs]
    refuse_unknown([*drop, *needed, *([columns.target] if in_column else [])], names, "the array")
    targets = array[:, names.index(columns.target)] if in_column else np.asanyarray(target)
    if targets.shape != array.shape[:1]:
        expected = f"the name of a column or an array of shape ({len(array)},)"
        raise ValueError(f"target must be {expected}; got {target!r:.60}")
    indices = [names.index(name) for name in needed]
    all_columns = indices == list(range(array.shape[1]))

    def blocks(position: int) -> Iterator[tuple[Encoded, PlaceOf]]:
        refuse_short("the array", len(array), position)
        for start in range(position, len(array), block or BLOCK_ROWS):
            rows = slice(start, start + (block or BLOCK_ROWS))
            x = array[rows] if all_columns else array[rows][:, indices]
            labels = Labels({}, None, np.zeros(len(x), bool))
            yield Encoded(x, targets[rows], labels), row_numbers("the array", start)

    return columns, blocks
