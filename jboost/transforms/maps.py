"""Maps of the input: Bias, Polynomial, RandomFourier, and Impute for inputs with gaps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Number, Sample, Transform, checks, model, static
from jboost.core.learner import required_key
from jboost.core.numerics import dtype_of, known, real, usable
from jboost.core.products import matvec
from jboost.transforms.units import Moments

HIGHEST_DEGREE = 64
MOST_COLUMNS = 2**22  # of a Polynomial: their numbers alone take tens of megabytes
CLIP = 5.0  # deviations: an absurd value moves the mean of Impute no farther than this


@model
class Bias(Transform):
    """Appends a column of ones, so that a linear learner has a constant.

    >>> Bias().apply((), jnp.array([0.5, 2.0])).tolist()
    [0.5, 2.0, 1.0]
    """

    @property
    def passes_missing(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return num_features + 1

    def apply(self, state: tuple[()], x: ArrayLike) -> Array:
        x = real(x)
        return jnp.concatenate([x, jnp.ones(1, x.dtype)])


@model
class Polynomial(Transform):
    """Appends all products of two up to ``degree`` columns: x_i x_j with i ≤ j, ….

    For degree 2 that makes r + r(r + 1)/2 columns; more than four million are refused. Put
    :class:`Scale` before it: products of large numbers are larger still, and a sample with a
    product beyond 1e15 is not learned.

    Args:
      degree: 2 to 64.

    >>> Polynomial().apply((), jnp.array([2.0, 3.0])).tolist()
    [2.0, 3.0, 4.0, 6.0, 9.0]
    """

    degree: int = static(default=2)

    def __post_init__(self) -> None:
        degree = checks.a_whole_number(at_least=2, at_most=HIGHEST_DEGREE)
        checks.fields(self, degree=degree)

    def width(self, num_features: int) -> int:
        # C(r + p, p) − 1, factor by factor. Each factor is at least 2, so that few are too many.
        fewer, more = sorted((num_features, self.degree))
        count = 1
        for i in range(1, fewer + 1):
            count = count * (more + i) // i
            if count > MOST_COLUMNS + 1:
                raise ValueError(
                    f"num_features={num_features:,} columns have more than {MOST_COLUMNS:,} "
                    f"products of degree up to {self.degree}: pass fewer columns or a lower degree"
                )
        return count - 1

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> tuple[()]:
        self.width(num_features)  # refuses too many columns
        return ()

    def apply(self, state: tuple[()], x: ArrayLike) -> Array:
        x = real(x)
        x = known(x, x.dtype)
        self.width(len(x))  # refuses too many columns
        columns, last = [x], np.arange(len(x))
        for _ in range(2, self.degree + 1):
            # A product of p − 1 columns, which is there already, times its last column or a later
            # one. ``last`` is the number of the last column in each product.
            counts = len(x) - last
            shorter = np.repeat(np.arange(len(last)), counts)
            skipped = np.cumsum(counts) - counts - last
            last = np.arange(len(shorter)) - np.repeat(skipped, counts)
            columns.append(known(columns[-1], x.dtype)[shorter] * x[last])
        return jnp.concatenate(columns)


class FourierState(NamedTuple):
    """The map, drawn at the start and never changed."""

    W: Array  # the frequencies for ℓ = 1, (D, r), a row for each feature
    b: Array  # the phases, (D,)


@model
class RandomFourier(Transform):
    """Turns x into random Fourier features: a linear learner behind them is a kernel method.

        x′_i = √(2/D) cos(w_iᵀx/ℓ + b_i),    w_i ~ N(0, I),  b_i ~ U(0, 2π),  i = 1 … D

    The inner product of the x′ of two inputs x and z is the Gaussian kernel exp(−‖x − z‖²/(2ℓ²)),
    with an error of about 1/√D. ``init`` draws the w_i and b_i, so copies of a learner in a booster
    have different maps. ℓ can be swept and differentiated. ‖x′‖² is about 1 whatever D is: an SGD
    behind it takes steps up to 1, and Newton's ridge weighs as in any kernel method.

    Columns in [−1, 1] suit an ℓ of about 1 to 4; behind ``Scale()``, whose columns have variance 1,
    twice that. ``experiments/bench/nonlinear.py`` has figures.

    Args:
      num_features: D ≥ 1.
      length_scale: ℓ > 0, the distance over which the target changes; a scalar, or (m,) inside a
        booster of m learners.

    >>> import jax
    >>> fourier = RandomFourier(1000, length_scale=2.0)
    >>> state = fourier.init(2, key=jax.random.key(0))
    >>> a, b = (fourier.apply(state, jnp.array(x)) for x in ([0.0, 1.0], [1.0, 1.0]))
    >>> abs(float(a @ b) - float(jnp.exp(-1 / 8))) < 0.05
    True

    Reference: A. Rahimi, B. Recht, Random features for large-scale kernel machines, NIPS 2007.
    """

    num_features: int = static()
    length_scale: Number = 1.0

    def __post_init__(self) -> None:
        checks.fields(
            self,
            num_features=checks.a_whole_number(at_least=1),
            length_scale=checks.a_number(above=0),
        )

    @property
    def needs_key(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return self.num_features

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> FourierState:
        key_W, key_b = jax.random.split(required_key(key))
        # In float32 whatever the dtype of the state, so that a key draws the same map in each.
        W = jax.random.normal(key_W, (self.num_features, num_features), jnp.float32)
        b = jax.random.uniform(key_b, (self.num_features,), jnp.float32, maxval=2 * np.pi)
        return FourierState(W.astype(dtype_of(dtype)), b.astype(dtype_of(dtype)))

    def apply(self, state: FourierState, x: ArrayLike) -> Array:
        W, b = state
        x = known(x, W.dtype) / jnp.asarray(self.length_scale, W.dtype)
        return (2 / self.num_features) ** 0.5 * jnp.cos(matvec(W, x) + b)


@model
class Impute(Transform):
    """Replaces missing entries of x (NaN, infinite, beyond 1e15) by their column's mean so far.

    Before the first value of a column that mean is 0. Put :class:`Scale` first: it lets missing
    entries pass, and behind it the mean is near 0 from the start, whatever the units.

    Args:
      indicators: whether to append, for each column, 1 where its entry was missing.

    >>> impute = Impute(indicators=True)
    >>> state = impute.update(impute.init(2), jnp.array([3.0, jnp.nan]))
    >>> impute.apply(state, jnp.array([jnp.nan, 7.0])).tolist()
    [3.0, 7.0, 1.0, 0.0]
    """

    indicators: bool = static(default=False)

    def __post_init__(self) -> None:
        checks.fields(self, indicators=checks.flag)

    @property
    def fills_missing(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return 2 * num_features if self.indicators else num_features

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> Moments:
        return Moments.zeros((num_features,), dtype_of(dtype))

    def apply(self, state: Moments, x: ArrayLike) -> Array:
        x = jnp.asarray(x, state.last.dtype)
        there = usable(x)
        filled = jnp.where(there, x, state.mean.total)
        return jnp.concatenate([filled, (~there).astype(x.dtype)]) if self.indicators else filled

    def learn(self, state: Moments, sample: Sample) -> Moments:
        return state.after(sample.x, 1.0, CLIP)
