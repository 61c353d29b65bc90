"""The inputs of auto's kernel expert: x itself, a constant, and random Fourier features."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Transform, checks, model, static
from jboost.transforms.maps import FourierState, RandomFourier


@model
class WithFourier(Transform):
    """Appends a constant and random Fourier features, so that a kernel adds to a line.

        x′ = (x, 1, √(r + 1) φ(x)),    φ the random Fourier features of length scale √r

    The length scale is the usual distance of x from the mean where its columns have variance 1. The
    factor gives the features together the size of (x, 1).

    Args:
      num_features: the number of features, at least 1.

    >>> import jax
    >>> wider = WithFourier(10)
    >>> wider.apply(wider.init(3, key=jax.random.key(0)), jnp.ones(3)).shape
    (14,)
    """

    num_features: int = static()

    def __post_init__(self) -> None:
        checks.fields(self, num_features=checks.a_whole_number(at_least=1))

    @property
    def needs_key(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return num_features + 1 + self.num_features

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> FourierState:
        return RandomFourier(self.num_features).init(num_features, dtype, key=key)

    def apply(self, state: FourierState, x: ArrayLike) -> Array:
        x = jnp.asarray(x, state.W.dtype)
        features = RandomFourier(self.num_features, length_scale=len(x) ** 0.5).apply(state, x)
        return jnp.concatenate([x, jnp.ones(1, x.dtype), (len(x) + 1) ** 0.5 * features])
