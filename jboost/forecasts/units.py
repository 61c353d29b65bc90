"""What a row tells before it is learned, and answers in units of their deviations.

Answers have two kinds of units, the *twins*: answers as they are, and their logarithms.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.forecasts.rows import Inputs
from jboost.forecasts.seasons import Table
from jboost.transforms.scale import Scale, Units

TWINS = 2
FARTHEST = 10.0  # deviations: an answer, or an input made of answers, counts as no farther
LARGEST_EXPONENT = 20.0  # of an estimated logarithm: beyond, estimates are clipped anyway
TARGETS = Scale(clip=FARTHEST, floor=False)


class Now(NamedTuple):
    """What a row tells, and the units of answers after it."""

    inputs: Inputs
    short: Table
    long: Table
    targets: Units

    @property
    def unit(self) -> Array:
        """The unit of the logarithms: answers well below it are as good as linear."""
        return unit_of(self.targets)

    def scaled(self, values: Array) -> Array:
        """Return answers (n,) in units of their deviations, for each twin, (TWINS, n)."""
        m, s = (a[:, None] for a in self.targets.frame)
        inverse = jnp.where(s > 0, 1 / jnp.where(s > 0, s, 1), 0)
        return jnp.clip((twins(values, self.unit) - m) * inverse, -FARTHEST, FARTHEST)

    def levels(self, values: Array) -> Array:
        """Return answers of any shape in units of their deviations, as they are."""
        m, s = (a[0] for a in self.targets.frame)
        inverse = jnp.where(s > 0, 1 / jnp.where(s > 0, s, 1), 0)
        return jnp.clip((values - m) * inverse, -FARTHEST, FARTHEST)

    def from_levels(self, levels: Array) -> Array:
        """Return the answers that lie where ``levels`` says."""
        m, s = (a[0] for a in self.targets.frame)
        return m + s * levels

    def unscaled(self, scaled: Array) -> Array:
        """Return the answers that lie where ``scaled`` says, (TWINS, n)."""
        m, s = (a[:, None] for a in self.targets.frame)
        level, log = m + s * scaled
        size = jnp.expm1(jnp.minimum(jnp.abs(log), LARGEST_EXPONENT))
        return jnp.stack([level, self.unit * jnp.sign(log) * size])


def unit_of(targets: Units) -> Array:
    """Return the deviation of the answers, 1 before there is any."""
    deviation = targets.frame[1][0]
    return jnp.where(deviation > 0, deviation, 1)


def twins(values: Array, unit: Array) -> Array:
    """Return answers as they are, and their logarithms with the answers' signs."""
    return jnp.stack([values, jnp.sign(values) * jnp.log1p(jnp.abs(values) / unit)])


def situations(by_table: Array, of_day: Array, columns: Array) -> Array:
    """Return the inputs of the usual answer, a row for each of n rows of the stream."""
    return jnp.stack([jnp.ones_like(of_day), by_table, of_day, *columns, *columns**2], axis=1)
