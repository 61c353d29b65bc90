"""Readers: what the known columns of a row say of its answer, for all horizons at once.

A reader estimates the answer of a row from that row's known columns, its usual answer and its place
in the seasons. None of this depends on how far ahead the row lies. So one reader serves all
horizons, and learns each row once, when its answer comes. There are boosted trees, and lines that
remember few rows.

    e_t = d_t − what the readers said of row t before,    f_t = running means of e_t, e_t−1 …

Readers do not see the latest answers. For each horizon, least squares puts that right: it estimates
what an answer differs from the usual one, from f_t and from what the experts say of row t + h.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.boosting import copies
from jboost.core import Learner, Sample, State
from jboost.core.surroundings import stage
from jboost.forecasts import ring
from jboost.forecasts.shared import even, filled_up
from jboost.forecasts.units import FARTHEST, Now
from jboost.learners.forest.boosted import BoostedTrees, TreesState
from jboost.learners.newton import Newton, NewtonState

# Chosen on wind and beijing_air. All H rows to come are read at every row, so trees are small.
TREES = BoostedTrees(trees=24, depth=4, rows=2048, bins=32, work=1024)
LINES = copies.stack([Newton(0.95, ridge=0.1), Newton(0.99, ridge=0.1)])
READERS = ("trees", "line of 20 rows", "line of 100 rows")
NAMES = ("readers put right", *READERS)  # of the estimates
SHOWN = len(READERS) + 2  # experts that the least squares see
MEMORIES = (1.0, 4.0, 24.0)  # rows over which the errors of the readers are averaged
WAVES = (3, 2)  # of the short and of the long cycle, that lines see


class Rows(NamedTuple):
    """What readers see of n rows: known columns, usual answers, and the place in the seasons."""

    of_trees: Array  # in their own units, (n, known + 3)
    of_lines: Array  # scaled, and the seasons as waves, (n, known + 1 + 2 Σ WAVES)


class ReadersState(NamedTuple):
    """The readers, and the least squares that put them right."""

    trees: TreesState
    lines: NewtonState  # stacked
    fading: Array  # the running means of the readers' errors, (readers, MEMORIES), 0 at the start
    fadings: Array  # a ring of these at the last rows, flat
    squares: NewtonState  # of each horizon, stacked


def start(squares: Newton, known: int, horizon: int, dtype: jnp.dtype) -> ReadersState:
    """Return the state before any data; so many columns are known."""
    fading = jnp.zeros((len(READERS), len(MEMORIES)), dtype)
    of_line, of_squares = even(2 + known + 2 * sum(WAVES)), even(1 + fading.size + SHOWN)
    return ReadersState(
        TREES.init(known + 3, dtype),
        copies.each(lambda line: line.init(of_line, dtype), LINES, len(READERS) - 1),
        fading,
        ring.empty(horizon, (fading.size,), dtype),
        copies.each(lambda learner: learner.init(of_squares, dtype), squares, horizon),
    )


def read(state: ReadersState, rows: Rows, now: Now) -> Array:
    """Return what each reader says of the answers of n rows, (readers, n)."""
    trees = stage(lambda: jax.vmap(lambda x: TREES.predict(state.trees, x))(rows.of_trees))

    def of_line(line: Learner, state: State) -> Array:
        return jax.vmap(lambda x: line.predict(state, x))(_with_one(rows.of_lines))

    lines = copies.each(of_line, LINES, len(READERS) - 1, state.lines)
    return jnp.stack([trees, *now.from_levels(lines)])


def learned(state: ReadersState, row: Rows, sample: Sample, now: Now) -> ReadersState:
    """Return the state after the answer of one row."""
    level = now.levels(sample.d)
    of_trees = sample.replace(raw=row.of_trees[0], d=now.from_levels(level), takes_missing=True)
    of_lines = sample.replace(raw=_with_one(row.of_lines)[0], d=level, takes_missing=False)

    def learn(line: Learner, state: State) -> tuple[Array, State]:
        return line.predict(state, of_lines.raw), line.learn(state, of_lines)

    y, trees = TREES.predict_and_learn(state.trees, of_trees)
    ys, lines = copies.each(learn, LINES, len(READERS) - 1, state.lines)
    e = level - jnp.append(now.levels(y), jnp.clip(ys, -FARTHEST, FARTHEST))
    fading = state.fading + (e[:, None] - state.fading) / jnp.array([MEMORIES], e.dtype)
    return state._replace(trees=trees, lines=lines, fading=sample.keep(fading, state.fading))


def put_right(squares: Newton, state: ReadersState, shown: Array) -> Array:
    """Return what the next answers differ from the usual ones, (H,), in units of deviations.

    ``shown`` is what the experts that are shown differ from the usual answers, (H, SHOWN).
    """
    fading = jnp.broadcast_to(state.fading.ravel(), (len(shown), state.fading.size))
    x = _with_one(jnp.concatenate([fading, shown], axis=1))

    def predict(learner: Learner, state: State, x: Array) -> Array:
        return learner.predict(state, x)

    return copies.each(predict, squares, len(shown), state.squares, x)


def answered(
    squares: Newton, state: ReadersState, at: Array, shown: Array, e: Array, counts: Array,
    sample: Sample,
) -> ReadersState:  # fmt: skip
    """Return the state after an answer: e is what it differs from the usual answer, (H,)."""
    x = _with_one(jnp.concatenate([ring.newest_first(state.fadings, at), shown], axis=1))

    def learn(learner: Learner, state: State, x: Array, e: Array, counts: Array) -> State:
        late = sample.replace(raw=x, d=e, takes_missing=False).only_if(counts)
        return learner.learn(state, late)

    return state._replace(squares=copies.each(learn, squares, len(e), state.squares, x, e, counts))


def remembered(state: ReadersState, at: Array, counts: Array) -> ReadersState:
    """Return the state that waits for the answers of the rows to come."""
    return state._replace(fadings=ring.pushed(state.fadings, at, state.fading.ravel(), counts))


def _with_one(rows: Array) -> Array:
    """Return rows of inputs, (n, r), with a constant before them, filled up."""
    return filled_up(jnp.concatenate([jnp.ones_like(rows[:, :1]), rows], axis=1))
