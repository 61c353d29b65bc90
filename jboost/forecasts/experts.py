"""The experts of a row: what each says of the next H answers, and how those that learn do so.

The *naive* experts read tables and earlier answers. The others learn what an answer differs from
the usual one: the least squares of :mod:`.shared`, or a learner of the user in :mod:`.by_learner`.
Where columns are known in advance, the *readers* of :mod:`.readers` stand beside the least squares.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import Key, Learner, Number, Sample, State
from jboost.core.products import matvec
from jboost.forecasts import by_learner, readers, seasons, shared
from jboost.forecasts.by_learner import Origin
from jboost.forecasts.rows import Position
from jboost.forecasts.state import ForecastState
from jboost.forecasts.units import TWINS, Now, situations
from jboost.learners.newton import Newton

LAGS = 6  # how many of the latest answers are inputs
MEMORIES = (3.0, 12.0, 48.0)  # rows over which the latest answers are compared with the usual ones
WAVES = (6, 3)  # of the short and of the long cycle, that are inputs
NAMES = ("least squares", "least squares of logarithms")
NAIVE = ("usual answer", "long table", "last value", "short season ago", "long season ago")


class Learned(NamedTuple):
    """What the experts have learned, as :class:`ForecastState` holds it."""

    shared: State
    learner: State
    readers: State


class Question(NamedTuple):
    """What the learners saw of a row, which waits for the answers."""

    z: Array | None = None  # the inputs of the least squares
    origin: Origin | None = None  # the inputs of a learner, at the row
    targets: Array | None = None  # and at the rows that follow


class Experts(NamedTuple):
    """The settings of the experts, as :class:`jboost.Forecast` has them."""

    horizon: int
    learner: Learner | None
    method: str
    forgetting: Number
    known: int  # how many columns are known in advance, times left out

    @property
    def squares(self) -> Newton:
        """The least squares that serve wherever there is no learner."""
        # A smaller ridge or a larger cap lets rarely seen inputs wind up.
        return Newton(self.forgetting, ridge=1.0, max_variance=10.0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the estimates, in their order."""
        if self._are_shared:
            return (*NAMES, *(readers.NAMES if self._reads else ()), *NAIVE)
        both = self.method == by_learner.MIX
        methods = (by_learner.DIRECT, by_learner.RECURSIVE) if both else (self.method,)
        return (*methods, *NAIVE)

    @property
    def _are_shared(self) -> bool:
        """Whether one covariance serves all horizons."""
        return self.learner is None and self.method == by_learner.DIRECT

    @property
    def _reads(self) -> bool:
        """Whether there are readers of known columns."""
        return self._are_shared and self.known > 0

    def start(self, r: int, dtype: jnp.dtype, key: Key) -> Learned:
        """Return what is learned before any data; there are r inputs."""
        H = self.horizon
        seen = LAGS + len(MEMORIES) + r + 2 * sum(WAVES)
        if self._are_shared:
            width = 1 + 2 * H + LAGS + seen + r + 2 * WAVES[0]
            of_all = shared.start(self.squares, TWINS, shared.even(width), H, dtype)
            reading = ()
            if self._reads:
                reading = readers.start(self.squares, self.known, H, dtype)
            return Learned(of_all, (), reading)
        widths = seen, len(NAIVE) - 2 + self.known
        learner = self.learner or self.squares
        return Learned((), by_learner.start(learner, self.method, widths, H, dtype, key), ())

    def answered(
        self, state: ForecastState, sample: Sample, position: Position, now: Now, usual: Array,
        earlier: Array, counts: Array,
    ) -> Learned:  # fmt: skip
        """Return what is learned after an answer.

        ``usual`` is the usual answer of its row by the long table, (1,), and ``earlier`` what the
        experts forecast for the row, (H, experts).
        """
        before = earlier[:, -len(NAIVE)]
        e = now.scaled(sample.d[None]) - now.scaled(before)  # (TWINS, H)
        if self._are_shared:
            reading = state.readers
            if self._reads:
                shown = _shown(now, earlier[:, jnp.array(self._seen_by_readers)], before)
                late = state.at, shown, e[0], counts, sample
                reading = readers.answered(self.squares, reading, *late)
                here = now.inputs.raw.now[:, None], now.inputs.known.now[:, None], usual
                row = _rows(now, *here, [phase[None] for phase in position.phases])
                reading = readers.learned(reading, row, sample, now)
            return Learned(shared.answered(state.shared, state.at, e, counts), (), reading)
        learner = self.learner or self.squares
        late = state.learner, state.at, e[0], counts, sample
        return Learned((), by_learner.answered(learner, *late), ())

    def remembered(
        self, state: ForecastState, at: Array, question: Question, sample: Sample
    ) -> Learned:
        """Return what waits for the answers to a question."""
        shared_state, learner_state, reading = state.shared, state.learner, state.readers
        if question.z is not None:
            shared_state = shared.remembered(self.squares, shared_state, at, question.z, sample)
        if question.origin is not None and question.targets is not None:
            waiting = at, question.origin, question.targets, sample.good
            learner_state = by_learner.remembered(learner_state, *waiting)
        if self._reads:
            reading = readers.remembered(reading, at, sample.good)
        return Learned(shared_state, learner_state, reading)

    def estimates(
        self, state: ForecastState, position: Position, now: Now
    ) -> tuple[Array, Question]:
        """Return what each expert says of the next H answers, (H, experts), and what it saw."""
        last = state.past.answers[0]
        of_day = seasons.looked_up(state.short, position.slots[0][1:], last)
        by_table = seasons.looked_up(state.long, position.slots[1][1:], of_day)
        x = situations(now.scaled(by_table)[0], now.scaled(of_day)[0], now.inputs.known.ahead)
        difference = now.targets.frame[1][0] * matvec(x, state.situation.w)
        usual = state.clipped(by_table + difference)
        ahead = jnp.arange(1, self.horizon + 1, dtype=jnp.int32)
        ago = [seasons.a_season_before(state.past, p, ahead, last) for p in position.periods]
        naive = usual, by_table, jnp.full_like(usual, 1) * last, *ago

        lags, in_units = now.scaled(state.past.answers[:LAGS]), now.scaled(usual)
        waves = [seasons.waves(phase, n) for phase, n in zip(position.phases, WAVES, strict=True)]
        others = jnp.concatenate([now.inputs.x, *waves])
        if self._are_shared:
            differences = lags - now.scaled(state.usual)
            of_answers = now.scaled(by_table), in_units, lags, differences, state.fading
            of_row = jnp.concatenate([jnp.ones_like(last)[None], others, now.inputs.x**2])
            products = differences[:, :1] * waves[0][None]
            z = jnp.concatenate([*of_answers, jnp.stack([of_row] * TWINS), products], axis=1)
            z = shared.filled_up(z)
            learned = [*now.unscaled(in_units + shared.estimates(state.shared, z))]
            if self._reads:
                there = now.inputs.raw.ahead, now.inputs.known.ahead, by_table
                rows = _rows(now, *there, position.phases_ahead)
                read = readers.read(state.readers, rows, now)
                seen = [*map(state.clipped, [learned[0], *read]), naive[2]]
                shown = _shown(now, jnp.stack(seen, axis=1), usual)
                right = readers.put_right(self.squares, state.readers, shown)
                learned += [now.from_levels(in_units[0] + right), *read]
            question = Question(z=z)
        else:
            origin = Origin(lags[0], state.fading[0], others)
            seasonal = [now.scaled(values)[0] for values in ago]
            targets = jnp.stack([in_units[0], *seasonal, *now.inputs.known.ahead], axis=1)
            seen = origin, targets, in_units[0], jnp.array(MEMORIES, last.dtype)
            learner = self.learner or self.squares
            found = by_learner.estimates(learner, state.learner, *seen)
            learned = [now.unscaled(jnp.stack([y, y]))[0] for y in found]
            question = Question(origin=origin, targets=targets)
        return jnp.stack([*map(state.clipped, learned), *naive], axis=1), question

    @property
    def _seen_by_readers(self) -> list[int]:
        """The numbers of the experts from which readers are put right."""
        return [self.names.index(name) for name in (NAMES[0], *readers.READERS, NAIVE[2])]


def _shown(now: Now, estimates: Array, usual: Array) -> Array:
    """Return what estimates, (H, n), differ from the usual answers, (H,)."""
    return now.levels(estimates) - now.levels(usual)[:, None]


def _rows(
    now: Now, raw: Array, scaled: Array, by_table: Array, phases: Sequence[Array]
) -> readers.Rows:
    """Return n rows as readers see them, from their known columns, (k, n)."""
    waves = [
        jax.vmap(partial(seasons.waves, count=count))(phase)
        for phase, count in zip(phases, readers.WAVES, strict=True)
    ]
    of_lines = jnp.concatenate([scaled.T, now.levels(by_table)[:, None], *waves], axis=1)
    return readers.Rows(jnp.stack([*raw, by_table, *phases], axis=1), of_lines)
