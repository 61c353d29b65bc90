"""A claim of the paper: where it stands, its words, and a check against the JSON of the runs.

The check returns a verdict with the figures behind it, so that neither can be out of date. In the
paper §4 is the algorithm, §5 and §6 its six forms, §7 the analysis, §8 the experiments, §9 the
conclusion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.paper.protocol import BOOSTED

Records = dict[str, Any]
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


def verdict(passed: list[str], failed: list[str]) -> str:
    """ "true" if nothing failed, "false" if nothing passed, otherwise "in part"."""
    return "true" if not failed else "false" if not passed else "in part"


def under(pairs: list[str]) -> str:
    """The cases in one line."""
    return "; ".join(pairs) if pairs else "none"
