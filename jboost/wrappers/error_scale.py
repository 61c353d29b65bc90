"""The usual size of a learner's errors, followed online, in any units and with any tails.

    v = log|e| − log u, but within ±2,    log u ← log u + a v,    a = max(4/(n + 3), 1/N)

u is the usual size, e the n-th error that is not 0, and N the ``memory``. No error moves log u by
more than 2a. Once u has settled, the mean of v is 0 whatever the units and the distribution of the
errors; a test for change relies on that. The gain 4/n, as in :mod:`jboost.transforms.units`,
makes the large errors of a learner that has just begun fade as n⁻⁴ or faster.

Errors of exactly 0 do not count. Some streams begin with nothing but zeros, which a learner that
has seen nothing predicts exactly; a u of almost 0 would then take thousands of samples to grow.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

RECENCY = 3  # of the gain 4/(n + 3)
FARTHEST = 2.0  # the bound of |v|: e² ≈ 7.4 times as large or as small as usual
# σ/u of Gaussian errors: the root of E[clip(log|z| + log c, ±2)] = 0, as 1.4826 is for the MAD.
DEVIATION = 1.7760725


class ErrorScale(NamedTuple):
    """The usual size of errors."""

    samples: Array  # n, the number of errors that were not 0; 0 at the start
    log: Array  # log u; 0 at the start, where it has no meaning

    @classmethod
    def zeros(cls, dtype: DTypeLike) -> "ErrorScale":
        return cls(jnp.zeros((), dtype), jnp.zeros((), dtype))

    @property
    def known(self) -> Array:
        return self.samples > 0

    def offset(self, e: Array) -> Array:
        """Return v of an error, the logarithm of its size over the usual size; 0 for the first."""
        return jnp.where(self.known, jnp.clip(_log(e) - self.log, -FARTHEST, FARTHEST), 0)

    def after(self, e: Array, memory: ArrayLike) -> "ErrorScale":
        """Return the scale after one more error; an error of 0 leaves it as it was."""
        n = self.samples + 1  # in float32 this ends at 2²⁴, long after 1/N is the larger gain
        a = jnp.maximum((RECENCY + 1) / (n + RECENCY), 1 / jnp.asarray(memory, n.dtype))
        log = jnp.where(self.known, self.log + a * self.offset(e), _log(e))
        counts = e != 0
        return ErrorScale(jnp.where(counts, n, self.samples), jnp.where(counts, log, self.log))


def _log(e: Array) -> Array:
    """Return log|e|, for e = 0 that of the smallest number there is."""
    size = jnp.abs(e)
    tiny = jnp.finfo(size.dtype).tiny
    return jnp.log(jnp.where(size > tiny, size, tiny))
