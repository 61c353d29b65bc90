"""The mix of a horizon's estimates: Bernstein online aggregation of the absolute loss."""

import jax
import jax.numpy as jnp
from jax import Array

from jboost.combiners.convex import BOA, BOAState
from jboost.core.products import dot

BLEND = BOA()


def start(horizon: int, experts: int, dtype: jnp.dtype) -> BOAState:
    """Return the mixes of all horizons before any answer."""
    return jax.vmap(lambda _: BLEND.start(experts, dtype))(jnp.zeros(horizon))


def mixed(state: BOAState, estimates: Array) -> Array:
    """Return the mix of each horizon's estimates, (H, experts), as (H,)."""
    return jax.vmap(_mixed)(state, estimates)


def after(state: BOAState, estimates: Array, d: Array, counts: Array) -> BOAState:
    """Return the mixes after the answer d to the horizons that count, (H,)."""

    def learn(state: BOAState, y: Array, counts: Array) -> BOAState:
        distance = jnp.abs(_mixed(state, y) - d)
        apart = distance > 0
        # The combiner's loss is squared, with the slope 2 λ (ŷ − d). This λ makes it ±1.
        lam = 0.5 / jnp.where(apart, distance, 1)
        new = BLEND.after(state, y, d, lam)
        return jax.tree.map(lambda a, b: jnp.where(counts & apart, a, b), new, state)

    return jax.vmap(learn)(state, estimates, counts)


def _mixed(state: BOAState, y: Array) -> Array:
    return y[0] + dot(BLEND.mix(state), y - y[0])
