"""What a run over a stream is watched for besides its errors: its intervals and its learners.

Both accounts are constant in memory and kept in a checkpoint as JSON, like that of the errors
(:mod:`jboost.reports.tally`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jboost.boosting.booster import Boosted
from jboost.core.learner import Learner, State
from jboost.core.numerics import LARGEST
from jboost.reports.spans import Spans, as_text, from_text
from jboost.reports.tally import WINDOW
from jboost.wrappers.intervals import Intervals

LAST = 200  # rows of the picture of a band
MOST_LEARNERS = 40  # of a booster of more, every second, third, … is watched
SAMPLES = 16  # of a span: λ and z are looked at now and then


class Watch(NamedTuple):
    """An ``observe`` for what is asked; equal ones are one function, and compile once.

    intervals: whether the bounds are recorded, low and high.
    learners: how many learners there are whose λ, z and z y are; 0 for none.
    """

    intervals: bool = False
    learners: int = 0

    @classmethod
    def for_model(cls, model: Learner, *, learners: bool) -> Watch:
        """All that a model reports, or all but its learners."""
        booster = booster_in(model) if learners else None
        return cls(isinstance(model, Intervals), booster.m if booster else 0)

    def __call__(self, state: State, info: Any) -> dict[str, Any]:
        del state
        seen = {"low": info.low, "high": info.high} if self.intervals else {}
        if self.learners:
            some = slice(None, None, step_of(self.learners))
            seen |= {"lam": info.lam[some], "z": info.z[some], "part": (info.z * info.y)[some]}
        return seen


def booster_in(model: Any) -> Boosted | None:
    """The booster whose λ and z a model reports, within pipelines and wrappers."""
    while isinstance(model, Learner) and not isinstance(model, Boosted):
        model = getattr(model, "learner", None)
    return model if isinstance(model, Boosted) else None


def step_of(m: int) -> int:
    """Every which one of m learners is watched."""
    return -(-m // MOST_LEARNERS)


class Bands:
    """Which part of the answers the intervals of a run held, and how wide they were.

    Answers whose interval is unbounded, as the first one is, do not count.

    Args:
      coverage: the part that is wanted.
      window: how many of the last answers ``lately`` is of.

    >>> bands = Bands(0.9, window=2)
    >>> d, low, high = np.array([[1.0, 5.0, 2.0], [0.0, 0.0, 0.0], [2.0, 2.0, 4.0]])
    >>> bands.add(0, d, d, low, high)
    >>> round(bands.covered, 3), bands.lately, round(bands.width, 3)
    (0.667, 0.5, 2.667)
    """

    def __init__(self, coverage: float, window: int = WINDOW):
        self.coverage = coverage
        self.spans = Spans(2)  # covered, width
        self.last = np.zeros((0, 5))  # row, answer, prediction, low, high
        self._window = window
        self._totals = np.zeros(3)  # answers, covered, widths
        self._recent = np.zeros(0)

    @property
    def covered(self) -> float:
        """The part of the answers that lay inside so far; NaN before the first."""
        return float(self._totals[1] / (self._totals[0] or np.nan))

    @property
    def lately(self) -> float:
        """The same for the last answers."""
        return float(self._recent.mean()) if len(self._recent) else float("nan")

    @property
    def width(self) -> float:
        """The mean width."""
        return float(self._totals[2] / (self._totals[0] or np.nan))

    def add(self, start: int, *block: np.ndarray) -> None:
        """Count a block after ``start`` rows: targets, predictions, low and high, each (n,)."""
        d, _, low, high = block = tuple(array.astype(np.float64) for array in block)
        inside, width = ((low <= d) & (d <= high)).astype(np.float64), high - low
        known = (np.abs(d) < LARGEST) & np.isfinite(width)
        each = np.column_stack([np.ones(len(d)), inside, width])[known]
        # One after the other, so that a cut changes no bit.
        self._totals = np.cumsum(np.vstack([self._totals, each]), axis=0)[-1]
        self._recent = np.concatenate([self._recent, inside[known]])[-self._window :]
        self.spans.add(np.where(known, inside, np.nan), width)
        rows = np.arange(start + 1, start + 1 + len(d))
        self.last = np.vstack([self.last, np.column_stack([rows, *block])[-LAST:]])[-LAST:]

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {
            "coverage": self.coverage,
            "window": self._window,
            "totals": as_text(self._totals),
            "recent": as_text(self._recent),
            "last": as_text(self.last),
            "spans": self.spans.as_dict(),
        }

    @classmethod
    def from_dict(cls, kept: Any) -> Bands:
        """The account that :meth:`as_dict` described."""
        bands = cls(float(kept["coverage"]), int(kept["window"]))
        bands._totals = from_text(kept["totals"]).reshape(3)
        bands._recent = from_text(kept["recent"])
        bands.last = from_text(kept["last"]).reshape(-1, 5)
        bands.spans = Spans.from_dict(kept["spans"])
        return bands


class Learners:
    """What each learner of a booster did over a run: its λ, its weight z, its share.

    Args:
      m: how many there are.
      start: how many rows went by unseen before the first.

    >>> learners = Learners(2)
    >>> z, y = np.full((3, 2), 0.5), np.array([[1.0, 2.0], [2.0, 4.0], [4.0, 8.0]])
    >>> learners.add(y[:, 0], {"lam": np.ones((3, 2)), "z": z, "part": z * y})
    >>> learners.shares.round(3)
    array([0.333, 0.667])
    """

    def __init__(self, m: int, *, start: int = 0):
        self.m = m
        shown = len(range(0, m, step_of(m)))
        self._spans = Spans(4 * shown + 1, samples=SAMPLES, start=start)

    @property
    def rows(self) -> int:
        """How many rows of the stream there were."""
        return self._spans.rows

    @property
    def lam(self) -> np.ndarray:
        """(k, learners) the mean λ of each span."""
        return self._part(self._spans.over_time()[1], 0)

    @property
    def z(self) -> np.ndarray:
        """(k, learners) the mean z of each span."""
        return self._part(self._spans.over_time()[1], 1)

    @property
    def shares(self) -> np.ndarray:
        """(learners,) what each has in the prediction, as :func:`.pictures.contributions`."""
        mean = self._spans.mean
        common = self._part(mean, 3) - self._part(mean, 2) * mean[-1]
        return common / (common.sum() or np.nan)

    @property
    def table(self) -> np.ndarray:
        """(learners, 4) the number of each learner, its mean λ and z, and its share."""
        mean, numbers = self._spans.mean, np.arange(1, self.m + 1, step_of(self.m))
        return np.column_stack([numbers, self._part(mean, 0), self._part(mean, 1), self.shares])

    def add(self, targets: np.ndarray, seen: dict[str, np.ndarray]) -> None:
        """Count a block: targets, (n,), and what :class:`Watch` saw, (n, learners) each."""
        with np.errstate(all="ignore"):  # what diverges does not count
            self._spans.add(seen["lam"], seen["z"], seen["part"], targets, of=_vectors)

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {"m": self.m, "spans": self._spans.as_dict()}

    @classmethod
    def from_dict(cls, kept: Any) -> Learners:
        """The account that :meth:`as_dict` described."""
        learners = cls(int(kept["m"]))
        learners._spans = Spans.from_dict(kept["spans"])
        return learners

    def _part(self, means: np.ndarray, number: int) -> np.ndarray:
        shown = means.shape[-1] // 4
        return means[..., number * shown : (number + 1) * shown]


def _vectors(block: list[np.ndarray]) -> np.ndarray:
    lam, z, part, d = block
    return np.column_stack([lam, z, part, part * d[:, None], d])
