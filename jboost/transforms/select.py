"""The few columns that matter, found while the stream runs."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Sample, Transform, checks, model, static
from jboost.core.numerics import dtype_of, known, usable

SOONEST = 20  # samples before the first exchange
CLEARLY = 2.0  # times what the weakest of the selected explains, or it stays
BEYOND_CHANCE = (
    8.0  # times what a column that explains nothing seems to explain, squared deviations
)


class SelectState(NamedTuple):
    """The selected columns; n; d̄; the variance of d; c; v."""

    columns: Array
    samples: Array
    mean: Array
    power: Array
    product: Array
    square: Array


@model
class Select(Transform):
    """The columns that explain most of the target by themselves, so far.

        score_i = c_i²/v_i,    c_i the covariance of x_i and d so far, v_i the mean of x_i²

    is the part of the target's variance that column i explains on its own. Whenever a column that
    is left out explains clearly more than the weakest that is not, it takes its place, so what
    stands behind sees few columns, each for long. A learner behind it is one that finds the few
    relevant among many inputs; its cost does not grow with r², and its error does not with r. With
    no more columns than ``most`` nothing is left out.

    A column that matters only together with others, and explains nothing by itself, is not seen: a
    tree behind it (``experiments/bench/nonlinear.py``) misses the input it would be split at.

    Columns must be centred: put :class:`jboost.Scale` before it. The learner behind it should
    forget (``Newton(0.99)``, or any step size), as it takes a new column for the old one at first.

    Args:
      most: how many columns to keep, at least 1.

    >>> import numpy as np
    >>> import jboost as jb
    >>> rng = np.random.default_rng(0)
    >>> xs = rng.normal(size=(500, 50)).astype(np.float32)
    >>> ds = xs[:, 31] - xs[:, 7]
    >>> state, _ = jb.run(jb.pipeline(Select(2), jb.Newton()), xs, ds)
    >>> sorted(state.transforms[0].columns.tolist())
    [7, 31]
    """

    most: int = static()

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", checks.whole("most", self.most, at_least=1))

    @property
    def passes_missing(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return min(self.most, num_features)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> Any:
        del key
        if num_features <= self.most:
            return ()
        dtype = dtype_of(dtype)
        zero, zeros = jnp.zeros((), dtype), jnp.zeros(num_features, dtype)
        columns = jnp.arange(self.most, dtype=jnp.int32)
        return SelectState(columns, zero, zero, zero, zeros, zeros)

    def apply(self, state: Any, x: ArrayLike) -> Array:
        x = jnp.asarray(x)
        x = jnp.where(usable(x), x, jnp.nan)
        return x[state.columns] if isinstance(state, SelectState) else x

    def learn(self, state: SelectState | tuple[()], sample: Sample) -> SelectState | tuple[()]:
        if not isinstance(state, SelectState):
            return state
        columns, n, mean, power, product, square = state
        x, d = known(sample.x, mean.dtype), sample.d
        n = n + 1
        z = d - mean
        mean = mean + z / n
        past = z * (n - 1) / n  # from the new mean: nothing yet at the first sample
        power = power + (z * past - power) / n
        product = product + (x * past - product) / n
        square = square + (x * x - square) / n

        some = square > 0
        part = jnp.where(some, product / jnp.sqrt(jnp.where(some, square, 1)), 0)
        score = part * part
        everyone = jnp.arange(score.shape[0], dtype=jnp.int32)
        selected = jnp.any(columns[:, None] == everyone[None, :], axis=0)
        best = jnp.max(jnp.where(selected, -1, score))
        worst = jnp.min(jnp.where(selected, score, jnp.inf))
        better = best > CLEARLY * worst + BEYOND_CHANCE * power / n
        enters = _first(~selected & (score == best), everyone)
        leaves = _first(selected & (score == worst), everyone)
        exchanged = better & (n >= SOONEST) & (columns == leaves)
        return SelectState(jnp.where(exchanged, enters, columns), n, mean, power, product, square)


def _first(where: Array, numbers: Array) -> Array:
    """The first number where it holds."""
    return jnp.min(jnp.where(where, numbers, jnp.iinfo(numbers.dtype).max))
