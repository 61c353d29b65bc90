"""Detectors of changes in a sequence of numbers: Page–Hinkley and ADWIN.

Each is a frozen pytree of settings, with pure functions:

    init(dtype)            -> state
    update(state, value)   -> (state, alarm)

After an alarm a detector begins anew. The detector of :class:`jboost.OnChange` is a third, which
knows how errors are distributed and needs no units.
"""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Number, checks, model, static
from jboost.core.numerics import dtype_of, known, usable

FARTHEST = 1e30  # of a sum of deviations: beyond it float32 would soon end
ROWS = 32  # of buckets: ADWIN's window holds up to 2³² numbers


class ChangeDetector(abc.ABC):
    """Base class of detectors."""

    @abc.abstractmethod
    def init(self, dtype: DType = None) -> Any:
        """Return the state before any number."""

    @abc.abstractmethod
    def after(self, state: Any, value: Array) -> tuple[Any, Array]:
        """Return the state after a usable number, and whether it raises an alarm."""

    def update(self, state: Any, value: ArrayLike) -> tuple[Any, Array]:
        """Return the state after a number, and whether the numbers have changed.

        A number that is not usable leaves the state as it was. After an alarm the state is the
        first one.
        """
        checks.refuse_complex("value", value)
        floats = [a.dtype for a in jax.tree.leaves(state) if jnp.issubdtype(a.dtype, jnp.floating)]
        number = jnp.asarray(value, floats[0])
        if number.ndim:
            raise ValueError(f"value must be one number; got shape {number.shape}")
        after, alarm = self.after(state, known(number, number.dtype))
        alarm = alarm & usable(number)

        def choose(old: Array, new: Array, first: Array) -> Array:
            return jnp.where(usable(number), jnp.where(alarm, first, new), old)

        return jax.tree.map(choose, state, after, self.init(number.dtype)), alarm


class PageHinkleyState(NamedTuple):
    """The state of the test of Page and Hinkley."""

    samples: Array  # n, 0 at the start
    mean: Array  # of the numbers since the last alarm, 0 at the start
    up: Array  # the sum of deviations less δ, 0 at the start
    down: Array  # the sum of deviations plus δ, 0 at the start
    lowest: Array  # the least value of ``up``, infinite at the start
    highest: Array  # the largest value of ``down``, −1 at the start


@model
class PageHinkley(ChangeDetector):
    """The test of Page and Hinkley: whether the mean of a sequence has moved.

        m ← mean so far,    u ← α u + (x − m − δ),    v ← α v + (x − m + δ)
        alarm where n ≥ ``warm_up`` and u − min u > h ("up"), or max v − v > h ("down")

    Args:
      threshold: h > 0, in units of the numbers.
      delta: δ ≥ 0, a change of the mean that is allowed.
      fading: α in (0, 1].
      warm_up: n, at least 1.
      direction: "up", "down" or "both".

    >>> detector = PageHinkley(threshold=5.0)
    >>> state, alarms = detector.init(), []
    >>> for t in range(100):
    ...     state, alarm = detector.update(state, 0.0 if t < 60 else 1.0)
    ...     alarms += [t] * bool(alarm)
    >>> alarms[0]
    65

    Reference: E. S. Page, Continuous inspection schemes, Biometrika 41, 1954.
    """

    threshold: Number = 50.0
    delta: Number = 0.005
    fading: Number = 0.9999
    warm_up: int = static(default=30)
    direction: str = static(default="both")

    def __post_init__(self) -> None:
        checks.fields(
            self,
            threshold=checks.a_number(above=0),
            delta=checks.a_number(at_least=0),
            fading=checks.a_number(above=0, at_most=1),
            warm_up=checks.a_whole_number(at_least=1),
            direction=checks.one_of("up", "down", "both"),
        )

    def init(self, dtype: DType = None) -> PageHinkleyState:
        zero = jnp.zeros((), dtype_of(dtype))
        return PageHinkleyState(zero, zero, zero, zero, zero + jnp.finfo(zero.dtype).max, zero - 1)

    def after(self, state: PageHinkleyState, value: Array) -> tuple[PageHinkleyState, Array]:
        settings = (self.threshold, self.delta, self.fading)
        h, delta, alpha = (jnp.asarray(setting, value.dtype) for setting in settings)
        n = state.samples + 1
        mean = state.mean + (value - state.mean) / n
        up = jnp.clip(alpha * state.up + (value - mean - delta), -FARTHEST, FARTHEST)
        down = jnp.clip(alpha * state.down + (value - mean + delta), -FARTHEST, FARTHEST)
        lowest, highest = jnp.minimum(state.lowest, up), jnp.maximum(state.highest, down)
        rose, fell = up - lowest > h, highest - down > h
        alarm = {"up": rose, "down": fell, "both": rose | fell}[self.direction]
        after = PageHinkleyState(n, mean, up, down, lowest, highest)
        return after, alarm & (n >= self.warm_up)


