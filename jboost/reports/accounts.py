"""Accounts of a run's intervals and learners, and what is observed for them."""

from typing import ClassVar, NamedTuple, Self

import numpy as np
from jax import Array

from jboost.boosting.booster import Boosted
from jboost.core import Learner, State
from jboost.core.step import Info
from jboost.core.within import within
from jboost.explanations import Explained
from jboost.reports.spans import Spans
from jboost.reports.tally import WINDOW, Account, seconds_of
from jboost.running.blocks import Block
from jboost.wrappers.flags import flagged
from jboost.wrappers.intervals import Intervals

LAST_ROWS = 200  # in the picture of the intervals: more bars than that run into one another
MOST_LEARNERS = 40  # of a booster with more, every second, third, … learner is watched
SAMPLES = 16  # rows of a span in which λ and z are looked at: their means change slowly


class Watch(NamedTuple):
    """An ``observe`` function; equal ones are the same function to JAX, and compile once."""

    intervals: bool = False  # whether to record the bounds of the intervals, ``low`` and ``high``
    learners: int = 0  # of how many learners to record λ, z and the products z y
    explained: Explained | None = None  # records ``base`` and ``parts`` of the predictions
    flags: bool = False  # whether to record the flags of a model that has them

    @classmethod
    def for_model(
        cls, model: Learner, *, learners: bool, groups: tuple[int, ...] | None = None,
        flags: bool = False,
    ) -> Self:  # fmt: skip
        """Record the intervals of a model that has them and, on request, its learners.

        With ``groups``, those of :func:`jboost.explain`, record what each column adds too, and with
        ``flags`` the flags of a model that has them.
        """
        booster = within(model, Boosted) if learners else None
        explained = None if groups is None else Explained(model, groups)
        return cls(isinstance(model, Intervals), booster.m if booster else 0, explained, flags)

    def __call__(self, state: State, info: Info) -> dict[str, Array]:
        observed = {"low": info.low, "high": info.high} if self.intervals else {}
        if self.learners:
            watched = slice(None, None, step_of(self.learners))
            observed |= {"lam": info.lam[watched], "z": info.z[watched]}
            observed["zy"] = (info.z * info.y)[watched]
        if self.flags:
            observed |= flagged(state, info)
        if self.explained is not None:
            observed["base"], observed["parts"] = self.explained(state, info)
        return observed


def step_of(m: int) -> int:
    """1 if all of m learners are watched, 2 if every second is, and so on."""
    return -(-m // MOST_LEARNERS)


class Bands(Account):
    """The account of a run's intervals: how many targets lay inside, and how wide they were.

    ``coverage`` is the part of the targets that should lie inside. Targets whose interval is
    unbounded, as the first is, do not count.

    >>> bands, d = Bands(0.9), np.array([1.0, 5.0, 2.0])
    >>> observed = {"low": np.zeros(3), "high": np.array([2.0, 2.0, 4.0])}
    >>> bands.add(Block(0, d, d, np.zeros(3, bool), observed))
    >>> round(bands.covered, 3), round(bands.width, 3)
    (0.667, 2.667)
    """

    argument = ("coverage", float)
    arrays: ClassVar = {"recent": (-1,), "last": (-1, 6)}

    def __init__(self, coverage: float):
        self.coverage = coverage
        self.recent = np.zeros(0)  # whether the last targets lay inside
        self.last = np.zeros((0, 6))  # row, target, prediction, low, high, seconds since 1970
        self.spans = Spans(2)  # whether the target lay inside, and the width

    @property
    def covered(self) -> float:
        """The part of the targets that lay inside so far; NaN before the first."""
        return float(self.spans.mean[0])

    @property
    def lately(self) -> float:
        """The part of the last 1000 targets that lay inside; NaN before the first."""
        return float(self.recent.mean()) if len(self.recent) else float("nan")

    @property
    def width(self) -> float:
        """The mean width; NaN before the first target."""
        return float(self.spans.mean[1])

    def add(self, block: Block, instants: np.ndarray | None = None) -> None:
        """Count a block in which :class:`Watch` has observed ``low`` and ``high``."""
        arrays = (block.targets, block.prediction, block.observed["low"], block.observed["high"])
        d, prediction, low, high = (array.astype(np.float64) for array in arrays)
        inside, width = ((low <= d) & (d <= high)).astype(np.float64), high - low
        counts = block.scored & np.isfinite(width)
        self.recent = np.concatenate([self.recent, inside[counts]])[-WINDOW:]
        self.spans.add(np.where(counts, inside, np.nan), width)
        rows = np.arange(block.start + 1, block.start + 1 + len(d))
        seconds = seconds_of(instants, len(d))
        last = np.column_stack([rows, d, prediction, low, high, seconds])[-LAST_ROWS:]
        self.last = np.vstack([self.last, last])[-LAST_ROWS:]


class Learners(Account):
    """The account of a booster's m learners: the λ, the weight z and the share of each.

    ``start`` is how many rows of the stream came before the first that is added.

    >>> learners = Learners(2)
    >>> z, y = np.full((3, 2), 0.5), np.array([[1.0, 2.0], [2.0, 4.0], [4.0, 8.0]])
    >>> observed = {"lam": np.ones((3, 2)), "z": z, "zy": z * y}
    >>> learners.add(Block(0, y[:, 0], y[:, 0], np.zeros(3, bool), observed))
    >>> learners.shares.round(3)
    array([0.333, 0.667])
    """

    argument = ("m", int)

    def __init__(self, m: int, *, start: int = 0):
        self.m = m
        watched = len(range(0, m, step_of(m)))
        self.spans = Spans(4 * watched + 1, samples=SAMPLES, start=start)  # see _vectors

    @property
    def lam(self) -> np.ndarray:
        """(k, learners) the mean λ of each span."""
        return np.split(self.spans.over_time()[1][:, :-1], 4, axis=1)[0]

    @property
    def z(self) -> np.ndarray:
        """(k, learners) the mean z of each span."""
        return np.split(self.spans.over_time()[1][:, :-1], 4, axis=1)[1]

    @property
    def shares(self) -> np.ndarray:
        """(learners,) the share of each in the prediction: see :func:`.pictures.contributions`."""
        return self.table[:, 3]

    @property
    def table(self) -> np.ndarray:
        """(learners, 4) the number of each learner, its mean λ and z, and its share."""
        *means, d = self.spans.mean
        lam, z, zy, zyd = np.split(np.array(means), 4)
        covariance = zyd - zy * d
        shares = covariance / (covariance.sum() or np.nan)
        return np.column_stack([np.arange(1, self.m + 1, step_of(self.m)), lam, z, shares])

    def add(self, block: Block) -> None:
        """Count a block in which :class:`Watch` has observed the learners."""
        observed = [block.observed[name] for name in ("lam", "z", "zy")]
        with np.errstate(all="ignore"):  # rows in which something diverged do not count
            self.spans.add(*observed, block.targets, vectors=_vectors)


def _vectors(arrays: list[np.ndarray]) -> np.ndarray:
    """Return rows of λ, z, z y and z y d of all learners, then d; NaN where a learner diverged."""
    lam, z, zy, d = arrays
    vectors = np.column_stack([lam, z, zy, zy * d[:, None], d])
    return np.where(np.isfinite(vectors), vectors, np.nan)
