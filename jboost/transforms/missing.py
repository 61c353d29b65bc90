"""Impute: inputs with gaps."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Sample, Transform, model, static
from jboost.core.numerics import dtype_of, usable
from jboost.transforms.moments import Moments

CLIP = 5.0  # deviations: an absurd value moves a mean no farther than this


@model
class Impute(Transform):
    """Replaces missing entries of x (NaN, infinite, beyond 1e15) by their column's mean so far.

    Before the first value of a column that mean is 0. Put :class:`Scale` first: it lets missing
    entries pass, and behind it the mean is near 0 from the start, whatever the units.

    Args:
      indicators: whether to append a column for each column, 1 where its entry was missing.

    >>> import jax.numpy as jnp
    >>> impute = Impute(indicators=True)
    >>> state = impute.update(impute.init(2), jnp.array([3.0, jnp.nan]))
    >>> impute.apply(state, jnp.array([jnp.nan, 7.0])).tolist()
    [3.0, 7.0, 1.0, 0.0]
    """

    indicators: bool = static(default=False)

    @property
    def fills_missing(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return 2 * num_features if self.indicators else num_features

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> Moments:
        del key
        return Moments.zeros((num_features,), dtype_of(dtype))

    def apply(self, state: Moments, x: ArrayLike) -> Array:
        x = jnp.asarray(x, state.last.dtype)
        there = usable(x)
        filled = jnp.where(there, x, state.mean.total)
        return jnp.concatenate([filled, (~there).astype(x.dtype)]) if self.indicators else filled

    def learn(self, state: Moments, sample: Sample) -> Moments:
        return state.after(sample.x, 1.0, CLIP)
