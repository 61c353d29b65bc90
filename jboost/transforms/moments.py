"""The running mean and standard deviation of columns of any units, from the first value on.

A column has a mean m and a deviation s. Its n-th value x, which is the k-th that differs from the
one before it, changes them by

    δ = x − m, but at most c s in size                        (c is ``clip``)
    m ← m + a δ,                        a = 4/(n + 3)
    s² ← (1 − b) s² + b (1 − a) δ²,     b = 4/(k + 3), or 0 where x repeats the last value

with forgetting γ in the counts, n ← γ n + 1, and n at most 100 k. Why so:

* The gain 4/n instead of 1/n makes a start in the wrong place fade as n⁻² instead of n^−½: a stream
  whose scale settles late. It is paid for with half of the samples' worth.
* The bound c s makes a single absurd value one of c deviations, whatever its size, while a real
  change of scale is followed: s may grow by a factor e within a fiftieth of the samples so far.
* Repeated values do not make s shrink: a column that is zero but for a few samples, or until
  today, has the scale of the values it takes, not of their rarity.
* Where the first values of a column lie a thousand times farther apart than the next two (a first
  reading of 0, a marker of −9999), they were no part of it, and it starts anew.

Nothing is compared with a fixed number, so other units of x give the same (x − m)/s. s is kept, not
s²: the squares of units near float32's ends would overflow or vanish. Both have Kahan's
compensation; in float32 the counts end at 2²⁴, from where on older values fade.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core.numerics import Sum, known, usable

RECENCY = 3  # with a gain of 1/n Newton has 10 % more error on california, elsewhere the same
RAREST = 100  # a column that changes less often than once in 100 samples counts as one that does
TRIAL, FAR = 10, 1000  # by chance so close within the first ten: one column in 200, harmless


class Moments(NamedTuple):
    """n, k, the latest value, m and s of every column."""

    samples: Array
    changes: Array
    last: Array
    mean: Sum
    deviation: Sum

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Moments:
        zero, nothing = jnp.zeros(shape, dtype), Sum.zeros(shape, dtype)
        return cls(zero, zero, zero, nothing, nothing)

    @jax.jit
    def after(self, x: Any, forgetting: Any, clip: Any) -> Moments:
        """The moments after one more value of each column; unusable ones change nothing."""
        dtype = self.last.dtype
        gamma, c = jnp.asarray(forgetting, dtype), jnp.asarray(clip, dtype)
        seen = usable(jnp.asarray(x, dtype))
        x = known(x, dtype)
        n, k, last, mean, deviation = self._guide(x)
        m, s = mean.total, deviation.total

        new = (x != last) | (n == 0)
        k = jnp.where(new, gamma * k + 1, k)
        n = jnp.minimum(gamma * n + 1, RAREST * k)
        a, b = _gain(n), jnp.where(new, _gain(k), 0)
        u = standardised(x - m, s, c)
        growth = jnp.where(s > 0, b * ((1 - a) * u * u - 1), 0)  # of s², as a part of it
        first = _root(b * (1 - a)) * jnp.abs(x - m)
        after = Moments(
            samples=n,
            changes=k,
            last=x,
            mean=mean.add(a * jnp.where(s > 0, u * s, x - m)),
            deviation=deviation.add(
                jnp.where(s > 0, s * (growth / (1 + jnp.sqrt(1 + growth))), first)
            ),
        )
        return jax.tree.map(lambda new, old: jnp.where(seen, new, old), after, self)

    @property
    def frame(self) -> tuple[Array, Array]:
        """m and s."""
        return self.mean.total, self.deviation.total

    def place(self, x: Array, clip: Any) -> Array:
        """How many deviations x lies from the mean, at most ``clip``."""
        m, s = self.frame
        return standardised(x - m, s, clip)

    def value(self, place: Array, clip: Any) -> Array:
        """What lies there."""
        m, s = self.frame
        return m + s * jnp.clip(place, -clip, clip)

    def _guide(self, x: Array) -> Moments:
        """These moments, or those of the last value alone where the earlier ones misled."""
        gap = jnp.abs(x - self.last)
        misled = (self.changes < TRIAL) & (gap > 0) & (gap * FAR < self.deviation.total)
        one, zero = jnp.ones_like(x), jnp.zeros_like(x)
        alone = Moments(one, one, self.last, Sum(self.last, zero), Sum(zero, zero))
        return jax.tree.map(lambda new, old: jnp.where(misled, new, old), alone, self)


def standardised(delta: Array, s: Array, c: Array) -> Array:
    """δ/s, but within ±c, and 0 where s is 0; no gradient meets a quotient that overflows."""
    far = jnp.abs(delta) > c * s
    inside = jnp.where(far, 0, delta) / jnp.where(s > 0, s, 1)
    return jnp.where(s > 0, jnp.where(far, jnp.sign(delta) * c, inside), 0)


def _gain(count: Array) -> Array:
    return (RECENCY + 1) / (count + RECENCY)


def _root(values: Array) -> Array:
    """√, with the derivative 0 at 0."""
    some = values > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, values, 1)), 0)
