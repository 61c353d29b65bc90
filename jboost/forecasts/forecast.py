"""Forecast: the next H answers of a stream, at every row, learned online."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, State, checks, model, static
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of
from jboost.forecasts import bands, mix, ring, rows, seasons
from jboost.forecasts.by_learner import METHODS
from jboost.forecasts.columns import checked_columns
from jboost.forecasts.experts import LAGS, MEMORIES, Experts
from jboost.forecasts.rows import Inputs, Layout, Position
from jboost.forecasts.seasons import RATES, Cycle
from jboost.forecasts.state import ForecastState
from jboost.forecasts.units import TARGETS, TWINS, Now, situations, twins, unit_of
from jboost.transforms.calendar import ELAPSED, Calendar
from jboost.transforms.past import Past

LONGEST = 2**20  # rows: a state of more would fill the memory


@model
class Forecast(Learner):
    """Forecasts the next H answers at every row, and learns each when it comes.

        prediction[t, h − 1] estimates d_{t+h} from x_1 … x_t and d_1 … d_t,    h = 1 … H

    A forecast is made once row t is learned. It is part of the state: ``forecast(state)`` reads it,
    and ``interval(state)`` has bounds for each horizon, whose coverage is held online.

    Without a learner, each horizon has these estimates: least squares on the latest answers, the
    usual answers of the next rows, x, x² and the seasons, of the answers and of their logarithms;
    the usual answer; that of the long season; the last value; the values one season ago. Where
    columns are known in advance, boosted trees and lines of short memories read them, once for all
    horizons, and least squares puts that right for each horizon: see :mod:`.readers`. All are mixed
    by :class:`jboost.BOA` on the absolute loss, for each horizon by itself. All horizons
    share one covariance, so a row takes little more than one update of least squares.

    With a learner, its estimates take the place of the least squares. The learner sees the latest
    answers, x and the seasons at row t, and the usual answers and known columns at row t + h, in
    units of their past deviations.

    Seasons are found online: periods of the running autocorrelation (:class:`jboost.Past`), or day
    and week where ``calendar`` names a column of times. Then the step that a row stands at is its
    time divided by ``step``. Steps without a row are filled with their forecasts, and a row that is
    not later than the row before it is left out. If the column of times is also known in advance,
    h counts rows, whatever their times. With ``Calendar(column, cycles=("elapsed",))`` the column
    says how many steps have passed, and nothing of day and week: the number of the row will do.

    A row without an answer is left out: it changes nothing, and its forecast is that of the row
    before. Without a column of times the next row then takes its place, so that seasons slip: let
    a column count the rows. A missing input counts as at the row before. ``repeats`` count as one.
    Several targets are refused: make a forecaster of each.

    Args:
      learner: any learner; None for least squares.
      horizon: H, at least 1.
      known: the numbers of columns that are known H rows in advance. x has H further columns for
        each: :func:`jboost.forecasts.with_known` appends them.
      calendar: which column holds times, and how they are counted. With the one cycle "elapsed"
        seasons are found in the answers; its other cycles are not used.
      step: how many units of the calendar lie between rows.
      method: "direct", "recursive" or "mix", which has both: see :mod:`.by_learner`.
      coverage: the part of the answers that is to lie inside the intervals, in (0, 1).
      forgetting: of the least squares.
      longest: the longest period in rows that is looked for; at least 7.

    >>> import jboost as jb, numpy as np
    >>> t = np.arange(600)
    >>> ds = (np.sin(2 * np.pi * t / 24) + t % 7).astype(np.float32)
    >>> model = Forecast(horizon=3, longest=100)
    >>> state, trace = jb.run(model, np.zeros((600, 1)), ds)
    >>> trace.prediction.shape, bool((trace.prediction[-1] == model.forecast(state)).all())
    ((600, 3), True)
    """

    learner: Learner | None = None
    horizon: int = static(default=24)
    known: tuple[int, ...] = static(default=())
    calendar: Calendar | None = None
    step: float = static(default=1.0)
    method: str = static(default="direct")
    coverage: Number = 0.9
    forgetting: Number = 0.9995
    longest: int = static(default=1024)

    def __post_init__(self) -> None:
        checks.fields(
            self,
            learner=checks.or_none(instance),
            horizon=checks.a_whole_number(at_least=1, at_most=LONGEST),
            known=checked_columns,
            calendar=checks.or_none(checks.of_kind(Calendar, "a jboost.Calendar, or None")),
            step=_checked_step,
            method=checks.one_of(*METHODS),
            coverage=checks.a_number(above=0, below=1),
            forgetting=checks.a_number(above=0, at_most=1),
            longest=checks.a_whole_number(at_least=LAGS + 1, at_most=LONGEST),
        )

    @property
    def needs_key(self) -> bool:
        return self.learner is not None and self.learner.needs_key

    @property
    def takes_missing(self) -> bool:
        return True

    @property
    def ahead(self) -> int:
        return self.horizon

    @property
    def by_time(self) -> bool:
        """Whether h counts steps of time, and not rows."""
        return self.calendar is not None and self.calendar.column not in self.known

    @property
    def experts(self) -> tuple[str, ...]:
        """The names of the estimates that are mixed."""
        return self._experts.names

    @property
    def _past(self) -> Past:
        return Past(LAGS, 2, self.longest)

    @property
    def _experts(self) -> Experts:
        times = self.calendar is not None and not self.by_time  # no inputs
        known = len(self.known) - times
        return Experts(self.horizon, self.learner, self.method, self.forgetting, known)

    @property
    def _layout(self) -> Layout:
        time = None if self.calendar is None else self.calendar.column
        return Layout(self.horizon, self.known, time)

    @property
    def _cycles(self) -> tuple[Cycle, Cycle] | None:
        """The cycles of the clock; None where seasons are found in the answers."""
        if self.calendar is None or self.calendar.cycles == (ELAPSED,):
            return None
        return seasons.cycles_of(self.calendar, self.step)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ForecastState:
        H, experts, dtype = self.horizon, self._experts, dtype_of(dtype)
        r = self._checked_width(num_features)
        zero, none = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
        slots, cycles = (self.longest + 2,) * 2, self._cycles
        if cycles is not None:
            slots = cycles[0].slots * seasons.KINDS, cycles[1].slots
        return ForecastState(
            past=self._past.init(r, dtype),
            inputs=rows.INPUTS.init(r, dtype),
            targets=TARGETS.init(TWINS, dtype),
            x=jnp.zeros(r, dtype),
            time=zero,
            number=none,
            low=zero,
            high=zero,
            short=seasons.empty_table(slots[0], dtype),
            long=seasons.empty_table(slots[1], dtype),
            unlike=jnp.zeros((seasons.DAYS, seasons.DAYS), dtype),
            kinds=jnp.zeros(seasons.DAYS, jnp.int32),
            usual=jnp.zeros(LAGS, dtype),
            fading=jnp.zeros((TWINS, len(MEMORIES)), dtype),
            situation=experts.squares.init(3 + 2 * experts.known, dtype),
            **experts.start(r, dtype, key)._asdict(),
            estimates=ring.empty(H, (H, len(experts.names) + 2), dtype),
            at=none,
            valid=jnp.zeros(H, bool),
            mix=mix.start(H, len(experts.names), dtype),
            bands=bands.start(self.coverage, H, dtype),
            forecast=jnp.zeros(H, dtype),
        )

    def _checked_width(self, num_features: int) -> int:
        """Return r, the number of columns before those of the rows to come."""
        r = num_features - len(self.known) * self.horizon
        highest = max((*self.known, -1 if self.calendar is None else self.calendar.column))
        if r <= highest or r < 1:
            raise ValueError(
                f"x must have at least {max(highest + 1, 1)} columns, and {self.horizon} more for "
                f"each of the known columns {self.known}; got {num_features} in all. "
                "jboost.forecasts.with_known appends them"
            )
        return r

    def forecast(self, state: ForecastState, ahead: ArrayLike | None = None) -> Array:
        """Return the estimates of the next H answers, (H,).

        ``ahead`` are the known columns at the next H rows, (H, k), where more is known of them now
        than when the row was learned.
        """
        if ahead is None:
            return state.forecast
        ahead, layout = jnp.asarray(ahead, state.x.dtype).T, self._layout
        if ahead.shape != (len(self.known), self.horizon):
            shape = (self.horizon, len(self.known))
            raise ValueError(
                f"ahead must have shape {shape}, rows by known columns; got {ahead.T.shape}"
            )
        x = jnp.full_like(state.x, jnp.nan)  # it is no more known as it came
        columns = rows.known_columns(layout, state.inputs, x, state.x, ahead)
        inputs = Inputs(state.x, *columns, state.inputs)
        periods = state.short.period, state.long.period
        position = rows.by_count(layout, periods, state.number - 1, state.x.dtype)
        if self.calendar is not None and self._cycles is not None:
            x = jnp.where(jnp.arange(len(state.x)) == self.calendar.column, state.time, 0)
            row = jnp.concatenate([x, ahead.ravel()]), state.time - self.step
            clock = self._cycles, state.kinds, self.longest
            position = rows.by_calendar(layout, self.calendar, self.step, *row, *clock)
        now = Now(inputs, state.short, state.long, state.targets)
        return mix.mixed(state.mix, self._experts.estimates(state, position, now)[0])

    def interval(self, state: ForecastState, ahead: ArrayLike | None = None) -> tuple[Array, Array]:
        """Return (low, high) for the next H answers, each (H,); ``ahead`` as in `forecast`."""
        y, h = self.forecast(state, ahead), bands.unbounded(bands.half_widths(state.bands))
        return y - h, y + h

    def predict(self, state: ForecastState, x: ArrayLike) -> Array:
        """Return :meth:`forecast`: x, which belongs to the next row, is not known yet."""
        return state.forecast

    def predict_and_learn(self, state: ForecastState, sample: Sample) -> tuple[Array, State]:
        after = self.learn(state, sample)
        return after.forecast, after

    def due(self, state: ForecastState, sample: Sample) -> Array:
        """Return what was forecast of this row, 1 … H rows before; NaN where nothing was, (H,)."""
        return self._due(state, sample)[0]

    def info(self, state: ForecastState, sample: Sample) -> dict[str, Any]:
        due, h = self._due(state, sample)
        covered = jnp.abs(sample.d - due) <= h  # False where due is NaN
        return {"due": due, "low": due - h, "high": due + h, "covered": covered}

    def _due(self, state: ForecastState, sample: Sample) -> tuple[Array, Array]:
        state, position = self._caught_up(state, sample)
        estimates = ring.by_age(state.estimates, state.at)
        there = state.valid & sample.counts & (position.gap > 0)
        h = jnp.where(there, bands.unbounded(estimates[:, -1]), jnp.nan)
        return jnp.where(there, estimates[:, -2], jnp.nan), h

    def _caught_up(self, state: ForecastState, sample: Sample) -> tuple[ForecastState, Position]:
        """Return where a row stands, and the state with the steps before it filled."""
        cycles, dtype = self._cycles, state.x.dtype
        periods = seasons.found_periods(state.past)
        if self.calendar is None:
            return state, rows.by_count(self._layout, periods, state.number, dtype)
        row = self._layout, self.calendar, self.step, sample.raw, state.time
        if cycles is None:
            position = rows.by_elapsed(*row, periods, state.number)
        else:
            kinds = seasons.kinds_of_days(state.unlike)
            position = rows.by_calendar(*row, cycles, kinds, self.longest)
        position = position._replace(gap=jnp.where(state.begun, position.gap, 1))
        if not self.by_time:
            return state, position
        lost = jnp.maximum(position.gap - 1, 0)
        past = state.past._replace(
            answers=ring.filled(state.past.answers, state.forecast, lost),
            samples=state.past.samples + lost.astype(dtype),
        )
        caught_up = state._replace(
            past=past,
            number=state.number + lost if cycles is None else state.number,
            usual=ring.filled(state.usual, state.forecast, lost),
            at=ring.advanced(state.at, lost, self.horizon),
            valid=ring.aged(state.valid, lost),
        )
        return caught_up, position

    def learn(self, state: ForecastState, sample: Sample) -> ForecastState:
        before, position = self._caught_up(state, sample)
        sample = sample.only_if(sample.counts & (position.gap > 0)).replace(repeats=1)
        now = self._seen(before, sample, position)
        after = self._answered(before, sample, position, now)
        after = self._asked(after, sample, position, now)
        # What is large looks after itself: a choice between two large arrays would cost a copy.
        large = {name: None for name in ("shared", "learner", "readers", "estimates", "situation")}
        chosen = jax.tree.map(
            lambda new, old: jnp.where(sample.good, new, old),
            after._replace(**large),
            state._replace(**large),
        )
        return chosen._replace(**{name: getattr(after, name) for name in large})

    def _seen(self, state: ForecastState, sample: Sample, position: Position) -> Now:
        """Return what a row tells before its answer is learned."""
        d = sample.d
        inputs = rows.inputs(self._layout, state.inputs, state.x, sample.raw)
        short, long = state.short, state.long
        if self._cycles is None:
            short, long = map(seasons.for_period, (short, long), position.periods)
        targets = TARGETS.after(state.targets, twins(d[None], unit_of(state.targets))[:, 0])
        return Now(inputs, short, long, targets)

    def _answered(
        self, state: ForecastState, sample: Sample, position: Position, now: Now
    ) -> ForecastState:
        """Return the state after the answer of a row, without the forecast of the next."""
        d, dtype = sample.d, sample.d.dtype
        begun = state.begun
        last = jnp.where(begun, state.past.answers[0], d)
        here = [slots[:1] for slots in position.slots]
        of_day = seasons.looked_up(now.short, here[0], last)
        usual = seasons.looked_up(now.long, here[1], of_day)
        scaled = now.scaled(jnp.stack([d, usual[0]]))
        columns = now.inputs.known.now[:, None]
        x = situations(now.scaled(usual)[0], now.scaled(of_day)[0], columns)[0]
        of_row = sample.replace(raw=x, d=scaled[0, 0] - scaled[0, 1], takes_missing=False)
        unlike = state.unlike
        if self._cycles is not None and self._cycles[0].name == "day":
            unlike = seasons.unlike_after(unlike, now.long, here[1][0], d)

        earlier = ring.by_age(state.estimates, state.at)
        counts = state.valid & sample.good
        experts, forecast, h = earlier[:, :-2], earlier[:, -2], earlier[:, -1]
        learned = self._experts.answered(state, sample, position, now, usual, experts, counts)
        difference = scaled[:, :1] - scaled[:, 1:]
        return state._replace(
            past=self._past.learn(state.past, sample),
            inputs=now.inputs.units,
            targets=now.targets,
            x=now.inputs.x,
            time=position.time,
            number=state.number + 1,
            low=jnp.where(begun, jnp.minimum(state.low, d), d),
            high=jnp.where(begun, jnp.maximum(state.high, d), d),
            short=seasons.table_after(now.short, here[0][0], d, RATES[0]),
            long=seasons.table_after(now.long, here[1][0], d, RATES[1]),
            unlike=unlike,
            kinds=seasons.kinds_of_days(state.unlike),  # by the rows before, as in `_caught_up`
            usual=jnp.concatenate([usual, state.usual[:-1]]),
            fading=state.fading + (difference - state.fading) / jnp.array([MEMORIES], dtype),
            situation=self._experts.squares.learn(state.situation, of_row),
            mix=mix.after(state.mix, experts, d, counts),
            bands=bands.after(state.bands, self.coverage, d - forecast, h, counts),
            **learned._asdict(),
        )

    def _asked(
        self, state: ForecastState, sample: Sample, position: Position, now: Now
    ) -> ForecastState:
        """Return the state after a row, with the forecast that is made at it."""
        estimates, question = self._experts.estimates(state, position, now)
        forecast = mix.mixed(state.mix, estimates)
        entry = jnp.column_stack([estimates, forecast, bands.half_widths(state.bands)])
        at = ring.advanced(state.at, jnp.ones_like(state.at), self.horizon)
        waiting = self._experts.remembered(state, at, question, sample)
        return state._replace(
            **waiting._asdict(),
            estimates=ring.pushed(state.estimates, at, entry, sample.good),
            at=at,
            valid=jnp.concatenate([jnp.ones(1, bool), state.valid[:-1]]),
            forecast=forecast,
        )


def _checked_step(name: str, value: object) -> float:
    if checks.is_traced(value):
        raise TypeError(
            f"{name} must be a number, as it decides the size of the state; got a trace"
        )
    step = checks.number(name, value, above=0)
    if not isinstance(step, float):
        raise TypeError(f"{name} must be one number; got {checks.shown(value)}")
    return step
