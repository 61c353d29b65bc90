"""What a caller passes as an array, checked and cast."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import checks


def as_array(name: str, values: Any, shape: str) -> Array | np.ndarray:
    """Return real numbers as an array of their own dtype; masked entries become NaN.

    ``name`` and ``shape``, such as "(T, r)", only serve the message of an error.
    """
    if isinstance(values, jax.Array):
        array = values
    elif isinstance(values, np.ma.MaskedArray):
        array = np.ma.filled(values.astype(float), np.nan)
    else:
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise TypeError(f"{name} must be an array of shape {shape}; got {error}") from None
    checks.real_dtype(name, array, f"shape {shape}")
    return array


def real(values: ArrayLike) -> Array:
    """Return an array of floats: floats keep their dtype, other numbers get JAX's default one."""
    array = jnp.asarray(values)
    floats = jnp.issubdtype(array.dtype, jnp.floating)
    return array if floats else array.astype(jnp.result_type(float))


def cast(array: Array | np.ndarray, dtype: DTypeLike) -> Array:
    """Return the array in a dtype, on JAX's default device."""
    if isinstance(array, jax.Array):
        return array if array.dtype == dtype else array.astype(dtype)
    # NumPy casts: a stream may hold NaN, which a cast of JAX refuses under jax_debug_nans.
    with np.errstate(all="ignore"):  # beyond float32 is infinite, and so a sample to skip
        array = array.astype(dtype, copy=False)
    return jnp.asarray(array, dtype)
