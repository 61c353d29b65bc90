"""The errors of each key, of a server that keeps a model for each."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from jboost.serving.accounts import Answer
from jboost.serving.refusal import Refusal

MOST = 100_000  # keys that a server may have
SHOWN = 20  # keys that a search returns


class KeyErrors:
    """For each key, how many answers there were, and the sum of their squared errors.

    The errors are those of the predictions just before an answer was learned.
    """

    def __init__(self, sums: dict[str, tuple[int, float]] | None = None, most: int = MOST):
        self.sums = sums or {}
        self.most = most

    def refuse_many(self, keys: Iterable[str]) -> None:
        """Refuse answers by which there would be too many keys."""
        new = {key for key in keys if key not in self.sums}
        if len(self.sums) + len(new) > self.most:
            raise Refusal(429, f"there are {len(self.sums):,} keys, and no more are taken")

    def add(self, keys: Sequence[str], answers: Sequence[Answer]) -> None:
        """Count answers and the keys that they are of."""
        for key, answer in zip(keys, answers, strict=False):
            count, squared = self.sums.get(key, (0, 0.0))
            self.sums[key] = count + 1, squared + (answer.estimate - answer.answer) ** 2

    def search(self, text: str) -> dict[str, Any]:
        """Return the keys with the largest errors of those whose names contain a text."""
        text = text.casefold()
        found = [key for key in self.sums if text in key.casefold()]
        means = {key: self.sums[key][1] / self.sums[key][0] for key in found}
        worst = heapq.nlargest(SHOWN, found, key=lambda key: (means[key], key))
        rows = [{"key": key, "answers": self.sums[key][0], "mse": means[key]} for key in worst]
        return {"all": len(self.sums), "found": len(found), "keys": rows}
