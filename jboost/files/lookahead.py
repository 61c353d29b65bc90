"""What is known of the rows to come: each row gets it as soon as these rows have been read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jboost.core import extras
from jboost.files.ahead import Timing
from jboost.files.encoding import Encoded, Labels
from jboost.files.predictions import as_text
from jboost.forecasts.rows import COUNTED

if TYPE_CHECKING:
    import pyarrow as pa


class Lookahead:
    """Makes blocks whose x has the time first, then the inputs, then the known columns ahead.

    Without a timing the number of the row takes the place of the time; ``first`` is that of the
    first row. With times, what is known of h steps ahead is that of the row at this time, else that
    of the row h rows later; NaN where there is no such row.

    Where columns are known, a row waits until the rows of its next H steps have been read. At the
    end of the stream the last rows wait still: ``waiting`` has them as they were read, and
    :meth:`take` takes them with what is known by then.
    """

    def __init__(self, horizon: int, known: Sequence[int], timing: Timing | None, first: int = 0):
        self.waiting: Encoded | None = None
        self._horizon, self._known, self._timing = horizon, list(known), timing
        self._first = first  # the number of the first row that waits
        self._latest = np.iinfo(np.int64).min  # the step of the latest row before it

    def __call__(self, blocks: Iterable[Encoded]) -> Iterator[Encoded]:
        """Yield the rows that need not wait any longer."""
        for block in blocks:
            self.waiting = block if self.waiting is None else joined(self.waiting, block)
            rows = self._settled(self.waiting)
            if rows:
                yield self.take(rows)

    def _settled(self, rows: Encoded) -> int:
        """Return how many of the rows need not wait: all that lies H steps ahead has been read."""
        n = len(rows.d)
        if not self._known or not n:
            return n
        if self._timing is None:
            return max(n - self._horizon, 0)
        steps = self._steps(rows, self._timing)
        return int(np.searchsorted(steps, steps[-1] - self._horizon, side="right"))

    def _steps(self, rows: Encoded, timing: Timing) -> np.ndarray:
        """Return the steps of rows; a row that is not later than one before it has the same."""
        steps = timing.slots(_wall(rows.labels))
        return np.maximum.accumulate(np.append(self._latest, steps))[1:]

    def take(self, n: int) -> Encoded:
        """Take the first n of the rows that wait, with what is known of the rows after them."""
        assert self.waiting is not None
        whole = self.waiting
        (x, d, labels), timing = whole.cut(0, n), self._timing
        index = np.arange(n)[:, None] + np.arange(1, self._horizon + 1)
        found = index < len(whole.d)
        if timing is None:
            times = (self._first + np.arange(n)) % COUNTED
        else:
            times = timing.numbers(_wall(labels))
            steps = self._steps(whole, timing)
            asked = steps[:n, None] + np.arange(1, self._horizon + 1)
            index = np.searchsorted(steps, asked)
            found = (index < len(steps)) & (steps[np.minimum(index, len(steps) - 1)] == asked)
            self._latest = steps[n - 1]
        columns = [times, x]
        if self._known:
            values = whole.x[:, self._known][np.minimum(index, len(whole.d) - 1)]  # (n, H, k)
            values = np.where(found[..., None], values, np.nan)
            columns.append(np.moveaxis(values, 2, 1).reshape(n, -1))
        self._first += n
        self.waiting = whole.cut(n, len(whole.d))
        return Encoded(np.column_stack(columns).astype(x.dtype), d, labels)


def joined(first: Encoded, then: Encoded) -> Encoded:
    """Return two blocks as one."""
    labels = [first.labels, then.labels]

    def both(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
        there = [array for array in arrays if array is not None]
        return np.concatenate(there) if len(there) == 2 else None

    return Encoded(
        np.concatenate([first.x, then.x]).astype(then.x.dtype),
        np.concatenate([first.d, then.d]).astype(then.d.dtype),
        Labels(
            {name: _chained(*(of.columns[name] for of in labels)) for name in labels[0].columns},
            both([of.instants for of in labels]),
            np.concatenate([of.bad for of in labels]),
            both([of.wall for of in labels]),
        ),
    )


def _chained(first: pa.ChunkedArray, then: pa.ChunkedArray) -> pa.ChunkedArray:
    pa = extras.need("pyarrow", "io")
    if first.type != then.type:
        first, then = as_text(first), as_text(then)
    chunks = [a.chunks if isinstance(a, pa.ChunkedArray) else [a] for a in (first, then)]
    return pa.chunked_array([*chunks[0], *chunks[1]], type=first.type)


def _wall(labels: Labels) -> np.ndarray:
    return np.zeros(0, "datetime64[us]") if labels.wall is None else labels.wall
