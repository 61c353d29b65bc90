"""Files of any size as Arrow tables: Parquet, and the choice between it and text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from jboost.checkpoints.atomic import PathLike
from jboost.core import extras
from jboost.files.columns import (
    MOST,
    Columns,
    DataError,
    find,
    holds_text,
    refuse_other_kinds,
    refuse_twice,
)
from jboost.files.delimited import LONGEST, Delimited
from jboost.files.pieces import Piece, brief, refuse_short

BATCH = 65_536  # rows read at once, fewer where they would be
NUMBERS = 2**23  # more numbers or
BYTES = 2**25  # more bytes than this
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
        arrow = extras.need("pyarrow", "io").ArrowException
        self._errors = (arrow, OSError, UnicodeDecodeError)
        parquet = extras.need("pyarrow.parquet", "io")
        try:
            schema = parquet.read_schema(path)
            self.names: list[str] = schema.names
            # A text that is repeated is read once: a small file could otherwise fill any memory.
            texts = [field.name for field in schema if holds_text(field.type)]
            # What is buffered ahead is kept to the end of the file, all of it.
            self._file = parquet.ParquetFile(
                path, read_dictionary=texts, page_checksum_verification=True, pre_buffer=False
            )
        except self._errors as error:
            raise self._damaged(error) from None
        refuse_twice(self.names, self.label)
        if len(self.names) > MOST:
            raise DataError(
                f"{self.label} has {len(self.names):,} columns; at most {MOST:,} are read"
            )
        if not (self.names and self._file.metadata.num_rows):
            raise DataError(f"{self.label} has no {'rows' if self.names else 'columns'}")
        widest = max(self._row_sizes(), default=0)
        if widest > LONGEST:
            wrong = f"has rows of {widest // 2**20:,} MB; at most {LONGEST // 2**20} are read"
            raise DataError(f"{self.label} {wrong}")
        self._long = BYTES // max(widest, 1)

    def sample(self) -> Piece:
        """The first rows."""
        groups = [*range(self._file.num_row_groups)]
        rows = max(min(SAMPLE, NUMBERS // len(self.names), self._long), 1)
        first = next(self._batches(groups, self.names, 0, rows), None)
        if first is None:
            raise self._damaged("it claims rows and holds none")
        return first

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
        rows = max(min(BATCH, NUMBERS // columns.width, self._long), 1)
        for piece in self._batches(groups, columns.used, row, rows):
            skipped = min(max(position - row, 0), piece.table.num_rows)
            row += piece.table.num_rows
            yield piece.without(skipped)
        if row != sum(sizes):
            raise self._damaged(f"it claims {sum(sizes)} rows and holds {row}")

    def _row_sizes(self) -> Iterator[int]:
        """What a row of each group takes when it is unpacked, by what the file says of itself."""
        for i in range(self._file.num_row_groups):
            group = self._file.metadata.row_group(i)
            yield group.total_byte_size // max(group.num_rows, 1)

    def _batches(self, groups: list[int], names: list[str], row: int, size: int) -> Iterator[Piece]:
        pa = extras.need("pyarrow", "io")
        batches = self._file.iter_batches(size, row_groups=groups, columns=names)
        while True:
            try:
                batch = next(batches, None)
                if batch is not None:
                    batch.validate(full=True)  # text may not be in UTF-8
            except self._errors as error:
                raise self._damaged(error, f", from row {row + 1} on") from None
            if batch is None:
                return
            first = row

            def where(row: int, first: int = first) -> str:
                return f"{self.label}, row {first + row + 1}"

            yield Piece(pa.Table.from_batches([batch]), where)
            row += batch.num_rows

    def _damaged(self, error: object, place: str = "") -> DataError:
        return DataError(f"{self.label}{place} is a damaged Parquet file: {brief(error)}")
