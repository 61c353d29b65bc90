"""A model and its state, held packed between calls that bring few rows.

To pass an array to a compiled program and to get one back takes microseconds, and a state has
dozens. So model and state are words of one array from call to call, and are taken apart in the
program alone, or where somebody looks at the state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.adapters import programs
from jboost.adapters.programs import CHUNK, Packed, Watching
from jboost.core import Key, Learner, State, forks
from jboost.core.learner import float_dtype
from jboost.core.step import Observe
from jboost.engine.kept import Kept, Question
from jboost.engine.kernel import key_words
from jboost.engine.layout import Layout, lay_out
from jboost.engine.loop import decide
from jboost.engine.packing import Packing, SplitPacking
from jboost.engine.pieces import platforms
from jboost.engine.plan import Form, Plan, Plans, bytes_of, impediment

FEWEST_ROWS = 16
# One program has room for a block of rows, and takes as an argument how many of them to run. The
# room costs a call nothing, up to about this size.
LONGEST_BLOCK = 1024  # rows
LARGEST_BLOCK = 2**18  # bytes
LONGEST_TRACE = 256  # rows: between calls something else has used the caches, and room is cleared

_plans = Plans()


class Setup(NamedTuple):
    """What stays the same from sample to sample."""

    key: Key
    model: Learner
    num_features: int
    dtype: np.dtype
    largest: float  # of the dtype
    layout: Layout  # how the model and its state lie in memory
    packing: SplitPacking  # how they are packed, in that layout
    key_words: Array | None  # None if learning draws nothing
    program: Callable[..., Any]
    rows: int  # for how many rows the program has room


def begin(
    key: Key, model: Learner, num_features: int, state: State, observe: Observe | None = None
) -> tuple[Setup, Packed]:
    """Return what is needed to go on with a model from some state.

    With ``observe``, what a call returns of rows is their trace, otherwise their estimates.
    """
    both = jax.tree.map(jnp.asarray, (model, state))
    Packing.of(both[1])  # a state that cannot be packed is named by its path in the state
    dtype = jnp.dtype(float_dtype(both[1]))
    words, generator = key_words(key)
    if generator and not (
        model.needs_key or programs.draws(Packing.of(both), generator, num_features, dtype)
    ):
        # Only ``init`` took the key: the program is the one for models without a key.
        words = generator = None
    fitting = LARGEST_BLOCK // ((num_features + 2) * dtype.itemsize)
    longest = LONGEST_BLOCK if observe is None else LONGEST_TRACE
    rows = min(max(fitting // CHUNK * CHUNK, FEWEST_ROWS), longest)
    shaped = jax.ShapeDtypeStruct((rows + 1, num_features + 2), dtype)

    def packed(layout: Layout) -> tuple[SplitPacking, Packed]:
        packing = SplitPacking.of(jax.eval_shape(functools.partial(lay_out, layout), *both))
        return packing, programs.pack(layout, packing, both)

    def program(form: Form, layout: Layout, packing: SplitPacking) -> Kept:
        watching = None if observe is None else Watching(observe, layout)
        by_steps = form == "kernel" or not model.takes_missing or watching is not None
        return programs.program(packing, generator, form, by_steps, watching)

    def problem(form: Form, layout: Layout) -> str | None:
        packing, arrays = packed(layout)
        asked = Question(impediment, (form, bytes_of(both[1])))
        return program(form, layout, packing).answer(asked, arrays, words, shaped)

    def make() -> Plan:
        return decide(both[0], both[1], platforms(np.zeros(0)), problem)

    plan = _plans.get(observe, both, (generator, num_features, dtype), make)
    packing, arrays = packed(plan.layout)
    largest = float(jnp.finfo(dtype).max)
    fixed = key, model, num_features, dtype, largest, plan.layout, packing, words
    kept = program(plan.form, plan.layout, packing)
    return Setup(*fixed, _for_blocks(kept, shaped.shape, dtype), rows), arrays


@functools.lru_cache(programs.MOST_PROGRAMS)
def _for_blocks(kept: Kept, shape: tuple[int, ...], dtype: np.dtype) -> Callable[..., Any]:
    """Return a program for blocks that are all alike."""
    del shape, dtype
    return kept.for_one_kind()


def block(setup: Setup) -> np.ndarray:
    """Return a block with any content: rows of x, d and weight."""
    return np.empty((setup.rows + 1, setup.num_features + 2), setup.dtype)


def run(
    setup: Setup, packed: Packed, block: np.ndarray, learned: int, count: int
) -> tuple[Packed, Any]:
    """Learn the first rows of a block and predict those behind them, ``count`` rows in all.

    Behind these rows, what is returned of rows means nothing.
    """
    forks.check()
    block[-1, :2] = learned, count  # in the last row: another operand would cost a call 3 µs
    return setup.program(packed, setup.key_words, block)


class Held:
    """A model and its state for short blocks of rows, with the bits of ``jb.run``.

    It does not change: :meth:`run` returns another one.

    Args:
      model: any learner.
      num_features: the width of x.
      state: where it begins.
      key: a ``jax.random.key``, for models that draw.
      observe: as of ``jb.run``.

    >>> import jboost as jb
    >>> model = jb.NLMS(step_size=1.0, epsilon=0.0)
    >>> held = Held(model, 2, model.init(2), None, lambda state, info: ())
    >>> after, trace = held.run(np.array([[1.0, 0.0], [2.0, 5.0]]), np.array([3.0, np.nan]))
    >>> trace.prediction.tolist(), after.state.w.tolist()
    ([0.0, 6.0], [3.0, 0.0])
    """

    def __init__(self, model: Learner, num_features: int, state: State, key: Key, observe: Observe):
        self._setup, self._packed = begin(key, model, num_features, state, observe)

    @functools.cached_property
    def state(self) -> State:
        """The state of the model."""
        return programs.unpack(self._setup.layout, self._setup.packing, self._packed)

    def run(self, xs: np.ndarray, ds: np.ndarray) -> tuple[Self, Any]:
        """Predict and learn rows, those without an answer as rows whose d is NaN; see ``jb.run``.

        Both arrays must be of the dtype of the state.

        Returns what follows, and the trace, which is that of ``jb.run`` in NumPy arrays, without
        ``skipped``.
        """
        setup, packed, traces = self._setup, self._packed, []
        rows = block(setup)
        for start in range(0, len(xs), setup.rows):
            n = min(setup.rows, len(xs) - start)
            piece = slice(start, start + n)
            rows[:n, :-2], rows[:n, -2], rows[:n, -1] = xs[piece], ds[piece], 1
            packed, trace = run(setup, packed, rows, n, n)
            traces.append(jax.tree.map(lambda a, n=n: np.asarray(a)[:n], trace))
        after = object.__new__(type(self))
        after._setup, after._packed = setup, packed
        if len(traces) == 1:
            return after, traces[0]
        return after, jax.tree.map(lambda *arrays: np.concatenate(arrays), *traces)
