"""The account of a forecaster's errors: by horizon, beside those of naive forecasts."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from jax import Array

from jboost.core.step import Info
from jboost.forecasts.bands import half_widths, unbounded
from jboost.forecasts.state import ForecastState
from jboost.reports.seasons import LONGEST, seasons_of
from jboost.reports.spans import as_text, from_text
from jboost.running.blocks import Block

LAST = "last value"


def observed(state: ForecastState, info: Info) -> dict[str, Array]:
    """Record the bounds that were given for a row, and the half widths of its own forecast."""
    return {"low": info.low, "high": info.high, "half_width": unbounded(half_widths(state.bands))}


class Horizons:
    """Errors of forecasts, and of naive forecasts of the same answers, by horizon.

    The naive forecasts are the last value at the row of the forecast, and where rows have times at
    a regular ``step``, in microseconds, the answer whole days or weeks before; these are left out
    until one had an answer to take. ``name`` is what the model is called.

    >>> account = Horizons("mine", 2)
    >>> d = np.array([1.0, 2.0, 4.0])
    >>> due = np.array([[np.nan, np.nan], [1.5, np.nan], [3.0, 2.0]])
    >>> account.add(Block(0, d, np.zeros((3, 2)), np.zeros(3, bool), due=due))
    >>> {name: mae.tolist() for name, mae in account.mae_by_horizon.items()}
    {'mine': [0.75, 2.0], 'last value': [1.5, 3.0]}
    """

    def __init__(self, name: str, horizon: int, step: int = 0):
        self.name, self.horizon, self.step = name, horizon, step
        self.seasons = seasons_of(step)
        self.found = np.zeros(len(self.seasons))  # 1 where a season had an answer before
        shape = 2 + len(self.seasons), horizon  # the model, the last value, the seasons
        self.squares, self.sizes = np.zeros(shape), np.zeros(shape)  # sums of errors
        self.answers = np.zeros(horizon)  # how many answers came
        self.inside, self.bounded, self.widths = (np.zeros(horizon) for _ in range(3))
        self.rows = 0  # how many answers were learned
        self.left_out = 0  # how many rows were not later than a row before them
        self.gaps = 0  # how many steps between two rows had no row
        self._slots, self._values = np.zeros(0, np.int64), np.zeros(0)  # of the latest answers
        self.last = np.zeros((3, horizon))  # the latest forecast, its low and high ends
        self.recent = np.zeros(0)  # the latest answers, for a picture

    @property
    def names(self) -> list[str]:
        """What the model and the naive forecasts are called."""
        found = zip(self.seasons, self.found, strict=True)
        return [self.name, LAST, *(f"{season} before" for season, there in found if there)]

    @property
    def mse(self) -> dict[str, float]:
        """The mean squared error over all pairs of a forecast and its answer, by name."""
        return dict(zip(self.names, self._over_all(self.squares), strict=True))

    @property
    def mae(self) -> dict[str, float]:
        """The mean absolute error over all pairs, by name."""
        return dict(zip(self.names, self._over_all(self.sizes), strict=True))

    @property
    def mae_by_horizon(self) -> dict[str, np.ndarray]:
        """The mean absolute error of each horizon, (H,), by name; NaN where no answer came."""
        counts = np.where(self.answers > 0, self.answers, np.nan)
        return dict(zip(self.names, self._shown(self.sizes) / counts, strict=True))

    @property
    def coverage(self) -> np.ndarray:
        """The part of the answers inside the intervals, of each horizon, (H,); NaN without any."""
        return self.inside / np.where(self.bounded > 0, self.bounded, np.nan)

    def add(self, block: Block, slots: np.ndarray | None = None) -> None:
        """Count a block; ``slots`` are the numbers of the steps at which its rows are.

        Without them each row is a step.
        """
        d, due = block.targets.astype(np.float64), block.due
        if due is None:
            raise TypeError("the block is of a model that does not forecast")
        due = due.astype(np.float64)
        learned = block.scored & ~block.skipped
        if slots is None:
            slots = block.start + np.arange(len(d))
        elif learned.any():
            self._count_steps(slots[learned])
        seen = (np.append(self._slots, slots[learned]), np.append(self._values, d[learned]))
        there = learned[:, None] & ~np.isnan(due)
        ahead = np.arange(1, self.horizon + 1)
        last = _at(*seen, slots[:, None] - ahead, d[:, None])
        naive = [last]
        for i, rows in enumerate(self.seasons.values()):
            asked = slots[:, None] - rows * -(-ahead // rows)
            before = _at(*seen, asked, np.full(asked.shape, np.nan))
            has = ~np.isnan(before)
            self.found[i] = max(self.found[i], (there & has).any())
            naive.append(np.where(has, before, last))
        for i, estimate in enumerate([due, *naive]):
            e = np.where(there, estimate - d[:, None], 0)
            self.squares[i] += (e**2).sum(axis=0)
            self.sizes[i] += np.abs(e).sum(axis=0)
        self.answers += there.sum(axis=0)
        if block.observed is not None:
            low, high = (block.observed[name].astype(np.float64) for name in ("low", "high"))
            bounded = there & np.isfinite(high - low)
            self.inside += (bounded & (low <= d[:, None]) & (d[:, None] <= high)).sum(axis=0)
            self.bounded += bounded.sum(axis=0)
            self.widths += np.where(bounded, high - low, 0).sum(axis=0)
            h = block.observed["half_width"][-1].astype(np.float64)
            y = block.prediction[-1].astype(np.float64)
            self.last = np.stack([y, y - h, y + h])
        self.rows += int(learned.sum())
        most = LONGEST + self.horizon
        self._slots, self._values = (values[-most:] for values in seen)
        self.recent = self._values[-2 * self.horizon :]

    def _count_steps(self, slots: np.ndarray) -> None:
        """Count rows that are not later than a row before them, and steps without a row."""
        latest = self._slots.max() if len(self._slots) else slots[0] - 1
        steps = slots - np.maximum.accumulate(np.append(latest, slots))[:-1]
        self.left_out += int((steps <= 0).sum())
        self.gaps += int((steps[steps > 1] - 1).sum())

    def as_dict(self) -> dict[str, Any]:
        """Return the account as JSON can hold it."""
        arrays = {name: as_text(getattr(self, name)) for name in _ARRAYS}
        fixed = {"name": self.name, "horizon": self.horizon, "step": self.step, "rows": self.rows}
        fixed |= {"left_out": self.left_out, "gaps": self.gaps}
        return fixed | arrays | {"slots": self._slots.tolist(), "values": as_text(self._values)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the account that :meth:`as_dict` described."""
        account = cls(str(saved["name"]), int(saved["horizon"]), int(saved["step"]))
        account.found[:] = 1  # older files do not say it: their run has shown the seasons
        for name in (name for name in _ARRAYS if name in saved):
            old = getattr(account, name)
            new = from_text(saved[name])
            setattr(account, name, new if name == "recent" else new.reshape(old.shape))
        counts = (int(saved[name]) for name in ("rows", "left_out", "gaps"))
        account.rows, account.left_out, account.gaps = counts
        account._slots = np.array(saved["slots"], np.int64)
        account._values = from_text(saved["values"])
        return account

    def _over_all(self, sums: np.ndarray) -> list[float]:
        return (self._shown(sums).sum(axis=1) / (self.answers.sum() or np.nan)).tolist()

    def _shown(self, sums: np.ndarray) -> np.ndarray:
        """Return the rows of the model and of those naive forecasts that are not left out."""
        return sums[np.append([True, True], self.found > 0)]


_ARRAYS = (
    *("squares", "sizes", "answers", "inside", "bounded", "widths", "last", "recent"),
    "found",
)


def _at(slots: np.ndarray, values: np.ndarray, asked: np.ndarray, otherwise: np.ndarray) -> Any:
    """Return the last value at each slot that is asked for; ``otherwise`` where there is none."""
    if not len(slots):
        return np.broadcast_to(otherwise, asked.shape)
    order = np.argsort(slots, kind="stable")
    at = np.searchsorted(slots[order], asked, side="right") - 1
    found = order[np.maximum(at, 0)]
    there = (at >= 0) & (slots[found] == asked)
    return np.where(there, values[found], otherwise)
