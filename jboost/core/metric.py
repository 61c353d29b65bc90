"""The base class of metrics, and what a metric is shown of a sample."""

from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import checks
from jboost.core.numerics import Ring, Sum, dtype_of, usable
from jboost.core.pytree import DType, Number, model, static

LONGEST_WINDOW = 10**8  # samples, whose terms take most of a gigabyte
Bound = ArrayLike | None  # of an interval, or of a column of intervals; None where there is none


class Answer(NamedTuple):
    """A target beside what was predicted of it."""

    d: Array  # the target
    prediction: Array  # its estimate, made before d was known
    low: Array  # the bounds of its interval, NaN if there is none
    high: Array


class MetricState(NamedTuple):
    """The state of a metric."""

    sums: Sum | Ring  # the sums of its terms, or the terms of its window; zeros at the start
    past: Array  # (memory,), what it remembers of the targets so far; zeros at the start


@model
class Metric:
    """Base class: a mean of losses, or another function of the sums of a few terms.

    A subclass overrides ``loss``; or, if it is no mean, ``terms_of`` and ``from_sums``. Sums are
    compensated. A window keeps its terms and adds them up when asked, so nothing drifts; memory and
    ``value`` take O(window), ``update`` takes O(1).

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
        count = checks.or_none(checks.a_whole_number(at_least=1, at_most=LONGEST_WINDOW))
        checks.fields(self, fading=checks.a_number(above=0, at_most=1), window=count)
        if self.window is not None and (checks.is_traced(self.fading) or self.fading != 1):
            both = f"fading={self.fading!r} and window={self.window!r}"
            raise ValueError(f"a metric fades or has a window: give one of them; got {both}")

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
        terms, after = self.terms_of(past, answer._replace(d=jnp.where(counts, answer.d, 0)))
        if isinstance(sums, Ring):
            sums = sums.add(jnp.stack(terms), counts)
        else:  # S ← γ S + term, where only the small (1 − γ) S is rounded
            fade = 1 - jnp.asarray(self.fading, past.dtype)
            new = sums.add(jnp.stack(terms) - fade * sums.total)
            sums = jax.tree.map(partial(jnp.where, counts), new, sums)
        return MetricState(sums, jnp.where(counts, after, past))

    def value(self, state: MetricState) -> Array:
        """Return the metric; NaN where it is not defined, as before the first sample."""
        return self.from_sums(state.sums.total)

    def terms_of(self, past: Array, answer: Answer) -> tuple[list[Array], Array]:
        """Return the terms of a sample, and ``past`` after it."""
        return [jnp.ones_like(answer.d), self.loss(answer)], past

    def from_sums(self, sums: Array) -> Array:
        """Return the metric from the sums of its terms."""
        return ratio(sums[1], sums[0])

    def loss(self, answer: Answer) -> Array:
        """Return the loss of a sample, for a metric that is a mean of losses."""
        raise TypeError(f"{type(self).__name__} must override loss, or terms_of and from_sums")


def ratio(a: Array, b: Array) -> Array:
    """Return a/b; NaN where b is 0, with a derivative that is not NaN."""
    positive = b > 0
    return jnp.where(positive, a / jnp.where(positive, b, 1), jnp.nan)
