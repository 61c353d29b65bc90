"""The squared errors of whole streams: each of them, their mean, and their mean over time."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core.numerics import as_array, cast, floats, in_rows, long_sum, usable


def mean_squared_error(prediction: ArrayLike, ds: ArrayLike) -> Array:
    """Return the mean squared error over the samples whose target is usable; 0 without any."""
    error, counts = squared_errors(prediction, ds)
    return long_sum(error) / jnp.maximum(counts.sum(), 1).astype(error.dtype)


def ase(prediction: ArrayLike, ds: ArrayLike) -> Array:
    """Return the accumulated squared error over time, divided by t: (T,).

    Samples whose target is not usable count neither as errors nor in t.

    >>> ase(jnp.array([0.0, 1.0]), jnp.array([2.0, 1.0])).tolist()
    [4.0, 2.0]
    """
    error, counts = squared_errors(prediction, ds)
    t = jnp.maximum(jnp.cumsum(counts.astype(jnp.int32)), 1)
    within = jnp.cumsum(in_rows(error), axis=1)
    before = jnp.cumsum(within[:, -1]) - within[:, -1]
    return (within + before[:, None]).ravel()[: len(error)] / t.astype(error.dtype)


def squared_errors(prediction: ArrayLike, ds: ArrayLike) -> tuple[Array, Array]:
    """Return (d̂ − d)², 0 where d is not usable, and the flags of the usable d; both (T,)."""
    prediction = floats("prediction", prediction, "(T,)")
    targets = as_array("ds", ds, "(T,)")
    if prediction.ndim != 1 or prediction.shape != targets.shape:
        shapes = f"got prediction {prediction.shape} and ds {targets.shape}"
        raise ValueError(f"prediction and ds must both be (T,); {shapes}")
    return _squared(prediction, cast(targets, prediction.dtype))


@jax.jit  # operation by operation, |NaN| would be an error under jax_debug_nans
def _squared(prediction: Array, ds: Array) -> tuple[Array, Array]:
    counts = usable(ds)
    return jnp.square(jnp.where(counts, prediction - jnp.where(counts, ds, 0), 0)), counts
