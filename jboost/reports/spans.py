"""Means over spans of a stream: what changed while a run went on, in constant memory."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

Vectors = Callable[[list[np.ndarray]], np.ndarray]
MOST_SPANS = 128  # enough for a picture; a power of two, so that halving comes out even


class Spans:
    """Means of vectors over at most 128 spans of equal length.

    A stream begins with spans of one row. Whenever there are too many, each two become one. A row
    whose vector holds NaN does not count.

    Args:
      width: how long the vectors are.
      samples: about how many rows of a span are looked at, evenly spaced; by default all.
      start: how many rows of the stream came before the first that is added.

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
        while self.rows >= MOST_SPANS * self._length:
            self._length *= 2
        self._sums = np.zeros((MOST_SPANS, width))
        self._counts = np.zeros(MOST_SPANS)

    def over_time(self, at_least: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Return (k,) the rows at which spans end, and (k, width) the mean of each span.

        Spans are joined until each has ``at_least`` rows; the last may be shorter. The mean of a
        span in which nothing counted is NaN.
        """
        joined = -(-at_least // self._length)
        first = np.arange(0, -(-self.rows // self._length), joined)
        ends = np.minimum((first + joined) * self._length, self.rows)
        sums, counts = (np.add.reduceat(a, first) for a in (self._sums, self._counts))
        return ends, sums / np.where(counts > 0, counts, np.nan)[:, None]

    @property
    def mean(self) -> np.ndarray:
        """(width,) the mean over all rows that were looked at."""
        return self._sums.sum(axis=0) / (self._counts.sum() or np.nan)

    def add(self, *arrays: np.ndarray, vectors: Vectors = np.column_stack) -> None:
        """Count rows: arrays (n, …), from whose rows ``vectors`` makes (n, width).

        ``vectors`` takes a list of the rows that are looked at, in double precision.
        """
        first, n = 0, len(arrays[0])
        while first < n:
            last = min(first + MOST_SPANS * self._length - self.rows, n)
            self._fill([array[first:last] for array in arrays], vectors)
            first = last
            if self.rows == MOST_SPANS * self._length:
                half = MOST_SPANS // 2
                for sums in (self._sums, self._counts):
                    sums[:half] = sums[::2] + sums[1::2]
                    sums[half:] = 0
                self._length *= 2

    def as_dict(self) -> dict[str, Any]:
        """Return the means as JSON can hold them."""
        numbers = np.column_stack([self._counts, self._sums])
        return {"rows": self.rows, "samples": self._samples, "sums": as_text(numbers)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the means that :meth:`as_dict` described."""
        numbers = from_text(saved["sums"]).reshape(MOST_SPANS, -1)
        samples = None if saved["samples"] is None else int(saved["samples"])
        spans = cls(numbers.shape[1] - 1, samples=samples, start=int(saved["rows"]))
        spans._counts, spans._sums = numbers[:, 0].copy(), numbers[:, 1:].copy()
        return spans

    def _fill(self, arrays: list[np.ndarray], vectors: Vectors) -> None:
        """Add rows that fit into the spans, one by one, so that a cut changes no bit."""
        step = max(self._length // (self._samples or self._length), 1)
        first, after = -self.rows % step, self.rows + len(arrays[0])
        values = vectors([array[first::step].astype(np.float64) for array in arrays])
        spans = np.arange(self.rows + first, after, step) // self._length
        counted = ~np.isnan(values).any(axis=1)
        np.add.at(self._sums, spans[counted], values[counted])
        np.add.at(self._counts, spans[counted], 1)
        self.rows = after


def as_text(numbers: ArrayLike) -> str:
    """Return every bit of the numbers as text; JSON has no word for infinite ones."""
    return np.asarray(numbers, "<f8").tobytes().hex()


def from_text(text: str) -> np.ndarray:
    """Return the numbers that :func:`as_text` wrote."""
    return np.frombuffer(bytes.fromhex(text), "<f8").astype(np.float64)
