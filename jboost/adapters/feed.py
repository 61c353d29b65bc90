"""Feeds a model from Python, sample by sample or in batches, with few compiled calls.

A sample to learn waits in a queue. The queue is learned when it is full, or when a prediction or
the state is asked for. A prediction is one more row of the queue, without a target. So a prediction
and the learning before it cost one call, and one program does everything:

    for each row (x, d, weight) of a block: predict x; then learn the row, if it has a target

The numbers are the same, to the last bit, whether samples come one by one or in batches.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters.partial_eval import dce_jaxpr
from numpy.typing import ArrayLike

from jboost.adapters.growth import carry_over
from jboost.adapters.numbers import as_weights
from jboost.core import Key, Learner, State
from jboost.core.learner import float_dtype
from jboost.core.numerics import usable
from jboost.core.step import step
from jboost.engine.kernel import key_of, key_words, one_kernel, outermost, quickly
from jboost.engine.loop import plan_for
from jboost.engine.packing import Packing
from jboost.running.run import initial
from jboost.wrappers.intervals import Intervals

# Programs are compiled for blocks of these numbers of rows: the queue, and a block of a batch. A
# batch of few rows goes through in blocks as long as the queue, which saves compiling the other.
QUEUE, BLOCK = 16, 1024
FEW = 16 * QUEUE

# A program of thousands of operations, such as that of ``auto``, is compiled with less effort for
# the first samples. Samples are counted as they are learned, so the bits do not depend on how they
# come. Measured on one core: 7 s to compile and 1.6 ms a sample, then 17 s and .3 ms (at XLA's own
# level, 3, 23 s and .4 ms).
FIRST_SAMPLES = 1024
FIRST_LEVEL, LATER_LEVEL = 0, 1

MOST_PROGRAMS = 256  # programs that are remembered
Program = Callable[..., Any]


class Setup(NamedTuple):
    """What stays the same from sample to sample."""

    key: Key
    model: Learner
    num_features: int
    dtype: np.dtype
    largest: float  # of the dtype
    packing: Packing  # how the model and its state are packed into words
    key_words: Array | None  # None if learning draws nothing
    programs: tuple[Program, Program]  # for the first samples, and for all others


# How far a feed has come: the model and its state, packed into words; how many samples that state
# has learned; and the samples that wait, x, d and weight in one array each. A NamedTuple is slower.
_Progress = tuple[Array, int, tuple[np.ndarray, ...]]


class Feed:
    """A model, its state, and the samples that wait to be learned: the base of the adapters.

    A feed does not change: ``learn`` returns another one. So whatever is raised in the middle of a
    call does no harm, and threads may share a feed.

    Args:
      model: any learner.
      num_features: the width of x.
      key: a ``jax.random.key``, for models that draw.

    >>> import jboost as jb
    >>> feed = Feed(jb.NLMS(step_size=1.0, epsilon=0.0), 2)
    >>> after = feed.learn([1.0, 0.0], 3.0)
    >>> after.predict([2.0, 5.0]).tolist(), feed.predict([2.0, 5.0]).tolist()
    ([6.0], [0.0])
    """

    def __init__(self, model: Learner, num_features: int, key: Key = None):
        state = initial(model, num_features, jnp.result_type(float), key)
        self.setup, self._progress = _begin(key, model, num_features, state)

    def __getstate__(self) -> tuple[Any, ...]:
        state, (key, model, num_features, *_) = self.state, self.setup
        return (key_words(key), model, num_features, state, self._progress[1])

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self.setup, self._progress = _begin(key_of(*saved[0]), *saved[1:])

    @property
    def state(self) -> State:
        """The state of the model after all samples so far."""
        self._learn_queue()
        return self.setup.packing.unpack(self._progress[0])[1]

    def learn(self, x: ArrayLike, d: float, weight: float = 1.0) -> Feed:
        """Return the feed after one sample, which counts for nothing if d is NaN or weight 0."""
        if not (type(weight) in (float, int) and 0 <= weight < math.inf):  # the quick check
            weight = float(as_weights(weight, ()))
        setup, (words, learned, rows) = self.setup, self._progress
        row = np.empty(setup.num_features + 2)
        row[:-2] = x
        row[-2], row[-1] = d, min(weight, setup.largest)
        after = _feed(setup, (words, learned, (*rows, row)))
        if len(rows) == QUEUE - 2:  # a prediction needs one more row
            after._learn_queue()
        return after

    def learn_many(self, xs: ArrayLike, ds: ArrayLike, weights: ArrayLike = 1.0) -> Feed:
        """Return the feed after samples, xs (n, r) and ds (n,), learned in their order."""
        progress, _ = self._run_many(xs, ds, as_weights(weights, np.shape(ds)))
        return _feed(self.setup, progress)

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Return the estimate for one x, (1,); from ``Intervals`` estimate, low and high, (3,)."""
        return self._learn_queue(x)[-1]

    def predict_many(self, xs: ArrayLike) -> np.ndarray:
        """Return the rows of ``predict`` for many x, (n, r)."""
        n = len(np.asarray(xs))
        return self._run_many(xs, np.full(n, np.nan), np.zeros(n))[1]

    def grow(self, num_features: int) -> Feed:
        """Return a feed that takes wider x: the new columns come before the present ones.

        What was learned is kept, as :func:`jboost.adapters.growth.carry_over` says. A model that
        cannot keep it starts from its first state, with a warning.
        """
        key, model, width, dtype, *_ = self.setup
        new = initial(model, num_features, dtype, key)
        state = carry_over(model, self.state, new, (width, num_features), key)
        _, learned, _ = self._progress
        if state is None:
            name = type(model).__name__
            warnings.warn(f"a state of {name} cannot grow: the model begins anew", stacklevel=2)
            state, learned = new, 0
        return _feed(*_begin(key, model, num_features, state, learned))

    def _learn_queue(self, query: ArrayLike | None = None) -> np.ndarray:
        """Learn the waiting samples; return the estimates for them and for another x."""
        setup, (words, learned, rows) = self.setup, self._progress
        block, count = np.zeros((QUEUE + 1, setup.num_features + 2), setup.dtype), len(rows)
        with np.errstate(all="ignore"):  # numbers beyond float32 become infinite and are skipped
            for i, row in enumerate(rows):
                block[i] = row
            if query is not None:
                block[count, :-2], block[count, -2] = query, np.nan
                count += 1
        if count == 0:
            return block[:0]
        words, learned, estimates = _run(setup, words, learned, block, count)
        # The feed is what it was: the samples are learned now, and need not be learned again.
        self._progress = words, learned, ()
        return estimates

    def _run_many(
        self, xs: ArrayLike, ds: ArrayLike, weights: np.ndarray
    ) -> tuple[_Progress, np.ndarray]:
        """Predict and learn any number of rows; return the progress and the estimates."""
        self._learn_queue()
        words, learned, _ = self._progress
        weights = np.minimum(weights, self.setup.largest)
        rows = np.column_stack([np.asarray(xs), np.asarray(ds), weights])
        length = QUEUE if len(rows) <= FEW else BLOCK
        block = np.zeros((length + 1, self.setup.num_features + 2), self.setup.dtype)
        estimates = []
        for start in range(0, len(rows), length):
            count = min(length, len(rows) - start)
            with np.errstate(all="ignore"):
                block[:count] = rows[start : start + count]
            words, learned, found = _run(self.setup, words, learned, block, count)
            estimates.append(found)
        return (words, learned, ()), np.concatenate(estimates)


