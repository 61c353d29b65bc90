"""Select: the few columns that matter, found while the stream runs."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Sample, Transform, checks, model, static
from jboost.core.numerics import dtype_of, known, usable

SOONEST = 20  # samples before the first exchange
# A column enters if its score is above CLEARLY times the score of the column that leaves, plus
# BEYOND_CHANCE times the score that a column without any relation to d has on average, var(d)/n.
CLEARLY, BEYOND_CHANCE = 2.0, 8.0


class SelectState(NamedTuple):
    """The selection among r columns. All sums and means start at 0."""

    columns: Array  # the numbers of the selected columns, (most,); 0, 1, … at the start
    samples: Array  # n, the number of samples so far
    mean: Array  # of d
    power: Array  # the variance of d
    product: Array  # c, the covariance of each column and d, (r,)
    square: Array  # v, the mean square of each column, (r,)


Selection = SelectState | tuple[()]  # () where no column is left out


@model
class Select(Transform):
    """Keeps the columns that, each by itself, have explained most of the target so far.

        score_i = c_i²/v_i,    c_i the covariance of x_i and d so far, v_i the mean of x_i²

    The score is the part of the target's variance that column i explains by itself. When the best
    column that is left out explains clearly more than the weakest selected one, the two are
    exchanged. Exchanges are rare, so the learner behind sees each of its few columns for long. If
    there are no more columns than ``most``, all are kept. Select does not find a column that
    matters only together with others and explains nothing by itself.

    Columns must be centred: put :class:`jboost.Scale` before it. The learner behind should forget
    (``Newton(0.99)``), as it at first treats a new column like the one it replaced.

    Args:
      most: how many columns to keep, at least 1.

    >>> import numpy as np, jboost as jb
    >>> rng = np.random.default_rng(0)
    >>> xs = rng.normal(size=(500, 50)).astype(np.float32)
    >>> ds = xs[:, 31] - xs[:, 7]
    >>> state, _ = jb.run(jb.pipeline(Select(2), jb.Newton()), xs, ds)
    >>> sorted(state.transforms[0].columns.tolist())
    [7, 31]
    """

    most: int = static()

    def __post_init__(self) -> None:
        checks.fields(self, most=checks.a_whole_number(at_least=1))

    @property
    def passes_missing(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return min(self.most, num_features)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> Selection:
        if num_features <= self.most:
            return ()
        dtype = dtype_of(dtype)
        zero, zeros = jnp.zeros((), dtype), jnp.zeros(num_features, dtype)
        columns = jnp.arange(self.most, dtype=jnp.int32)
        return SelectState(columns, zero, zero, zero, zeros, zeros)

    def apply(self, state: Selection, x: ArrayLike) -> Array:
        x = jnp.asarray(x)
        x = jnp.where(usable(x), x, jnp.nan)
        return x[state.columns] if isinstance(state, SelectState) else x

    def learn(self, state: Selection, sample: Sample) -> Selection:
        if not isinstance(state, SelectState):
            return state
        columns, n, mean, power, product, square = state
        x, d = known(sample.x, mean.dtype), sample.d
        n, z = n + 1, d - mean
        mean = mean + z / n
        deviation = z * (n - 1) / n  # of d from the new mean: 0 at the first sample
        power = power + (z * deviation - power) / n
        product = product + (x * deviation - product) / n
        square = square + (x * x - square) / n

        varies = square > 0
        correlation = jnp.where(varies, product / jnp.sqrt(jnp.where(varies, square, 1)), 0)
        score = correlation * correlation
        numbers = jnp.arange(score.shape[0], dtype=jnp.int32)
        selected = jnp.any(columns[:, None] == numbers[None, :], axis=0)
        best = jnp.max(jnp.where(selected, -1, score))
        worst = jnp.min(jnp.where(selected, score, jnp.inf))
        better = best > CLEARLY * worst + BEYOND_CHANCE * power / n
        enters = _first(numbers, ~selected & (score == best))
        leaves = _first(numbers, selected & (score == worst))
        exchanged = better & (n >= SOONEST) & (columns == leaves)
        return SelectState(jnp.where(exchanged, enters, columns), n, mean, power, product, square)


def _first(numbers: Array, where: Array) -> Array:
    return jnp.min(jnp.where(where, numbers, jnp.iinfo(numbers.dtype).max))
