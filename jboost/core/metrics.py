"""Measures of a stream of predictions, as pure folds: so far, over a window, or fading.

    init(dtype)                                    -> state
    update(state, d, prediction, low=, high=)      -> state
    value(state)                                   -> a number, NaN before anything counted

A metric is a frozen pytree like a learner, unbatched, and runs inside a ``lax.scan``. Samples whose
target is not usable do not count. Each metric is made of the sums of a few terms of a sample:

| metric       | value                                                                            |
|--------------|----------------------------------------------------------------------------------|
| ``MSE``      | Σ e²/n, e = d − d̂                                                                |
| ``RMSE``     | its root                                                                         |
| ``MAE``      | Σ abs(e)/n                                                                       |
| ``R2``       | 1 − Σ e²/Σ (d − d̄)², d̄ the mean of the same targets                              |
| ``MASE``     | Σ abs(e_t)/Σ abs(d_t − d_{t−1}), over samples that have a target before them     |
| ``Pinball``  | Σ max(q e, (q − 1) e)/n, for an estimate of the quantile q                       |
| ``Coverage`` | the part of the targets in [low, high]                                           |

``fading=γ`` weights the terms of n samples ago by γⁿ; ``window=n`` counts the last n samples alone.
"""

from __future__ import annotations

import abc
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import checks
from jboost.core.arrays import real
from jboost.core.errors import long_sum
from jboost.core.learner import Number, State, model, static
from jboost.core.numerics import Sum, dtype_of, usable


class Ring(NamedTuple):
    """The terms of the last samples, and the place of the next."""

    terms: Array
    place: Array

    def add(self, terms: Array, ok: Array) -> Ring:
        old = jax.lax.dynamic_index_in_dim(self.terms, self.place, keepdims=False)
        row = jnp.where(ok, terms, old)  # of one row, so that a step does not copy the window
        rows = jax.lax.dynamic_update_index_in_dim(self.terms, row, self.place, 0)
        after = (self.place + 1) % self.terms.shape[0]
        return Ring(rows, jnp.where(ok, after, self.place))

    @property
    def total(self) -> Array:
        return jax.vmap(long_sum, in_axes=1)(self.terms)


class MetricState(NamedTuple):
    """Sums of terms, or the terms of a window; and what is known of the targets so far."""

    sums: Sum | Ring
    past: Array


@model
class Metric(abc.ABC):
    """What the metrics share: how terms are summed. A subclass says which, and what they mean.

    Sums are compensated: a million float32 terms keep six digits. A window keeps its terms and adds
    them up when asked, so that nothing drifts and a value that has left leaves no trace; its memory
    and ``value`` take O(window), ``update`` O(1).

    Args:
      window: count the last so many samples alone; a whole number ≥ 1.
      fading: γ in (0, 1]; about 1/(1 − γ) samples are remembered. Not together with a window.
    """

    window: int | None = static(default=None)
    fading: Number = 1.0

    size: ClassVar[int] = 2  # how many terms
    memory: ClassVar[int] = 0  # how many numbers it remembers of the targets
    of_intervals: ClassVar[bool] = False  # whether it looks at low and high

    def __post_init__(self) -> None:
        checks.fields(
            self,
            fading=checks.a_number(above=0, at_most=1),
            window=checks.or_none(checks.a_whole_number(at_least=1)),
        )
        if self.window is not None and (checks.is_traced(self.fading) or self.fading != 1):
            raise ValueError(
                "a metric fades or has a window: give one of them; "
                f"got fading={self.fading!r} and window={self.window!r}"
            )

    def init(self, dtype: Any = None) -> MetricState:
        """The state before any sample."""
        dtype = dtype_of(dtype)
        past = jnp.zeros(self.memory, dtype)
        if self.window is None:
            return MetricState(Sum.zeros((self.size,), dtype), past)
        terms = jnp.zeros((self.window, self.size), dtype)
        return MetricState(Ring(terms, jnp.zeros((), jnp.int32)), past)

    def update(
        self, state: MetricState, d: Any, prediction: Any, low: Any = None, high: Any = None
    ) -> MetricState:
        """The state after one more sample; the same where its target is not usable.

        ``low`` and ``high`` are the bounds of an interval, for a metric that looks at one.
        """
        sums, past = state
        d = jnp.asarray(d, past.dtype)
        ok = usable(d)
        y, low, high = (
            jnp.asarray(jnp.nan if b is None else b, d.dtype) for b in (prediction, low, high)
        )
        terms, after = self._terms(past, jnp.where(ok, d, 0), y, low, high)
        if isinstance(sums, Ring):
            sums = sums.add(jnp.stack(terms), ok)
        else:  # S ← γ S + term, where only the small (1 − γ) S is rounded
            fade = 1 - jnp.asarray(self.fading, d.dtype)
            new = sums.add(jnp.stack(terms) - fade * sums.total)
            sums = jax.tree.map(lambda new, old: jnp.where(ok, new, old), new, sums)
        return MetricState(sums, jnp.where(ok, after, past))

    def value(self, state: MetricState) -> Array:
        """What the samples so far amount to; NaN where that is not defined, as before the first."""
        return self._value(state.sums.total)

    @abc.abstractmethod
    def _terms(
        self, past: Array, d: Array, y: Array, low: Array, high: Array
    ) -> tuple[list[Array], Array]:
        """What a sample adds, and ``past`` after it."""

    @abc.abstractmethod
    def _value(self, sums: Array) -> Array:
        """The metric from the sums of its terms."""


