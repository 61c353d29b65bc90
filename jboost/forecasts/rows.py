"""What a forecaster sees of a row: its inputs in common units, and where it stands in time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core.numerics import known as cleaned
from jboost.core.numerics import usable
from jboost.forecasts import seasons
from jboost.forecasts.seasons import Cycle
from jboost.transforms.calendar import Calendar
from jboost.transforms.scale import Scale, Units

INPUTS = Scale()
# A count of rows may begin again at 0 after so many: float32 counts no farther than 2^24.
COUNTED = 2**22


class Columns(NamedTuple):
    """The known columns at this row, (k,), and at the next H, (k, H); as now where missing."""

    now: Array
    ahead: Array


class Inputs(NamedTuple):
    """The inputs of a row; a missing one is what it was at the row before."""

    x: Array  # at this row, scaled, (r,)
    known: Columns  # scaled
    raw: Columns  # as they came
    units: Units  # the units of the columns, after this row


class Position(NamedTuple):
    """Where a row stands in time, and the H rows after it."""

    time: Array  # of the row, as the calendar counts; without a calendar the number of the row
    gap: Array  # how many steps after the row before it is, int32
    slots: tuple[Array, Array]  # in both cycles, of this row and the next, (H + 1,)
    periods: tuple[Array, Array]  # how many rows the cycles have, int32; 0 if unknown
    phases: tuple[Array, Array]  # how much of each cycle has passed, from 0 to 1
    phases_ahead: tuple[Array, Array]  # the same at the next H rows, (H,)


class Layout(NamedTuple):
    """How the columns of x are arranged: r inputs, then H columns for each of the known ones."""

    horizon: int
    known: tuple[int, ...]
    time: int | None  # the column of times

    def split(self, raw: Array) -> tuple[Array, Array]:
        """Return the inputs of a row, (r,), and the known columns of the next H rows, (k, H)."""
        k = len(self.known)
        r = raw.shape[0] - k * self.horizon
        return raw[:r], raw[r:].reshape(k, self.horizon)


def inputs(layout: Layout, units: Units, before: Array, raw: Array) -> Inputs:
    """Return the inputs of a row; ``before`` are those of the row before."""
    x, ahead = layout.split(raw)
    units = INPUTS.after(units, x)
    scaled = jnp.where(usable(x), INPUTS.scaled(units, cleaned(x, x.dtype)), before)
    if layout.time is not None:  # times only grow: they serve the calendar alone
        scaled = jnp.where(jnp.arange(x.shape[0]) == layout.time, 0, scaled)
    return Inputs(scaled, *known_columns(layout, units, x, scaled, ahead), units)


def known_columns(
    layout: Layout, units: Units, x: Array, scaled: Array, ahead: Array
) -> tuple[Columns, Columns]:
    """Return the known columns in their units, and as they came.

    ``x`` are the inputs of the row as they came, ``scaled`` the same in their units.
    """
    columns = [c for c in layout.known if c != layout.time]
    if not columns:
        none = jnp.zeros((0, layout.horizon), scaled.dtype)
        nothing = Columns(none[:, 0], none)
        return nothing, nothing
    index = jnp.array(columns, jnp.int32)
    chosen = jnp.array([layout.known.index(c) for c in columns], jnp.int32)
    of_columns, now = jax.tree.map(lambda a: a[index], units), scaled[index]
    values = ahead[chosen].T  # (H, k)
    in_units = jax.vmap(lambda v: INPUTS.scaled(of_columns, cleaned(v, v.dtype)))(values)
    here, before = x[index], INPUTS.unscaled(of_columns, now)
    raw = Columns(
        jnp.where(usable(here), here, before), jnp.where(usable(values), values, before).T
    )
    return Columns(now, jnp.where(usable(values), in_units, now[None]).T), raw


def by_calendar(
    layout: Layout, calendar: Calendar, step: float, raw: Array, before: Array,
    cycles: tuple[Cycle, Cycle], kinds: Array, longest: int,
) -> Position:  # fmt: skip
    """Return the position of a row that has a time.

    ``before`` is the time of the row before, and ``kinds`` are the kinds of the weekdays.
    """
    x, ahead = layout.split(raw)
    t = _time(x, calendar, before + step)
    times = t + step * jnp.arange(layout.horizon + 1, dtype=x.dtype)
    gap = _steps(t - before, step)
    if calendar.column in layout.known:
        later = ahead[layout.known.index(calendar.column)]
        later = jnp.where(usable(later), cleaned(later, x.dtype), times[1:])
        times, gap = jnp.concatenate([t[None], later]), jnp.ones_like(gap)
    short, long = (seasons.slots_at(calendar, cycle, times) for cycle in cycles)
    phases, phases_ahead = (
        tuple(
            slots[there].astype(x.dtype) / cycle.slots
            for slots, cycle in zip((short, long), cycles, strict=True)
        )
        for there in (0, slice(1, None))
    )
    if cycles[0].name == "day":
        short = short + cycles[0].slots * kinds[long // cycles[0].slots]
    rows = (jnp.asarray(c.rows if c.rows <= longest else 0, jnp.int32) for c in cycles)
    return Position(t, gap, (short, long), tuple(rows), phases, phases_ahead)  # type: ignore[arg-type]


def by_count(
    layout: Layout, periods: tuple[Array, Array], number: Array, dtype: jnp.dtype
) -> Position:
    """Return the position of a row of a stream without times; ``number`` is that of the row."""
    numbers = number + jnp.arange(layout.horizon + 1, dtype=jnp.int32)
    slots = tuple(numbers % jnp.maximum(period, 1) for period in periods)
    phases, phases_ahead = (
        tuple(
            numbers_of[there].astype(dtype) / jnp.maximum(period, 1).astype(dtype)
            for numbers_of, period in zip(slots, periods, strict=True)
        )
        for there in (0, slice(1, None))
    )
    one = jnp.ones((), jnp.int32)
    return Position(number.astype(dtype), one, slots, periods, phases, phases_ahead)  # type: ignore[arg-type]


def by_elapsed(
    layout: Layout, calendar: Calendar, step: float, raw: Array, before: Array,
    periods: tuple[Array, Array], number: Array,
) -> Position:  # fmt: skip
    """Return the position of a row whose time tells how many steps have passed, and no more.

    ``before`` is the time of the row before, and ``number`` its number.
    """
    x, _ = layout.split(raw)
    t = _time(x, calendar, before + step)
    half = COUNTED / 2 * step
    gap = _steps(jnp.remainder(t - before + half, COUNTED * step) - half, step)
    counted = (number > 0) & (calendar.column not in layout.known)
    gap = jnp.where(counted, gap, 1)
    position = by_count(layout, periods, number + jnp.maximum(gap - 1, 0), x.dtype)
    return position._replace(time=t, gap=gap)


def _time(x: Array, calendar: Calendar, otherwise: Array) -> Array:
    """Return the time of a row; ``otherwise`` where it is missing."""
    t = x[calendar.column]
    return jnp.where(usable(t), cleaned(t, x.dtype), otherwise)


def _steps(difference: Array, step: float) -> Array:
    """Return how many steps there are in a difference of times, int32."""
    return jnp.clip(jnp.round(difference / step), -1e6, 1e6).astype(jnp.int32)
