"""The running mean and standard deviation of each column, in any units, from the first value on.

A column has a mean m and a deviation s. Let x be its n-th value, and the k-th that differs from the
value before it. Then

    δ = x − m, but at most c s in size                        (c is ``clip``)
    m ← m + a δ,                        a = 4/(n + 3)
    s² ← (1 − b) s² + b (1 − a) δ²,     b = 4/(k + 3), or 0 where x repeats the value before it

With a forgetting factor γ the counts fade, n ← γ n + 1 and k ← γ k + 1. n is at most 100 k. The
reasons:

* The gain is 4/n instead of 1/n. So the effect of a wrong start fades as n⁻² instead of n^−½, which
  helps on streams whose scale settles late. The price is the accuracy that half of the samples
  would have at a gain of 1/n.
* The bound c s makes a single absurd value count as one of c deviations. A real change of scale is
  still followed: s can grow by a factor of e within a fiftieth of the samples so far.
* Repeated values do not shrink s. A column that is zero but for a few samples, or that was zero
  until today, has the scale of the other values that it takes.
* A column starts anew where its first values lie a thousand times farther apart than the next two.
  A first reading of 0 or a marker of −9999 does not belong to the column.

No value is compared with a fixed number, so (x − m)/s does not depend on the units of x. The state
holds s instead of s², because squares of numbers near the ends of float32's range overflow or
vanish. m and s are compensated sums. In float32 the counts end at 2²⁴, from where on older values
fade.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core.numerics import Sum, known, usable

RECENCY = 3  # the 3 of 4/(n + 3). With the gain 1/n Newton has 10 % more error on california
RAREST = 100  # n ≤ 100 k: changes that are rarer than one in 100 samples count as one in 100
# A column may start anew within its first TRIAL changes, where two values lie FAR times closer than
# its deviation. In a column that is as it should be this happens by chance in 1 of 200, and is
# harmless.
TRIAL, FAR = 10, 1000


class Moments(NamedTuple):
    """The moments of some columns; every field has an entry per column and is 0 at the start.

    samples: n, the number of usable values, with forgetting.
    changes: k, the number of values that differ from the value before them, with forgetting.
    last: the latest usable value.
    mean: m.
    deviation: s.
    """

    samples: Array
    changes: Array
    last: Array
    mean: Sum
    deviation: Sum

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Moments:
        """Return the moments before any value."""
        zero, empty = jnp.zeros(shape, dtype), Sum.zeros(shape, dtype)
        return cls(zero, zero, zero, empty, empty)

    @jax.jit
    def after(self, x: ArrayLike, forgetting: ArrayLike, clip: ArrayLike) -> Moments:
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
        a, b = _gain(n), jnp.where(new, _gain(k), 0)
        u = standardised(x - m, s, c)
        growth = jnp.where(s > 0, b * ((1 - a) * u * u - 1), 0)  # of s², divided by s²
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

    def scaled(self, x: Array, clip: Array) -> Array:
        """Return how many deviations x lies from the mean, within ±``clip``."""
        m, s = self.frame
        return standardised(x - m, s, clip)

    def unscaled(self, scaled: Array, clip: Array) -> Array:
        """Return the value that lies ``scaled`` deviations from the mean, within ±``clip``."""
        m, s = self.frame
        return m + s * jnp.clip(scaled, -clip, clip)

    def _without_false_start(self, x: Array) -> Moments:
        """Return the moments; those of the last value alone where the values before it mislead."""
        gap = jnp.abs(x - self.last)
        misled = (self.changes < TRIAL) & (gap > 0) & (gap * FAR < self.deviation.total)
        count, zero = jnp.ones_like(x), jnp.zeros_like(x)
        alone = Moments(count, count, self.last, Sum(self.last, zero), Sum(zero, zero))
        return jax.tree.map(lambda new, old: jnp.where(misled, new, old), alone, self)


def standardised(delta: Array, s: Array, c: Array) -> Array:
    """Return δ/s within ±c, and 0 where s is 0.

    The quotient is taken of small numbers only: one that overflows would make the gradient NaN.
    """
    far = jnp.abs(delta) > c * s
    inside = jnp.where(far, 0, delta) / jnp.where(s > 0, s, 1)
    return jnp.where(s > 0, jnp.where(far, jnp.sign(delta) * c, inside), 0)


def _gain(count: Array) -> Array:
    return (RECENCY + 1) / (count + RECENCY)


def _root(values: Array) -> Array:
    """Return √, with the derivative 0 at 0."""
    positive = values > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, values, 1)), 0)
