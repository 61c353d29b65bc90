"""The account of what the columns add to the predictions of a run, from its explanations."""

from typing import ClassVar

import numpy as np

from jboost.reports.spans import Spans
from jboost.reports.tally import Account
from jboost.running.blocks import Block


class Importance(Account):
    """How much each of ``width`` columns moves the predictions, over all rows and over time.

    The importance of a column is the mean size of its parts, in units of the target. ``start`` is
    how many rows of the stream came before the first that is added.

    >>> importance, parts = Importance(2), np.array([[1.0, -3.0], [-1.0, 5.0]])
    >>> observed = {"parts": parts, "base": np.zeros(2)}
    >>> importance.add(Block(0, np.zeros(2), np.zeros(2), np.zeros(2, bool), observed))
    >>> importance.mean, importance.shares
    (array([1., 4.]), array([0.2, 0.8]))
    """

    argument: ClassVar = ("width", int)

    def __init__(self, width: int, *, start: int = 0):
        self.width = width
        self.spans = Spans(width, start=start)

    @property
    def mean(self) -> np.ndarray:
        """(width,) the mean size of each column's parts; NaN before the first row."""
        return self.spans.mean

    @property
    def shares(self) -> np.ndarray:
        """(width,) the same, over the sum of all columns."""
        return self.mean / (np.nansum(self.mean) or np.nan)

    @property
    def order(self) -> np.ndarray:
        """The numbers of the columns, the most important first."""
        return np.argsort(-self.mean, kind="stable")

    def add(self, block: Block) -> None:
        """Count a block in which the parts of its predictions were observed."""
        self.spans.add(np.abs(block.observed["parts"]))
