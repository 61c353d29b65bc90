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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost import checks
from jboost.learners.base import Learner, Number, State, model, static
from jboost.numerics import Sum, dtype_of, usable
from jboost.transforms.base import kept, real


class Ring(NamedTuple):
    """The terms of the last samples, the place of the next, and how many places are taken."""

    terms: Array
    place: Array
    filled: Array

    def add(self, terms: Array) -> Ring:
        length = self.terms.shape[0]
        new = jax.lax.dynamic_update_index_in_dim(self.terms, terms, self.place, 0)
        return Ring(new, (self.place + 1) % length, jnp.minimum(self.filled + 1, length))


class MetricState(NamedTuple):
    """Sums of terms (or the terms of a window), and what is known of the targets so far."""

    sums: Sum | Ring
    past: Array


@model
class Metric(abc.ABC):
    """What the metrics share: how terms are summed. Subclasses say which, and what they mean.

    Sums are compensated: a million float32 terms keep six digits. A window keeps its terms and adds
    them up when asked, so that nothing drifts, however large a value that has left it; its memory
    and ``value`` take O(window), ``update`` O(1).

    Args:
      window: count the last so many samples alone; a whole number ≥ 1.
      fading: γ in (0, 1]; about 1/(1 − γ) samples are remembered. Not together with a window.
    """

    window: int | None = static(default=None)
    fading: Number = 1.0

    def __post_init__(self) -> None:
        fading = checks.number("fading", self.fading, above=0, at_most=1)
        object.__setattr__(self, "fading", fading)
        if self.window is not None:
            object.__setattr__(self, "window", checks.whole("window", self.window, at_least=1))
            if not (checks.is_traced(fading) or fading == 1):
                raise ValueError(
                    f"a metric fades or has a window: give one; got fading={fading!r} and "
                    f"window={self.window!r}"
                )

    def init(self, dtype: Any = None) -> MetricState:
        """The state before any sample."""
        dtype = dtype_of(dtype)
        zero, size = jnp.zeros((), dtype), len(self._terms(*(jnp.zeros((), dtype),) * 5)[0])
        past = jnp.zeros(2, dtype)
        if self.window is None:
            return MetricState(Sum.zeros((size,), dtype), past)
        whole = zero.astype(jnp.int32)
        return MetricState(Ring(jnp.zeros((self.window, size), dtype), whole, whole), past)

    def update(
        self, state: MetricState, d: Any, prediction: Any, low: Any = None, high: Any = None
    ) -> MetricState:
        """The state after one more sample; the same where its target is not usable."""
        dtype = state.past.dtype
        d = jnp.asarray(d, dtype)
        ok = usable(d)
        d = jnp.where(ok, d, 0)
        bounds = [jnp.asarray(prediction if b is None else b, dtype) for b in (low, high)]
        new, past = self._terms(d, jnp.asarray(prediction, dtype), *bounds, state.past)
        terms = jnp.stack(new)
        if isinstance(state.sums, Ring):
            sums = state.sums.add(terms)
        else:  # γ S + term, with the rounding of (1 − γ) S alone
            fade = 1 - jnp.asarray(self.fading, dtype)
            sums = state.sums.add(terms - fade * state.sums.total)
        after = MetricState(sums, past)
        return jax.tree.map(lambda new, old: jnp.where(ok, new, old), after, state)

    def value(self, state: MetricState) -> Array:
        """What the samples so far amount to."""
        if isinstance(state.sums, Ring):
            return self._value(_total(state.sums.terms))
        return self._value(state.sums.total)

    @abc.abstractmethod
    def _terms(self, d: Any, y: Any, low: Any, high: Any, past: Any) -> tuple[list[Array], Array]:
        """What a sample adds, and ``past`` after it."""

    @abc.abstractmethod
    def _value(self, sums: Array) -> Array:
        """The metric from the sums of its terms."""


