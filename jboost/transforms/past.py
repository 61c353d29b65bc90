"""Past: the latest answers and those of a season ago, where they tell something of the next."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Sample, Transform, checks, model, static
from jboost.core.numerics import dtype_of, root

MEMORY = 5000.0  # samples over which autocorrelations are averaged
CLIP = 3.0  # deviations: an answer or a change beyond this counts as this
# Chance alone makes an autocorrelation of n samples about 1/√n. The past tells something once its
# autocorrelation is above TELLING/√n, and nothing any more once it is below SILENT/√n.
TELLING, SILENT = 4.0, 2.0
# A period must have an autocorrelation of LEAST and of SURE/√n, and to replace another one it must
# be CLEARLY better. Periods closer than APART to each other are one.
LEAST, SURE, CLEARLY, APART = 0.1, 5.0, 1.15, 2


class PastState(NamedTuple):
    """What is known of the answers so far; every field is 0 at the start."""

    answers: Array  # the latest answers, newest first, (longest + 2,)
    samples: Array  # n, how many there were
    mean: Array  # of the answers
    variance: Array  # of the answers
    levels: Array  # the autocorrelations of the answers at the first lags, (lags,)
    telling: Array  # whether the latest answers tell something of the next
    power: Array  # the mean square of the change from answer to answer
    changes: Array  # the autocorrelations of these changes, at lags 1, 2, …, (longest,)
    periods: Array  # the periods found, best first, (seasons,), int32; 0 where there is none


@model
class Past(Transform):
    """Appends the latest answers, and those of one period ago.

        x′_t = (x_t, d_{t−1}, …, d_{t−lags}, d_{t−s}, d_{t−s−1}, …)    for each period s

    A period s is a lag at which the changes d_t − d_{t−1} repeat: the peak of their running
    autocorrelation, beyond what chance gives. Where the answers have no autocorrelation, as in a
    shuffled table, the latest answers are NaN, and so are those of a period that is not found:
    put :class:`Scale` and :class:`Impute` behind it.

    Args:
      lags: how many of the latest answers, at least 1.
      seasons: how many periods to look for, at least 0.
      longest: the longest period that is looked for.

    >>> import jboost as jb, numpy as np
    >>> ds = np.sin(2 * np.pi * np.arange(300) / 24).astype(np.float32)
    >>> state, _ = jb.run(jb.pipeline(Past(1, 1, 100), jb.SGD(0.1)), np.zeros((300, 1)), ds)
    >>> int(state.transforms[0].periods[0])
    24
    """

    lags: int = static(default=3)
    seasons: int = static(default=2)
    longest: int = static(default=1024)

    def __post_init__(self) -> None:
        checks.fields(
            self,
            lags=checks.a_whole_number(at_least=1),
            seasons=checks.a_whole_number(at_least=0),
            longest=checks.a_whole_number(at_least=1),
        )
        if self.longest <= self.lags:
            raise ValueError(f"longest must be above lags={self.lags}; got {self.longest}")

    @property
    def passes_missing(self) -> bool:
        return True

    @property
    def columns(self) -> int:
        """The number of columns that are appended."""
        return self.lags + 2 * self.seasons

    def width(self, num_features: int) -> int:
        return num_features + self.columns

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> PastState:
        dtype = dtype_of(dtype)
        zero, zeros = jnp.zeros((), dtype), jnp.zeros(self.longest, dtype)
        return PastState(
            answers=jnp.zeros(self.longest + 2, dtype),
            samples=zero,
            mean=zero,
            variance=zero,
            levels=zeros[: self.lags],
            telling=jnp.zeros((), bool),
            power=zero,
            changes=zeros,
            periods=jnp.zeros(self.seasons, jnp.int32),
        )

    def apply(self, state: PastState, x: ArrayLike) -> Array:
        latest = jnp.where(state.telling, self.latest(state), jnp.nan)
        return jnp.concatenate([jnp.asarray(x, state.mean.dtype), latest, self.a_season_ago(state)])

    def latest(self, state: PastState) -> Array:
        """Return the latest answers, newest first, (lags,); NaN where there was none."""
        there = jnp.arange(self.lags, dtype=state.samples.dtype) < state.samples
        return jnp.where(there, state.answers[: self.lags], jnp.nan)

    def a_season_ago(self, state: PastState) -> Array:
        """Return the answers one period before the next, and one earlier; NaN without a period."""
        at = jnp.stack([state.periods - 1, state.periods], axis=1).ravel()
        found = (jnp.repeat(state.periods, 2) > 0) & (
            at.astype(state.samples.dtype) < state.samples
        )
        return jnp.where(found, state.answers[jnp.maximum(at, 0)], jnp.nan)

    def learn(self, state: PastState, sample: Sample) -> PastState:
        answers, n, d = state.answers, state.samples, sample.d
        effective = jnp.clip(n, 1, MEMORY)
        chance, gain = 1 / jnp.sqrt(effective), 1 / effective

        deviation = root(state.variance)
        u = _within(d - state.mean, deviation)
        before = _within(answers[: self.lags] - state.mean, deviation)
        there = jnp.arange(self.lags, dtype=n.dtype) < n
        products = jnp.where(there & (deviation > 0), u * before / _or_one(state.variance), 0)
        levels = state.levels + gain * (products - state.levels)
        strongest = jnp.max(jnp.abs(levels))
        telling = strongest > jnp.where(state.telling, SILENT, TELLING) * chance

        change = _within(jnp.where(n > 0, d - answers[0], 0), root(state.power))
        power = state.power + jnp.where(n > 0, gain, 0) * (change * change - state.power)
        earlier = _within(answers[:-2] - answers[1:-1], root(power))
        numbers = jnp.arange(1, self.longest + 1, dtype=jnp.int32)
        products = jnp.where(numbers.astype(n.dtype) < n, change * earlier / _or_one(power), 0)
        changes = state.changes + gain * (products - state.changes)
        return PastState(
            answers=jnp.concatenate([d[None], answers[:-1]]),
            samples=n + 1,
            mean=state.mean + u / (jnp.minimum(n, MEMORY) + 1),
            variance=jnp.where(n > 0, state.variance + gain * (u * u - state.variance), 0),
            levels=levels,
            telling=telling,
            power=power,
            changes=changes,
            periods=self._periods(state.periods, numbers, changes, chance),
        )

    def _periods(self, old: Array, numbers: Array, changes: Array, chance: Array) -> Array:
        least = jnp.maximum(LEAST, SURE * chance)
        around = jnp.pad(changes, 1)
        peak = (changes >= around[:-2]) & (changes >= around[2:])  # not the slope of another
        left = jnp.where(peak & (numbers > self.lags), changes, 0)
        periods = []
        for k in range(self.seasons):
            best = jnp.max(left)
            there = jnp.min(jnp.where(left == best, numbers, self.longest))
            present = jnp.where(old[k] > 0, left[jnp.maximum(old[k] - 1, 0)], 0)
            replaced = (best > CLEARLY * present) | (present < least / 2)
            period = jnp.where(replaced, jnp.where(best > least, there, 0), old[k])
            left = jnp.where(jnp.abs(numbers - period) <= APART, 0, left)
            periods.append(period)
        return jnp.stack(periods) if periods else old


def _within(values: Array, unit: Array) -> Array:
    """Return values no larger than CLIP units; as they are while there is no unit."""
    return jnp.where(unit > 0, jnp.clip(values, -CLIP * unit, CLIP * unit), values)


def _or_one(values: Array) -> Array:
    return jnp.where(values > 0, values, 1)
