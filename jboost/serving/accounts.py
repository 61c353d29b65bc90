"""Accounts of a served model: its errors beside those of the controls, its intervals, its changes.

The errors are those of ``jboost run`` on the answers in their order: each prediction is made just
before its answer is learned. The predictions that clients got were made earlier; their error is
counted by :class:`Served`.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from jboost.reports.accounts import Bands
from jboost.reports.tally import Tally
from jboost.running.blocks import Block
from jboost.serving.changes import Changes

TOGETHER = 1024  # rows that are counted together: one by one they would take as long each
LAST = 200  # answers that are shown


class Account:
    """The account of one model. Rows are counted when there are enough, or when it is read."""

    def __init__(self, name: str, coverage: float | None, step: int = 0):
        self._tally = Tally(name, step)
        self._bands = None if coverage is None else Bands(coverage)
        self._waiting: list[tuple[Block, np.ndarray | None]] = []
        self._rows = 0
        self.changes = Changes()
        self.since = np.zeros(2)  # answers since the start of the process, and squared errors

    def add(self, block: Block, instants: np.ndarray | None) -> None:
        """Count rows that were learned, with their times."""
        self._waiting.append((block, instants))
        self._rows += len(block.targets)
        if self._rows >= TOGETHER:
            self._count()

    def _count(self) -> None:
        if not self._waiting:
            return
        blocks = [block for block, _ in self._waiting]
        times = [instants for _, instants in self._waiting if instants is not None]
        instants = np.concatenate(times) if len(times) == len(blocks) else None
        observed = {
            name: np.concatenate([block.observed[name] for block in blocks])
            for name in blocks[0].observed
        }
        block = Block(
            blocks[0].start,
            np.concatenate([block.targets for block in blocks]),
            np.concatenate([block.prediction for block in blocks]),
            np.concatenate([block.skipped for block in blocks]),
            observed,
        )
        self._waiting, self._rows = [], 0
        self._tally.add(block, instants)
        self.since += len(block.squared_errors), block.squared_errors.sum()
        self.changes.add(block.start, block.targets - block.prediction)
        if self._bands is not None:
            self._bands.add(block, instants)

    @property
    def tally(self) -> Tally:
        """The errors of the model and of the controls."""
        self._count()
        return self._tally

    @property
    def bands(self) -> Bands | None:
        """The intervals; None if the model has none."""
        self._count()
        return self._bands

    def as_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, as ``jboost run`` keeps it."""
        bands = self.bands
        return {
            "tally": self.tally.as_dict(),
            "bands": bands and bands.as_dict(),
            "learners": None,
            "changes": [*self.changes.rows],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the account that :meth:`as_dict`, or ``jboost run``, described."""
        account = cls("", None)
        account._tally = Tally.from_dict(saved["tally"])
        account._bands = Bands.from_dict(saved["bands"]) if saved["bands"] else None
        account.changes = Changes([int(row) for row in saved.get("changes", [])])
        return account


class Answer(NamedTuple):
    """An answer that was learned, for the page."""

    row: int  # how many rows the model had learned with it
    id: str | None
    answer: float
    prediction: float | None  # the one that the client got; None if it asked for none
    estimate: float  # the one made just before the answer was learned
    low: float | None  # of its interval; None if it has none, or an unbounded one
    high: float | None
    flags: Sequence[str] = ()  # what is odd about it, if the model says such things


class Served:
    """The errors of the predictions that clients got, and the last answers."""

    def __init__(self, count: int = 0, squared: float = 0.0):
        self.count, self.squared = count, squared
        self.last: deque[Answer] = deque(maxlen=LAST)
        self.flags: Counter[str] = Counter()  # how often each was raised since the start

    @property
    def mse(self) -> float:
        """The mean squared error; NaN before the first answer to a question."""
        return self.squared / self.count if self.count else math.nan

    def add(self, answers: list[Answer]) -> None:
        """Count answers."""
        for answer in answers:
            if answer.prediction is not None:
                self.count += 1
                self.squared += (answer.prediction - answer.answer) ** 2
            if answer.flags:
                self.flags.update(answer.flags)
        self.last.extend(answers)

    def as_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"count": self.count, "squared": self.squared.hex()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return what :meth:`as_dict` described."""
        return cls(int(saved["count"]), float.fromhex(saved["squared"]))
