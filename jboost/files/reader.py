"""The base class of the readers: each reads one kind of data, block by block, as Arrow tables."""

import abc
from collections.abc import Callable, Iterable, Iterator

from jboost.core import checks
from jboost.files.columns import Columns, DataError, RawBlock

LONGEST_ROW = 2**24  # bytes; a longer row is a sign of a damaged file


class Reader(abc.ABC):
    """Reads data of one kind."""

    label: str  # what errors call the data
    live: bool = False  # whether the data can only be read once, as they come: standard input
    decimal: str | None = None  # the sign before decimals in a text; None for other data

    @abc.abstractmethod
    def sample(self) -> RawBlock:
        """The first rows, with all columns, each of the Arrow type that its values look like."""

    @abc.abstractmethod
    def blocks(self, columns: Columns, position: int) -> Iterator[RawBlock]:
        """The rows from ``position`` on, with the columns used; live data go on where they are."""

    def from_position(
        self, blocks: Iterable[RawBlock], position: int, start: int = 0
    ) -> Iterator[RawBlock]:
        """The rows from ``position`` on of blocks whose first row has the number ``start``."""
        for block in blocks:
            end = start + block.table.num_rows
            if end > position:
                yield block.without(max(position - start, 0))
            start = end
        refuse_short(self.label, start, position)


def refuse_short(label: str, rows: int, position: int) -> None:
    """Refuse data with fewer rows than the run to go on with has seen: it is another stream."""
    if rows < position:
        raise DataError(
            f"{label} has {rows} rows, and the run to go on with had seen {position}: it must be "
            "the same stream from its beginning"
        )


def row_numbers(label: str, start: int) -> Callable[[int], str]:
    """The ``place_of`` of a block whose first row is the row ``start`` of the data, from 0."""
    return lambda row: f"row {start + row + 1} of {label}"


def first_line(error: object) -> str:
    """The first line of another library's error message, without control characters."""
    return checks.printable(str(error).partition("\n")[0][:200])
