"""Reads Parquet files of any size."""

import os
from collections.abc import Iterator

from jboost.checkpoints.atomic import PathLike
from jboost.core import extras
from jboost.files.columns import (
    Columns,
    DataError,
    refuse_repeated,
    refuse_too_many,
    refuse_unknown,
)
from jboost.files.kinds import holds_text, refuse_other_kinds
from jboost.files.reader import LONGEST_ROW, RawBlock, Reader, first_line, row_numbers

# A block has at most so many rows, so many numbers and so many bytes.
BLOCK_ROWS = 65_536
BLOCK_NUMBERS = 2**23
BLOCK_BYTES = 2**25
SAMPLE_ROWS = 1000


class Parquet(Reader):
    """Reads a Parquet file. The file stays open; each pass reads its row groups from the start."""

    def __init__(self, path: PathLike):
        self.label = os.fspath(path)
        arrow = extras.need("pyarrow", "io").ArrowException
        self._errors = (arrow, OSError, UnicodeDecodeError)
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
            raise DataError(
                f"{self.label} has rows of {longest // 2**20:,} MB; at most "
                f"{LONGEST_ROW // 2**20} are read"
            )
        self._fitting_rows = BLOCK_BYTES // max(longest, 1)

    def sample(self) -> RawBlock:
        rows = min(SAMPLE_ROWS, BLOCK_NUMBERS // len(self._names), self._fitting_rows)
        return next(self._read(self._names, rows))

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        refuse_unknown(columns.kinds, self._names, self.label)
        refuse_other_kinds(columns, self._file.schema_arrow, self.label)
        skipped, start = (
            0,
            0,
        )  # row groups that end before the position, and their rows
        while skipped < len(self._group_rows) and start + self._group_rows[skipped] <= position:
            start += self._group_rows[skipped]
            skipped += 1
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
