"""The account of a run's errors beside those of controls, and the base class of accounts."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from jboost.reports.seasons import Season, seasons_of
from jboost.reports.spans import Spans, as_text, from_text
from jboost.running.blocks import Block

Curves = tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]

WINDOW = 1000  # targets that count as "lately"


class Account:
    """Base class of accounts. A checkpoint stores its argument, its ``arrays`` and its spans."""

    argument: ClassVar[tuple[str, Callable[[Any], Any]]]  # of the constructor: its name and type
    arrays: ClassVar[dict[str, tuple[int, ...]]] = {}  # the shapes of the arrays, by name
    spans: Spans

    def __init__(self, argument: Any, /): ...

    def as_dict(self) -> dict[str, Any]:
        """Return the account as JSON can hold it."""
        arrays = {name: as_text(getattr(self, name)) for name in self.arrays}
        name = self.argument[0]
        return {name: getattr(self, name), **arrays, "spans": self.spans.as_dict()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the account that :meth:`as_dict` described."""
        name, kind = cls.argument
        account = cls(kind(saved[name]))
        for name, shape in cls.arrays.items():
            setattr(account, name, from_text(saved[name]).reshape(shape))
        account.spans = Spans.from_dict(saved["spans"])
        return account


class Errors(Account):
    """Base class of tallies: errors of a model's predictions and of controls, also over time."""

    argument = ("name", str)
    arrays: ClassVar = {"errors": (-1,), "sizes": (-1,), "recent": (-1,)}

    def __init__(self, name: str):
        self.name = name
        self.recent = np.zeros(0)  # the model's last squared errors
        # Sums over time, of the model and the controls: of squared errors, and of their sizes.
        self.errors, self.sizes = np.zeros(len(self.names)), np.zeros(len(self.names))
        self.spans = Spans(len(self.names))  # the squared errors of the model and the controls
        self.times = Spans(1)  # when the rows of the same spans were, in seconds since 1970

    @property
    def names(self) -> list[str]:
        """What the model and the controls are called."""
        return [self.name, "running mean", "last value"]

    @property
    def silent(self) -> Collection[str]:
        """The controls that are not told of, as they have had nothing to look back to so far."""
        return ()

    def _told(self, values: Iterable[Any]) -> dict[str, Any]:
        """Return what there is of the model and of each control that is told of, by name."""
        named = zip(self.names, values, strict=True)
        return {name: value for name, value in named if name not in self.silent}

    @property
    def scored(self) -> int:
        """How many predictions had a usable target."""
        return self.spans.rows

    @property
    def mse(self) -> dict[str, float]:
        """The mean squared error so far, by name; NaN before the first target."""
        means = self.errors / (self.scored or np.nan)
        return self._told(means.tolist())

    @property
    def mae(self) -> dict[str, float]:
        """The mean size of the errors so far, by name; NaN before the first target."""
        means = self.sizes / (self.scored or np.nan)
        return self._told(means.tolist())

    @property
    def lately(self) -> float:
        """The model's mean squared error over the last 1000 targets; NaN before the first."""
        return float(self.recent.mean()) if len(self.recent) else float("nan")

    @property
    def when(self) -> np.ndarray | None:
        """(k,) the mean times of the spans of :meth:`curves`; None if they are not in order."""
        seconds = self.times.over_time()[1][:, 0]
        ordered = len(seconds) > 1 and np.isfinite(seconds).all() and (np.diff(seconds) > 0).all()
        return (seconds * 1e6).astype("datetime64[us]") if ordered else None

    def times_at(self, parts: np.ndarray) -> np.ndarray:
        """Return about when such parts of the run, from 0 to 1, were done; ``when`` is not None."""
        seconds = self.times.over_time()[1][:, 0]
        ends = np.append(0.0, self.times.over_time()[0])
        middles = (ends[1:] + ends[:-1]) / 2
        # The times of spans are those of their middles; half a span is before, and after, them.
        first, last = np.diff(seconds)[[0, -1]] / 2
        seconds = np.concatenate([[seconds[0] - first], seconds, [seconds[-1] + last]])
        at = np.interp(parts * ends[-1], np.concatenate([[0], middles, ends[-1:]]), seconds)
        return (at * 1e6).astype("datetime64[us]")

    def count(self, gaps: np.ndarray, instants: np.ndarray | None) -> None:
        """Count rows: how far the model and the controls were off, (n, controls + 1)."""
        # Sums are taken row by row, so that no bit depends on how the stream was cut.
        errors = gaps**2
        self.errors = np.cumsum(np.vstack([self.errors, errors]), axis=0)[-1]
        self.sizes = np.cumsum(np.vstack([self.sizes, gaps]), axis=0)[-1]
        self.recent = np.concatenate([self.recent, errors[:, 0]])[-WINDOW:]
        self.spans.add(errors)
        self.times.add(seconds_of(instants, len(gaps))[:, None])

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"times": self.times.as_dict()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        tally = super().from_dict(saved)
        tally.times = Spans.from_dict(saved["times"])
        return tally

    def curves(self) -> Curves:
        """Return (k,) numbers of targets at which spans of the stream end, and two dictionaries.

        These hold, by the names of the model and the controls, the (k,) mean squared errors over
        all targets until there and those of each span.
        """
        ends, within = self.spans.over_time()
        so_far = np.cumsum(within * np.diff(ends, prepend=0)[:, None], axis=0) / ends[:, None]
        return ends, self._told(so_far.T), self._told(within.T)


