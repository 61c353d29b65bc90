"""The seasonal control: the answer of the same time one day, week or year before."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from jboost.reports.spans import as_text, from_text

SEASONS = {"a day": 86_400, "a week": 604_800, "a year": 31_536_000}  # lengths in seconds
LONGEST = 2048  # rows of a season: a week of five minutes, a day of one minute
FEWEST = 2  # rows of a season


def seasons_of(step: int) -> dict[str, int]:
    """Return the seasons that suit rows so many microseconds apart: by name, their rows.

    >>> seasons_of(3_600_000_000), seasons_of(86_400_000_000), seasons_of(0)
    ({'a day': 24, 'a week': 168}, {'a week': 7, 'a year': 365}, {})
    """
    rows = {name: round(s * 1_000_000 / step) for name, s in SEASONS.items()} if step > 0 else {}
    fitting = {name: n for name, n in rows.items() if FEWEST <= n <= LONGEST}
    return dict([*fitting.items()][:2])


class Season(NamedTuple):
    """What the answers were within the last season; it does not depend on how a stream is cut."""

    rows: int  # how many rows a season has
    slots: np.ndarray  # (n,) the times of the answers, in steps since 1970
    answers: np.ndarray  # (n,)
    found: bool = False  # whether any answer so far had one of a season before

    @classmethod
    def empty(cls, rows: int) -> Self:
        return cls(rows, np.zeros(0, np.int64), np.zeros(0))

    def after(
        self, slots: np.ndarray, answers: np.ndarray, otherwise: np.ndarray
    ) -> tuple[Self, np.ndarray]:
        """Return the season after more answers, and for each the answer of a season before.

        Where there is none, as in the first season, it is what ``otherwise`` has.
        """
        before = len(self.slots)
        all_slots = np.append(self.slots, slots)
        all_answers = np.append(self.answers, answers)
        n = len(all_slots)
        numbers = np.arange(n)
        order = np.argsort(all_slots, kind="stable")
        ordered = all_slots[order]
        asked, own = slots - self.rows, numbers[before:]
        # The last answer of the time that is asked for, among those that came before.
        at = np.searchsorted(ordered * n + order, asked * n + own) - 1
        found = order[np.maximum(at, 0)]
        # Rows may come out of order: an answer counts within the last season.
        latest = np.maximum.accumulate(all_slots)
        recent = asked >= latest[np.maximum(own - 1, 0)] - self.rows
        there = (at >= 0) & (all_slots[found] == asked) & recent
        kept = all_slots >= latest[-1] - self.rows if len(latest) else np.zeros(0, bool)
        # Of several answers of one time the last counts.
        last = np.zeros(n, bool)
        last[order[np.append(ordered[1:] != ordered[:-1], True)] if len(order) else []] = True
        season = type(self)(
            self.rows,
            all_slots[kept & last],
            all_answers[kept & last],
            self.found or bool(there.any()),
        )
        return season, np.where(there, all_answers[found], otherwise)

    def as_dict(self) -> dict[str, Any]:
        """Return the season as JSON can hold it."""
        answers = as_text(self.answers)
        slots = self.slots.tolist()
        return {"rows": self.rows, "slots": slots, "answers": answers, "found": self.found}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the season that :meth:`as_dict` described."""
        slots, answers = np.array(saved["slots"], np.int64), from_text(saved["answers"])
        # Older files do not say it: their run has shown the control.
        return cls(int(saved["rows"]), slots, answers, bool(saved.get("found", True)))
