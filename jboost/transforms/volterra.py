"""Volterra: the latest inputs and their products, for a filter of a system that is not linear."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Sample, Transform, checks, model, static
from jboost.transforms.lags import Lags, LagsState
from jboost.transforms.maps import HIGHEST_DEGREE, Polynomial


@model
class Volterra(Transform):
    """Appends earlier inputs, and products of the latest: a Volterra filter is linear in these.

        x′_t = (x_t, …, x_{t−p}, all products of two up to ``degree`` of x_t, …, x_{t−q})

    As long as there are fewer samples, the oldest one stands for those before it. A sample without
    an answer enters no lags. Put :class:`Scale` before it, and use a ``Newton`` or small steps
    behind it: products are correlated.

    Args:
      memory: p ≥ 1, how many earlier inputs.
      products: q, how many earlier inputs enter products, at most p; None is p.
      degree: 2 to 64.

    >>> volterra = Volterra(memory=2, products=1)
    >>> state = volterra.init(1)
    >>> for x in ([2.0], [3.0], [5.0]):
    ...     print(volterra.apply(state, jnp.array(x)))
    ...     state = volterra.update(state, jnp.array(x))
    [2. 2. 2. 4. 4. 4.]
    [3. 2. 2. 9. 6. 4.]
    [ 5.  3.  2. 25. 15.  9.]

    Reference: V. J. Mathews, Adaptive polynomial filters, IEEE Signal Process. Mag. 8, 1991.
    """

    memory: int = static(default=4)
    products: int | None = static(default=None)
    degree: int = static(default=2)

    def __post_init__(self) -> None:
        checks.fields(self, memory=checks.a_whole_number(at_least=1))
        below = checks.a_whole_number(at_least=0, at_most=self.memory)
        degree = checks.a_whole_number(at_least=2, at_most=HIGHEST_DEGREE)
        checks.fields(self, products=checks.or_none(below), degree=degree)

    @property
    def _lags(self) -> Lags:
        return Lags(inputs=self.memory)

    def _multiplied(self, num_features: int) -> int:
        """Return how many columns enter products."""
        latest = self.memory if self.products is None else self.products
        return num_features * (1 + latest)

    def width(self, num_features: int) -> int:
        columns = self._multiplied(num_features)
        products = Polynomial(self.degree).width(columns) - columns
        return self._lags.width(num_features) + products

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> LagsState:
        self.width(num_features)  # refuses too many columns
        return self._lags.init(num_features, dtype, key=key)

    def apply(self, state: LagsState, x: ArrayLike) -> Array:
        taps = self._lags.apply(state, x)
        columns = self._multiplied(jnp.shape(x)[0])
        return jnp.concatenate([taps, Polynomial(self.degree).apply((), taps[:columns])[columns:]])

    def learn(self, state: LagsState, sample: Sample) -> LagsState:
        return self._lags.learn(state, sample)