class Mean(Metric):
    """A mean over samples: the terms are 1 and the loss."""

    def _terms(
        self, past: Array, d: Array, y: Array, low: Array, high: Array
    ) -> tuple[list[Array], Array]:
        return [jnp.ones_like(d), self._loss(d, y, low, high)], past

    @abc.abstractmethod
    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        """Of one sample."""

    def _value(self, sums: Array) -> Array:
        return _ratio(sums[1], sums[0])


@model
class MSE(Mean):
    """The mean squared error.

    >>> float(evaluate(MSE(), [1.0, 2.0, 0.0], [1.0, 4.0, float("nan")]))
    2.0
    >>> float(evaluate(MSE(window=1), [1.0, 2.0], [1.0, 4.0]))
    4.0
    """

    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        return jnp.square(d - y)


@model
class RMSE(MSE):
    """The root of the mean squared error.

    >>> float(evaluate(RMSE(), [0.0, 0.0], [3.0, 3.0]))
    3.0
    """

    def _value(self, sums: Array) -> Array:
        mean = _ratio(sums[1], sums[0])
        some = mean > 0
        return jnp.where(some, jnp.sqrt(jnp.where(some, mean, 1)), mean)


@model
class MAE(Mean):
    """The mean absolute error.

    >>> float(evaluate(MAE(), [0.0, 0.0], [3.0, -1.0]))
    2.0
    """

    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        return jnp.abs(d - y)


@model
class Pinball(Mean):
    """The mean of the loss that a quantile minimises: max(q e, (q − 1) e), e = d − d̂.

    Args:
      q: the quantile that is predicted, in (0, 1).

    >>> float(evaluate(Pinball(q=0.75), [0.0, 0.0], [1.0, -1.0]))
    0.5
    """

    q: Number = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.fields(self, q=checks.a_number(above=0, below=1))

    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        e, q = d - y, jnp.asarray(self.q, d.dtype)
        return jnp.maximum(q * e, (q - 1) * e)


@model
class Coverage(Mean):
    """The part of the targets that lie in [low, high]; a bound that is NaN covers nothing.

    >>> float(evaluate(Coverage(), [0.0, 0.0], [0.5, 2.0], low=[-1.0, -1.0], high=[1.0, 1.0]))
    0.5
    """

    of_intervals: ClassVar[bool] = True

    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        return ((low <= d) & (d <= high)).astype(d.dtype)


@model
class MASE(Metric):
    """The error next to that of saying the last target again; below 1 is better than that.

    A sample without a target before it has nothing to be compared with and does not count.

    >>> float(evaluate(MASE(), [0.0, 1.5, 2.5], [1.0, 2.0, 3.0]))
    0.5
    """

    memory: ClassVar[int] = 2  # the last target, and whether there is one

    def _terms(
        self, past: Array, d: Array, y: Array, low: Array, high: Array
    ) -> tuple[list[Array], Array]:
        some = past[1] > 0
        terms = [jnp.where(some, jnp.abs(d - other), 0) for other in (y, past[0])]
        return terms, jnp.stack([d, jnp.ones_like(d)])

    def _value(self, sums: Array) -> Array:
        return _ratio(sums[0], sums[1])


