"""A claim of the paper: where it stands, its words, and a check against the JSON of the runs.

The check returns a verdict with the figures behind it, so that neither can be out of date. A claim
holds or fails only where a difference exceeds twice its standard error over trials, or over keys
and 20 consecutive blocks of the stream (:func:`experiments.shared.errors.compare`). In the paper
§4 is the algorithm, §5 and §6 its six forms, §7 the analysis, §8 the experiments, §9 the
conclusion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.paper.protocol import BOOSTED
from experiments.shared.errors import compare

Records = dict[str, Any]
SCRIPTS = {
    *("stationary", "duffing", "weights", "parameters", "table1", "table1_literal", "theory"),
    *("text_claims", "trees", "tree_family"),
}
Answer = tuple[str, str]
LETTERS = {"target_mse": "σ_m²", "dependence": "c", "m": "m"}
READINGS = ("literal", "safe")
SGD, NM = BOOSTED[:3], BOOSTED[3:]


class Claim(NamedTuple):
    """A claim: its section, a few words that identify it, and the function that checks it."""

    where: str
    words: str
    check: Callable[[Records], Answer]


CLAIMS: list[Claim] = []


def claim(where: str, words: str) -> Callable[[Callable[[Records], Answer]], Any]:
    """Decorate the check of a claim, which adds it to CLAIMS."""

    def add(check: Callable[[Records], Answer]) -> Callable[[Records], Answer]:
        CLAIMS.append(Claim(where, words, check))
        return check

    return add


def significant(difference: float, error: float) -> int:
    """1 or −1 where a difference exceeds twice its standard error, 0 where chance reaches it."""
    return int(np.sign(difference)) if abs(difference) > 2 * error else 0


def lower(ours: dict[str, Any], theirs: dict[str, Any]) -> int:
    """1 where our error is lower than theirs by more than chance, −1 where higher, else 0."""
    return significant(*compare(ours, theirs))


class Cases:
    """The cases of a claim, in words: those it holds for, those it fails for, the undecided."""

    def __init__(self) -> None:
        self.words: dict[int, list[str]] = {1: [], 0: [], -1: []}

    def add(self, outcome: int, words: str) -> None:
        """Put a case where it belongs: 1 holds, −1 fails, 0 is within the spread."""
        self.words[outcome].append(words)

    @property
    def verdict(self) -> str:
        """ "true" if it holds in all cases, "false" if it fails in all, "in part" if it holds in
        some, "not shown" if it holds in none and chance may be the reason.
        """
        holds, open_, fails = self.words[1], self.words[0], self.words[-1]
        if holds:
            return "in part" if fails or open_ else "true"
        return "not shown" if open_ else "false"

    def text(self, holds: str, fails: str) -> str:
        """All cases in one line, with a heading for those that hold and for those that fail."""
        parts = [f"{holds}: {under(self.words[1])}", f"{fails}: {under(self.words[-1])}"]
        if self.words[0]:
            parts.append(f"within the spread: {under(self.words[0])}")
        return ". ".join(parts)


def under(pairs: list[str]) -> str:
    """The cases in one line."""
    return "; ".join(pairs) if pairs else "none"


def outcome(found: list[int]) -> str:
    """How many cells are lower, within the spread and higher."""
    return f"{found.count(1)} / {found.count(0)} / {found.count(-1)}"
