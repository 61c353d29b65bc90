"""Whatever a stream comes in, as blocks of numbers for :func:`jboost.run_stream`.

    source = sources.read("houses.csv", target="price")
    stream = jb.run_stream(model, source)

Files are read in blocks (:mod:`.delimited`, :mod:`.formats`), tables of pandas, polars
and pyarrow through narwhals, rows of any iterable as they come (:mod:`.tables`). What the
columns are is decided once (:mod:`.columns`); they are found again by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jboost.core import checks
from jboost.core.numerics import LARGEST
from jboost.files import formats
from jboost.files.columns import BUCKETS, Column, Columns, DataError, choose, find
from jboost.files.pieces import refuse_short
from jboost.files.tables import BLOCK, GATHERED, Peeked, Rows, Tables, is_table

Block = tuple[np.ndarray, np.ndarray]
Where = Callable[[int], str]
Blocks = Iterator[tuple[np.ndarray, np.ndarray, Where]]


def read(
    data: Any,
    target: Any = None,
    *,
    columns: Columns | None = None,
    drop: Collection[str] = (),
    category: Collection[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    buckets: int = BUCKETS,
    missing: str = "keep",
    block: int | None = None,
    names: Sequence[str] | None = None,
    **text: Any,
) -> Source:
    """A stream from a file, a table, an array or any iterable of rows.

    Text columns are hashed to ``buckets`` columns each, or numbered in a declared order; dates are
    refused. The result is an iterable of blocks (x, d) and goes to :func:`jboost.run_stream` as it
    is; its ``columns`` say what was decided.

    Args:
      data: the path of a CSV or Parquet file, ``"-"`` for standard input; a pandas, polars or
        pyarrow table; an array or memory map (T, r); or an iterable of rows (dicts or sequences) or
        of tables.
      target: the name of the column to predict; for an array also the targets themselves, (T,).
      columns: those of an earlier source, to read the same from this one whatever its order.
      drop: columns that are no inputs.
      category: columns of numbers that are codes, to be hashed like text.
      ordinal: the values of columns that have an order, from the lowest to the highest.
      buckets: how many columns a hashed one becomes, at least 2.
      missing: what becomes of a row with missing, infinite or absurdly large (1e15) inputs. "keep"
        hands it on, NaN in those places: a model with ``Impute`` fills them in from the past, any
        other skips the row. "skip" takes the answer from it, so that no model learns from it; a run
        counts it. "raise" refuses it, and a row without an answer too.
      block: how many rows make a block, where the source leaves that open. For rows that come
        slowly pass 1.
      names: of the columns of an array, or of rows that are sequences; by default "1", "2", ….
      text: ``delimiter``, ``decimal``, ``encoding`` and ``header`` of a text file, as for
        :class:`jboost.files.delimited.Delimited`.

    Raises:
      DataError: a sentence on what is wrong with the data, and where.
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
    chosen = {"drop": drop, "category": category, "ordinal": ordinal}
    if columns is not None and any(chosen.values()):
        raise ValueError("columns say what is read; give no drop, category or ordinal with them")
    reader = _reader(data, names, block, text)
    if reader is None:
        columns, blocks = _arrays(np.asanyarray(data), target, columns, names, drop, block)
        return Source(columns, blocks, missing, live=False)
    if columns is None:
        first = reader.sample()
        try:
            name = checks.instance("target", target, str, "the name of a column")
            chosen |= {"decimal": getattr(reader, "decimal", None)}  # of text only
            columns = choose(first.table, name, label=reader.label, buckets=buckets, **chosen)
        except DataError as error:
            raise _placed(error, first.where) from None

    return Source(columns, _tables(reader, columns), missing, live=reader.live)


