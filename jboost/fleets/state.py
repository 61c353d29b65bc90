"""The state of a fleet: which names there are, and where the states of their streams lie."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from jboost.fleets.directory import Directory
from jboost.fleets.names import Names, hashes
from jboost.fleets.streams import Streams
from jboost.fleets.versions import Version

_mark = itertools.count(1)  # a new number for every change of a shard
SHARD_BYTES = 2**23  # of the states in a shard: quick to write, and few files for many streams


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class FleetState:
    """All streams of a fleet at one time. It does not change: a run returns another one."""

    directory: Directory  # names and their numbers; it may hold names of later states too
    count: int  # how many of the names are streams of this state
    rows: int  # how many rows have been run
    position: Any  # what was saved with this state as the position of the input; else None
    streams: Streams  # the states, in several versions
    version: Version  # the version of this state
    marks: np.ndarray  # (shards,), a number for each shard, another one after each change
    columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # as the position

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"FleetState({self.count:,} streams, {self.rows:,} rows)"

    def replace(self, **fields: Any) -> FleetState:
        """Return this state with other values of some fields."""
        return dataclasses.replace(self, **fields)

    def with_streams(self, names: Names, words: np.ndarray, most: int) -> FleetState:
        """Return a state with more streams, all different, whose packed states are known.

        They are written ``most`` at a time.
        """
        directory, count, marks, hashed = self.directory, self.count, self.marks, hashes(names)
        with self.streams.arrays.changing(self.version) as change:
            for first in range(0, len(names), most):
                chunk = slice(first, first + most)
                directory, numbers = directory.including(names.take(chunk), hashed[chunk], count)
                if len(np.unique(numbers)) < len(numbers) or (numbers < count).any():
                    raise ValueError("names must all be different")
                count += len(numbers)
                self.streams.write(change, numbers, words[chunk], count)
                marks = marked(marks, numbers, count, self.streams.width)
        version = change.version
        return FleetState(directory, count, self.rows, None, self.streams, version, marks)

    @property
    def nbytes(self) -> int:
        """How many bytes the states and the names of all streams take."""
        return self.count * 4 * self.streams.width + self.directory.nbytes

    @property
    def words(self) -> np.ndarray:
        """The packed states of all streams, (count, width), in the order of their names."""
        with self.streams.arrays.reading(self.version):
            return self.streams.read(np.arange(self.count))


def marked(marks: np.ndarray, numbers: np.ndarray, count: int, width: int) -> np.ndarray:
    """Return the marks of the shards of ``count`` streams; those of ``numbers`` have a new one."""
    each = rows_per_shard(width)
    longer = np.zeros(-(-count // each), np.int64)
    longer[: len(marks)] = marks
    longer[numbers // each] = next(_mark)
    return longer


def rows_per_shard(width: int) -> int:
    """Return how many streams a shard has, whose states take ``width`` words each."""
    return 1 << max((SHARD_BYTES // (4 * max(width, 1))).bit_length() - 1, 0)
