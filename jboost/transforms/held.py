"""Units that hold: taken from the moments once they are known, and kept while they are about right.

A learner that never forgets is exact only in units that never change. So

    x′ = (x − c)/u,    c ← m and u ← s    while n ≤ 8, and where |m − c| > 10u or s ∉ [u/10, 10u]

and until then there is no x′ (NaN): a learner learns nothing in units that are about to change, and
begins with the ninth sample as if it were the first. Where inputs and target are both held, put the
target's inside, ``pipeline(held, …, ScaleTarget(learner, held))``: outside, it has no answer for
the inputs' own either, and they settle eight samples later. A column that changes for the first
time later gets its units then; 0 until then, it has misled nobody. As in the moments, x counts as
no farther from m than ``clip`` s, and n fades with the forgetting γ: below 7/8 it never exceeds 8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.transforms.moments import Moments, standardised

SETTLED = 8  # samples: enough for units that need only be about right
WRONG = 10.0  # times
FARTHEST = 1000.0  # units: what a value can be before they are replaced, and more


class Held(NamedTuple):
    """The moments, and the center c and unit u that hold."""

    moments: Moments
    center: Array
    unit: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Held:
        return cls(Moments.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def after(self, x: Any, forgetting: Any, clip: Any) -> Held:
        """What is known after one more value of each column; unusable ones change nothing."""
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
        """Whether there was a column with enough samples: one with gaps need not be waited for."""
        return jnp.max(self.moments.samples) > SETTLED

    def place(self, x: Array, clip: Any) -> Array:
        """x′."""
        m, s = self.moments.frame
        near = jnp.clip(x, m - clip * s, m + clip * s)
        placed = standardised(near - self.center, self.unit, jnp.full_like(s, FARTHEST))
        return jnp.where(self.settled, placed, jnp.nan)

    def value(self, place: Array, clip: Any) -> Array:
        """The value whose x′ is ``place``, no farther from the mean than ``clip`` deviations."""
        m, s = self.moments.frame
        far = self.center + self.unit * jnp.clip(place, -FARTHEST, FARTHEST)
        return jnp.where(self.settled, jnp.clip(far, m - clip * s, m + clip * s), m)
