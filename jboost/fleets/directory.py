"""The directory of a fleet: which number each name has.

Names are numbered 0, 1, … in the order in which they first appear, and no name ever leaves. So a
directory serves all states of a fleet: a state remembers how many of the names are its own. The
search is a hash table with open addressing, whose steps are operations on whole columns.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from typing import Any

import numpy as np

from jboost.fleets.names import Names, words_of

LARGE = 2**22  # bytes of an array that gets room for much more than it needs
NO_RESERVE = 0x4000  # Linux's MAP_NORESERVE, which Python's mmap names from 3.13 on
FORESIGHT = 16  # times as many rows as are needed, of a large array
FEWEST = 64  # names that a new directory has room for
SPARSE = 4  # at least so many rows of the table for each name: most names are found at once
MOST_WORDS = 2**32 - 2  # of all records
_NUMBER, _HEAD = 1, 2  # places in a record


class Directory:
    """Names and their numbers.

    A record is the hash of a name, its number and its words. It lies in one piece, since most of
    the time of a search is spent waiting for memory.
    """

    def __init__(self) -> None:
        self._records = np.zeros(8 * FEWEST, np.uint64)  # one after the other
        self._used = 0  # of them, words
        self._starts = np.zeros(FEWEST, np.int64)  # by number, where the record starts
        self._table = np.zeros(SPARSE * FEWEST, np.uint32)  # by hash, the same + 1; 0 for none
        self._long: dict[int, bytes] = {}  # by number, the contents of long names
        self.count = 0

    @property
    def nbytes(self) -> int:
        """How many bytes the names take, with what makes them quick to find."""
        long = sum(map(len, self._long.values()))
        return 8 * (self.count + self._used) + self._table.nbytes + long

    def names(self, numbers: np.ndarray) -> Names:
        """Return the names that have these numbers."""
        heads = self._starts[numbers] + _HEAD
        counts = words_of((self._records[heads] >> np.uint64(8)).astype(np.int64))
        words = np.zeros((len(numbers), int(counts.max(initial=0)) + 1), np.uint64)
        for word in range(words.shape[1]):
            has = counts >= word
            words[has, word] = self._records[heads[has] + word]
        long = {}
        if self._long:
            pairs = enumerate(numbers.tolist())
            long = {row: self._long[number] for row, number in pairs if number in self._long}
        return Names(words, long)

    def find(self, names: Names, hashed: np.ndarray) -> np.ndarray:
        """Return the number of each name, (n,) int64; −1 for a name that is not here."""
        found = np.full(len(names), -1, np.int64)
        mask = len(self._table) - 1
        slots = (hashed & np.uint64(mask)).astype(np.int64)
        rows = np.arange(len(names))
        while len(rows):
            starts = self._table.take(slots).astype(np.int64) - 1
            if starts.min() < 0:
                rows, starts, slots = _where(starts >= 0, rows, starts, slots)
            alike = self._records.take(starts) == hashed.take(rows)
            alike[alike] = self._equal(names, rows[alike], starts[alike])
            found[rows[alike]] = self._records.take(starts[alike] + _NUMBER)
            rows, slots = _where(~alike, rows, slots)
            slots = (slots + 1) & mask
        return found

    def add(self, names: Names, hashed: np.ndarray) -> np.ndarray:
        """Return the number of each name, (n,) int64; names that are not here are added."""
        found = self.find(names, hashed)
        rows = np.flatnonzero(found < 0)
        while len(rows):
            # The first row of each hash. Another name of the same hash waits for the next turn.
            firsts = _firsts(hashed[rows])
            new = np.flatnonzero(firsts == np.arange(len(rows)))
            numbers = np.empty(len(rows), np.int64)
            numbers[new] = self.count + np.arange(len(new))
            self._append(names.take(rows[new]), hashed[rows[new]])
            numbers = numbers[firsts]
            same = self._equal(names, rows, self._starts[numbers])
            found[rows[same]] = numbers[same]
            rows = rows[~same]
        return found

    def including(
        self, names: Names, hashed: np.ndarray, count: int
    ) -> tuple[Directory, np.ndarray]:
        """Return a directory with all of these names too, and the number of each.

        The caller has the first ``count`` names. Where another state has added names beyond those,
        and the caller adds one, the directory is a copy.
        """
        if self.count > count:
            numbers = self.find(names, hashed)
            if ((numbers >= 0) & (numbers < count)).all():
                return self, numbers
            other = self.fork(count)
            return other, other.add(names, hashed)
        return self, self.add(names, hashed)

    def fork(self, count: int) -> Directory:
        """Return another directory with the first ``count`` of these names."""
        other, numbers = Directory(), np.arange(count)
        other._append(self.names(numbers), self._records[self._starts[numbers]])
        return other

    def _equal(self, names: Names, rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return whether the names of rows are those of the records that start here."""
        heads = names.words[:, 0].take(rows)
        same = self._records.take(starts + _HEAD) == heads
        counts = words_of((heads >> np.uint64(8)).astype(np.int64))
        fewest = int(counts.min(initial=0))
        for word in range(1, int(counts.max(initial=0)) + 1):
            stored = self._records.take(starts + (_HEAD + word), mode="clip")
            equal = stored == names.words[:, word].take(rows)
            same &= equal if word <= fewest else equal | (word > counts)
        if names.long:
            for i in np.flatnonzero(same).tolist():
                content = names.long.get(int(rows[i]))
                number = int(self._records[starts[i] + _NUMBER])
                same[i] = content is None or content == self._long.get(number)
        return same

    def _append(self, names: Names, hashed: np.ndarray) -> None:
        """Give the next numbers to names that are not here, all different."""
        if not len(names):
            return
        numbers = np.arange(self.count, self.count + len(names))
        counts = words_of(names.lengths) + 1  # of words, with the first
        ends = self._used + np.cumsum(counts + _HEAD)
        starts, used = ends - counts - _HEAD, int(ends[-1])
        if used > MOST_WORDS:
            raise MemoryError("names take more than 32 GB; divide them between several fleets")
        records = np.column_stack([hashed, numbers.astype(np.uint64), names.words])
        if records.size > used - self._used:  # some names are shorter than the longest
            records = records[np.arange(records.shape[1]) < (counts + _HEAD)[:, None]]
        self._records = longer(self._records, self._used, used)
        self._records[self._used : used], self._used = records.reshape(-1), used
        self._starts = longer(self._starts, self.count, self.count + len(names))
        self._starts[numbers] = starts
        self._long |= {self.count + row: content for row, content in names.long.items()}
        self.count += len(names)
        if SPARSE * self.count > len(self._table):
            size = 1 << (2 * SPARSE * self.count - 1).bit_length()
            self._table, starts = zeros((size,), np.dtype(np.uint32)), self._starts[: self.count]
        self._enter(starts)

    def _enter(self, starts: np.ndarray) -> None:
        """Put records into the table."""
        mask = len(self._table) - 1
        slots = (self._records.take(starts) & np.uint64(mask)).astype(np.int64)
        entries = (starts + 1).astype(np.uint32)
        while len(entries):
            free = self._table[slots] == 0
            self._table[slots[free]] = entries[free]  # of several for one slot the last wins
            entries, slots = _where(self._table[slots] != entries, entries, slots)
            slots = (slots + 1) & mask


