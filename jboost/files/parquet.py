"""Reads Parquet files of any size."""

import os
from collections.abc import Iterator

import numpy as np

from jboost.checkpoints.atomic import PathLike
from jboost.core import extras
from jboost.files.columns import Columns, DataError, RawBlock, refuse_repeated, refuse_too_many
from jboost.files.kinds import holds_text, refuse_other_columns
from jboost.files.reader import LONGEST_ROW, Reader, first_line, row_numbers

BLOCK_ROWS, BLOCK_NUMBERS, BLOCK_BYTES = 65_536, 2**23, 2**25  # a block has at most as many
SAMPLE_ROWS = 1000


class Parquet(Reader):
    """Reads a Parquet file. The file stays open; each pass reads its row groups from the start."""

    def __init__(self, path: PathLike):
        self.label = os.fspath(path)
        arrow_error = extras.need("pyarrow", "io").ArrowException
        self._errors = (arrow_error, OSError, UnicodeDecodeError)
        parquet = extras.need("pyarrow.parquet", "io")
        try:
            schema = parquet.read_schema(path)
            self._names: list[str] = schema.names
            # A text that is repeated is read once: a small file could otherwise fill any memory.
            texts = [field.name for field in schema if holds_text(field.type)]
            # What is buffered ahead would all be held until the end of the file.
            self._file = parquet.ParquetFile(
                path, read_dictionary=texts, page_checksum_verification=True, pre_buffer=False
            )
        except self._errors as error:
            raise self._damaged(error) from None
        refuse_repeated(self._names, self.label)
        refuse_too_many(len(self._names), self.label)
        metadata = self._file.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self._group_rows = [group.num_rows for group in groups]
        if not (self._names and metadata.num_rows):
            raise DataError(f"{self.label} has no {'rows' if self._names else 'columns'}")
        # The size of a row after decompression, as the file itself claims it.
        longest = max((g.total_byte_size // max(g.num_rows, 1) for g in groups), default=0)
        if longest > LONGEST_ROW:
            sizes = f"{longest // 2**20:,} MB; at most {LONGEST_ROW // 2**20} are read"
            raise DataError(f"{self.label} has rows of {sizes}")
        self._fitting_rows = BLOCK_BYTES // max(longest, 1)

    def sample(self) -> RawBlock:
        rows = min(SAMPLE_ROWS, BLOCK_NUMBERS // len(self._names), self._fitting_rows)
        return next(self._read(self._names, rows))

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        refuse_other_columns(columns, self._file.schema_arrow, self.label)
        ends = np.cumsum(self._group_rows)
        skipped = int(np.searchsorted(ends, position, side="right"))  # row groups before it
        start = sum(self._group_rows[:skipped])
        rows = min(BLOCK_ROWS, BLOCK_NUMBERS // columns.width, self._fitting_rows)
        blocks = self._read([*columns.kinds], rows, skipped, start)
        return self.from_position(blocks, position, start)

    def _read(
        self, names: list[str], size: int, skipped: int = 0, row: int = 0
    ) -> Iterator[RawBlock]:
        """The rows after the skipped row groups, which have ``row`` rows, ``size`` at a time."""
        pa = extras.need("pyarrow", "io")
        groups, total = [*range(skipped, len(self._group_rows))], sum(self._group_rows)
        batches = self._file.iter_batches(max(size, 1), row_groups=groups, columns=names)
        while True:
            try:
                batch = next(batches, None)
                if batch is not None:
                    batch.validate(full=True)  # text may not be in UTF-8
            except self._errors as error:
                raise self._damaged(error, f", from row {row + 1} on") from None
            if batch is None:
                break
            yield RawBlock(pa.Table.from_batches([batch]), row_numbers(self.label, row))
            row += batch.num_rows
        if row != total:
            raise self._damaged(f"it claims {total} rows and holds {row}")

    def _damaged(self, error: object, where: str = "") -> DataError:
        return DataError(f"{self.label}{where} is a damaged Parquet file: {first_line(error)}")