def _feed(setup: Setup, progress: _Progress) -> Feed:
    feed = object.__new__(Feed)
    feed.setup, feed._progress = setup, progress
    return feed


def _begin(
    key: Key, model: Learner, num_features: int, state: State, learned: int = 0
) -> tuple[Setup, _Progress]:
    """Return what a feed of a model in some state consists of."""
    both = jax.tree.map(jnp.asarray, (model, state))
    Packing.of(both[1])  # a state that cannot be packed is named by its path in the state
    packing, dtype = Packing.of(both), jnp.dtype(float_dtype(both[1]))
    xs, ds = jnp.zeros((2, num_features), dtype), jnp.zeros(2, dtype)
    plan = plan_for(model, both[1], xs, ds, key)
    words, generator = key_words(key)
    if generator and not (model.needs_key or _draws(packing, generator, num_features, dtype)):
        # Only ``init`` took the key: the program is the one for models without a key.
        words = generator = None
    # None is XLA's own level: the plan's is for the plan's layout, which is not taken here.
    levels = (FIRST_LEVEL, LATER_LEVEL) if plan.long else (None, None)
    first, later = (_program(packing, generator, plan.kernel, level) for level in levels)
    largest = float(jnp.finfo(dtype).max)
    setup = Setup(key, model, num_features, dtype, largest, packing, words, (first, later))
    return setup, (_packed(packing, both), learned, ())


