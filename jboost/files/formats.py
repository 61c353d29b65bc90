"""Files of any size as Arrow tables: Parquet, and the choice between it and text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from jboost import extras
from jboost.checkpoints.atomic import PathLike
from jboost.files.columns import MOST, Columns, DataError, find, refuse_other_kinds
from jboost.files.delimited import Delimited
from jboost.files.pieces import Piece, brief, refuse_short

BATCH = 65_536  # rows read at once
SAMPLE = 1000  # rows looked at to tell what a text column holds


def open_file(path: PathLike, **options: Any) -> Delimited | Parquet:
    """The reader of a file, by its first bytes; ``-`` is standard input.

    ``options`` are those of :class:`~jboost.files.delimited.Delimited`.
    """
    name = os.fspath(path)
    if name == "-":
        return Delimited(path, **options)
    if os.path.isdir(path):
        raise DataError(f"{name} is a folder; name a file in it")
    with open(path, "rb") as file:
        parquet = file.read(4) == b"PAR1"
    if not parquet:
        return Delimited(path, **options)
    given = next((option for option, value in options.items() if value is not None), None)
    if given:
        raise ValueError(f"{given} is for text, and {name} is a Parquet file")
    return Parquet(path)


class Parquet:
    """A reader of a Parquet file, a batch at a time."""

    live = False

    def __init__(self, path: PathLike):
        self.label = os.fspath(path)
        self._errors = (extras.need("pyarrow", "io").ArrowException, OSError)
        parquet = extras.need("pyarrow.parquet", "io")
        try:
            self._file = parquet.ParquetFile(path)
        except self._errors as error:
            raise self._damaged(error) from None
        self.names: list[str] = self._file.schema_arrow.names
        if len(self.names) > MOST:
            raise DataError(
                f"{self.label} has {len(self.names):,} columns; at most {MOST:,} are read"
            )
        if not self._file.metadata.num_rows:
            raise DataError(f"{self.label} has no rows")

    def sample(self) -> Piece:
        """The first rows."""
        return next(self._batches([*range(self._file.num_row_groups)], self.names, 0, SAMPLE))

    def tables(self, columns: Columns, position: int) -> Iterator[Piece]:
        """The columns used, from a row on."""
        find(columns.used, self.names, self.label)
        refuse_other_kinds(columns, self._file.schema_arrow, self.label)
        sizes = [
            self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)
        ]
        refuse_short(self.label, sum(sizes), position)
        row, groups = 0, [*range(len(sizes))]
        while groups and row + sizes[groups[0]] <= position:
            row += sizes[groups.pop(0)]
        for piece in self._batches(groups, columns.used, row, BATCH):
            skipped = min(max(position - row, 0), piece.table.num_rows)
            row += piece.table.num_rows
            yield piece.without(skipped)

    def _batches(self, groups: list[int], names: list[str], row: int, size: int) -> Iterator[Piece]:
        pa = extras.need("pyarrow", "io")
        batches = self._file.iter_batches(size, row_groups=groups, columns=names)
        while True:
            try:
                batch = next(batches, None)
            except self._errors as error:
                raise self._damaged(error, f", from row {row + 1} on") from None
            if batch is None:
                return
            first = row

            def where(row: int, first: int = first) -> str:
                return f"{self.label}, row {first + row + 1}"

            yield Piece(pa.Table.from_batches([batch]), where)
            row += batch.num_rows

    def _damaged(self, error: Exception, place: str = "") -> DataError:
        return DataError(f"{self.label}{place} is a damaged Parquet file: {brief(error)}")