class Tally(Errors):
    """Errors of a model's predictions, and of controls that do not look at x.

    The controls are those of :mod:`jboost.baselines`: the mean of all targets so far, and the
    target before. Both predict 0 before the first target. Where the rows have times at a regular
    ``step``, in microseconds, the target of a day, a week or a year before is one more, and the
    target before stands in for it where there is none, and it is told of once there was one.
    ``name`` is what the model is called.

    >>> tally = Tally("mine")
    >>> d = np.array([1.0, 3.0, np.nan, 2.0])
    >>> tally.add(Block(0, d, np.array([1.0, 1.0, 9.0, 1.0]), skipped=np.isnan(d)))
    >>> tally.mse
    {'mine': 1.666..., 'running mean': 1.666..., 'last value': 2.0}
    """

    arrays: ClassVar = Errors.arrays | {"targets": (2,), "latest": (1,)}

    def __init__(self, name: str, step: int = 0):
        self.step = step
        self.seasons = {season: Season.empty(n) for season, n in seasons_of(step).items()}
        super().__init__(name)
        self.targets = np.zeros(2)  # the sum of the targets, and the last of them
        self.latest = np.array([-np.inf])  # the latest time so far, in seconds since 1970
        self.back = 0  # how many rows came after a row of a later time

    @property
    def names(self) -> list[str]:
        return [*super().names, *map(_seasonal_name, self.seasons)]

    @property
    def silent(self) -> Collection[str]:
        return [_seasonal_name(name) for name, season in self.seasons.items() if not season.found]

    def add(self, block: Block, instants: np.ndarray | None = None) -> None:
        """Count a block, whose rows may have times, as datetime64[us]."""
        d = block.targets[block.scored].astype(np.float64)
        if instants is not None:
            self._count_back(instants)
            instants = instants[block.scored]
        if not len(d):
            return
        # A sum is taken row by row, as those of errors are.
        target_sums = np.cumsum(np.append(self.targets[0], d))
        counts = np.arange(self.scored, self.scored + len(d))
        means = target_sums[:-1] / np.maximum(counts, 1)
        before = np.append(self.targets[1], d[:-1])
        prediction = block.prediction[block.scored].astype(np.float64)
        estimates = np.column_stack(
            [prediction, means, before, *self._seasonal(d, before, instants)]
        )
        self.targets = np.array([target_sums[-1], d[-1]])
        self.count(np.abs(estimates - d[:, None]), instants)

    def as_dict(self) -> dict[str, Any]:
        seasons = {season: account.as_dict() for season, account in self.seasons.items()}
        return super().as_dict() | {"step": self.step, "back": self.back, "seasons": seasons}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        tally = super().from_dict(saved)
        tally.step, tally.back = int(saved["step"]), int(saved["back"])
        tally.seasons = {
            season: Season.from_dict(account) for season, account in saved["seasons"].items()
        }
        if not len(tally.errors) == len(tally.sizes) == len(tally.names):
            raise ValueError("the sums are of other controls")
        return tally

    def _count_back(self, instants: np.ndarray) -> None:
        seconds = seconds_of(instants, len(instants))
        seconds = seconds[np.isfinite(seconds)]
        latest = np.maximum.accumulate(np.append(self.latest, seconds))
        self.back += int((seconds < latest[:-1]).sum())
        self.latest = latest[-1:]

    def _seasonal(
        self, d: np.ndarray, before: np.ndarray, instants: np.ndarray | None
    ) -> list[np.ndarray]:
        """Return the estimates of the seasonal controls."""
        if instants is None:
            return [before for _ in self.seasons]
        there, made = ~np.isnat(instants), []
        slots = np.floor_divide(instants[there].astype(np.int64) + self.step // 2, self.step or 1)
        for name, season in self.seasons.items():
            estimate = before.copy()
            self.seasons[name], estimate[there] = season.after(slots, d[there], before[there])
            made.append(estimate)
        return made


def _seasonal_name(season: str) -> str:
    return f"seasonal last value, {season}"


def seconds_of(instants: np.ndarray | None, rows: int) -> np.ndarray:
    """Return times in seconds since 1970, NaN where there is none."""
    if instants is None:
        return np.full(rows, np.nan)
    return np.where(np.isnat(instants), np.nan, instants.astype(np.int64) / 1e6)
