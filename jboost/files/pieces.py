"""What the readers of files and tables share.

A reader has a ``label`` for errors, the ``names`` of its columns, ``live`` (whether it can only be
read as it comes), ``sample()``, its first rows with types as they look, and
``tables(columns, position)``, the columns used from a row on. Rows come as a :class:`Piece`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jboost.core import checks
from jboost.files.columns import DataError


class Piece(NamedTuple):
    """Rows of a stream as an Arrow table, and where each stands, in words."""

    table: Any
    where: Callable[[int], str]

    def without(self, first: int) -> Piece:
        """The rows after the first ones."""
        if not first:
            return self
        return Piece(self.table.slice(first), lambda row: self.where(first + row))


def refuse_short(label: str, rows: int, position: int) -> None:
    """A stream that ends before the place from which a run is to go on is another stream."""
    if rows < position:
        raise DataError(
            f"{label} has {rows} rows, and the run to go on with had seen {position}: it must be "
            "the same stream from its beginning"
        )


def brief(error: object) -> str:
    """The first line of what another library says of an error."""
    return checks.printable(str(error).partition("\n")[0][:200])