def _run(
    setup: Setup, words: Array, learned: int, block: np.ndarray, count: int
) -> tuple[Array, int, np.ndarray]:
    """Predict and learn the first rows of a block; return the progress and the estimates."""
    first, later = setup.programs
    if first is later or learned > FIRST_SAMPLES:
        words, estimates = _call(later, words, setup.key_words, block, 0, count)
        return words, learned, estimates
    counted = np.cumsum(np.isfinite(block[:count, -2]) & (block[:count, -1] > 0))
    border = int(np.searchsorted(counted, FIRST_SAMPLES - learned, "right"))
    estimates = []
    for program, start, stop in ((first, 0, border), (later, border, count)):
        if start < stop:
            words, found = _call(program, words, setup.key_words, block, start, stop)
            estimates.append(found)
    return words, learned + int(counted[-1]), np.concatenate(estimates)


def _call(
    program: Program, words: Array, key: Array | None, block: np.ndarray, start: int, stop: int
) -> tuple[Array, np.ndarray]:
    block[-1, :2] = start, stop  # in the last row: another operand would cost a call 3 µs
    (words, estimates), _ = program(words, key, block)
    return words, np.asarray(estimates)[start:stop]


_packed = quickly(Packing.pack, static_argnums=0)


@functools.lru_cache(MOST_PROGRAMS)
def _draws(packing: Packing, generator: str, num_features: int, dtype: np.dtype) -> bool:
    """Return whether a model that needs no key uses one to learn."""

    def learn(packed: Array, words: Array) -> State:
        model, state = packing.unpack(packed)
        x, d = jnp.zeros(num_features, dtype), jnp.zeros((), dtype)
        return model.update(state, x, d, key=key_of(words, generator))

    words = jax.random.key_data(jax.random.key(0, impl=generator))
    program = jax.make_jaxpr(learn)(jnp.zeros(packing.width, jnp.uint32), words).jaxpr
    _, used = dce_jaxpr(program, [True] * len(program.outvars))  # without what nothing depends on
    return used[-1]


@functools.lru_cache(MOST_PROGRAMS)
def _program(packing: Packing, generator: str | None, kernel: bool, level: int | None) -> Program:
    """Return the program that runs a block of rows; JAX compiles it for each length of a block.

    Args:
      packing: how the model and its state are packed into words.
      generator: the name of the key's random generator; None if learning draws nothing.
      kernel: whether the program is compiled as one kernel.
      level: the compiler's optimisation level, None for XLA's own.
    """

    def run(packed: Array, words: Array | None, block: Array) -> tuple[Array, Array]:
        (model, state), key = packing.unpack(packed), key_of(words, generator)
        start, stop = block[-1, :2].astype(jnp.int32)

        def one_row(i: Array, carried: tuple[State, Array]) -> tuple[State, Array]:
            state, estimates = carried
            row = jax.lax.dynamic_index_in_dim(block, i, keepdims=False)
            x, d, weight = row[:-2], row[-2], row[-1]
            has_answer = usable(d) & (weight > 0)
            after, trace = step(model, state, x, d, key, weight=weight, has_answer=has_answer)
            bounds = model.interval(state, x) if isinstance(model, Intervals) else ()
            estimate = jnp.stack([trace.prediction, *bounds])
            return after, jax.lax.dynamic_update_index_in_dim(estimates, estimate, i, 0)

        columns = 3 if isinstance(model, Intervals) else 1
        estimates = jnp.zeros((len(block) - 1, columns), block.dtype)
        state, estimates = jax.lax.fori_loop(start, stop, one_row, (state, estimates))
        return packing.pack((model, state)), estimates

    def whole(*operands: Any) -> tuple[tuple[Array, Array], Array | None]:
        return one_kernel(run, *operands) if kernel else (run(*operands), None)

    return outermost(whole, kernel=kernel, level=level)
