"""Notices by a model's errors that its stream has changed, whatever the model is."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax.numpy as jnp
import numpy as np

from jboost.baselines.controls import RunningMean
from jboost.engine import loop
from jboost.wrappers.change import OnChange

MOST = 50  # changes that are remembered
DETECTOR = OnChange(RunningMean())


class Changes:
    """The rows at which the errors of a model became larger than usual, all at once.

    The detector is that of :class:`jboost.OnChange`, around the running mean of the errors. It
    begins anew with the process; the rows that were found are kept.
    """

    def __init__(self, rows: list[int] | None = None):
        self.rows = deque(rows or [], MOST)
        self._state: Any = None
        self._first = 0

    def add(self, start: int, errors: np.ndarray) -> None:
        """Look at the errors of rows; ``start`` rows came before them."""
        if self._state is None:
            self._state, self._first = DETECTOR.init(1, jnp.float32), start
        x, d = np.zeros((len(errors), 1), np.float32), errors.astype(np.float32)
        before = int(self._state.detector.changes)
        self._state, _ = loop.begin(DETECTOR, self._state, x, d, None)
        if int(self._state.detector.changes) > before:
            self.rows.append(self._first + int(self._state.detector.last) + 1)
