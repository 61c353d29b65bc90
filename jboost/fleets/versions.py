"""Arrays that change in place while every earlier version stays readable.

The newest version lies in the arrays. An older version has the rows that the next version changed,
as they were before. To read it, the rows are exchanged, so that the older version lies in the
arrays and the newer one has the difference: a persistent array after Baker, "Shallow binding makes
functional arrays fast", 1991. A version that nobody refers to takes no memory: what an older one
needs of it becomes part of the older one, which so never has a row twice.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from jboost.fleets.directory import longer

Row = np.ndarray  # numbers of rows, all different
Difference = list[tuple[str, Row, np.ndarray]]  # the array, the rows, and what they hold


class Version:
    """What the arrays hold at one time, for whoever wants to use it again."""

    __slots__ = ("__weakref__", "node")

    def __init__(self) -> None:
        self.node = _Node(self)


class _Node:
    """A version among the others; ``next`` leads to the one that lies in the arrays."""

    __slots__ = ("__weakref__", "difference", "masks", "next", "previous", "version")

    def __init__(self, version: Version) -> None:
        self.version = weakref.ref(version)  # None where nobody can use the version again
        self.next: _Node | None = None
        self.previous: Callable[[], _Node | None] = _nothing  # a node that ``next`` leads here from
        self.difference: Difference = []  # of this version to the next
        self.masks: dict[str, np.ndarray] = {}  # by array, which rows are in the difference

    def lead_to(self, following: _Node, difference: Difference) -> None:
        """Make another version the next one."""
        self.next, self.difference, self.masks = following, difference, {}
        following.previous = weakref.ref(self)

    def take_in(self, following: _Node, rows: dict[str, int]) -> None:
        """Let the next version's difference be part of this one; ``rows`` are those of arrays."""
        for name, count in rows.items():
            mask = self.masks.get(name, np.zeros(0, bool))
            if len(mask) < count:
                self.masks[name] = np.append(mask, np.zeros(count - len(mask), bool))
            if not len(mask):
                for _, changed, _ in (entry for entry in self.difference if entry[0] == name):
                    self.masks[name][changed] = True
        for name, changed, values in following.difference:
            fresh = ~self.masks[name][changed]
            if fresh.any():
                entry = (changed, values) if fresh.all() else (changed[fresh], values[fresh])
                self.difference.append((name, *entry))
                self.masks[name][changed] = True


def _nothing() -> None:
    return None


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
                self._forget_before(version.node)
                version.node.lead_to(change.version.node, change.before)
                self.current = change.version
            else:
                change.version = version

    def extend(self, name: str, rows: int) -> None:
        """Make sure that an array has so many rows."""
        array = self._arrays[name]
        if rows > len(array):
            self._arrays[name] = self._grow.get(name, longer)(array, self.used[name], rows)

    def _bring(self, version: Version) -> None:
        path = [version.node]
        while (following := path[-1].next) is not None:
            path.append(following)
        for older, newer in zip(path[-2::-1], path[:0:-1], strict=True):
            newer.lead_to(older, _exchange(self._arrays, older.difference))
            older.next, older.difference, older.masks = None, [], {}
        self.current = version

    def _forget_before(self, node: _Node) -> None:
        """Take the version before a node out of the row of versions, if nobody can use it."""
        before = node.previous()
        if before is None or before.next is not node or before.version() is not None:
            return
        older = before.previous()
        if older is not None and older.next is before:
            older.take_in(before, {name: len(array) for name, array in self._arrays.items()})
            older.next, node.previous = node, weakref.ref(older)


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
