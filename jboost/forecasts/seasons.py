"""Seasons of a stream: where a row stands in its two cycles, and the usual answer there.

With a calendar the cycles are those of the clock: day and week for rows closer than a day, week and
year for rows of days, the year for longer ones. Without a calendar they are the periods that
:class:`jboost.Past` finds. A table holds a running mean of the answers for each slot of a cycle.

Days are of two kinds, such as working days and weekends. The table of the day has a slot for each
time of day and each kind. The kinds are found online: see :func:`kinds_of_days`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.transforms.calendar import BEGINS, PERIODS, SECONDS, Calendar
from jboost.transforms.past import PastState

MOST_SLOTS = 144  # of a day: one every ten minutes
# How fast the tables of the short and of the long cycle follow the answers. A slot of the week is
# met once a week, and a slot of the day up to five times.
RATES = (0.2, 0.4)
DAYS = 7
KINDS = 2
APART = 1.3  # two kinds of days differ by so many times as much as days of one kind


class Cycle(NamedTuple):
    """One cycle of the calendar."""

    name: str  # "day", "week" or "year"
    slots: int  # into how many slots it is cut
    rows: int  # how many rows it has; 0 if that is no whole number


class Table(NamedTuple):
    """The usual answers by slot; every field is 0 at the start."""

    values: Array  # the running mean of each slot, (slots,)
    filled: Array  # whether the slot has seen an answer, (slots,)
    period: Array  # the period found that the slots belong to; 0 with a calendar


def cycles_of(calendar: Calendar, step: float) -> tuple[Cycle, Cycle]:
    """Return the short and the long cycle of rows that lie ``step`` units of the calendar apart.

    >>> cycles_of(Calendar(unit="hours"), 0.5)
    (Cycle(name='day', slots=48, rows=48), Cycle(name='week', slots=336, rows=336))
    """
    seconds = step * SECONDS[calendar.unit]

    def cycle(name: str, slots: int) -> Cycle:
        rows = PERIODS[name] / seconds
        whole = name == "year" or abs(rows - round(rows)) < 1e-6 * rows
        return Cycle(name, slots, round(rows) if whole else 0)

    if seconds < PERIODS["day"]:
        slots = min(round(PERIODS["day"] / seconds), MOST_SLOTS)
        return cycle("day", slots), cycle("week", DAYS * slots)
    if seconds < PERIODS["week"]:
        return cycle("week", DAYS), cycle("year", 52)
    return cycle("year", 12), cycle("year", 12)


def slots_at(calendar: Calendar, cycle: Cycle, times: Array) -> Array:
    """Return the slots of some times, which count as the calendar counts them."""
    start = (np.datetime64(calendar.origin, "s") - np.datetime64(0, "s")).astype(int)
    period = PERIODS[cycle.name] / SECONDS[calendar.unit]
    turned = (start - BEGINS[cycle.name]) % PERIODS[cycle.name] / PERIODS[cycle.name]
    phase = jnp.remainder(times, jnp.asarray(period, times.dtype)) / period + turned
    # A quarter of a slot more, so that rounding puts no time into the slot before.
    return jnp.floor(phase * cycle.slots + 0.25).astype(jnp.int32) % cycle.slots


def found_periods(state: PastState) -> tuple[Array, Array]:
    """Return the shorter and the longer of the periods found; 0 where there is none."""
    longest = jnp.max(state.periods)
    return jnp.min(jnp.where(state.periods > 0, state.periods, longest)), longest


def empty_table(slots: int, dtype: jnp.dtype) -> Table:
    """Return a table before any answer."""
    return Table(jnp.zeros(slots, dtype), jnp.zeros(slots, bool), jnp.zeros((), jnp.int32))


def looked_up(table: Table, slots: Array, otherwise: Array) -> Array:
    """Return the usual answers in some slots, (n,); ``otherwise`` where there was none yet."""
    return jnp.where(table.filled[slots], table.values[slots], otherwise)


def table_after(table: Table, slot: Array, d: Array, rate: float) -> Table:
    """Return the table after an answer in a slot."""
    here = jnp.arange(table.values.shape[0], dtype=jnp.int32) == slot
    new = jnp.where(table.filled, table.values + rate * (d - table.values), d)
    return table._replace(values=jnp.where(here, new, table.values), filled=table.filled | here)


def for_period(table: Table, period: Array) -> Table:
    """Return the table for a period; it is empty where the period is another than before."""
    return Table(table.values, table.filled & (table.period == period), period)


def a_season_before(state: PastState, period: Array, ahead: Array, otherwise: Array) -> Array:
    """Return the answers whole periods before rows that lie ``ahead`` of the latest, (H,)."""
    length = jnp.maximum(period, 1)
    back = length - 1 - (ahead - 1) % length  # from the latest answer on
    there = (period > 0) & (back.astype(state.samples.dtype) < state.samples)
    return jnp.where(there, state.answers[jnp.where(there, back, 0)], otherwise)


def unlike_after(unlike: Array, table: Table, slot: Array, d: Array) -> Array:
    """Return how unlike weekdays are, after an answer in a slot of the week.

    Entry (i, j) is the running mean, over about two days i, of how far an answer of day i lies from
    the usual answer of day j at the same time of day.
    """
    slots = table.values.shape[0] // DAYS
    day, of_day = slot // slots, slot % slots
    usual, there = (a.reshape(DAYS, slots)[:, of_day] for a in (table.values, table.filled))
    here = jnp.arange(DAYS, dtype=jnp.int32) == day
    step = jnp.where(there[None, :], jnp.abs(d - usual)[None, :] - unlike, 0) / (2 * slots)
    return jnp.where(here[:, None], unlike + step, unlike)


def kinds_of_days(unlike: Array) -> Array:
    """Return the kind of each weekday, 0 or 1; the first one, Monday, is of kind 0.

    The two weekdays that are most unlike stand for the kinds, and each day is of the kind that it
    is less unlike. All are of one kind where those two are hardly more unlike than days of a kind.
    """
    both = unlike + unlike.T
    farthest = jnp.argmax(both.ravel()).astype(jnp.int32)
    a, b = farthest // DAYS, farthest % DAYS
    within = jnp.sum(jnp.where(jnp.eye(DAYS, dtype=bool), both, 0)) / DAYS
    clear = (jnp.max(both) > APART * within) & jnp.all(both > 0)
    second = both[b] < both[a]
    return jnp.where(clear & (second != second[0]), 1, 0).astype(jnp.int32)


def waves(phase: Array, count: int) -> Array:
    """Return cos and sin of ``count`` waves at a phase, from 0 to 1."""
    angle = 2 * np.pi * phase * jnp.arange(1, count + 1, dtype=phase.dtype)
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)])
