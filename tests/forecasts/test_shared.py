"""The least squares of all horizons, against one recursion for each horizon by itself."""

import jax.numpy as jnp
import numpy as np

from jboost.core import Sample
from jboost.forecasts import ring, shared
from jboost.learners.newton import Newton

H, R, T = 3, 4, 60


def alone(z, d, h, beta, ridge):
    """Return the coefficients of horizon h: NumPy, with a covariance and a clip of its own."""
    P, w, size = np.eye(R) / ridge, np.zeros(R), 0.0
    for n, t in enumerate(range(len(d) - h)):
        k = P @ z[t] / (beta + z[t] @ P @ z[t])
        e = d[t + h] - w @ z[t]
        w = w + k * np.clip(e, -size if n else -abs(e), size if n else abs(e))
        size += max(1 / (n + 1), 0.005) * (abs(e) - size)
        P = (P - np.outer(k, z[t]) @ P) / beta
    return w


def test_each_horizon_is_exact_recursive_least_squares(x64):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, T, R)) * [[[1.0, 2.0, 0.5, 1.0]]]
    d = np.cumsum(rng.normal(size=(2, T)), axis=1)
    newton = Newton(0.97, ridge=0.5, max_variance=None)
    state, at = shared.start(newton, 2, R, H, jnp.dtype(jnp.float64)), jnp.zeros((), jnp.int32)
    for t in range(T):
        counts = jnp.arange(1, H + 1) <= t
        answers = jnp.broadcast_to(jnp.asarray(d[:, t])[:, None], (2, H))
        state = shared.answered(state, at, answers, counts)
        at = ring.advanced(at, jnp.ones((), jnp.int32), H)
        sample = Sample.of(z[0, t], 0.0, jnp.float64)
        state = shared.remembered(newton, state, at, jnp.asarray(z[:, t]), sample)
    for kind in range(2):
        for h in range(1, H + 1):
            expected = alone(z[kind], d[kind], h, 0.97, 0.5)
            np.testing.assert_allclose(state.W[kind, h - 1], expected, rtol=1e-8)


def test_a_ring_forgets_after_h_rows_and_gaps_leave_holes():
    rows, at = ring.empty(H, (H,), jnp.float32), jnp.zeros((), jnp.int32)
    for t in range(7):
        at = ring.advanced(at, jnp.ones((), jnp.int32), H)
        rows = ring.pushed(rows, at, 10.0 * t + jnp.arange(float(H)), jnp.array(t != 5))
    # Row 5 did not count, so that row 2 lies there still.
    assert ring.newest_first(rows, at)[:, 0].tolist() == [60.0, 20.0, 40.0]
    assert ring.by_age(rows, at).tolist() == [60.0, 21.0, 42.0]
    valid, gap = jnp.array([True, True, False]), jnp.array(1, jnp.int32)
    assert ring.aged(valid, gap).tolist() == [False, True, True]
    forecast, values = jnp.array([7.0, 8.0]), jnp.array([3.0, 2.0, 1.0, 0.0])
    assert ring.filled(values, forecast, jnp.array(0, jnp.int32)).tolist() == [3, 2, 1, 0]
    assert ring.filled(values, forecast, jnp.array(2, jnp.int32)).tolist() == [8, 7, 3, 2]
    assert ring.filled(values, forecast, jnp.array(3, jnp.int32)).tolist() == [8, 8, 7, 3]
