"""Late answers: predict now, learn when the answer comes, in the order of the answers.

:class:`Delayed` is a learner whose answers come a fixed number of samples late, inside any run.
:class:`Pending` is for answers that come in any order, each with the id of its question.
Both hold a fixed number of open questions: their x, and nothing else.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.numerics import dtype_of, usable

# What stands for a missing entry of a kept x: as unusable as NaN, but states stay finite.
MISSING = 1e30


class DelayedState(NamedTuple):
    """The last samples with their weights, the place of the oldest, how many, and the learner."""

    x: Array
    d: Array
    weight: Array
    place: Array
    waiting: Array
    learner: State


@model
class Delayed(Wrapper):
    """A learner whose every answer comes ``delay`` samples late.

        at time t: predict d_t from x_t, then learn (x_{t−delay}, d_{t−delay})

    so the prediction of x_t knows the answers up to t − delay − 1. With ``delay=0`` it is the
    learner itself, bit for bit; else it is the learner on the same samples, ``delay`` later. Memory
    is ``delay`` samples, whatever the length of the stream.

    Time is counted in samples that can be learned: one with an unusable d (or x) does not enter and
    delays nobody, and ``repeats`` is that many samples. A sample's ``weight`` waits with it.

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
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        object.__setattr__(self, "delay", checks.whole("delay", self.delay, at_least=0))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> DelayedState:
        dtype, zero = dtype_of(dtype), jnp.zeros((), jnp.int32)
        column = jnp.zeros(self.delay, dtype)
        return DelayedState(
            x=jnp.zeros((self.delay, num_features), dtype),
            d=column,
            weight=column,
            place=zero,
            waiting=zero,
            learner=self.learner.init(num_features, dtype, key=key),
        )

    def learn(self, state: DelayedState, sample: Sample) -> DelayedState:
        if self.delay == 0:
            return state._replace(learner=self.learner.learn(state.learner, sample))
        x = jnp.where(usable(sample.x), sample.x, MISSING)
        newest = (x, sample.d, sample.weight)

        def once(state: DelayedState) -> DelayedState:
            return self._pass(state, newest, sample)

        return sample.repeat(once, state, guard=False)

    def _pass(
        self, state: DelayedState, newest: tuple[Array, Array, Array], sample: Sample
    ) -> DelayedState:
        """Put the newest sample in the place of the oldest, which is learned."""
        rings, place, waiting, good = state[:3], state.place, state.waiting, sample.good
        x, d, weight = oldest = tuple(_row(ring, place) for ring in rings)
        xs, ds, weights = (
            _set_row(ring, place, jnp.where(good, new, old))
            for ring, new, old in zip(rings, newest, oldest, strict=True)
        )
        late = self.learner.sample(state.learner, x, d, weight=weight, key=sample.key)
        learner = self.learner.learn(state.learner, late.only_if(good & (waiting == self.delay)))
        return DelayedState(
            x=xs,
            d=ds,
            weight=weights,
            place=jnp.where(good, (place + 1) % self.delay, place),
            waiting=jnp.where(good, jnp.minimum(waiting + 1, self.delay), waiting),
            learner=learner,
        )


class PendingState(NamedTuple):
    """Open questions (id, when, x, which places are taken), counts, and the learner.

    asked, dropped, unknown: how many questions there were; of these, how many gave up their place
    before they were answered; and how many answers belonged to no open question. They wrap at 2³².
    """

    id: Array
    when: Array
    x: Array
    open: Array
    asked: Array
    dropped: Array
    unknown: Array
    learner: State


@model
class Pending(Wrapper):
    """A learner that is asked now and answered later, in any order, by id.

        ask(state, id, x)        -> prediction, state
        answer(state, id, d)     -> state

    Both are pure and work under ``jit`` and in a scan. The learner learns (x, d) when the answer
    comes, with the x that was asked; answered at once, that is an ordinary run.

    There is room for ``capacity`` open questions. A new one beyond that takes the place of the
    oldest, whose answer will then be unknown; one whose id is open already takes that place. Both
    are counted in ``state.dropped``. An answer to no open question changes nothing but the count
    ``state.unknown``. An answer that is not usable (NaN) changes nothing: the question stays open.

    It is a learner too: in a run every sample is answered at once, and no open question changes. So
    a service can start from recorded data, and be saved and loaded with its open questions.

    Args:
      learner: any learner.
      capacity: how many questions may be open at a time, at least 1.

    >>> import jax.numpy as jnp
    >>> import jboost as jb
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
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        object.__setattr__(self, "capacity", checks.whole("capacity", self.capacity, at_least=1))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> PendingState:
        dtype, n = dtype_of(dtype), self.capacity
        zero = jnp.zeros((), jnp.uint32)
        return PendingState(
            id=jnp.zeros(n, jnp.int32),
            when=jnp.zeros(n, jnp.uint32),
            x=jnp.zeros((n, num_features), dtype),
            open=jnp.zeros(n, bool),
            asked=zero,
            dropped=zero,
            unknown=zero,
            learner=self.learner.init(num_features, dtype, key=key),
        )

    def ask(self, state: PendingState, id: Any, x: Any) -> tuple[Array, PendingState]:
        """The prediction for x, and the state that remembers the question.

        ``id`` is any whole number of 32 bits.
        """
        id, x = jnp.asarray(id, jnp.int32), jnp.asarray(x, state.x.dtype)
        prediction = self.learner.predict(state.learner, x)
        same = state.open & (state.id == id)
        age = state.asked - state.when  # right even where the count has wrapped
        forever = jnp.uint32(2**32 - 1)
        place = jnp.argmax(jnp.where(same, forever, jnp.where(state.open, age, forever - 1)))
        lost = _row(state.open, place)
        return prediction, state._replace(
            id=_set_row(state.id, place, id),
            when=_set_row(state.when, place, state.asked),
            x=_set_row(state.x, place, jnp.where(usable(x), x, MISSING)),
            open=_set_row(state.open, place, jnp.ones((), bool)),
            asked=state.asked + 1,
            dropped=state.dropped + lost.astype(jnp.uint32),
        )

    def answer(
        self, state: PendingState, id: Any, d: Any, *, weight: Number = 1.0, key: Any = None
    ) -> PendingState:
        """The state after learning the answer to question ``id``; ``key`` is the run's."""
        same = state.open & (state.id == jnp.asarray(id, jnp.int32))
        d = jnp.asarray(d, state.x.dtype)
        place, asked = jnp.argmax(same), jnp.any(same)
        late = self.learner.sample(state.learner, _row(state.x, place), d, weight=weight, key=key)
        answered = asked & usable(d)
        return state._replace(
            open=state.open & ~(same & answered),
            unknown=state.unknown + (~asked).astype(jnp.uint32),
            learner=self.learner.learn(state.learner, late.only_if(asked)),
        )

    def learn(self, state: PendingState, sample: Sample) -> PendingState:
        return state._replace(learner=self.learner.learn(state.learner, sample))


def _row(ring: Array, place: Array) -> Array:
    return jax.lax.dynamic_index_in_dim(ring, place, keepdims=False)


def _set_row(ring: Array, place: Array, row: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(ring, row, place, 0)
