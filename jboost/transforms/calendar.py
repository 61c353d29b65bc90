"""Calendar: a column of times becomes smooth cycles and elapsed time.

The same numbers are made on the host, from whole microseconds, by :func:`of_instants`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Transform, checks, model, static
from jboost.core.numerics import known, real, usable

SECONDS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}  # by the name of a unit
# The lengths of the cycles in seconds; a year is the mean year of the calendar, 365.2425 days.
PERIODS = {"day": 86_400, "week": 604_800, "year": 31_556_952}
WAVES = {"day": 4, "week": 3, "year": 2}  # of a cycle: waves of its length, of half of it, …
WEEK_BEGINS = -3 * 86_400  # 1970 began on a Thursday: the Monday before is three days earlier
BEGINS = {"day": 0, "week": WEEK_BEGINS, "year": 0}  # seconds from 1970 on
ELAPSED = "elapsed"
CYCLES = (*PERIODS, ELAPSED)


@model
class Calendar(Transform):
    """Replaces a column of times by the phases of day, week and year, and by the days elapsed.

    A time t, counted in ``unit`` from ``origin``, becomes cos and sin of 2πkt/p for each cycle of
    length p: k = 1 … 4 for the day, 1 … 3 for the week, which begins on a Monday, and 1, 2 for
    the year of 365.2425 days. So 23:59 is close to 0:00, and a linear learner finds any rhythm that
    is smooth. ``"elapsed"`` is the number of days since the origin. The new columns come after all
    others. A missing time makes them all missing.

    Count from an origin near the data, on the host, in 64 bits: a float32 of seconds since 1970 has
    steps of 128 s.

    Args:
      column: the number of the column that holds the times, from 0.
      unit: "seconds", "minutes", "hours" or "days".
      origin: the date, or date and time, in ISO 8601, that the times are counted from.
      cycles: which of "day", "week", "year" and "elapsed" to make.

    >>> calendar = Calendar(unit="hours", origin="2024-01-01", cycles=("day", "elapsed"))
    >>> noon = calendar.apply((), jnp.array([36.0, 7.0]))  # of the second day
    >>> [round(float(number), 3) + 0.0 for number in noon]
    [7.0, -1.0, 0.0, 1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 1.5]
    """

    column: int = static(default=0)
    unit: str = static(default="seconds")
    origin: str = static(default="1970-01-01")
    cycles: tuple[str, ...] = static(default=CYCLES)

    def __post_init__(self) -> None:
        checks.fields(
            self,
            column=checks.a_whole_number(at_least=0),
            unit=checks.one_of(*SECONDS),
            origin=_checked_origin,
            cycles=_checked_cycles,
        )

    @property
    def passes_missing(self) -> bool:
        return True

    def width(self, num_features: int) -> int:
        return num_features - 1 + width(self.cycles)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> tuple[()]:
        self._check(num_features)
        return ()

    def _check(self, num_features: int) -> None:
        if self.column >= num_features:
            width = f"num_features={num_features}, the width of x"
            raise ValueError(f"column must be below {width}; got {self.column}")

    def apply(self, state: tuple[()], x: ArrayLike) -> Array:
        x = real(x)
        self._check(len(x))
        t = known(x[self.column], x.dtype)
        start = (np.datetime64(self.origin, "s") - np.datetime64(0, "s")).astype(int)

        def phase(cycle: str) -> Array:
            period = PERIODS[cycle] / SECONDS[self.unit]
            # The remainder of two floats is exact; a product or quotient before it would not be.
            turned = (start - BEGINS[cycle]) % PERIODS[cycle] / PERIODS[cycle]
            return jnp.remainder(t, jnp.asarray(period, x.dtype)) / period + turned

        made = columns(self.cycles, phase, lambda: t * (SECONDS[self.unit] / PERIODS["day"]), jnp)
        made = jnp.where(usable(x[self.column]), jnp.stack(made), jnp.nan)
        return jnp.concatenate([x[: self.column], x[self.column + 1 :], made.astype(x.dtype)])


def width(cycles: Sequence[str]) -> int:
    """Return how many columns these cycles become."""
    return sum(1 if cycle == ELAPSED else 2 * WAVES[cycle] for cycle in cycles)


def names(cycles: Sequence[str]) -> list[str]:
    """Return a name for each of the columns.

    >>> names(("year", "elapsed"))
    ['year cos 1', 'year sin 1', 'year cos 2', 'year sin 2', 'elapsed days']
    """
    made = []
    for cycle in cycles:
        waves = [f"{cycle} {f} {k + 1}" for k in range(WAVES.get(cycle, 0)) for f in ("cos", "sin")]
        made += waves or ["elapsed days"]
    return made


def columns(
    cycles: Sequence[str], phase: Callable[[str], Any], elapsed: Callable[[], Any], xp: Any
) -> list[Any]:
    """Return the columns of these cycles, computed by ``xp``, which is numpy or jax.numpy.

    ``phase`` returns how much of a cycle has passed, from 0 to 1, and ``elapsed`` the days.
    """
    made = []
    for cycle in cycles:
        if cycle == ELAPSED:
            made.append(elapsed())
            continue
        angle = 2 * np.pi * phase(cycle)
        cos, sin = c, s = xp.cos(angle), xp.sin(angle)
        for wave in range(WAVES[cycle]):
            if wave:  # it is made of the wave before, by the angle sum
                c, s = c * cos - s * sin, s * cos + c * sin
            made += [c, s]
    return made


def of_instants(
    cycles: Sequence[str], wall: np.ndarray, instants: np.ndarray, origin: int
) -> list[np.ndarray]:
    """Return the columns of times as datetime64[us], NaN where one is missing.

    ``wall`` is what a clock on the wall shows, ``instants`` are the same times in UTC, and elapsed
    time is counted from ``origin``, in microseconds since 1970.
    """
    clock, missing = wall.view(np.int64), np.isnat(wall)

    def phase(cycle: str) -> np.ndarray:
        period = PERIODS[cycle] * 1_000_000
        since = clock - BEGINS[cycle] * 1_000_000
        return (since - since // period * period) / period  # NumPy's // is much faster than its %

    def elapsed() -> np.ndarray:
        return (instants.view(np.int64) - origin) / (PERIODS["day"] * 1e6)

    made = columns(cycles, phase, elapsed, np)
    if missing.any():
        made = [np.where(missing, np.nan, column) for column in made]
    return made


def _checked_origin(name: str, value: object) -> str:
    try:
        if isinstance(value, str) and not np.isnat(np.datetime64(value, "s")):
            return value
    except ValueError:
        pass
    got = checks.shown(value)
    raise ValueError(f"{name} must be a date in ISO 8601, such as '2024-01-01'; got {got}")


def _checked_cycles(name: str, value: object) -> tuple[str, ...]:
    chosen = tuple(value) if isinstance(value, (tuple, list)) else ()
    if not all(isinstance(cycle, str) for cycle in chosen):
        chosen = ()
    if not chosen or len({*chosen}) < len(chosen) or not {*chosen} <= {*CYCLES}:
        got = checks.shown(value)
        raise ValueError(f"{name} must be a tuple of some of {', '.join(CYCLES)}; got {got}")
    return chosen
