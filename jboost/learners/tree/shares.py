"""How much is taken of a subtree, or of an input, by odds in nats that count what it gained."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

LOW, HIGH = -3.0, 10.0  # of odds, so that they can turn; what is of no use keeps a share of 5 %
STEP = 2.0  # one sample changes odds by no more, so that an outlier decides nothing
DOUBT = -1.0  # where the odds for an input start: three in four are thought not to matter


def gain(a: Array, b: Array, unit: Array) -> Array:
    """Of an error b over a, in nats; clipped first, as ∞ − ∞ would be NaN."""
    a, b = (jnp.clip(v * unit, -1e6, 1e6) for v in (a, b))
    return jnp.clip((a * a - b * b) / 2, -STEP, STEP)


def taken(worth: Array) -> tuple[Array, Array]:
    """(s, t): the shares by the odds of each input, and those that are taken, 1 − v (1 − s)."""
    share = jax.nn.sigmoid(worth)
    s, v = share[:, :-1], share[:, -1:]
    return s, 1 - v * (1 - s)


def contrasts(worth: Array, parts: Array) -> tuple[Array, Array]:
    """What estimates without and with an input differ from the one by t; then, t = 1 and t = s."""
    s, t = taken(worth)
    none, some = (jnp.sum((a - t) * parts, axis=1, keepdims=True) for a in (1.0, s))
    without, with_it = -t * parts, (1 - t) * parts
    return jnp.concatenate([without, none], axis=1), jnp.concatenate([with_it, some], axis=1)
