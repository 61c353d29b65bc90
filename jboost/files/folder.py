"""Reads a folder of Parquet files as one file, in the order of their names."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from jboost.files.columns import Columns, DataError, RawBlock
from jboost.files.reader import Reader, refuse_short
from jboost.files.tables import Parquet


class ParquetFolder(Reader):
    """Reads the Parquet files of a folder; names that begin with a dot or _ do not count."""

    def __init__(self, path: str, unread: Collection[str] = ()):
        self.label = path
        names = sorted(name for name in os.listdir(path) if name.endswith(".parquet"))
        self._paths = [os.path.join(path, name) for name in names if name[0] not in "._"]
        if not self._paths:
            raise DataError(f"{path} is a folder without Parquet files; name a file in it")
        self._first = Parquet(self._paths[0], unread)
        self._rows = [int(Parquet(file).total or 0) for file in self._paths]
        self.total = sum(self._rows)

    def sample(self) -> RawBlock:
        return self._first.sample()

    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        refuse_short(self.label, sum(self._rows), position)
        for path, rows in zip(self._paths, self._rows, strict=True):
            if position < rows:
                file = self._first if path == self._paths[0] else Parquet(path)
                yield from file.blocks(columns, position)
            position = max(position - rows, 0)
