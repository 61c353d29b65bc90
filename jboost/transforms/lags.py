"""What came before, as inputs: a learner behind it forecasts."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Sample, Transform, checks, model, static
from jboost.core.numerics import dtype_of, known


class LagsState(NamedTuple):
    """Whether there was a sample; the latest inputs and targets, newest first; None if of none."""

    some: Array
    inputs: Array | None
    targets: Array | None


@model
class Lags(Transform):
    """The inputs of the last p samples and the targets of the last q, beside the present input.

        x′_t = (x_t, x_{t−1}, …, x_{t−p}, d_{t−1}, …, d_{t−q})

    With q > 0 a linear learner behind it is an autoregressive model. Until there are as many, the
    oldest value stands for the earlier ones; on the very first sample of all there is no target,
    so a learner learns nothing from it. A sample without an answer is left out of the lags too.
    Inside a booster whose mode draws, a learner's own lags would be those of the samples it drew:
    put Lags before the booster.

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
        for name in ("inputs", "targets"):
            count = checks.whole(name, getattr(self, name), at_least=0)
            object.__setattr__(self, name, count)
        if self.inputs + self.targets == 0:
            raise ValueError(
                "inputs or targets must be above 0, or nothing is delayed; got 0 for both"
            )

    def width(self, num_features: int) -> int:
        return num_features * (1 + self.inputs) + self.targets

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> LagsState:
        del key
        dtype = dtype_of(dtype)
        return LagsState(
            some=jnp.zeros((), bool),
            inputs=jnp.zeros((self.inputs, num_features), dtype) if self.inputs else None,
            targets=jnp.zeros(self.targets, dtype) if self.targets else None,
        )

    def apply(self, state: LagsState, x: ArrayLike) -> Array:
        some, inputs, targets = state
        dtype = next(a.dtype for a in (inputs, targets) if a is not None)
        x = jnp.asarray(x, dtype)
        columns = [x]
        if inputs is not None:
            oldest = jnp.broadcast_to(x, inputs.shape)
            columns.append(jnp.where(some, inputs, oldest).ravel())
        if targets is not None:
            columns.append(jnp.where(some, targets, jnp.nan))
        return jnp.concatenate(columns)

    def learn(self, state: LagsState, sample: Sample) -> LagsState:
        some, inputs, targets = state
        if inputs is not None:
            inputs = _pushed(inputs, known(sample.x, inputs.dtype), some)
        if targets is not None:
            targets = _pushed(targets, sample.d, some)
        return LagsState(jnp.ones_like(some), inputs, targets)


def _pushed(line: Array, newest: Array, some: Array) -> Array:
    """The line with one more in front and the last gone; the first ever fills all of it."""
    return jnp.where(
        some,
        jnp.concatenate([newest[None], line[:-1]]),
        jnp.broadcast_to(newest, line.shape),
    )
