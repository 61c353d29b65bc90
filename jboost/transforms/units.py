"""The units of columns, followed from their first value on: Moments, Range and Held."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core.numerics import Sum, known, root, rounded, usable

RECENCY = 3  # the n-th value has the gain (RECENCY + 1)/(n + RECENCY) = 4/(n + 3)
RAREST = 100  # if fewer than one value in 100 changes, the mean counts 100 values for each change
# A column may start anew within its first TRIAL changes, where two values lie FAR times closer than
# its deviation. By chance this happens in 1 of 200 columns, and is harmless.
TRIAL, FAR = 10, 1000
SETTLED = 8  # samples: enough for units that need only be about right
WRONG = 10.0  # units that are this many times too large or too small are replaced
FARTHEST = 1000.0  # the bound of |x′|: above all that x′ can be before its units are replaced


class Moments(NamedTuple):
    """The running mean m and standard deviation s of each column; every field is 0 at the start.

    Let x be the n-th value of a column, and the k-th that differs from the value before it. Then

        δ = x − m, but at most c s in size                        (c is ``clip``)
        m ← m + a δ,                        a = 4/(n + 3)
        s² ← (1 − b) s² + b (1 − a) δ²,     b = 4/(k + 3), or 0 where x repeats the value before

    With a forgetting factor γ the counts fade, n ← γ n + 1 and k ← γ k + 1. n is at most 100 k.

    * The gain is 4/n instead of 1/n. So a wrong start fades as n⁻² instead of n^−½; the price is
      the accuracy that half of the samples would have at a gain of 1/n.
    * The bound c s makes a single absurd value count as one of c deviations. A real change of scale
      is still followed: s can grow by a factor of e within a fiftieth of the samples so far.
    * Repeated values do not shrink s. A column that is zero but for a few samples, or that was zero
      until today, has the scale of the other values that it takes.
    * A column starts anew where its first values lie a thousand times farther apart than the next
      two. A first reading of 0 or a marker of −9999 does not belong to the column.

    The state holds s instead of s², because squares of numbers near the ends of float32's range
    overflow or vanish. In float32 the counts end at 2²⁴, from where on older values fade.
    """

    samples: Array  # n, the number of usable values, with forgetting
    changes: Array  # k, the number of values that differ from the value before them, likewise
    last: Array  # the latest usable value
    mean: Sum  # m
    deviation: Sum  # s

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> "Moments":
        zero, empty = jnp.zeros(shape, dtype), Sum.zeros(shape, dtype)
        return cls(zero, zero, zero, empty, empty)

    @jax.jit
    def after(self, x: ArrayLike, forgetting: ArrayLike, clip: ArrayLike) -> "Moments":
        """Return the moments after a value of each column; unusable values change nothing."""
        dtype = self.last.dtype
        gamma, c = jnp.asarray(forgetting, dtype), jnp.asarray(clip, dtype)
        seen = usable(jnp.asarray(x, dtype))
        x = known(x, dtype)
        n, k, last, mean, deviation = self._without_false_start(x)
        m, s = mean.total, deviation.total

        new = (x != last) | (n == 0)
        k = jnp.where(new, gamma * k + 1, k)
        n = jnp.minimum(gamma * n + 1, RAREST * k)
        a, b = gain(n), jnp.where(new, gain(k), 0)
        u = standardised(x - m, s, c)
        growth = jnp.where(s > 0, b * (rounded((1 - a) * u * u) - 1), 0)  # of s², divided by s²
        first = root(b * (1 - a)) * jnp.abs(x - m)
        mean = mean.add(rounded(a * jnp.where(s > 0, u * s, x - m)))
        longer = jnp.where(s > 0, s * (growth / (1 + jnp.sqrt(1 + growth))), first)
        after = Moments(n, k, x, mean, deviation.add(rounded(longer)))
        return jax.tree.map(lambda new, old: jnp.where(seen, new, old), after, self)

    @property
    def frame(self) -> tuple[Array, Array]:
        """m and s."""
        return self.mean.total, self.deviation.total

    def scaled(self, x: Array, clip: Array) -> Array:
        """Return how many deviations x lies from the mean, within ±``clip``."""
        m, s = self.frame
        return standardised(x - m, s, clip)

    def unscaled(self, scaled: Array, clip: Array) -> Array:
        """Return the value that lies ``scaled`` deviations from the mean, within ±``clip``."""
        m, s = self.frame
        return m + rounded(s * jnp.clip(scaled, -clip, clip))

    def _without_false_start(self, x: Array) -> "Moments":
        """Return the moments; those of the last value alone where the values before it mislead."""
        gap = jnp.abs(x - self.last)
        misled = (self.changes < TRIAL) & (gap > 0) & (gap * FAR < self.deviation.total)
        count, zero = jnp.ones_like(x), jnp.zeros_like(x)
        alone = Moments(count, count, self.last, Sum(self.last, zero), Sum(zero, zero))
        return jax.tree.map(lambda new, old: jnp.where(misled, new, old), alone, self)


class Range(NamedTuple):
    """The ranges of some columns; every field has an entry per column."""

    started: Array  # whether the column had a usable value, False at the start
    low: Array  # its smallest value, 0 at the start
    high: Array  # its largest value, 0 at the start

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> "Range":
        return cls(jnp.zeros(shape, bool), jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def after(self, x: ArrayLike, forgetting: ArrayLike, clip: ArrayLike) -> "Range":
        """Return the ranges after a value of each column; unusable values change nothing."""
        dtype = self.low.dtype
        gamma, c = jnp.asarray(forgetting, dtype), jnp.asarray(clip, dtype)
        seen = usable(jnp.asarray(x, dtype))
        x = known(x, dtype)
        middle, half = self.frame
        near = jnp.where(half > 0, jnp.clip(x, middle - c * half, middle + c * half), x)
        fading = (1 - gamma) * half  # the ends first move by 1 − γ of the way to the middle
        low = jnp.where(self.started, jnp.minimum(self.low + fading, near), x)
        high = jnp.where(self.started, jnp.maximum(self.high - fading, near), x)
        after = Range(jnp.ones_like(self.started), low, high)
        return jax.tree.map(lambda new, old: jnp.where(seen, new, old), after, self)

    @property
    def frame(self) -> tuple[Array, Array]:
        """The middle, and half of the width."""
        half = (self.high - self.low) / 2
        return self.low + half, half

    def scaled(self, x: Array, clip: Array) -> Array:
        """Return where x lies: −1 at the low end, 1 at the high end."""
        middle, half = self.frame
        return standardised(x - middle, half, jnp.ones_like(half))

    def unscaled(self, scaled: Array, clip: Array) -> Array:
        """Return the value that lies there."""
        middle, half = self.frame
        return middle + rounded(half * jnp.clip(scaled, -1, 1))


class Held(NamedTuple):
    """Units that stay as they are while they are about right, for ``Scale("held")``.

    A learner that never forgets is exact only if the units of its inputs never change. So a column
    has a center c and a unit u, with x′ = (x − c)/u. They become the m and s of :class:`Moments`
    with each of the first 8 samples, and later only when they are clearly wrong, where |m − c| >
    10u or where s is outside [u/10, 10u].

    In the first 8 samples x′ is NaN: a learner learns nothing in units that are about to change. A
    column that was constant gets its units when it first changes; until then its x′ is 0. Where
    inputs and target are both held, put ScaleTarget inside the pipeline: outside, it withholds the
    first 8 samples from the pipeline's scaler, which then settles later.
    """

    moments: Moments  # the running mean and deviation
    center: Array  # c of each column, 0 at the start
    unit: Array  # u of each column, 0 at the start

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> "Held":
        return cls(Moments.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def after(self, x: ArrayLike, forgetting: ArrayLike, clip: ArrayLike) -> "Held":
        """Return the units after one more value of each column; unusable values change nothing."""
        moments = self.moments.after(x, forgetting, clip)
        m, s = moments.frame
        c, u = self.frame
        right = (jnp.abs(m - c) <= WRONG * u) & (s <= WRONG * u) & (u <= WRONG * s)
        holds = right & (moments.samples > SETTLED)
        return Held(moments, jnp.where(holds, c, m), jnp.where(holds, u, s))

    @property
    def frame(self) -> tuple[Array, Array]:
        """c and u."""
        return self.center, self.unit

    @property
    def settled(self) -> Array:
        """Whether any column has enough samples: columns with gaps are not waited for."""
        return jnp.max(self.moments.samples) > SETTLED

    def scaled(self, x: Array, clip: Array) -> Array:
        """Return x′, with x no farther from the mean than ``clip`` deviations."""
        m, s = self.moments.frame
        near = jnp.clip(x, m - clip * s, m + clip * s)
        scaled = standardised(near - self.center, self.unit, jnp.full_like(s, FARTHEST))
        return jnp.where(self.settled, scaled, jnp.nan)

    def unscaled(self, scaled: Array, clip: Array) -> Array:
        """Return the value of an x′, no farther from the mean than ``clip`` deviations."""
        m, s = self.moments.frame
        far = self.center + rounded(self.unit * jnp.clip(scaled, -FARTHEST, FARTHEST))
        return jnp.where(self.settled, jnp.clip(far, m - clip * s, m + clip * s), m)


Units = Moments | Range | Held


def standardised(delta: Array, s: Array, c: Array) -> Array:
    """Return δ/s within ±c, and 0 where s is 0."""
    # The division comes last: a compiler does not repeat it for each use of the result.
    return jnp.clip(delta, -c * s, c * s) / jnp.where(s > 0, s, 1)


def gain(count: Array) -> Array:
    """Return how much the newest of so many values counts: 4/n instead of 1/n, see `Moments`."""
    return (RECENCY + 1) / (count + RECENCY)