class _Mean(Metric):
    """A mean over samples: the terms are 1 and the loss."""

    def _terms(self, d: Any, y: Any, low: Any, high: Any, past: Any) -> tuple[list[Array], Array]:
        return [jnp.ones_like(d), self._loss(d, y, low, high)], past

    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        raise NotImplementedError

    def _value(self, sums: Array) -> Array:
        return _ratio(sums[1], sums[0])


@model
class MSE(_Mean):
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
class MAE(_Mean):
    """The mean absolute error.

    >>> float(evaluate(MAE(), [0.0, 0.0], [3.0, -1.0]))
    2.0
    """

    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        return jnp.abs(d - y)


@model
class Pinball(_Mean):
    """The mean of the loss that a quantile minimises: max(q e, (q − 1) e), e = d − d̂.

    Args:
      q: the quantile that is predicted, in (0, 1).

    >>> float(evaluate(Pinball(q=0.75), [0.0, 0.0], [1.0, -1.0]))
    0.5
    """

    q: Number = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "q", checks.number("q", self.q, above=0, below=1))

    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        e, q = d - y, jnp.asarray(self.q, d.dtype)
        return jnp.maximum(q * e, (q - 1) * e)


@model
class Coverage(_Mean):
    """The part of the targets that lie in [low, high]; a bound that is NaN covers nothing.

    >>> float(evaluate(Coverage(), [0.0, 0.0], [0.5, 2.0], low=[-1.0, -1.0], high=[1.0, 1.0]))
    0.5
    """

    def _loss(self, d: Array, y: Array, low: Array, high: Array) -> Array:
        return ((low <= d) & (d <= high)).astype(d.dtype)


@model
class MASE(Metric):
    """The error next to that of saying the last target again; below 1 is better than that.

    Samples without a usable target before them have nothing to be compared with and do not count.

    >>> float(evaluate(MASE(), [0.0, 1.5, 2.5], [1.0, 2.0, 3.0]))
    0.5
    """

    def _terms(self, d: Any, y: Any, low: Any, high: Any, past: Any) -> tuple[list[Array], Array]:
        if past.ndim == 0:
            past = jnp.zeros(2, d.dtype)
        last, some = past[0], past[1]  # some: 1 once there is a last target
        terms = [some * jnp.abs(d - y), some * jnp.abs(d - last)]
        return terms, jnp.stack([d, jnp.ones_like(d)])

    def _value(self, sums: Array) -> Array:
        return _ratio(sums[0], sums[1])


@model
class R2(Metric):
    """The part of the target's variance that is explained: R² = 1 − Σ e²/Σ (d − d̄)².

    Σ (d − d̄)² is summed without cancellation, after Welford: with n ← γ n + 1 and δ = d − d̄, a
    sample adds (1 − 1/n) δ² and moves d̄ by δ/n. NaN while all targets are the same.

    >>> float(evaluate(R2(), [1.0, 2.0, 4.0], [1.0, 2.0, 3.0]))
    0.5
    """

    def _terms(self, d: Any, y: Any, low: Any, high: Any, past: Any) -> tuple[list[Array], Array]:
        square = jnp.square(d - y)
        if self.window is not None:
            return [jnp.ones_like(d), square, d], past
        if past.ndim == 0:
            past = jnp.zeros(2, d.dtype)
        mean, n = past[0], jnp.asarray(self.fading, d.dtype) * past[1] + 1
        delta = d - mean
        return [square, (1 - 1 / n) * jnp.square(delta)], jnp.stack([mean + delta / n, n])

    def value(self, state: MetricState) -> Array:
        if not isinstance(state.sums, Ring):
            return super().value(state)
        counted, square, d = state.sums.terms.T
        n, error, total = _total(state.sums.terms)
        spread = jnp.where(counted > 0, d - total / jnp.maximum(n, 1), 0)
        return self._value(jnp.stack([error, _total(jnp.square(spread)[:, None])[0]]))

    def _value(self, sums: Array) -> Array:
        return 1 - _ratio(sums[0], sums[1])