@model
class R2(Metric):
    """The part of the target's variance that is explained: R² = 1 − Σ e²/Σ (d − d̄)².

    Σ (d − d̄)² is summed without cancellation, after Welford: with n ← γ n + 1 and δ = d − d̄, a
    sample adds (1 − 1/n) δ² and moves d̄ by δ/n. NaN while all targets are the same.

    >>> round(float(evaluate(R2(), [1.0, 2.0, 4.0], [1.0, 2.0, 3.0])), 6)
    0.5
    """

    memory: ClassVar[int] = 3  # n, and d̄ with its compensation

    def _terms(
        self, past: Array, d: Array, y: Array, low: Array, high: Array
    ) -> tuple[list[Array], Array]:
        n, mean = jnp.asarray(self.fading, d.dtype) * past[0] + 1, Sum(past[1], past[2])
        delta = d - mean.total
        # A window sums up the squares when asked, around the mean that it then has.
        about = d if self.window else (1 - 1 / n) * jnp.square(delta)
        return [jnp.square(d - y), about], jnp.stack([n, *mean.add(delta / n)])

    def value(self, state: MetricState) -> Array:
        if not isinstance(state.sums, Ring):
            return super().value(state)
        terms = state.sums.terms
        filled = jnp.arange(terms.shape[0], dtype=terms.dtype) < state.past[0]
        square, d = jnp.where(filled[:, None], terms, 0).T
        mean = _ratio(long_sum(d), long_sum(filled.astype(d.dtype)))
        apart = jnp.where(filled, jnp.square(d - mean), 0)
        return self._value(jnp.stack([long_sum(square), long_sum(apart)]))

    def _value(self, sums: Array) -> Array:
        return 1 - _ratio(sums[0], sums[1])


Metrics = Any  # a metric, or a pytree of them, such as a dictionary


def evaluate(metrics: Metrics, prediction: Any, ds: Any, low: Any = None, high: Any = None) -> Any:
    """The value of a metric, or of each of a dictionary of them, over a whole stream.

    Args:
      metrics: a metric, or a pytree of them.
      prediction: (T,), as in a run's trace.
      ds: (T,) targets; those that are not usable do not count.
      low, high: (T,) bounds of intervals, for ``Coverage``.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(1000)
    >>> _, trace = jb.run(jb.Newton(0.99), xs, ds)
    >>> found = evaluate({"MSE": MSE(), "MASE": MASE(window=100)}, trace.prediction, ds)
    >>> {name: round(float(value), 3) for name, value in found.items()}
    {'MASE': 0.737, 'MSE': 0.169}
    """
    return _fold(metrics, _columns(prediction, ds, low, high), False)


def curve(metrics: Metrics, prediction: Any, ds: Any, low: Any = None, high: Any = None) -> Any:
    """The same after every sample, (T,); with a window of n that takes O(T n).

    >>> curve(MSE(), [0.0, 1.0], [2.0, 1.0]).tolist()
    [4.0, 2.0]
    """
    return _fold(metrics, _columns(prediction, ds, low, high), True)


def init(metrics: Metrics, dtype: Any = None) -> State:
    """The states of a pytree of metrics."""
    return jax.tree.map(lambda one: one.init(dtype), metrics, is_leaf=is_metric)


def update(metrics: Metrics, states: State, *sample: Any) -> State:
    """Each state after one more sample: d, prediction, and perhaps low and high."""
    return jax.tree.map(
        lambda one, state: one.update(state, *sample), metrics, states, is_leaf=is_metric
    )


def value(metrics: Metrics, states: State) -> Any:
    """What each amounts to."""
    return jax.tree.map(lambda one, state: one.value(state), metrics, states, is_leaf=is_metric)


def is_metric(part: Any) -> bool:
    """Whether this is one metric, where a pytree of them is walked."""
    return isinstance(part, Metric)


def _columns(*given: Any) -> tuple[Array, ...]:
    """Predictions, targets and bounds as arrays of one length and dtype."""
    names = ("prediction", "ds", "low", "high")
    arrays = {n: real(a) for n, a in zip(names, given, strict=True) if a is not None}
    wanted = arrays["ds"].shape
    for name, array in arrays.items():
        if array.ndim != 1 or array.shape != wanted or not wanted[0]:
            raise ValueError(f"{name} must be (T,), T ≥ 1, like ds; got {array.shape}, ds {wanted}")
    prediction, ds, *bounds = (
        array.astype(arrays["prediction"].dtype) for array in arrays.values()
    )
    return ds, prediction, *bounds


@partial(jax.jit, static_argnums=2)
def _fold(metrics: Metrics, columns: tuple[Array, ...], every: bool) -> Any:
    def step(states: State, sample: tuple[Array, ...]) -> tuple[State, Any]:
        states = update(metrics, states, *sample)
        return states, value(metrics, states) if every else None

    states, values = jax.lax.scan(step, init(metrics, columns[0].dtype), columns)
    return values if every else value(metrics, states)


def _ratio(a: Array, b: Array) -> Array:
    """a/b, NaN where b is 0, with a derivative that is not."""
    some = b > 0
    return jnp.where(some, a / jnp.where(some, b, 1), jnp.nan)
