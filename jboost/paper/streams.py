"""Streams to try things on: the paper's synthetic ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.core import checks


def stationary(key: Any, T: int, *, correlation: float = 0.5) -> tuple[Array, Array]:
    """The paper's stationary stream: d = x₁ + x₂ + 1 + ν, x = [x₁ x₂ 1], var ν = 0.01.

    (x₁, x₂) is jointly Gaussian, then each is scaled to [0, 1] by its range over the whole stream.
    The paper does not give the covariance; ``correlation`` in (−1, 1) is ours.

    >>> xs, ds = stationary(jax.random.key(0), 1000)
    >>> xs.shape, ds.shape
    ((1000, 3), (1000,))
    """
    T = checks.whole("T", T, at_least=2)
    rho = checks.number("correlation", correlation, above=-1, below=1)
    inputs, noise = jax.random.split(checks.key("key", key))
    g = jax.random.normal(inputs, (T, 2))
    g = g.at[:, 1].set(rho * g[:, 0] + np.sqrt(1 - rho**2) * g[:, 1])
    low, high = g.min(axis=0, keepdims=True), g.max(axis=0, keepdims=True)
    xs = jnp.concatenate([(g - low) / (high - low), jnp.ones((T, 1), g.dtype)], axis=1)
    return xs, xs.sum(axis=1) + 0.1 * jax.random.normal(noise, (T,))


def duffing(T: int) -> tuple[Array, Array]:
    """The paper's chaotic stream: the Duffing map x_{t+1} = 2.75 x_t − x_t³ − 0.2 x_{t−1}.

    x = [x_{t−1} x_t 1] and d = x_{t+1}, from x_{−1} = 0.9279 and x_0 = 0.1727. Made in float64 on
    the host and then cast, so that the (chaotic) stream does not depend on dtype or device.

    >>> xs, ds = duffing(3)
    >>> [round(v, 4) for v in ds.tolist()]
    [0.2842, 0.724, 1.5547]
    """
    T = checks.whole("T", T, at_least=1)
    x = np.empty(T + 2)
    before, now = 0.9279, 0.1727
    for t in range(T + 2):
        x[t] = before
        before, now = now, 2.75 * now - now**3 - 0.2 * before
    xs = np.stack([x[:-2], x[1:-1], np.ones(T)], axis=1)
    return jnp.asarray(xs, jnp.result_type(float)), jnp.asarray(x[2:], jnp.result_type(float))


# (threshold, coefficients of x₁ x₂ and offset) of the three pieces in each quarter of the stream.
_PIECES = (
    ((0.8, 1.2), ((1.0, 1.0, 0.0), (0.0, 0.0, 0.5), (1.0, -0.5, 0.0))),
    ((0.7, 1.1), ((1.0, -0.5, 0.0), (1.0, 1.0, 0.0), (-1.0, 0.5, 0.0))),
    ((0.5, 1.5), ((0.0, 1.5, 0.0), (1.0, -0.5, 0.0), (2.0, 0.5, 0.0))),
    ((0.8, 1.2), ((4.0, -0.5, 0.0), (2.0, 0.5, 0.8), (1.0, 1.0, 0.0))),
)


def piecewise(key: Any, T: int, *, noise: float = 0.1) -> tuple[Array, Array]:
    """A piecewise linear stream whose pieces change at every quarter.

    From lines that stand commented out in the paper's source: three linear pieces, chosen by
    x₁ + x₂, other ones in each quarter. x = [x₁ x₂ 1] with (x₁, x₂) uniform on [0, 1]²; Φ₀ = (1, 1)
    and the noise's standard deviation are not given there.

    >>> xs, ds = piecewise(jax.random.key(0), 400)
    >>> xs.shape, ds.shape
    ((400, 3), (400,))
    """
    T = checks.whole("T", T, at_least=4)
    noise = checks.number("noise", noise, at_least=0)
    inputs, errors = jax.random.split(key)
    x = jax.random.uniform(inputs, (T, 2))
    xs = jnp.concatenate([x, jnp.ones((T, 1), x.dtype)], axis=1)
    quarter = jnp.arange(T) * 4 // T
    cuts = jnp.asarray([cut for cut, _ in _PIECES], x.dtype)[quarter]
    pieces = jnp.asarray([piece for _, piece in _PIECES], x.dtype)[quarter]
    which = jnp.sum(x.sum(axis=1, keepdims=True) >= cuts, axis=1)
    coefficients = jnp.take_along_axis(pieces, which[:, None, None], axis=1)[:, 0]
    return xs, jnp.sum(xs * coefficients, axis=1) + noise * jax.random.normal(errors, (T,))
