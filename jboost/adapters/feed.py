"""Feeds a model from Python, sample by sample or in batches, with few compiled calls.

A sample to learn waits in a queue. The queue is learned when it is full, or when a prediction or
the state is asked for. A prediction is one more row of the queue, without a target. So a prediction
and the learning before it cost one call, and one program does everything:

    for each row (x, d, weight) of a block: predict x; then learn the row, if it has a target

The numbers are the same, to the last bit, whether samples come one by one or in batches.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters.partial_eval import dce_jaxpr
from numpy.typing import ArrayLike

from jboost.adapters.growth import carry_over
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


class Feed:
    """A model with a state that changes: the base of the adapters.

    Args:
      model: any learner.
      num_features: the width of x.
      key: a ``jax.random.key``, for models that draw.

    >>> import jboost as jb
    >>> feed = Feed(jb.NLMS(step_size=1.0, epsilon=0.0), 2)
    >>> feed.learn([1.0, 0.0], 3.0)
    >>> feed.predict([2.0, 5.0]).tolist()
    [6.0]
    """

    def __init__(self, model: Learner, num_features: int, key: Key = None):
        state = initial(model, num_features, jnp.result_type(float), key)
        self._begin(key, model, num_features, state)

    def _begin(
        self, key: Key, model: Learner, num_features: int, state: State, learned: int = 0
    ) -> None:
        self._key, self.model, self.num_features, self._learned = key, model, num_features, learned
        both = jax.tree.map(jnp.asarray, (model, state))
        packing, dtype = Packing.of(both), jnp.dtype(float_dtype(both[1]))
        xs, ds = jnp.zeros((2, num_features), dtype), jnp.zeros(2, dtype)
        plan = plan_for(model, both[1], xs, ds, key)
        self._key_words, generator = key_words(key)
        if generator and not (model.needs_key or _draws(packing, generator, num_features, dtype)):
            # Only ``init`` took the key: the program is the one for models without a key.
            self._key_words = generator = None
        # None is XLA's own level: the plan's is for the plan's layout, which is not taken here.
        levels = (FIRST_LEVEL, LATER_LEVEL) if plan.long else (None, None)
        self._programs = [_program(packing, generator, plan.kernel, level) for level in levels]
        self._packing, self._words = packing, _packed(packing, both)
        self._queue, self._waiting = np.zeros((QUEUE + 1, num_features + 2), dtype), 0

    def __getstate__(self) -> tuple[Any, ...]:
        return (key_words(self._key), self.model, self.num_features, self.state, self._learned)

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self._begin(key_of(*saved[0]), *saved[1:])

    @property
    def state(self) -> State:
        """The state of the model after all samples so far."""
        self._learn_queue()
        return self._packing.unpack(self._words)[1]

    def learn(self, x: ArrayLike, d: float, weight: float = 1.0) -> None:
        """Learn one sample. A sample whose d is NaN or whose weight is zero changes nothing."""
        if not weight >= 0:
            raise ValueError(f"weight must be a number >= 0; got {weight!r}")
        self._append(x, d, weight)
        if self._waiting == QUEUE - 1:  # a prediction needs one more row
            self._learn_queue()

    def learn_many(self, xs: ArrayLike, ds: ArrayLike, weights: ArrayLike = 1.0) -> None:
        """Learn samples, xs (n, r) and ds (n,), in their order."""
        weights = np.broadcast_to(np.asarray(weights, np.float64), np.shape(ds))
        if not (weights >= 0).all():
            raise ValueError(f"weights must be numbers >= 0; got {weights!r:.200}")
        self._run_many(xs, ds, weights)

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Return the estimate for one x, (1,); from ``Intervals`` estimate, low and high, (3,)."""
        self._append(x, np.nan, 0.0)
        return self._learn_queue()[-1]

    def predict_many(self, xs: ArrayLike) -> np.ndarray:
        """Return the rows of ``predict`` for many x, (n, r)."""
        n = len(np.asarray(xs))
        return self._run_many(xs, np.full(n, np.nan), np.zeros(n))

    def grow(self, num_features: int) -> None:
        """Take wider x from now on: the new columns come before the present ones.

        What was learned is kept, as :func:`jboost.adapters.growth.carry_over` says. A model that
        cannot keep it starts from its first state, with a warning.
        """
        new = initial(self.model, num_features, self._queue.dtype, self._key)
        widths = (self.num_features, num_features)
        state, learned = carry_over(self.model, self.state, new, widths, self._key), self._learned
        if state is None:
            name = type(self.model).__name__
            warnings.warn(f"a state of {name} cannot grow: the model begins anew", stacklevel=2)
            state, learned = new, 0
        self._begin(self._key, self.model, num_features, state, learned)

    def _append(self, x: ArrayLike, d: float, weight: float) -> None:
        row = self._queue[self._waiting]
        with np.errstate(all="ignore"):  # numbers beyond float32 become infinite and are skipped
            row[:-2] = x
            row[-2], row[-1] = d, weight
        self._waiting += 1

    def _learn_queue(self) -> np.ndarray:
        """Learn the waiting samples; return the estimates of all rows of the queue."""
        waiting = self._waiting
        estimates = self._run(self._queue, waiting) if waiting else self._queue[:0]
        self._waiting = 0
        return estimates

    def _run_many(self, *columns: ArrayLike) -> np.ndarray:
        """Predict and learn any number of rows; return the estimates."""
        self._learn_queue()
        rows = np.column_stack([np.asarray(column) for column in columns])
        length = QUEUE if len(rows) <= FEW else BLOCK
        block = np.zeros((length + 1, self.num_features + 2), self._queue.dtype)
        estimates = []
        for start in range(0, len(rows), length):
            count = min(length, len(rows) - start)
            with np.errstate(all="ignore"):
                block[:count] = rows[start : start + count]
            estimates.append(self._run(block, count))
        return np.concatenate(estimates)

    def _run(self, block: np.ndarray, count: int) -> np.ndarray:
        """Predict and learn the first rows of a block; return the estimates."""
        first, later = self._programs
        if first is later or self._learned > FIRST_SAMPLES:
            return self._call(later, 0, count, block)
        learned = np.cumsum(np.isfinite(block[:count, -2]) & (block[:count, -1] > 0))
        border = int(np.searchsorted(learned, FIRST_SAMPLES - self._learned, "right"))
        self._learned += int(learned[-1])
        spans = ((first, 0, border), (later, border, count))
        return np.concatenate([self._call(*span, block) for span in spans if span[1] < span[2]])

    def _call(self, program: Program, start: int, stop: int, block: np.ndarray) -> np.ndarray:
        block[-1, :2] = start, stop  # in the last row: another operand would cost a call 3 µs
        (self._words, estimates), _ = program(self._words, self._key_words, block)
        return np.asarray(estimates)[start:stop]


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
