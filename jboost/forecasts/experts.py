"""The experts of a row: what each says of the next H answers, and how those that learn do so.

The *naive* experts read tables and earlier answers. The others learn what an answer differs from
the usual one: the least squares of :mod:`.shared`, or a learner of the user in :mod:`.by_learner`.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.core import Key, Learner, Number, Sample, State
from jboost.core.products import matvec
from jboost.forecasts import by_learner, seasons, shared
from jboost.forecasts.by_learner import Origin
from jboost.forecasts.rows import Position
from jboost.forecasts.state import ForecastState
from jboost.forecasts.units import TWINS, Now, situations
from jboost.learners.newton import Newton

LAGS = 6  # how many of the latest answers are inputs
MEMORIES = (3.0, 12.0, 48.0)  # rows over which the latest answers are compared with the usual ones
WAVES = (6, 3)  # of the short and of the long cycle, that are inputs
# Zeros fill up the inputs of the least squares to a multiple of this. So no program has to
# fill up the rows of their matrices, and all programs add up products in the same order.
EVEN = 8
NAIVE = ("usual answer", "long table", "last value", "short season ago", "long season ago")


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

    @property
    def squares(self) -> Newton:
        """The least squares that serve wherever there is no learner."""
        # A smaller ridge or a larger cap lets rarely seen inputs wind up.
        return Newton(self.forgetting, ridge=1.0, max_variance=10.0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the estimates, in their order."""
        if self._are_shared:
            return ("least squares", "least squares of logarithms", *NAIVE)
        both = self.method == by_learner.MIX
        methods = (by_learner.DIRECT, by_learner.RECURSIVE) if both else (self.method,)
        return (*methods, *NAIVE)

    @property
    def _are_shared(self) -> bool:
        """Whether one covariance serves all horizons."""
        return self.learner is None and self.method == by_learner.DIRECT

    def start(self, r: int, known: int, dtype: jnp.dtype, key: Key) -> tuple[State, State]:
        """Return what is learned before any data: by the least squares, and by a learner.

        There are r inputs; ``known`` of them are known in advance, times left out.
        """
        H = self.horizon
        seen = LAGS + len(MEMORIES) + r + 2 * sum(WAVES)
        if self._are_shared:
            width = 1 + 2 * H + LAGS + seen + r + 2 * WAVES[0]
            return shared.start(self.squares, TWINS, width + -width % EVEN, H, dtype), ()
        widths = seen, len(NAIVE) - 2 + known
        learner = self.learner or self.squares
        return (), by_learner.start(learner, self.method, widths, H, dtype, key)

    def answered(
        self, state: ForecastState, sample: Sample, now: Now, usual: Array, counts: Array
    ) -> tuple[State, State]:
        """Return what is learned after an answer. ``usual`` was forecast for its row, (H,)."""
        e = now.scaled(sample.d[None]) - now.scaled(usual)  # (TWINS, H)
        if self._are_shared:
            return shared.answered(state.shared, state.at, e, counts), ()
        learner = self.learner or self.squares
        late = state.learner, state.at, e[0], counts, sample
        return (), by_learner.answered(learner, *late)

    def remembered(
        self, state: ForecastState, at: Array, question: Question, sample: Sample
    ) -> tuple[State, State]:
        """Return what waits for the answers to a question."""
        shared_state, learner_state = state.shared, state.learner
        if question.z is not None:
            shared_state = shared.remembered(self.squares, shared_state, at, question.z, sample)
        if question.origin is not None and question.targets is not None:
            waiting = at, question.origin, question.targets, sample.good
            learner_state = by_learner.remembered(learner_state, *waiting)
        return shared_state, learner_state

    def estimates(
        self, state: ForecastState, position: Position, now: Now
    ) -> tuple[Array, Question]:
        """Return what each expert says of the next H answers, (H, experts), and what it saw."""
        last = state.past.answers[0]
        of_day = seasons.looked_up(state.short, position.slots[0][1:], last)
        by_table = seasons.looked_up(state.long, position.slots[1][1:], of_day)
        x = situations(now.scaled(by_table)[0], now.scaled(of_day)[0], now.inputs.ahead)
        difference = now.targets.frame[1][0] * matvec(x, state.situation.w)
        usual = state.clipped(by_table + difference)
        ahead = jnp.arange(1, self.horizon + 1, dtype=jnp.int32)
        ago = [seasons.a_season_before(state.past, p, ahead, last) for p in position.periods]

        lags, in_units = now.scaled(state.past.answers[:LAGS]), now.scaled(usual)
        waves = [seasons.waves(phase, n) for phase, n in zip(position.phases, WAVES, strict=True)]
        others = jnp.concatenate([now.inputs.x, *waves])
        if self._are_shared:
            differences = lags - now.scaled(state.usual)
            of_answers = now.scaled(by_table), in_units, lags, differences, state.fading
            of_row = jnp.concatenate([jnp.ones_like(last)[None], others, now.inputs.x**2])
            products = differences[:, :1] * waves[0][None]
            z = jnp.concatenate([*of_answers, jnp.stack([of_row] * TWINS), products], axis=1)
            z = jnp.pad(z, [(0, 0), (0, -z.shape[1] % EVEN)])
            learned = [*now.unscaled(in_units + shared.estimates(state.shared, z))]
            question = Question(z=z)
        else:
            origin = Origin(lags[0], state.fading[0], others)
            seasonal = [now.scaled(values)[0] for values in ago]
            targets = jnp.stack([in_units[0], *seasonal, *now.inputs.ahead], axis=1)
            seen = origin, targets, in_units[0], jnp.array(MEMORIES, last.dtype)
            learner = self.learner or self.squares
            found = by_learner.estimates(learner, state.learner, *seen)
            learned = [now.unscaled(jnp.stack([y, y]))[0] for y in found]
            question = Question(origin=origin, targets=targets)
        naive = usual, by_table, jnp.full_like(usual, 1) * last, *ago
        return jnp.stack([*map(state.clipped, learned), *naive], axis=1), question
