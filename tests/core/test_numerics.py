"""Squared errors of long streams, and what a caller may pass as an array."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jboost.core import numerics
from jboost.core.squared_errors import ase, mean_squared_error, squared_errors

pytestmark = pytest.mark.core


def test_long_float32_streams_keep_six_digits():
    rng = np.random.default_rng(0)
    d = rng.normal(size=3_000_001).astype(np.float32)
    y = (d + 0.1 + 0.01 * rng.normal(size=d.size)).astype(np.float32)
    exact = (y.astype(float) - d.astype(float)) ** 2
    assert float(mean_squared_error(y, d)) == pytest.approx(exact.mean(), rel=1e-6)
    curve = np.asarray(ase(y, d))
    times = np.array([1, 4096, 4097, 1_000_000, d.size])
    np.testing.assert_allclose(curve[times - 1], np.cumsum(exact)[times - 1] / times, rtol=1e-6)


def test_unusable_targets_do_not_count():
    ds = [1.0, np.nan, 3.0, np.inf, 1e20]
    assert float(mean_squared_error(np.zeros(5), ds)) == 5.0
    assert ase(np.zeros(5), ds).tolist() == [1.0, 1.0, 5.0, 5.0, 5.0]
    assert float(mean_squared_error([1.0], [np.nan])) == 0.0


def test_gradients_pass_unusable_targets():
    slope = jax.grad(lambda y: mean_squared_error(y, np.array([1.0, np.nan])))(jnp.ones(2))
    assert slope.tolist() == [0.0, 0.0]


def test_shapes_are_named():
    with pytest.raises(ValueError, match=r"prediction \(2,\) and ds \(3,\)"):
        squared_errors([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"must both be \(T,\)"):
        ase([[1.0]], [[1.0]])


def test_as_array():
    on_device = jnp.ones(2)
    assert numerics.as_array("ds", on_device, "(T,)") is on_device
    masked = np.ma.masked_array([1, 2], mask=[False, True])
    np.testing.assert_array_equal(numerics.as_array("ds", masked, "(T,)"), [1.0, np.nan])
    with pytest.raises(TypeError, match=r"ds must be an array of shape \(T,\); got"):
        numerics.as_array("ds", [[1.0], [1.0, 2.0]], "(T,)")
    with pytest.raises(TypeError, match=r"ds must hold real numbers \(shape \(T,\)\)"):
        numerics.as_array("ds", ["a"], "(T,)")


def test_casts():
    assert numerics.real([1, 2]).dtype == numerics.real(jnp.array([True])).dtype == jnp.float32
    assert numerics.real(jnp.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16
    assert np.isinf(numerics.cast(np.array([1e300]), np.float32)).all()  # skipped later
    single = jnp.ones(2, jnp.float32)
    assert numerics.cast(single, jnp.float32) is single
