"""Lags: earlier inputs and targets beside the present input, so that a learner can forecast."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Sample, Transform, checks, model, static
from jboost.core.numerics import dtype_of, known


class LagsState(NamedTuple):
    """The latest samples, newest first; None where inputs or targets are not lagged."""

    started: Array  # whether any sample was seen, False at the start
    inputs: Array | None  # the latest p inputs, (p, r), zeros at the start
    targets: Array | None  # the latest q targets, (q,), zeros at the start


@model
class Lags(Transform):
    """Appends the inputs of the last p samples and the targets of the last q to the present input.

        x′_t = (x_t, x_{t−1}, …, x_{t−p}, d_{t−1}, …, d_{t−q})

    With q > 0 a linear learner behind it is an autoregressive model. As long as there are fewer
    samples, the oldest one stands for those before it. The very first sample has no earlier target:
    its lagged targets are NaN, so a learner learns nothing from it. A sample without an answer
    enters no lags. Put Lags before a booster, not inside: where a mode draws which samples a
    learner updates on, the lags inside that learner would be those of the drawn samples.

    Args:
      inputs: p ≥ 0.
      targets: q ≥ 0; at least one of the two is above 0.

    >>> lags = Lags(inputs=1, targets=2)
    >>> state = lags.init(1)
    >>> for x, d in ([1.0], 10.0), ([2.0], 20.0), ([3.0], 30.0):
    ...     print(lags.apply(state, jnp.array(x)))
    ...     state = lags.update(state, jnp.array(x), d)
    [ 1.  1. nan nan]
    [ 2.  1. 10. 10.]
    [ 3.  2. 20. 10.]
    """

    inputs: int = static(default=0)
    targets: int = static(default=0)

    def __post_init__(self) -> None:
        count = checks.a_whole_number(at_least=0)
        checks.fields(self, inputs=count, targets=count)
        if self.inputs + self.targets == 0:
            raise ValueError("inputs or targets must be above 0 for a lag; got 0 for both")

    def width(self, num_features: int) -> int:
        return num_features * (1 + self.inputs) + self.targets

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> LagsState:
        dtype, p, q = dtype_of(dtype), self.inputs, self.targets
        inputs = jnp.zeros((p, num_features), dtype) if p else None
        return LagsState(jnp.zeros((), bool), inputs, jnp.zeros(q, dtype) if q else None)

    def apply(self, state: LagsState, x: ArrayLike) -> Array:
        started, inputs, targets = state
        dtype = next(a.dtype for a in (inputs, targets) if a is not None)
        x = jnp.asarray(x, dtype)
        columns = [x]
        if inputs is not None:
            columns.append(jnp.where(started, inputs, jnp.broadcast_to(x, inputs.shape)).ravel())
        if targets is not None:
            columns.append(jnp.where(started, targets, jnp.nan))
        return jnp.concatenate(columns)

    def learn(self, state: LagsState, sample: Sample) -> LagsState:
        started, inputs, targets = state
        if inputs is not None:
            inputs = _pushed(inputs, known(sample.x, inputs.dtype), started)
        if targets is not None:
            targets = _pushed(targets, sample.d, started)
        return LagsState(jnp.ones_like(started), inputs, targets)


def _pushed(values: Array, newest: Array, started: Array) -> Array:
    """Return the values without the oldest; the first value of all takes every place."""
    later = jnp.concatenate([newest[None], values[:-1]])
    return jnp.where(started, later, jnp.broadcast_to(newest, values.shape))