def longer(array: np.ndarray, used: int, needed: int) -> np.ndarray:
    """Return an array with room for ``needed`` rows: at least twice as many as before.

    The memory of new rows is taken when they are first written. So a large array gets room for
    many more where the system allows it, and is rarely copied.
    """
    if needed <= len(array):
        return array
    rows = 1 << (needed - 1).bit_length()
    foresight = FORESIGHT if rows * array[:1].nbytes >= LARGE else 1
    grown = zeros((rows, *array.shape[1:]), array.dtype, foresight)
    grown[:used] = array[:used]
    return grown


def zeros(shape: tuple[int, ...], dtype: np.dtype, foresight: int = 1) -> np.ndarray:
    """Return zeros, of so many times the rows where the system takes no memory for them yet.

    A large array lies in small pages. NumPy asks for large ones, whose first use may take several
    times as long on a virtual machine: its memory comes from the host in such pieces.
    """
    bigger = (foresight * shape[0], *shape[1:])
    if math.prod(bigger) * dtype.itemsize >= LARGE and sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # the address space is limited
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
            memory = mmap.mmap(-1, math.prod(bigger) * dtype.itemsize, flags=flags)
            return np.frombuffer(memory, dtype).reshape(bigger)
    return np.zeros(shape, dtype)


def _firsts(hashed: np.ndarray) -> np.ndarray:
    """Return of each row the first row with the same hash, without sorting."""
    firsts = np.empty(len(hashed), np.int64)
    rows, shift = np.arange(len(hashed)), 0
    mask = np.uint64((1 << (2 * len(hashed)).bit_length()) - 1)
    while len(rows):
        shift = (shift + 11) % 64  # a hash that shares its place will not do so again
        places = ((hashed[rows] >> np.uint64(shift)) ^ hashed[rows]) & mask
        table = np.empty(int(mask) + 1, np.int64)
        table[places[::-1]] = rows[::-1]  # of several rows for one place the last written stays
        likely = table[places]
        same = hashed[likely] == hashed[rows]
        firsts[rows[same]] = likely[same]
        rows = rows[~same]
    return firsts


def _where(mask: np.ndarray, *arrays: np.ndarray) -> tuple[Any, ...]:
    return tuple(array[mask] for array in arrays)
