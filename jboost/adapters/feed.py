"""Feeds a model from Python, sample by sample or in batches, with few compiled calls.

A sample to learn waits in a queue. The queue is learned when it is full, or when a prediction or
the state is asked for. The x to predict is one more row behind the queue. So a prediction and the
learning before it cost one call, and one program does everything, compiled once:

    learn the first rows (x, d, weight) of a block; then predict the x of those behind them

The numbers are the same, to the last bit, whether samples come one by one, in batches or in a run.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jboost.adapters import held, programs
from jboost.adapters.growth import carry_over
from jboost.adapters.held import Setup
from jboost.adapters.numbers import as_weights
from jboost.adapters.programs import Packed
from jboost.core import Key, Learner, State
from jboost.engine.kernel import key_of, key_words
from jboost.running.run import initial

QUEUE = held.FEWEST_ROWS  # rows: the samples that wait, and a prediction

# How far a feed has come: the model and its state, packed; and the samples that wait, x, d and
# weight in one array each. A NamedTuple is slower.
_Progress = tuple[Packed, tuple[np.ndarray, ...]]


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
        return (key_words(key), model, num_features, state)

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self.setup, self._progress = _begin(key_of(*saved[0]), *saved[1:4])

    @property
    def state(self) -> State:
        """The state of the model after all samples so far."""
        self._learn_queue()
        return programs.unpack(self.setup.layout, self.setup.packing, self._progress[0])

    def warm_up(self) -> None:
        """Compile the program, which the first call would do otherwise."""
        _run(self.setup, self._progress[0], np.zeros_like(held.block(self.setup)), 0, 0)

    def learn(self, x: ArrayLike, d: float, weight: float = 1.0) -> Feed:
        """Return the feed after one sample, which counts for nothing if d is NaN or weight 0."""
        if not (type(weight) in (float, int) and 0 <= weight < math.inf):  # the quick check
            weight = float(as_weights(weight, ()))
        setup, (packed, rows) = self.setup, self._progress
        row = np.empty(setup.num_features + 2)
        row[:-2] = x
        row[-2], row[-1] = d, min(weight, setup.largest)
        after = _feed(setup, (packed, (*rows, row)))
        if len(rows) == QUEUE - 2:  # a prediction needs one more row
            after._learn_queue()
        return after

    def learn_many(self, xs: ArrayLike, ds: ArrayLike, weights: ArrayLike = 1.0) -> Feed:
        """Return the feed after samples, xs (n, r) and ds (n,), learned in their order."""
        return self.learn_and_predict(xs, ds, weights)[0]

    def learn_and_predict(
        self, xs: ArrayLike, ds: ArrayLike, weights: ArrayLike = 1.0
    ) -> tuple[Feed, np.ndarray]:
        """Return what :meth:`learn_many` does, and the estimates made before rows were learned."""
        weights = np.minimum(as_weights(weights, np.shape(ds)), self.setup.largest)
        rows = np.column_stack([np.asarray(xs), np.asarray(ds), weights])
        progress, estimates = self._run_many(rows, learn=True)
        return _feed(self.setup, progress), estimates

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Return the estimate for one x, (1,); from ``Intervals`` estimate, low and high, (3,)."""
        return self._learn_queue(x)[-1]

    def predict_many(self, xs: ArrayLike) -> np.ndarray:
        """Return the rows of ``predict`` for many x, (n, r)."""
        return self._run_many(np.asarray(xs), learn=False)[1]

    def grow(self, num_features: int) -> Feed:
        """Return a feed that takes wider x: the new columns come before the present ones.

        What was learned is kept, as :func:`jboost.adapters.growth.carry_over` says. A model that
        cannot keep it starts from its first state, with a warning.
        """
        key, model, width, dtype, *_ = self.setup
        new = initial(model, num_features, dtype, key)
        state = carry_over(model, self.state, new, (width, num_features), key)
        if state is None:
            name = type(model).__name__
            warnings.warn(f"a state of {name} cannot grow: the model begins anew", stacklevel=2)
            state = new
        return _feed(*_begin(key, model, num_features, state))

    def _learn_queue(self, query: ArrayLike | None = None) -> np.ndarray:
        """Learn the waiting samples; return the estimates for them and for another x."""
        setup, (packed, rows) = self.setup, self._progress
        block, learned = held.block(setup), len(rows)
        with np.errstate(all="ignore"):  # numbers beyond float32 become infinite and are skipped
            for i, row in enumerate(rows):
                block[i] = row
            if query is not None:
                block[learned, :-2] = query
        count = learned + (query is not None)
        if count == 0:
            return block[:0]
        packed, estimates = _run(setup, packed, block, learned, count)
        # The feed is what it was: the samples are learned now, and need not be learned again.
        self._progress = packed, ()
        return estimates

    def _run_many(self, rows: np.ndarray, *, learn: bool) -> tuple[_Progress, np.ndarray]:
        """Learn or predict any number of rows; return the progress and the estimates."""
        self._learn_queue()
        setup, (packed, _) = self.setup, self._progress
        block, estimates = held.block(setup), []
        for start in range(0, len(rows), setup.rows):
            count = min(setup.rows, len(rows) - start)
            with np.errstate(all="ignore"):
                block[:count, : rows.shape[1]] = rows[start : start + count]
            packed, found = _run(setup, packed, block, count if learn else 0, count)
            estimates.append(found)
        return (packed, ()), np.concatenate(estimates)


def _feed(setup: Setup, progress: _Progress) -> Feed:
    feed = object.__new__(Feed)
    feed.setup, feed._progress = setup, progress
    return feed


def _begin(key: Key, model: Learner, num_features: int, state: State) -> tuple[Setup, _Progress]:
    """Return what a feed of a model in some state consists of."""
    setup, packed = held.begin(key, model, num_features, state)
    return setup, (packed, ())


def _run(
    setup: Setup, packed: Packed, block: np.ndarray, learned: int, count: int
) -> tuple[Packed, np.ndarray]:
    """Learn the first rows of a block and predict those behind them, ``count`` rows in all."""
    packed, estimates = held.run(setup, packed, block, learned, count)
    return packed, np.asarray(estimates)[:count]
