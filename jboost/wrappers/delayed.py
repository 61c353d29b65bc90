"""Late answers, a fixed number of samples late (Delayed) or in any order by id (Pending)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of, usable
from jboost.core.rows import row_of, with_row

# Stands for a missing entry of an x that waits: as unusable as NaN, but the state stays finite.
MISSING = 1e30


class DelayedState(NamedTuple):
    """The state of a learner with late answers. All numbers are 0 at the start."""

    x: Array  # the inputs that wait, (delay, r)
    d: Array  # their targets, (delay,)
    weight: Array  # their weights, (delay,)
    row: Array  # the row of the oldest sample, which the next one replaces
    waiting: Array  # the number of samples that wait, at most ``delay``
    learner: State


@model
class Delayed(Wrapper):
    """A learner whose every answer comes ``delay`` samples late.

        at time t: predict d_t from x_t, then learn (x_{t−delay}, d_{t−delay})

    So the prediction of d_t knows the answers up to t − delay − 1. With ``delay=0`` it is the
    learner itself, bit for bit. Memory is ``delay`` samples, whatever the length of the stream.

    Time is counted in samples that can be learned: a sample with an unusable d (or x) does not wait
    and delays no other. ``repeats`` counts as that many samples. A sample's ``weight`` waits too.

    A transform inside that looks back at earlier inputs (``Lags``) sees those that were learned. To
    lag by inputs that are known at once, put it before: ``pipeline(Lags(inputs=2), Delayed(…))``.
    Lagged *targets* must stay inside, or the answers would arrive early.

    Args:
      learner: any learner.
      delay: a whole number of samples, at least 0.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(1000)
    >>> late = [jb.mse(Delayed(jb.Newton(0.99), delay), xs, ds) for delay in (0, 10)]
    >>> bool(late[0] == jb.mse(jb.Newton(0.99), xs, ds)), bool(late[0] < late[1])
    (True, True)
    """

    learner: Learner
    delay: int = static()

    def __post_init__(self) -> None:
        checks.fields(self, learner=instance, delay=checks.a_whole_number(at_least=0))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> DelayedState:
        dtype, zero = dtype_of(dtype), jnp.zeros((), jnp.int32)
        column, x = jnp.zeros(self.delay, dtype), jnp.zeros((self.delay, num_features), dtype)
        learner = self.learner.init(num_features, dtype, key=key)
        return DelayedState(x, column, column, zero, zero, learner)

    def learn(self, state: DelayedState, sample: Sample) -> DelayedState:
        if self.delay == 0:
            return state._replace(learner=self.learner.learn(state.learner, sample))
        good = sample.good
        newest = (jnp.where(usable(sample.raw), sample.raw, MISSING), sample.d, sample.weight)

        def once(state: DelayedState) -> DelayedState:
            x, d, weight, row, waiting, learner = state
            oldest = tuple(row_of(values, row) for values in (x, d, weight))
            changes = zip((x, d, weight), newest, oldest, strict=True)
            x, d, weight = (with_row(v, row, jnp.where(good, new, old)) for v, new, old in changes)
            late_x, late_d, late_weight = oldest
            late = self.learner.sample(learner, late_x, late_d, weight=late_weight, key=sample.key)
            learner = self.learner.learn(learner, late.only_if(good & (waiting == self.delay)))
            row = jnp.where(good, (row + 1) % self.delay, row)
            waiting = jnp.where(good, jnp.minimum(waiting + 1, self.delay), waiting)
            return DelayedState(x, d, weight, row, waiting, learner)

        return sample.repeat(once, state, guard=False)


class PendingState(NamedTuple):
    """The open questions, a row each, and counts that wrap at 2³². All numbers start at 0."""

    id: Array
    when: Array  # the count ``asked`` when the question came
    x: Array
    open: Array  # whether the question is open; False where the row is free
    asked: Array  # the number of questions
    dropped: Array  # the number of questions that gave up their row before they were answered
    unknown: Array  # the number of answers to no open question
    learner: State


@model
class Pending(Wrapper):
    """A learner that is asked now and answered later, in any order, by id.

        ask(state, id, x)        -> prediction, state
        answer(state, id, d)     -> state

    Both are pure and work under ``jit`` and in a scan. When the answer comes, the learner learns
    (x, d) with the x that was asked. If every answer comes at once, this is an ordinary run.

    A question beyond the ``capacity`` replaces the oldest one, whose answer will then be unknown. A
    question whose id is open already replaces that one. Both cases are counted in
    ``state.dropped``. An answer to no open question changes nothing but the count
    ``state.unknown``. An unusable answer (NaN) changes nothing: the question stays open.

    ``update`` answers a sample at once and touches no open question. So a service can start from a
    run over recorded data, and it can be saved and loaded with its open questions.

    Args:
      learner: any learner.
      capacity: how many questions may be open at a time, at least 1.

    >>> import jax.numpy as jnp, jboost as jb
    >>> service = Pending(jb.NLMS(1.0, epsilon=0.0), capacity=2)
    >>> state = service.init(1)
    >>> for id, x in [(7, 1.0), (8, 2.0), (9, 4.0)]:
    ...     _, state = service.ask(state, id, jnp.array([x]))
    >>> state = service.answer(state, 9, 8.0)  # d = 2 x
    >>> state = service.answer(state, 7, 2.0)  # the oldest: no room for it any more
    >>> prediction, state = service.ask(state, 10, jnp.array([3.0]))
    >>> float(prediction), int(state.dropped), int(state.unknown), int(state.open.sum())
    (6.0, 1, 1, 2)
    """

    learner: Learner
    capacity: int = static()

    def __post_init__(self) -> None:
        checks.fields(self, learner=instance, capacity=checks.a_whole_number(at_least=1))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> PendingState:
        dtype, n, zero = dtype_of(dtype), self.capacity, jnp.zeros((), jnp.uint32)
        ids, when, is_open = (jnp.zeros(n, kind) for kind in (jnp.int32, jnp.uint32, bool))
        x = jnp.zeros((n, num_features), dtype)
        learner = self.learner.init(num_features, dtype, key=key)
        return PendingState(ids, when, x, is_open, zero, zero, zero, learner)

    def ask(self, state: PendingState, id: ArrayLike, x: ArrayLike) -> tuple[Array, PendingState]:
        """Return the prediction for x, and the state that remembers it; ``id`` has 32 bits."""
        id, x = jnp.asarray(id, jnp.int32), jnp.asarray(x, state.x.dtype)
        prediction = self.learner.predict(state.learner, x)
        same = state.open & (state.id == id)
        age = state.asked - state.when  # right even where the count has wrapped
        forever = jnp.uint32(2**32 - 1)
        # The row of the same id, else a free row, else the oldest.
        row = jnp.argmax(jnp.where(same, forever, jnp.where(state.open, age, forever - 1)))
        lost = row_of(state.open, row)
        return prediction, state._replace(
            id=with_row(state.id, row, id),
            when=with_row(state.when, row, state.asked),
            x=with_row(state.x, row, jnp.where(usable(x), x, MISSING)),
            open=with_row(state.open, row, jnp.ones((), bool)),
            asked=state.asked + 1,
            dropped=state.dropped + lost.astype(jnp.uint32),
        )

    def answer(
        self, state: PendingState, id: ArrayLike, d: ArrayLike, *,
        weight: Number = 1.0, key: Key = None,
    ) -> PendingState:  # fmt: skip
        """Return the state after learning the answer to a question; ``key`` is the run's."""
        same = state.open & (state.id == jnp.asarray(id, jnp.int32))
        d, row, asked = jnp.asarray(d, state.x.dtype), jnp.argmax(same), jnp.any(same)
        late = self.learner.sample(state.learner, row_of(state.x, row), d, weight=weight, key=key)
        return state._replace(
            open=state.open & ~(same & usable(d)),
            unknown=state.unknown + (~asked).astype(jnp.uint32),
            learner=self.learner.learn(state.learner, late.only_if(asked)),
        )

    def learn(self, state: PendingState, sample: Sample) -> PendingState:
        return state._replace(learner=self.learner.learn(state.learner, sample))
