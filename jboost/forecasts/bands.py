"""Intervals of a forecast: a half width for each horizon, whose coverage is held online.

The rule is that of :class:`jboost.Intervals`: h = q u, where u is the usual size of the horizon's
errors, and q grows after a miss and shrinks after a hit until the coverage is right.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import Number
from jboost.core.numerics import LARGEST
from jboost.wrappers.intervals import DEVIATION, WIDEST, ErrorScale

STEP = 0.03  # how fast q follows
MEMORY = 1000.0  # answers over which u is taken


class BandsState(NamedTuple):
    """The widths of all horizons."""

    scale: ErrorScale  # the usual sizes u of the errors, (H,)
    log_q: Array  # log q of each horizon, (H,); that of normal errors at the start


def start(coverage: Number, horizon: int, dtype: jnp.dtype) -> BandsState:
    """Return the state before any answer."""
    zeros = jnp.zeros(horizon, dtype)
    z = jax.scipy.special.ndtri((1 + jnp.asarray(coverage, dtype)) / 2)
    log_q = jnp.log(DEVIATION * jnp.clip(z, 1e-3, 1e3))
    return BandsState(ErrorScale(zeros, zeros), zeros + log_q)


def half_widths(state: BandsState) -> Array:
    """Return h of each horizon, 1e15 before its first error."""
    h = jnp.exp(jnp.minimum(state.log_q + state.scale.log, WIDEST))
    return jnp.where(state.scale.known, jnp.minimum(h, LARGEST), LARGEST)


def unbounded(h: Array) -> Array:
    """Return half widths as they are told: infinite before the first error."""
    return jnp.where(h < LARGEST, h, jnp.inf)


def after(
    state: BandsState, coverage: Number, e: Array, half_width: Array, counts: Array
) -> BandsState:
    """Return the state after the errors e of the horizons that count, (H,)."""
    n, alpha = state.scale.samples, 1 - jnp.asarray(coverage, e.dtype)
    eta = jnp.maximum(jnp.asarray(STEP, e.dtype), jax.lax.rsqrt(n + 9))
    missed = (jnp.abs(e) > half_width).astype(e.dtype)
    log_q = jnp.where(state.scale.known, state.log_q + eta * (missed - alpha), state.log_q)
    new = BandsState(state.scale.after(e, MEMORY), log_q)
    return jax.tree.map(lambda a, b: jnp.where(counts, a, b), new, state)