class ADWINState(NamedTuple):
    """The window of ADWIN: buckets of 1, 2, 4, … numbers; all are 0 at the start."""

    ticks: Array  # the numbers since the last alarm, modulo 2³²
    counts: Array  # (32,) how many buckets there are of each size
    totals: Array  # (32, buckets + 1) the sum of each, the oldest first
    width: Array  # the numbers in the window
    total: Array  # their sum
    variance: Array  # the sum of their squared deviations


@model
class ADWIN(ChangeDetector):
    """Adaptive windowing: whether some cut of a window parts numbers of different means.

    A cut into n₀ older and n₁ newer numbers raises an alarm where their means differ by more than

        √(2 s² log(2 log(n)/δ)/m) + 2 log(2 log(n)/δ)/(3m),    1/m = 1/(n₀ − k + 1) + 1/(n₁ − k + 1)

    with s² the variance of all n numbers and k = ``least``. The window is kept in buckets of 1, 2,
    4, … numbers, so that state and work grow with log n.

    Args:
      delta: δ in (0, 1): a smaller one takes more evidence.
      clock: after how many numbers cuts are looked at, at least 1.
      buckets: of each size, at least 1.
      least: k, the numbers that either side of a cut has at least.
      warm_up: the numbers before the first look.

    >>> detector = ADWIN()
    >>> state, alarms = detector.init(), []
    >>> update = jax.jit(detector.update)
    >>> for t in range(400):
    ...     state, alarm = update(state, float(t % 2) + (3.0 if t >= 200 else 0.0))
    ...     alarms += [t] * bool(alarm)
    >>> alarms
    [223]

    Reference: A. Bifet, R. Gavaldà, Learning from time-changing data with adaptive windowing, SDM
    2007.
    """

    delta: Number = 0.002
    clock: int = static(default=32)
    buckets: int = static(default=5)
    least: int = static(default=5)
    warm_up: int = static(default=10)

    def __post_init__(self) -> None:
        count = checks.a_whole_number(at_least=1)
        few = checks.a_whole_number(at_least=1, at_most=1000)
        delta = checks.a_number(above=0, below=1)
        checks.fields(self, delta=delta, clock=count, buckets=few, least=count, warm_up=count)

    def init(self, dtype: DType = None) -> ADWINState:
        zero = jnp.zeros((), dtype_of(dtype))
        counts = jnp.zeros(ROWS, jnp.int32)
        totals = jnp.zeros((ROWS, self.buckets + 1), zero.dtype)
        return ADWINState(jnp.zeros((), jnp.uint32), counts, totals, zero, zero, zero)

    def after(self, state: ADWINState, value: Array) -> tuple[ADWINState, Array]:
        ticks, counts, totals, width, total, variance = state
        mean = total / jnp.maximum(width, 1)
        grown = width * jnp.square(value - mean) / (width + 1)
        variance = variance + jnp.where(width > 0, grown, 0)
        ticks, width, total = ticks + 1, width + 1, total + value
        totals = totals.at[0, counts[0]].set(value)
        counts = counts.at[0].add(1)
        first = (jnp.zeros((), jnp.int32), counts, totals)
        _, counts, totals = jax.lax.while_loop(self._is_full, self._merged, first)
        looked = (ticks % self.clock == 0) & (width > self.warm_up)
        alarm = looked & self._has_cut(counts, totals, width, total, variance)
        return ADWINState(ticks, counts, totals, width, total, variance), alarm

    def _is_full(self, carried: tuple[Any, Array, Array]) -> Array:
        row, counts, _ = carried
        return (counts[row] == self.buckets + 1) & (row < ROWS - 1)

    def _merged(self, carried: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        """Join the two oldest buckets of a row to one of the next."""
        row, counts, totals = carried
        joined = totals[row, 0] + totals[row, 1]
        totals = totals.at[row].set(jnp.concatenate([totals[row, 2:], jnp.zeros(2, totals.dtype)]))
        totals = totals.at[row + 1, counts[row + 1]].set(joined)
        return row + 1, counts.at[row].add(-2).at[row + 1].add(1), totals

    def _has_cut(
        self, counts: Array, totals: Array, width: Array, total: Array, variance: Array
    ) -> Array:
        dtype, k = totals.dtype, self.least
        there = jnp.arange(totals.shape[1], dtype=jnp.int32)[None, :] < counts[:, None]
        sizes = jnp.where(there, 2.0 ** jnp.arange(ROWS, dtype=dtype)[:, None], 0)
        # From the oldest bucket, the largest, to the newest.
        n0 = jnp.cumsum(sizes[::-1].ravel())
        u0 = jnp.cumsum(jnp.where(there, totals, 0)[::-1].ravel())
        n1, u1 = width - n0, total - u0
        possible = there[::-1].ravel() & (n0 >= k) & (n1 >= k)
        n0, n1 = jnp.where(possible, n0, k), jnp.where(possible, n1, k)
        inverse = 1 / (n0 - k + 1) + 1 / (n1 - k + 1)
        logs = jnp.log(2 * jnp.log(jnp.maximum(width, 2)) / jnp.asarray(self.delta, dtype))
        bound = jnp.sqrt(2 * inverse * (variance / width) * logs) + 2 / 3 * logs * inverse
        return jnp.any(possible & (jnp.abs(u0 / n0 - u1 / n1) > bound))
