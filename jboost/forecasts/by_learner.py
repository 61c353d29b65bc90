"""A learner that a user gives, as a forecaster: a copy for each horizon, or fed by itself.

*Direct*: horizon h has a copy of the learner, of the inputs at row t and what is known of row
t + h. *Recursive*: one learner estimates the next row; for later rows it takes its own estimates
for answers. Inputs and answers are in units of their past deviations, and the learner estimates
what an answer differs from the usual one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.boosting import copies
from jboost.core import Key, Learner, Sample, State
from jboost.forecasts import ring

FARTHEST = 10.0  # deviations: a recursion must not run away
Carry = tuple[Array, Array]  # the latest answers and what they differ from the usual ones
DIRECT, RECURSIVE, MIX = METHODS = ("direct", "recursive", "mix")


class Origin(NamedTuple):
    """What is seen at the row at which a forecast is made."""

    lags: Array  # the latest answers, newest first
    fading: Array  # what the latest answers differed from the usual ones, over some memories
    others: Array  # the inputs and the waves of the seasons


class LearnerState(NamedTuple):
    """The learners, and what waits for its answer."""

    direct: State  # a learner for each horizon, stacked; () if there is none
    recursive: State  # () if there is none
    origins: Array  # a ring of what was seen at the last rows
    targets: Array  # a ring of what was known then of the rows that followed


def start(
    learner: Learner, method: str, widths: tuple[int, int], horizon: int, dtype: jnp.dtype, key: Key
) -> LearnerState:
    """Return the state before any data; ``widths`` are those of an origin and of a target."""

    def first(learner: Learner) -> State:
        return learner.init(sum(widths), dtype, key=key)

    return LearnerState(
        copies.each(first, learner, horizon) if method != RECURSIVE else (),
        first(learner) if method != DIRECT else (),
        ring.empty(horizon, (widths[0],), dtype),
        ring.empty(horizon, (horizon, widths[1]), dtype),
    )


def answered(
    learner: Learner, state: LearnerState, at: Array, e: Array, counts: Array, sample: Sample
) -> LearnerState:
    """Return the state after an answer: e is what it differs from the usual answer, (H,)."""
    horizon = len(e)
    origins, targets = ring.newest_first(state.origins, at), ring.by_age(state.targets, at)
    inputs = jnp.concatenate([origins, targets], axis=1)

    def learn(learner: Learner, state: State, x: Array, e: Array, counts: Array) -> State:
        late = sample.replace(d=e).with_input(x, learner.takes_missing).only_if(counts)
        return learner.learn(state, late)

    direct, recursive = state.direct, state.recursive
    if direct != ():
        direct = copies.each(learn, learner, horizon, direct, inputs, e, counts)
    if recursive != ():
        recursive = learn(learner, recursive, inputs[0], e[0], counts[0])
    return state._replace(direct=direct, recursive=recursive)


def estimates(
    learner: Learner, state: LearnerState, origin: Origin, targets: Array, usual: Array,
    memories: Array,
) -> list[Array]:  # fmt: skip
    """Return the estimates of each method, (H,).

    ``targets`` is (H, width); ``usual`` the usual answers, (H,), in the units of the learner.
    """
    seen, found = jnp.concatenate(origin), []

    def predict(learner: Learner, state: State, target: Array) -> Array:
        return learner.predict(state, jnp.concatenate([seen, target]))

    if state.direct != ():
        found.append(usual + copies.each(predict, learner, len(usual), state.direct, targets))
    if state.recursive != ():
        found.append(_recursive(learner, state.recursive, origin, targets, usual, memories))
    return found


def remembered(
    state: LearnerState, at: Array, origin: Origin, targets: Array, counts: Array
) -> LearnerState:
    """Return the state that waits for the answers of a row."""
    return state._replace(
        origins=ring.pushed(state.origins, at, jnp.concatenate(origin), counts),
        targets=ring.pushed(state.targets, at, targets, counts),
    )


def _recursive(
    learner: Learner, state: State, origin: Origin, targets: Array, usual: Array, memories: Array
) -> Array:
    def step(carry: Carry, row: tuple[Array, Array]) -> tuple[Carry, Array]:
        (lags, fading), (target, expected) = carry, row
        x = jnp.concatenate([lags, fading, origin.others, target])
        e = jnp.clip(learner.predict(state, x), -FARTHEST, FARTHEST)
        y = expected + e
        lags = jnp.concatenate([y[None], lags[:-1]])
        return (lags, fading + (e - fading) / memories), y

    return jax.lax.scan(step, (origin.lags, origin.fading), (targets, usual))[1]
