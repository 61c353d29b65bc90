"""Metrics of a stream of predictions: over all samples so far, over a window, or fading.

``fading=γ`` weights the terms of n samples ago by γⁿ; ``window=n`` counts the last n samples alone.
Samples whose target is not usable do not count. In the formulas, d is a target, d̂ its estimate,
e = d − d̂ and n the number of samples. Like a learner, a metric is a frozen pytree with a state.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import checks
from jboost.core.learner import State
from jboost.core.metric import Answer, Bound, Metric, MetricState, ratio
from jboost.core.numerics import Ring, Sum, floats, long_sum
from jboost.core.pytree import DType, Number, model


@model
class MSE(Metric):
    """The mean squared error, Σ e²/n.

    >>> float(evaluate(MSE(), [1.0, 2.0, 0.0], [1.0, 4.0, float("nan")]))
    2.0
    >>> float(evaluate(MSE(window=1), [1.0, 2.0], [1.0, 4.0]))
    4.0
    """

    def loss(self, answer: Answer) -> Array:
        return jnp.square(answer.d - answer.prediction)


@model
class RMSE(MSE):
    """The root of the mean squared error, √(Σ e²/n)."""

    def from_sums(self, sums: Array) -> Array:
        mean = super().from_sums(sums)
        positive = mean > 0  # the slope of the root at 0 is infinite
        return jnp.where(positive, jnp.sqrt(jnp.where(positive, mean, 1)), mean)


@model
class MAE(Metric):
    """The mean absolute error, Σ abs(e)/n."""

    def loss(self, answer: Answer) -> Array:
        return jnp.abs(answer.d - answer.prediction)


@model
class Pinball(Metric):
    """The mean of the loss that a quantile minimises: Σ max(q e, (q − 1) e)/n.

    Args:
      q: the quantile that is predicted, in (0, 1).

    >>> float(evaluate(Pinball(q=0.75), [0.0, 0.0], [1.0, -1.0]))
    0.5
    """

    q: Number = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.fields(self, q=checks.a_number(above=0, below=1))

    def loss(self, answer: Answer) -> Array:
        e = answer.d - answer.prediction
        q = jnp.asarray(self.q, e.dtype)
        return jnp.maximum(q * e, (q - 1) * e)


@model
class Coverage(Metric):
    """The share of the targets in [low, high]; a bound that is NaN covers nothing.

    >>> float(evaluate(Coverage(), [0.0, 0.0], [0.5, 2.0], low=[-1.0, -1.0], high=[1.0, 1.0]))
    0.5
    """

    of_intervals: ClassVar[bool] = True

    def loss(self, answer: Answer) -> Array:
        return ((answer.low <= answer.d) & (answer.d <= answer.high)).astype(answer.d.dtype)


@model
class MASE(Metric):
    """The absolute error over that of predicting the last target again; below 1 is better.

    Σ abs(e_t)/Σ abs(d_t − d_{t−1}), over samples that have a target before them.

    >>> float(evaluate(MASE(), [0.0, 1.5, 2.5], [1.0, 2.0, 3.0]))
    0.5
    """

    memory: ClassVar[int] = 2  # the last target, and whether there is one

    def terms_of(self, past: Array, answer: Answer) -> tuple[list[Array], Array]:
        d, (last, exists) = answer.d, past
        estimates = (answer.prediction, last)
        terms = [jnp.where(exists > 0, jnp.abs(d - estimate), 0) for estimate in estimates]
        return terms, jnp.stack([d, jnp.ones_like(d)])

    def from_sums(self, sums: Array) -> Array:
        return ratio(*sums)


@model
class R2(Metric):
    """The share of the target's variance that is explained: R² = 1 − Σ e²/Σ (d − d̄)².

    Σ (d − d̄)² is summed without cancellation, after Welford: with n ← γ n + 1 and δ = d − d̄, a
    sample adds (1 − 1/n) δ² and moves d̄ by δ/n. NaN while all targets are the same.

    >>> round(float(evaluate(R2(), [1.0, 2.0, 4.0], [1.0, 2.0, 3.0])), 6)
    0.5
    """

    memory: ClassVar[int] = 3  # n, and d̄ with its compensation

    def terms_of(self, past: Array, answer: Answer) -> tuple[list[Array], Array]:
        d, mean = answer.d, Sum(past[1], past[2])
        n = jnp.asarray(self.fading, d.dtype) * past[0] + 1
        delta = d - mean.total
        # A window keeps d: `value` sums the squares around the mean that the window then has.
        spread = d if self.window else (1 - 1 / n) * jnp.square(delta)
        terms = [jnp.square(d - answer.prediction), spread]
        return terms, jnp.stack([n, *mean.add(delta / n)])

    def value(self, state: MetricState) -> Array:
        if not isinstance(state.sums, Ring):
            return super().value(state)
        terms = state.sums.terms
        filled = jnp.arange(terms.shape[0], dtype=terms.dtype) < state.past[0]
        square, d = jnp.where(filled[:, None], terms, 0).T
        mean = long_sum(d) / jnp.maximum(long_sum(filled.astype(d.dtype)), 1)
        spread = jnp.where(filled, jnp.square(d - mean), 0)
        return self.from_sums(jnp.stack([long_sum(square), long_sum(spread)]))

    def from_sums(self, sums: Array) -> Array:
        return 1 - ratio(*sums)


Metrics = Any  # a metric, or a pytree of metrics, such as a dictionary


def evaluate(
    metrics: Metrics, prediction: ArrayLike, ds: ArrayLike, low: Bound = None, high: Bound = None
) -> Any:
    """Return the value of a metric, or of each of a pytree of metrics, over a whole stream.

    Args:
      metrics: a metric, or a pytree of metrics.
      prediction: (T,), as in a run's trace.
      ds: (T,) targets; unusable targets do not count.
      low, high: (T,) bounds of intervals, for ``Coverage``.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(1000)
    >>> _, trace = jb.run(jb.Newton(0.99), xs, ds)
    >>> values = evaluate({"MSE": MSE(), "MASE": MASE(window=100)}, trace.prediction, ds)
    >>> {name: round(float(value), 3) for name, value in values.items()}
    {'MASE': 0.737, 'MSE': 0.169}
    """
    check(metrics)
    return _fold(metrics, _columns(ds, prediction, low, high), False)


def curve(
    metrics: Metrics, prediction: ArrayLike, ds: ArrayLike, low: Bound = None, high: Bound = None
) -> Any:
    """Return the values of :func:`evaluate` after every sample, (T,). A window n takes O(T n).

    >>> curve(MSE(), [0.0, 1.0], [2.0, 1.0]).tolist()
    [4.0, 2.0]
    """
    check(metrics)
    return _fold(metrics, _columns(ds, prediction, low, high), True)


def init(metrics: Metrics, dtype: DType = None) -> State:
    """Return the states of a pytree of metrics before any sample."""
    return _each(lambda metric: metric.init(dtype), metrics)


def update(metrics: Metrics, states: State, *answer: Bound) -> State:
    """Return each state after one more sample: d, prediction, and perhaps low and high."""
    return _each(lambda metric, state: metric.update(state, *answer), metrics, states)


def value(metrics: Metrics, states: State) -> Any:
    """Return the value of each metric."""
    return _each(lambda metric, state: metric.value(state), metrics, states)


def check(metrics: Metrics) -> None:
    """Refuse what is neither a metric nor a pytree of metrics."""
    for metric in jax.tree.leaves(metrics, is_leaf=is_metric) or [metrics]:
        checks.instance("metrics", metric, Metric, "a metric such as MSE(), or several")


def is_metric(node: object) -> bool:
    """Return whether a node of a pytree is a metric: where :func:`jax.tree.map` is to stop."""
    return isinstance(node, Metric)


_each = partial(jax.tree.map, is_leaf=is_metric)


def _columns(ds: ArrayLike, prediction: ArrayLike, *bounds: Bound) -> tuple[Array | None, ...]:
    """Return ds, prediction, low and high, of one length and dtype; None stays None."""
    both = floats("ds", ds, "(T,)"), floats("prediction", prediction, "(T,)")
    T, dtype = both[0].shape, both[1].dtype
    named = zip(("low", "high"), bounds, strict=True)
    arrays = [*both, *(None if b is None else floats(name, b, "(T,)") for name, b in named)]
    for name, array in zip(("ds", "prediction", "low", "high"), arrays, strict=True):
        if array is not None and (len(T) != 1 or T[0] == 0 or array.shape != T):
            raise ValueError(f"{name} must be (T,), T ≥ 1, like ds; got {array.shape}, ds {T}")
    return tuple(None if array is None else array.astype(dtype) for array in arrays)


@partial(jax.jit, static_argnums=2)
def _fold(metrics: Metrics, columns: tuple[Array | None, ...], every: bool) -> Any:
    def step(states: State, answer: tuple[Array | None, ...]) -> tuple[State, Any]:
        states = update(metrics, states, *answer)
        return states, value(metrics, states) if every else None

    states, values = jax.lax.scan(step, init(metrics, jnp.result_type(columns[0])), columns)
    return values if every else value(metrics, states)
