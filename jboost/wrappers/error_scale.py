"""How large a learner's errors usually are, followed online, in any units and with any tails.

    v = log|e| − log u, but within ±2,    log u ← log u + a v,    a = max(4/(n + 3), 1/N)

u is the size about which the logarithms of n errors balance; N is the ``memory``. No error, however
wild, moves log u by more than 2a, and other units of e add a constant to log u and leave v as it
is. Wrapper a settled u the mean of v is 0 whatever the errors are distributed as, which is what a
test for change wants. The gain 4/n, as in :mod:`jboost.transforms.moments`, makes the errors of a
learner that has just begun fade as n⁻⁴ or faster.

An error of exactly 0 has no size and does not count: streams begin with nothing but zeros, where a
learner that has seen nothing is right, and a u of almost 0 would take thousands of samples to grow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

RECENCY = 3
FARTHEST = 2.0  # e² ≈ 7.4 times as large or as small as usual

# σ/u of Gaussian errors: the root of E[clip(log|z| + log c, ±2)] = 0, as 1.4826 is for the MAD.
DEVIATION = 1.7760725


class ErrorScale(NamedTuple):
    """n and log u; u means nothing before the first error."""

    samples: Array
    log: Array

    @classmethod
    def zeros(cls, dtype: Any) -> ErrorScale:
        return cls(jnp.zeros((), dtype), jnp.zeros((), dtype))

    @property
    def known(self) -> Array:
        return self.samples > 0

    def offset(self, e: Array) -> Array:
        """v: by which factor, as a logarithm, an error is larger than usual; 0 for the first."""
        return jnp.where(self.known, jnp.clip(_log(e) - self.log, -FARTHEST, FARTHEST), 0)

    def after(self, e: Array, memory: Any) -> ErrorScale:
        """What is known after one more error; nothing new where that is 0."""
        n = self.samples + 1  # in float32 this ends at 2²⁴, long after 1/N is the larger gain
        a = jnp.maximum((RECENCY + 1) / (n + RECENCY), 1 / jnp.asarray(memory, n.dtype))
        log = jnp.where(self.known, self.log + a * self.offset(e), _log(e))
        some = e != 0
        return ErrorScale(jnp.where(some, n, self.samples), jnp.where(some, log, self.log))


def _log(e: Array) -> Array:
    """log|e|; an error of exactly 0 is the smallest that there is."""
    size = jnp.abs(e)
    tiny = jnp.finfo(size.dtype).tiny
    return jnp.log(jnp.where(size > tiny, size, tiny))
