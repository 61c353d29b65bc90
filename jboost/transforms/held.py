"""Units that stay as they are while they are about right, for ``Scale("held")``.

A learner that never forgets is exact only if the units of its inputs never change. So a column has
a center c and a unit u,

    x′ = (x − c)/u

which become the running mean m and deviation s of :mod:`.moments` with each of the first 8 samples.
After that they become m and s again only when they are clearly wrong, where |m − c| > 10u or where
s is outside [u/10, 10u].

In the first 8 samples x′ is NaN: a learner learns nothing in units that are about to change, and
begins with the ninth sample as if it were the first. Where inputs and target are both held, put
ScaleTarget inside the pipeline, ``pipeline(held, …, ScaleTarget(learner, held))``. Outside, it
withholds the first 8 samples from the pipeline's scaler, whose units then settle 8 samples later. A
column that was constant gets its units when it first changes; until then its x′ is 0.

As in the moments, x counts as no farther from m than ``clip`` s, and n fades with the forgetting
factor γ: with γ below 7/8 it would never exceed 8.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.transforms.moments import Moments, standardised

SETTLED = 8  # samples: enough for units that need only be about right
WRONG = 10.0  # units that are this many times too large or too small are replaced
FARTHEST = 1000.0  # the bound of |x′|: above all that x′ can be before its units are replaced


class Held(NamedTuple):
    """The units of some columns.

    moments: their running mean and deviation.
    center: c of each column, 0 at the start.
    unit: u of each column, 0 at the start.
    """

    moments: Moments
    center: Array
    unit: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Held:
        """Return the units before any value."""
        return cls(Moments.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def after(self, x: ArrayLike, forgetting: ArrayLike, clip: ArrayLike) -> Held:
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
        far = self.center + self.unit * jnp.clip(scaled, -FARTHEST, FARTHEST)
        return jnp.where(self.settled, jnp.clip(far, m - clip * s, m + clip * s), m)
