"""Seasons: the periods of the answers, found while the stream runs."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Sample, Transform, checks, model, static
from jboost.core.numerics import dtype_of

SHORTEST = 4  # shorter lags are for `Lags`
MEMORY = 5000.0  # samples over which autocorrelations are averaged
CLIP = 3.0  # deviations: a change beyond this counts as this
CLEARLY = 1.15  # a new period must be so much better than the one it replaces
LEAST = 0.1  # the autocorrelation that a period must have
BEYOND_CHANCE = 5.0  # times 1/√n, which chance gives
APART = 2  # periods closer than this to another count as that one


class SeasonsState(NamedTuple):
    """The latest answers and the periods found among them; all 0 at the start."""

    answers: Array  # the latest answers, newest first, (longest + 2,)
    count: Array  # how many there were so far
    power: Array  # the mean square of the change from answer to answer
    products: Array  # the mean of the products of changes ℓ + 1 samples apart, scaled, (longest,)
    periods: Array  # the periods, (seasons,), int32; 0 where none was found


@model
class Seasons(Transform):
    """Appends the answers of one period ago."""

    seasons: int = static(default=2)
    longest: int = static(default=1024)

    def width(self, num_features: int) -> int:
        return num_features + 2 * self.seasons

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> SeasonsState:
        dtype = dtype_of(dtype)
        zero = jnp.zeros((), dtype)
        return SeasonsState(
            jnp.zeros(self.longest + 2, dtype), zero, zero,
            jnp.zeros(self.longest, dtype), jnp.zeros(self.seasons, jnp.int32),
        )  # fmt: skip

    def columns(self, state: SeasonsState) -> Array:
        """Return, for each season, the answers one period before the next one, and one earlier."""
        periods = state.periods
        at = jnp.stack([periods - 1, periods], axis=1).ravel()
        found = (jnp.repeat(periods, 2) > 0) & (at < state.count)
        return jnp.where(found, state.answers[jnp.maximum(at, 0)], jnp.nan)

    def apply(self, state: SeasonsState, x: ArrayLike) -> Array:
        return jnp.concatenate([jnp.asarray(x, state.answers.dtype), self.columns(state)])

    def learn(self, state: SeasonsState, sample: Sample) -> SeasonsState:
        answers, n, power, products, periods = state
        d, dtype = sample.d, answers.dtype
        change = jnp.where(n > 0, d - answers[0], 0)
        gain = jnp.maximum(1 / jnp.maximum(n, 1), 1 / MEMORY)
        s = jnp.sqrt(power)
        z = jnp.where(s > 0, jnp.clip(change, -CLIP * s, CLIP * s), change)
        power = jnp.where(n > 0, power + gain * (z * z - power), power)
        scale = jnp.where(power > 0, 1 / jnp.sqrt(jnp.where(power > 0, power, 1)), 0)
        numbers = jnp.arange(len(products), dtype=jnp.int32)
        before = answers[:-2] - answers[1:-1]  # the changes 1, 2, … samples earlier
        before = jnp.where(numbers + 1 < n.astype(jnp.int32), before, 0)
        u = jnp.clip(before * scale, -CLIP, CLIP)
        products = products + gain * (z * scale * u - products)

        lags = numbers + 1
        chance = BEYOND_CHANCE / jnp.sqrt(jnp.clip(n, 1, MEMORY))
        least = jnp.maximum(LEAST, chance)
        rho = jnp.where(lags >= SHORTEST, products, 0)
        new = []
        for k in range(self.seasons):
            best = jnp.max(rho)
            at = jnp.min(jnp.where(rho == best, lags, len(products)))
            old = periods[k]
            still = jnp.where(old > 0, rho[jnp.maximum(old - 1, 0)], 0)
            better = (best > CLEARLY * still) | (still < 0.5 * least)
            period = jnp.where(better, jnp.where(best > least, at, 0), old)
            new.append(period)
            near = jnp.abs(lags - period) <= APART
            rho = jnp.where(near, 0, rho)
        answers = jnp.concatenate([d[None], answers[:-1]])
        return SeasonsState(answers, n + 1, power, products, jnp.stack(new).astype(jnp.int32))