class Source:
    """A stream of blocks (x, d), made by :func:`read`.

    ``source(position)`` is an iterator of the blocks from that row on. Where ``live`` is true the
    stream can only be read as it comes, and is taken to stand at that row.
    """

    def __init__(
        self, columns: Columns, blocks: Callable[[int], Blocks], missing: str, *, live: bool
    ):
        self.columns, self.live = columns, live
        self._blocks, self._missing = blocks, missing

    def __call__(self, position: int) -> Iterator[Block]:
        for x, d, where in self._blocks(position):
            if self._missing != "keep":
                d = self._without_bad(x, d, where)
            yield x, d

    def __iter__(self) -> Iterator[Block]:
        return self(0)

    def _without_bad(self, x: np.ndarray, d: np.ndarray, where: Where) -> np.ndarray:
        """The answers, less those of rows with bad inputs; or no bad value at all."""
        bad = ~(np.abs(x) < LARGEST)  # a comparison with NaN is False
        if self._missing == "skip":
            return np.where(bad.any(axis=1), np.asarray(np.nan, d.dtype), d)
        bad = np.column_stack([bad, ~(np.abs(d) < LARGEST)])
        if bad.any():
            row, place = (int(i) for i in np.argwhere(bad)[0])
            name = [*self.columns.names, self.columns.target][place]
            value = float([*x[row], d[row]][place])
            what = "is missing" if np.isnan(value) else f"{value:g} is beyond 1e15"
            raise DataError(f"{where(row)}: the value of {name!r} {what}")
        return d


def _reader(data: Any, names: Any, block: int | None, text: dict[str, Any]) -> Any:
    """What reads the data as tables; None for an array."""
    if isinstance(data, (str, os.PathLike)):
        return formats.open_file(data, **text)
    if text:
        raise TypeError(f"{next(iter(text))} is for text files; got {type(data).__name__}")
    if is_table(data):
        return Tables(Peeked([data]), block)
    if hasattr(data, "dtype") and hasattr(data, "shape"):
        return None
    if not isinstance(data, Iterable) or isinstance(data, (bytes, Mapping)):
        wanted = "a path, a table, an array, or an iterable of rows or tables"
        raise TypeError(f"data must be {wanted}; got {data!r:.100}")
    items = Peeked(data, block or GATHERED)
    if not items.head:
        raise DataError("the stream has no rows")
    first = items.head[0]
    if is_table(first):
        return Tables(items, block)
    if not isinstance(first, Mapping) and not hasattr(first, "__len__"):
        raise TypeError(f"a row must be a dict or a sequence; got {first!r:.100}")
    return Rows(items, names, block)


def _tables(reader: Any, columns: Columns) -> Callable[[int], Blocks]:
    """What a reader reads, as numbers."""
    dtype = np.dtype(jnp.result_type(float))  # here: it may differ in the thread that reads

    def blocks(position: int) -> Blocks:
        for table, where in reader.tables(columns, position):
            try:
                x, d = columns.encode(table, dtype)
            except DataError as error:
                raise _placed(error, where) from None
            yield x, d, where

    return blocks


def _arrays(
    array: Any, target: Any, columns: Columns | None, names: Any, drop: Any, block: int | None
) -> tuple[Columns, Callable[[int], Blocks]]:
    """An array, read in blocks of rows, with the targets in one of its columns or beside it."""
    checks.real_dtype("data", array, "shape (T, r)")
    if array.ndim != 2:
        raise ValueError(f"data must have shape (T, r); got {array.shape}")
    names = list(names or (str(i) for i in range(1, array.shape[1] + 1)))
    if len(names) != array.shape[1]:
        raise ValueError(f"names must be {array.shape[1]}, one per column; got {len(names)}")
    if target is None and columns is not None:
        target = columns.target
    answers = None if isinstance(target, str) else np.asanyarray(target)
    if answers is not None and answers.shape != array.shape[:1]:
        wanted = f"the name of a column or an array of shape ({len(array)},)"
        raise ValueError(f"target must be {wanted}; got {target!r:.60}")
    own = str(target) if answers is None else "target"
    find(drop, names, "the array")
    if columns is None:
        inputs = (Column(name) for name in names if name not in (*drop, own))
        columns = Columns(own, tuple(inputs))
    find(columns.used[: None if answers is None else -1], names, "the array")
    if answers is None:
        answers = array[:, names.index(columns.target)]
    places = [names.index(column.name) for column in columns.inputs]
    whole = places == list(range(array.shape[1]))

    def blocks(position: int) -> Blocks:
        refuse_short("the array", len(array), position)
        for start in range(position, len(array), block or BLOCK):
            rows = slice(start, start + (block or BLOCK))
            x = array[rows] if whole else array[rows][:, places]
            yield x, answers[rows], lambda row, start=start: f"row {start + row + 1} of the array"

    return columns, blocks


def _placed(error: DataError, where: Where) -> DataError:
    """An error with the place that only the reader of its block knows."""
    return error if error.row is None else DataError(f"{where(error.row)}: {error}")
