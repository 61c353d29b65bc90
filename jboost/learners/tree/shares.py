"""How much of a subtree, or of an input, a tree takes into its estimate.

The *odds* l of a subtree or of an input say, in nats, by how much the samples are more likely with
it than without it. Its *share* is σ(l) = 1/(1 + exp(−l)).
"""

import jax
import jax.numpy as jnp
from jax import Array

LOWEST, HIGHEST = -3.0, 10.0  # bounds of odds, so that they can turn; the lowest share is 5 %
LARGEST_GAIN = 2.0  # nats by which one sample changes odds at most: an outlier decides nothing
START = -1.0  # the odds of an input at the start: about three inputs in four do not matter
LARGEST = 1e6  # standard deviations at which errors are clipped, so that no square overflows


def gain(without: Array, with_it: Array, unit: Array) -> Array:
    """Return by how many nats a sample is more likely with one error than with another.

    ``unit`` is 1 over the standard deviation of the errors.
    """
    # Clipped before they are subtracted: ∞ − ∞ would be NaN.
    a, b = (jnp.clip(e * unit, -LARGEST, LARGEST) for e in (without, with_it))
    return jnp.clip((a * a - b * b) / 2, -LARGEST_GAIN, LARGEST_GAIN)


def bounded(odds: Array) -> Array:
    """Return odds within their bounds."""
    return jnp.clip(odds, LOWEST, HIGHEST)


def of_inputs(odds: Array) -> tuple[Array, Array]:
    """Return the shares s of the inputs of each node, (nodes, r), and t = 1 − v (1 − s).

    The estimate takes t, where v, from the last column, is the share of leaving inputs out at all.
    """
    shares = jax.nn.sigmoid(odds)
    s, v = shares[:, :-1], shares[:, -1:]
    return s, 1 - v * (1 - s)


def input_gains(odds: Array, effects: Array, left: Array, unit: Array) -> Array:
    """Return the gain of each of a learner's odds by one sample, (nodes, r + 1).

    ``effects`` is what each input adds to the estimate if taken whole, (nodes, r), and ``left`` the
    error of the estimate that takes the shares t, (nodes, 1). An input is compared with leaving it
    out, and in the last column t = s with t = 1.
    """
    s, t = of_inputs(odds)
    all_whole, by_share = (
        jnp.sum((share - t) * effects, axis=1, keepdims=True) for share in (1.0, s)
    )
    without = jnp.concatenate([-t * effects, all_whole], axis=1)
    with_it = jnp.concatenate([(1 - t) * effects, by_share], axis=1)
    return gain(left - without, left - with_it, unit)
