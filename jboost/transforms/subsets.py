"""Random Fourier features of a few columns each: for inputs of which only some matter."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost import checks
from jboost.learners.base import Number, model, static
from jboost.numerics import dtype_of, known
from jboost.products import matvec
from jboost.transforms.base import Transform, given
from jboost.transforms.maps import FourierState


@model
class SubsetFourier(Transform):
    """The inputs, and random Fourier features of random subsets of them, at many length scales.

        x′ = (x, √(2/D) cos(w_iᵀx + b_i)),    w_ij = s_ij n_ij / (ℓ_i √q_i),    i = 1 … D

    n is standard normal, b uniform on (0, 2π); s_ij is 1 for the q_i columns, drawn without
    replacement, that feature i looks at, and 0 for the others; ln ℓ_i is uniform. A linear learner
    behind it is a kernel method whose kernel is the mean of Gaussian ones, over subsets and length
    scales. With √q in it a length means the same for few columns and for many: for columns of
    variance 1 (behind ``Scale()``) two inputs are about √(2q) apart.

    Few columns a feature make an additive model: irrelevant columns cost little, and steps in one
    column, as those of codes, are within reach. All columns suit smooth functions of all of them.
    On the first 8,192 rows, 300 features before ``Newton(ridge=0.001)``, MSE of targets in [−1, 1]:
    all columns kin8nm .035, mv .0019; two columns kin8nm .059, mv .0038; both mixed .038, .0016.

    Args:
      num_features: D ≥ 1; x′ has D + r columns.
      columns: the mean of q, at least 1; q is one of the two whole numbers next to it, and never
        more than there are. By default all columns.
      shortest: the smallest ℓ > 0.
      longest: the largest.

    >>> fourier = SubsetFourier(4, columns=2)
    >>> state = fourier.init(3, key=jax.random.key(0))
    >>> (state.W != 0).sum(axis=1).tolist()
    [2, 2, 2, 2]
    >>> fourier.apply(state, jnp.array([1.0, 2.0, 3.0])).shape
    (7,)
    """

    num_features: int = static()
    columns: Number = float("inf")
    shortest: Number = 1.0
    longest: Number = 4.0

    def __post_init__(self) -> None:
        count = checks.whole("num_features", self.num_features, at_least=1)
        object.__setattr__(self, "num_features", count)
        if not (isinstance(self.columns, float) and self.columns == float("inf")):
            columns = checks.number("columns", self.columns, at_least=1)
            object.__setattr__(self, "columns", columns)
        for name in ("shortest", "longest"):
            object.__setattr__(self, name, checks.number(name, getattr(self, name), above=0))

    @property
    def needs_key(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return num_features + self.num_features

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> FourierState:
        dtype = dtype_of(dtype)
        D, r = self.num_features, num_features
        of_n, of_b, of_l, of_s, of_q = jax.random.split(given(key), 5)
        low, high = (jnp.log(jnp.asarray(a, dtype)) for a in (self.shortest, self.longest))
        lengths = jnp.exp(low + (high - low) * jax.random.uniform(of_l, (D, 1), dtype))
        most = jnp.minimum(jnp.asarray(self.columns, dtype), r)
        q = jnp.floor(most + jax.random.uniform(of_q, (D, 1), dtype))
        q = jnp.clip(q, 1, r)
        # The places of uniform numbers in their order are a random permutation.
        place = jnp.argsort(jax.random.uniform(of_s, (D, r), dtype), axis=1)
        n = jax.random.normal(of_n, (D, r), dtype)
        return FourierState(
            W=jnp.where(place.astype(dtype) < q, n, 0) / (lengths * jnp.sqrt(q)),
            b=jax.random.uniform(of_b, (D,), dtype, maxval=2 * np.pi),
        )

    def apply(self, state: FourierState, x: Any) -> Array:
        W, b = state
        x = known(x, W.dtype)
        return jnp.concatenate([x, (2 / self.num_features) ** 0.5 * jnp.cos(matvec(W, x) + b)])
