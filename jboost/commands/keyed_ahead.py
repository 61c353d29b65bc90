"""What is known of the rows to come of each key (``jboost run --key --known``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from jboost.files.encoding import Encoded
from jboost.fleets.columns import names_of
from jboost.fleets.names import hashes


class KeyedAhead:
    """Columns of a file at the next H rows of each row's own key, found in a first reading of it.

    It holds these columns, and a number, of every row. Rows without a key are followed by none.
    """

    def __init__(self, blocks: Iterable[Encoded], key: str, known: Sequence[int], horizon: int):
        values, codes, keyed = [], [np.zeros(0, np.uint64)], [np.zeros(0, bool)]
        for x, _, labels in blocks:
            column = labels.columns[key]
            there = ~np.asarray(column.is_null())
            code = np.zeros(len(x), np.uint64)
            if there.any():
                code[there] = hashes(names_of(f"the column {key!r}", column.filter(there)))
            values.append(x[:, list(known)])
            codes.append(code)
            keyed.append(there)
        nothing = np.full((1, len(known)), np.nan, np.float32)
        self._values = np.concatenate([*values, nothing])
        self._next = self._following(np.concatenate(codes), np.concatenate(keyed))
        self._horizon = horizon

    @staticmethod
    def _following(codes: np.ndarray, keyed: np.ndarray) -> np.ndarray:
        """Return the number of the next row of the same key; that of the last row and 1 if none."""
        rows = np.flatnonzero(keyed)
        following = np.full(len(codes) + 1, len(codes))
        order = rows[np.argsort(codes[rows], kind="stable")]
        same = codes[order[:-1]] == codes[order[1:]]
        following[order[:-1][same]] = order[1:][same]
        return following

    def beside(self, x: np.ndarray, start: int) -> np.ndarray:
        """Return the inputs of rows from the number ``start`` on, with what is known after them.

        As :func:`jboost.forecasts.with_known` appends it; NaN where the key has no such row.
        """
        last = len(self._next) - 1
        at, found = np.minimum(np.arange(start, start + len(x)), last), []
        for _ in range(self._horizon):
            at = self._next[at]
            found.append(self._values[at])
        ahead = np.stack(found, axis=2)  # (n, known, H)
        return np.column_stack([x, ahead.reshape(len(x), -1)]).astype(x.dtype)
