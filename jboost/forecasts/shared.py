"""Least squares of all horizons with one covariance.

    P ← the covariance of Newton's method on z_t,      k_t = its gain at z_t
    w_h ← w_h + k_{t−h} clip(d_t − w_hᵀ z_{t−h})       for h = 1 … H

A gain of least squares does not depend on the answers. So one P serves all H horizons: the inputs
and gains of the last H rows wait in rings, and when an answer comes, each horizon learns it with
the input and the gain of the row at which it was forecast. This is exact recursive least squares
for each horizon, for r² + 2 r H operations a row.

An error is clipped at the usual size of its horizon's errors: a step towards the median.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import Sample
from jboost.core.products import matvec
from jboost.forecasts import ring
from jboost.learners.newton import Newton, NewtonState

# Zeros fill up the inputs of least squares to a multiple of this. So no program has to fill up the
# rows of their matrices, and all programs add up products in the same order.
EVEN = 8
SLOWEST = 0.005  # the least gain of the running mean of absolute errors


class SharedState(NamedTuple):
    """The least squares of all horizons, in each of n kinds of units.

    All of it is 0 at the start, but for the covariances.
    """

    covariance: NewtonState  # stacked; its w stays 0: each horizon has coefficients of its own
    W: Array  # the coefficients of each horizon, (n, H, r)
    z: Array  # a ring of the inputs, (n, r)
    gains: Array  # a ring of the gains, (n, r)
    size: Array  # the mean absolute error of each horizon, (n, H)
    answers: Array  # how many answers each horizon has learned, (H,)


def even(width: int) -> int:
    """Return the width of inputs that are filled up."""
    return width + -width % EVEN


def filled_up(inputs: Array) -> Array:
    """Return rows of inputs, (n, r), filled up with zeros."""
    return jnp.pad(inputs, [(0, 0), (0, -inputs.shape[1] % EVEN)])


def start(newton: Newton, kinds: int, width: int, horizon: int, dtype: jnp.dtype) -> SharedState:
    """Return the state before any data, for inputs of a width in so many kinds of units."""
    rows, answers = ring.empty(horizon, (kinds, width), dtype), jnp.zeros(horizon, dtype)
    covariance = jax.vmap(lambda _: newton.init(width, dtype))(jnp.zeros(kinds))
    W, size = jnp.zeros((kinds, horizon, width), dtype), jnp.zeros((kinds, horizon), dtype)
    return SharedState(covariance, W, rows, rows, size, answers)


def answered(state: SharedState, at: Array, d: Array, counts: Array) -> SharedState:
    """Return the state after the answers d, (n, H), to the horizons that count, (H,)."""
    z, gains = (jnp.moveaxis(ring.newest_first(a, at), 1, 0) for a in (state.z, state.gains))
    counts, first = counts[None], state.answers[None] == 0
    e = jnp.where(counts, d - jnp.sum(state.W * z, axis=2), 0)
    size = jnp.abs(e)
    bound = jnp.where(first, size, state.size)
    W = state.W + jnp.clip(e, -bound, bound)[..., None] * gains
    rate = jnp.maximum(1 / (state.answers + 1), SLOWEST)[None]
    usual = jnp.where(counts, state.size + rate * (size - state.size), state.size)
    answers = jnp.where(counts[0], state.answers + 1, state.answers)
    return state._replace(W=W, size=usual, answers=answers)


def estimates(state: SharedState, z: Array) -> Array:
    """Return the estimates of all horizons at the inputs z, (n, r), as (n, H)."""
    return jax.vmap(matvec)(state.W, z)


def remembered(
    newton: Newton, state: SharedState, at: Array, z: Array, sample: Sample
) -> SharedState:
    """Return the state that waits for the answers to the inputs z."""

    def learn(covariance: NewtonState, z: Array) -> NewtonState:
        unit = sample.replace(raw=z, d=jnp.ones_like(sample.d), takes_missing=False)
        return newton.learn(covariance, unit)

    learned = jax.vmap(learn)(state.covariance, z)
    gain, covariance = learned.w, learned._replace(w=state.covariance.w)  # from w = 0 and d = 1
    return state._replace(
        covariance=covariance,
        z=ring.pushed(state.z, at, z, sample.good),
        gains=ring.pushed(state.gains, at, gain, sample.good),
    )
