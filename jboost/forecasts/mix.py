"""The mix of a horizon's estimates: Bernstein online aggregation of the absolute loss.

The rule is that of :class:`jboost.BOA`, with the regret r_k = ±(ŷ − y_k) of the absolute loss, the
sign of ŷ − d. No sum is multiplied before it is added to: a compiler may round a product and a sum
at once or one by one, and the same run would then differ in its last bits from program to program.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.combiners.convex import BERNSTEIN
from jboost.core.numerics import Sum


class MixState(NamedTuple):
    """The mixes of all horizons. All of it is 0 at the start."""

    R: Sum  # Σ (r − r²/√V) of each expert, (H, experts)
    V: Sum  # 2.2 Σ r² of each expert, (H, experts)


def start(horizon: int, experts: int, dtype: jnp.dtype) -> MixState:
    """Return the mixes of all horizons before any answer."""
    zeros = Sum.zeros((horizon, experts), dtype)
    return MixState(zeros, zeros)


def weights(state: MixState) -> Array:
    """Return how much each expert counts, (H, experts); they add up to 1 for each horizon."""
    V = state.V.total
    differed = V > 0
    root = jnp.sqrt(jnp.where(differed, V, 1))
    log = jnp.where(differed, state.R.total / root - jnp.log(root), -jnp.inf)
    top = jnp.max(log, axis=1, keepdims=True)
    w = jnp.where(differed, jnp.exp(jnp.where(differed, log - top, 0)), 0)
    share = jnp.mean(differed.astype(w.dtype), axis=1, keepdims=True)
    total = jnp.maximum(jnp.sum(w, axis=1, keepdims=True), 1)
    return jnp.where(differed, share * (w / total), 1 / w.shape[1])


def mixed(state: MixState, estimates: Array) -> Array:
    """Return the mix of each horizon's estimates, (H, experts), as (H,)."""
    first = estimates[:, :1]
    return first[:, 0] + jnp.sum(weights(state) * (estimates - first), axis=1)


def after(state: MixState, estimates: Array, d: Array, counts: Array) -> MixState:
    """Return the mixes after the answer d to the horizons that count, (H,)."""
    y = mixed(state, estimates)
    r = jnp.where(counts, jnp.sign(y - d), 0)[:, None] * (y[:, None] - estimates)
    V = state.V.add(jnp.maximum(BERNSTEIN * r * r, 0))  # the maximum keeps the product apart
    root = jnp.sqrt(jnp.where(V.total > 0, V.total, 1))
    R = state.R.add(r - jnp.maximum(r * r / root, 0))
    return MixState(R, V)
