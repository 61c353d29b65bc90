"""Arrays that change in place while every earlier version stays readable.

The newest version lies in the arrays. An older version has the rows that the next version changed,
as they were before. To read it, the rows are exchanged, so that the older version lies in the
arrays and the newer one has the difference: a persistent array after Baker, "Shallow binding makes
functional arrays fast", 1991. A version that nobody refers to takes no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from jboost.fleets.directory import longer

Row = np.ndarray  # numbers of rows, all different
Difference = list[tuple[str, Row, np.ndarray]]  # the array, the rows, and what they hold


class Version:
    """What the arrays hold at one time; ``next`` leads to the version that lies in the arrays."""

    __slots__ = ("difference", "next")

    def __init__(self) -> None:
        self.next: Version | None = None
        self.difference: Difference = []  # of this version to the next


class Arrays:
    """Arrays by name, in one version at a time."""

    def __init__(self, **arrays: np.ndarray) -> None:
        self.lock = threading.RLock()
        self.current = Version()
        self._arrays = arrays
        # Of each array, how many rows any version has used: what lies behind them is no loss.
        self.used = dict.fromkeys(arrays, 0)
        self._grow: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {}

    def grow_by(self, name: str, grow: Callable[[np.ndarray, int, int], np.ndarray]) -> None:
        """Let a function make an array longer, with the arguments of :func:`.directory.longer`."""
        self._grow[name] = grow

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    @contextmanager
    def reading(self, version: Version) -> Iterator[None]:
        """Let a version lie in the arrays for as long as the ``with`` block lasts."""
        with self.lock:
            self._bring(version)
            yield

    @contextmanager
    def changing(self, version: Version) -> Iterator[Change]:
        """Make a new version out of another; an error leaves the arrays as they were."""
        with self.lock:
            self._bring(version)
            change = Change(self)
            try:
                yield change
            except BaseException:
                _exchange(self._arrays, change.before)
                raise
            if change.changed:
                version.next, version.difference = change.version, change.before
                self.current = change.version
            else:
                change.version = version

    def extend(self, name: str, rows: int) -> None:
        """Make sure that an array has so many rows."""
        array = self._arrays[name]
        if rows > len(array):
            self._arrays[name] = self._grow.get(name, longer)(array, self.used[name], rows)

    def _bring(self, version: Version) -> None:
        path = [version]
        while (following := path[-1].next) is not None:
            path.append(following)
        for older, newer in zip(path[-2::-1], path[:0:-1], strict=True):
            newer.difference, newer.next = _exchange(self._arrays, older.difference), older
            older.difference, older.next = [], None
        self.current = version


class Change:
    """The changes that make a version; the rows that it changes are kept as they were before."""

    def __init__(self, arrays: Arrays) -> None:
        self.version = Version()
        self.before: Difference = []
        self.changed = False
        self._arrays = arrays
        self._saved: dict[str, np.ndarray] = {}  # of each array, which rows are kept already

    def write(
        self, name: str, rows: Row, values: np.ndarray, before: np.ndarray | None = None
    ) -> None:
        """Write rows, all different; ``before`` is what they hold, where the caller has it."""
        arrays = self._arrays
        last = int(rows.max(initial=-1)) + 1
        arrays.extend(name, last)
        array = arrays[name]
        saved = self._saved.setdefault(name, np.zeros(arrays.used[name], bool))
        fresh = rows < len(saved)
        fresh[fresh] = ~saved[rows[fresh]]
        chosen = rows if fresh.all() else rows[fresh]
        if len(chosen):
            old = array.take(chosen, axis=0) if before is None else before
            self.before.append((name, chosen, old if len(old) == len(chosen) else old[fresh]))
            saved[chosen] = True
        self.changed = True
        put(array, rows, values)
        arrays.used[name] = max(arrays.used[name], last)


def _exchange(arrays: dict[str, np.ndarray], difference: Difference) -> Difference:
    """Put rows into the arrays, and return what was there."""
    inverse = []
    for name, rows, values in reversed(difference):
        inverse.append((name, rows, arrays[name].take(rows, axis=0)))
        put(arrays[name], rows, values)
    return inverse


def put(array: np.ndarray, rows: Row, values: np.ndarray) -> None:
    """Write rows of an array: as ``array[rows] = values``, in half of the time."""
    if len(rows) and len(rows) == len(array) and (rows[:-1] < rows[1:]).all():
        array[:] = values  # all rows, in their order
    elif array.ndim == 1 or not len(rows):
        array[rows] = values
    else:
        whole = np.dtype((np.void, array.itemsize * array.shape[1]))
        np.put(array.view(whole)[:, 0], rows, np.ascontiguousarray(values).view(whole)[:, 0])
