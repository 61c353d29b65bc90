"""Means over spans of a stream: what changed while a run went on, in constant memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

MOST = 128


class Spans:
    """Means of vectors over spans of equal length, of which there are at most 128.

    A stream begins with spans of one row; when there are too many, each two become one. A row that
    holds NaN or infinity does not count. No number depends on how the stream was cut into blocks.

    Args:
      width: how long the vectors are.
      samples: about how many rows of a span are looked at, evenly spaced; by default all.
      start: how many rows went by unseen before the first.

    >>> spans = Spans(1)
    >>> spans.add(np.arange(256.0)[:, None])
    >>> ends, means = spans.over_time()
    >>> ends[:3], means[:3, 0]
    (array([ 4,  8, 12]), array([1.5, 5.5, 9.5]))
    """

    def __init__(self, width: int, *, samples: int | None = None, start: int = 0):
        self.rows = start
        self._samples = samples
        self._length = 1
        while self.rows >= MOST * self._length:
            self._length *= 2
        self._sums = np.zeros((MOST, width))
        self._counts = np.zeros(MOST)

    def over_time(self, at_least: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(k,) where spans of at least so many rows end, and (k, width) the mean of each.

        The last may be shorter; where nothing counted the mean is NaN.
        """
        each = -(-at_least // self._length)
        first = np.arange(0, -(-self.rows // self._length), each)
        ends = np.minimum((first + each) * self._length, self.rows)
        sums, counts = (np.add.reduceat(a, first) for a in (self._sums, self._counts))
        return ends, sums / np.where(counts > 0, counts, np.nan)[:, None]

    @property
    def mean(self) -> np.ndarray:
        """(width,) the mean of all rows that were looked at."""
        return self._sums.sum(axis=0) / (self._counts.sum() or np.nan)

    def add(self, *block: np.ndarray, of: Callable[..., np.ndarray] = np.column_stack) -> None:
        """Count a block: arrays (n, …), of whose rows ``of`` makes the vectors.

        It is given a list of those that are looked at, in double precision.
        """
        first, n = 0, len(block[0])
        while first < n:
            last = min(first + MOST * self._length - self.rows, n)
            self._put([array[first:last] for array in block], of)
            first = last
            if self.rows == MOST * self._length:
                self._halve()

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        numbers = np.column_stack([self._counts, self._sums])
        return {"rows": self.rows, "samples": self._samples, "sums": as_text(numbers)}

    @classmethod
    def from_dict(cls, kept: Any) -> Spans:
        """The means that :meth:`as_dict` described."""
        numbers = from_text(kept["sums"]).reshape(MOST, -1)
        samples = None if kept["samples"] is None else int(kept["samples"])
        spans = cls(numbers.shape[1] - 1, samples=samples, start=int(kept["rows"]))
        spans._counts, spans._sums = numbers[:, 0].copy(), numbers[:, 1:].copy()
        return spans

    def _put(self, block: list[np.ndarray], of: Callable[..., np.ndarray]) -> None:
        """Count rows that there is room for, one after the other: a cut changes no bit."""
        step = max(self._length // (self._samples or self._length), 1)
        first, after = -self.rows % step, self.rows + len(block[0])
        vectors = of([array[first::step].astype(np.float64) for array in block])
        places = np.arange(self.rows + first, after, step) // self._length
        known = np.isfinite(vectors).all(axis=1)
        np.add.at(self._sums, places[known], vectors[known])
        np.add.at(self._counts, places[known], 1)
        self.rows = after

    def _halve(self) -> None:
        half = MOST // 2
        for array in (self._sums, self._counts):
            array[:half] = array[::2] + array[1::2]
            array[half:] = 0
        self._length *= 2


def as_text(numbers: Any) -> str:
    """Every bit of some numbers, infinite ones included, which JSON has no word for."""
    return np.asarray(numbers, "<f8").tobytes().hex()


def from_text(text: str) -> np.ndarray:
    """The numbers that :func:`as_text` wrote."""
    return np.frombuffer(bytes.fromhex(text), "<f8").astype(np.float64)
