"""What all metrics share: the state of a metric, and how the terms of the samples are summed.

    init(dtype)                                    -> state
    update(state, d, prediction, low=, high=)      -> state
    value(state)                                   -> a number, NaN before anything counted

A metric is a frozen pytree like a learner. These pure functions pass its state along, and run
inside a ``lax.scan``.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import checks
from jboost.core.errors import long_sum
from jboost.core.numerics import Sum, dtype_of, usable
from jboost.core.pytree import DType, Number, model, static

Bound = ArrayLike | None  # of an interval, or of a column of intervals; None where there is none


class Answer(NamedTuple):
    """A target beside what was predicted of it."""

    d: Array  # the target
    prediction: Array  # its estimate, made before d was known
    low: Array  # the bounds of its interval, NaN if there is none
    high: Array


class Ring(NamedTuple):
    """The terms of the last samples."""

    terms: Array  # (window, size), a row per sample; zeros at the start
    row: Array  # the row that the next sample replaces; 0 at the start

    def add(self, terms: Array, counts: Array) -> Ring:
        """Replace the oldest row, if the sample counts."""
        old = jax.lax.dynamic_index_in_dim(self.terms, self.row, keepdims=False)
        new = jnp.where(counts, terms, old)  # chosen by row, so that a step copies no window
        rows = jax.lax.dynamic_update_index_in_dim(self.terms, new, self.row, 0)
        return Ring(rows, jnp.where(counts, (self.row + 1) % self.terms.shape[0], self.row))

    @property
    def total(self) -> Array:
        return jax.vmap(long_sum, in_axes=1)(self.terms)


class MetricState(NamedTuple):
    """The state of a metric."""

    sums: Sum | Ring  # the sums of its terms, or the terms of its window; zeros at the start
    past: Array  # (memory,), what it remembers of the targets so far; zeros at the start


@model
class Metric:
    """Base class: a mean of losses, or another function of the sums of a few terms.

    A subclass overrides ``_loss``; or, if it is no mean, ``_terms`` and ``_value``.

    Sums are compensated: a million float32 terms keep six digits. A window keeps its terms and adds
    them up when asked. So nothing drifts, and a sample that left the window leaves no trace; memory
    and ``value`` take O(window), ``update`` takes O(1).

    Args:
      window: the number of latest samples that count, a whole number ≥ 1; None: all count.
      fading: γ in (0, 1]; about 1/(1 − γ) samples are remembered. Not together with a window.
    """

    window: int | None = static(default=None)
    fading: Number = 1.0

    size: ClassVar[int] = 2  # the number of terms
    memory: ClassVar[int] = 0  # the length of `past`
    of_intervals: ClassVar[bool] = False  # whether it uses low and high

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

    def init(self, dtype: DType = None) -> MetricState:
        """Return the state before any sample."""
        dtype = dtype_of(dtype)
        past = jnp.zeros(self.memory, dtype)
        if self.window is None:
            return MetricState(Sum.zeros((self.size,), dtype), past)
        terms = jnp.zeros((self.window, self.size), dtype)
        return MetricState(Ring(terms, jnp.zeros((), jnp.int32)), past)

    def update(
        self, state: MetricState, d: ArrayLike, prediction: ArrayLike,
        low: Bound = None, high: Bound = None,
    ) -> MetricState:  # fmt: skip
        """Return the state after one more sample; the same state where d is not usable.

        ``low`` and ``high`` are the bounds of an interval, for a metric that uses them.
        """
        sums, past = state
        values = (jnp.nan if v is None else v for v in (d, prediction, low, high))
        answer = Answer(*(jnp.asarray(value, past.dtype) for value in values))
        counts = usable(answer.d)
        terms, after = self._terms(past, answer._replace(d=jnp.where(counts, answer.d, 0)))
        if isinstance(sums, Ring):
            sums = sums.add(jnp.stack(terms), counts)
        else:  # S ← γ S + term, where only the small (1 − γ) S is rounded
            fade = 1 - jnp.asarray(self.fading, past.dtype)
            new = sums.add(jnp.stack(terms) - fade * sums.total)
            sums = jax.tree.map(partial(jnp.where, counts), new, sums)
        return MetricState(sums, jnp.where(counts, after, past))

    def value(self, state: MetricState) -> Array:
        """Return the metric; NaN where it is not defined, as before the first sample."""
        return self._value(state.sums.total)

    def _terms(self, past: Array, answer: Answer) -> tuple[list[Array], Array]:
        """Return the terms of a sample, and ``past`` after it."""
        return [jnp.ones_like(answer.d), self._loss(answer)], past

    def _value(self, sums: Array) -> Array:
        """Return the metric from the sums of its terms."""
        return ratio(sums[1], sums[0])

    def _loss(self, answer: Answer) -> Array:
        """Return the loss of a sample, for a metric that is a mean of losses."""
        raise NotImplementedError


def ratio(a: Array, b: Array) -> Array:
    """Return a/b; NaN where b is 0, with a derivative that is not NaN."""
    positive = b > 0
    return jnp.where(positive, a / jnp.where(positive, b, 1), jnp.nan)
