"""The paper's synthetic streams, as (xs, ds): inputs (T, r) and targets (T,)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.core import checks


def stationary(key: Array, T: int, *, correlation: float = 0.5) -> tuple[Array, Array]:
    """Draw the paper's stationary stream: d = x₁ + x₂ + 1 + ν, x = [x₁ x₂ 1], var ν = 0.01.

    (x₁, x₂) is jointly Gaussian, then each is scaled to [0, 1] by its range over the whole stream.
    The paper does not give their correlation, in (−1, 1).

    >>> xs, ds = stationary(jax.random.key(0), 1000)
    >>> xs.shape, ds.shape
    ((1000, 3), (1000,))
    """
    T = checks.whole("T", T, at_least=2)
    rho = checks.number("correlation", correlation, above=-1, below=1)
    key_x, key_noise = jax.random.split(checks.key("key", key))
    g = jax.random.normal(key_x, (T, 2))
    g = g.at[:, 1].set(rho * g[:, 0] + np.sqrt(1 - rho**2) * g[:, 1])
    low, high = g.min(axis=0, keepdims=True), g.max(axis=0, keepdims=True)
    xs = _with_ones((g - low) / (high - low))
    return xs, xs.sum(axis=1) + 0.1 * jax.random.normal(key_noise, (T,))


def duffing(T: int) -> tuple[Array, Array]:
    """Compute the paper's chaotic stream: the Duffing map x_{t+1} = 2.75 x_t − x_t³ − 0.2 x_{t−1}.

    x = [x_{t−1} x_t 1] and d = x_{t+1}, from x_{−1} = 0.9279 and x_0 = 0.1727. It is computed in
    float64 on the host and then cast, so that the chaos does not depend on dtype or device.

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
    xs, dtype = np.stack([x[:-2], x[1:-1], np.ones(T)], axis=1), jnp.result_type(float)
    return jnp.asarray(xs, dtype), jnp.asarray(x[2:], dtype)


# For each quarter of the stream: the two thresholds of x₁ + x₂ between its three linear pieces, and
# the coefficients of x₁, x₂ and 1 of each piece.
_QUARTERS = (
    ((0.8, 1.2), ((1.0, 1.0, 0.0), (0.0, 0.0, 0.5), (1.0, -0.5, 0.0))),
    ((0.7, 1.1), ((1.0, -0.5, 0.0), (1.0, 1.0, 0.0), (-1.0, 0.5, 0.0))),
    ((0.5, 1.5), ((0.0, 1.5, 0.0), (1.0, -0.5, 0.0), (2.0, 0.5, 0.0))),
    ((0.8, 1.2), ((4.0, -0.5, 0.0), (2.0, 0.5, 0.8), (1.0, 1.0, 0.0))),
)


def piecewise(key: Array, T: int, *, noise: float = 0.1) -> tuple[Array, Array]:
    """Draw a stream of three linear pieces, chosen by x₁ + x₂, that change at every quarter.

    The pieces are from lines that are commented out in the paper's source. x = [x₁ x₂ 1] with
    (x₁, x₂) uniform on [0, 1]². The source gives neither its Φ₀, here (1, 1), nor the standard
    deviation of the noise.

    >>> xs, ds = piecewise(jax.random.key(0), 400)
    >>> xs.shape, ds.shape
    ((400, 3), (400,))
    """
    T = checks.whole("T", T, at_least=4)
    noise = checks.number("noise", noise, at_least=0)
    key_x, key_noise = jax.random.split(checks.key("key", key))
    xs = _with_ones(jax.random.uniform(key_x, (T, 2)))
    quarter = jnp.arange(T) * 4 // T
    thresholds, pieces = (jnp.asarray(v, xs.dtype)[quarter] for v in zip(*_QUARTERS, strict=True))
    piece = jnp.sum(xs[:, :2].sum(axis=1, keepdims=True) >= thresholds, axis=1)
    coefficients = jnp.take_along_axis(pieces, piece[:, None, None], axis=1)[:, 0]
    return xs, jnp.sum(xs * coefficients, axis=1) + noise * jax.random.normal(key_noise, (T,))


def _with_ones(x: Array) -> Array:
    """Append a column of ones, the bias."""
    return jnp.concatenate([x, jnp.ones((len(x), 1), x.dtype)], axis=1)
