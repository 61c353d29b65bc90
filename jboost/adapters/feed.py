"""A model fed from Python, sample by sample or in batches, at the price of few compiled calls.

What is learned goes on a list first, and is learned when somebody looks (at a prediction, at the
state) or when the list is full. A prediction is one more sample on the list, without an answer. So
a prediction and the learning before it are one call, and everything is done by one program:

    for each row (x, d, weight) of a list: predict x; learn it, if it has an answer

It makes no difference to the numbers, to the last bit, whether samples come one by one or together.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jboost.boosting.booster import BoostedState
from jboost.core import Learner, State
from jboost.core.numerics import usable
from jboost.core.step import step as one_step
from jboost.core.template import template
from jboost.engine.folds import plan_for
from jboost.engine.kernel import key_of, key_words, one_kernel, outermost, quickly
from jboost.engine.packing import Packing
from jboost.running.run import initial
from jboost.transforms.pipelines import PipelineState
from jboost.transforms.target import ScaledState
from jboost.wrappers.intervals import Intervals

# Rows a program is compiled for: the list of single samples, and what batches are cut to. A batch
# of few rows is cut to lists, as to compile another program would take longer.
SHORT, LONG = 16, 1024
FEW = 16 * SHORT
NO_ROW = -1.0  # in place of a weight

# A program of thousands of operations, as that of ``auto``, is compiled in a hurry for the first
# samples, counted as they are learned: the same bits however they come. Measured on one core: 7 s
# to compile and 1.6 ms a sample, then 17 s and .3 ms (at the compiler's last level 23 s and .4 ms).
HURRY = 1024
LEVELS = {True: 0, False: 1}


class _Kind(NamedTuple):
    """All that a program depends on besides numbers; what is packed is a model and its state."""

    packing: Packing
    num_features: int
    impl: str | None
    kernel: bool
    long: bool


class Feed:
    """A model with a state that changes: what the adapters are made of.

    Args:
      model: any learner.
      num_features: the width of x.
      key: a ``jax.random.key``, for models that draw.

    >>> import jboost as jb
    >>> feed = Feed(jb.NLMS(step_size=1.0, epsilon=0.0), 2)
    >>> feed.learn([1.0, 0.0], 3.0)
    >>> feed.predict([2.0, 5.0])
    6.0
    """

    def __init__(self, model: Learner, num_features: int, key: Any = None):
        dtype = jnp.result_type(float).name
        self._begin(model, num_features, dtype, key, initial(model, num_features, dtype, key))

    @property
    def state(self) -> State:
        """What the model has learned."""
        self._learn_listed()
        return self._kind.packing.unpack(self._words)[1]

    def learn(self, x: Any, d: float, weight: float = 1.0) -> None:
        """Learn one sample: nothing, where d is NaN or the weight zero."""
        if not weight >= 0:
            raise ValueError(f"weight must be a number >= 0; got {weight!r}")
        self._put(x, d, weight)
        if self._count == SHORT - 1:  # a prediction has room behind
            self._learn_listed()

    def predict(self, x: Any) -> float:
        """The estimate for one x."""
        return float(self._ask(x).flat[0])

    def interval(self, x: Any) -> tuple[float, float]:
        """The bounds for the answer to one x, by a model that has intervals."""
        _, low, high = self._ask(x)
        return float(low), float(high)

    def learn_many(self, xs: Any, ds: Any, weights: Any = None) -> None:
        """Learn samples, (n, r) and (n,), in their order."""
        self._learn_listed()
        weights = np.ones(len(xs)) if weights is None else np.asarray(weights)
        if not (weights >= 0).all():
            raise ValueError(f"weights must be numbers >= 0; got {weights!r:.200}")
        self._advance(np.column_stack([xs, ds, weights]))

    def predict_many(self, xs: Any) -> np.ndarray:
        """The estimates for many x, (n, r)."""
        return self._ask_many(xs).reshape(len(xs), -1)[:, 0]

    def interval_many(self, xs: Any) -> np.ndarray:
        """The bounds for the answers to many x, (n, r), by a model that has intervals: (n, 2)."""
        return self._ask_many(xs)[:, 1:]

    def grow(self, num_features: int) -> None:
        """Take wider x from now on, the new columns in front of those there were.

        The parts of the state that depend on the width begin as they would have begun, with what
        was learned in their last places, where it belongs: what transforms add to x, as a bias,
        comes last. A model that then predicts something else begins anew, with a warning. Of a
        booster only the learners do that do, as networks of a given number of parameters.
        """
        old, added = self.state, num_features - self.num_features
        new = initial(self.model, num_features, self._dtype, self._key)
        probe = np.linspace(-1.0, 1.0, self.num_features)
        before = self._estimates(old, probe)
        rest = (self.model, num_features, self._dtype, self._key)
        grown = jax.tree.map(_in_last_places, new, old)
        learned = self._learned
        self._begin(*rest, grown, learned)
        after = self._estimates(grown, np.append(np.zeros(added), probe))
        same = np.isclose(before, after, rtol=1e-3, atol=1e-3)
        if not same.any():
            text = f"a state of {type(self.model).__name__} cannot grow: the model begins anew"
            warnings.warn(text, stacklevel=2)
            self._begin(*rest, new)
        elif not same.all():
            mend = functools.partial(_with_new_learners, same)
            mended = jax.tree.map(mend, grown, new, is_leaf=_is_booster)
            self._begin(*rest, mended, learned)

    def __getstate__(self) -> dict[str, Any]:
        words = None if self._key is None else np.asarray(jax.random.key_data(self._key))
        return {
            "model": self.model,
            "num_features": self.num_features,
            "dtype": self._dtype,
            "key": (words, _impl(self._key)),
            "state": [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)],
            "learned": self._learned,
        }

    def __setstate__(self, kept: dict[str, Any]) -> None:
        words, impl = kept["key"]
        key = None if words is None else jax.random.wrap_key_data(words, impl=impl)
        model, width, dtype = kept["model"], kept["num_features"], kept["dtype"]
        structure = jax.tree.structure(template(model, width, dtype, key))
        state = structure.unflatten(kept["state"])
        self._begin(model, width, dtype, key, state, kept["learned"])

    def _begin(
        self,
        model: Learner,
        width: int,
        dtype: str,
        key: Any,
        state: State,
        learned: int = 0,
    ) -> None:
        self.model, self.num_features = model, width
        self._key, self._dtype, self._learned = key, dtype, learned
        self._list = np.zeros((SHORT, width + 2), dtype)
        self._list[:, -1] = NO_ROW
        self._count = 0
        both = jax.tree.map(jnp.asarray, (model, state))
        packing = Packing.of(both)
        few = jnp.zeros((2, width), dtype), jnp.zeros(2, dtype)
        plan = plan_for(model, both[1], *few, key)
        if key is not None and not model.needs_key and not _draws(packing, _impl(key), *few):
            key = None  # it was for ``init`` alone: one program, whether there was a key or not
        self._kind = _Kind(packing, width, _impl(key), plan.kernel, plan.long)
        self._key_data = None if key is None else jax.random.key_data(key)
        self._words = _packed(self._kind.packing, both)
        # To look one up by its kind is slow.
        self._programs: dict[tuple[int, bool], Callable[..., Any]] = {}

    def _estimates(self, state: State, x: np.ndarray) -> np.ndarray:
        """What every learner of a booster says of an x, or else the model."""
        if not any(map(_is_booster, jax.tree.leaves(state, is_leaf=_is_booster))):
            return np.array([self.predict(x)])
        return np.asarray(_looked(self.model, state, x.astype(self._dtype), self._key))

    def _ask(self, x: Any) -> np.ndarray:
        """What the model says of one x."""
        self._put(x, np.nan, 0.0)
        return self._go_through_list()[-1]

    def _ask_many(self, xs: Any) -> np.ndarray:
        self._learn_listed()
        return self._advance(np.column_stack([xs, np.full(len(xs), np.nan), np.zeros(len(xs))]))

    def _put(self, x: Any, d: float, weight: float) -> None:
        with np.errstate(all="ignore"):  # beyond float32 is infinite, and skipped
            row = self._list[self._count]
            row[:-2] = x
            row[-2], row[-1] = d, weight
        self._count += 1

    def _learn_listed(self) -> None:
        if self._count:
            self._go_through_list()

    def _go_through_list(self) -> np.ndarray:
        made = self._run(self._list)[: self._count]
        self._list[: self._count, -1] = NO_ROW
        self._count = 0
        return made

    def _advance(self, rows: np.ndarray) -> np.ndarray:
        """Run the program over many rows; returns what the model says of them."""
        length = SHORT if len(rows) <= FEW else LONG
        given = np.zeros((length, self.num_features + 2), self._dtype)
        estimates = []
        for start in range(0, len(rows), length):
            part = rows[start : start + length]
            with np.errstate(all="ignore"):
                given[: len(part)] = part
            given[len(part) :, -1] = NO_ROW
            estimates.append(self._run(given)[: len(part)])
        return np.concatenate(estimates)

    def _run(self, rows: np.ndarray) -> np.ndarray:
        """Learn and predict rows by the programs for them. The rows may be overwritten then."""
        if not self._kind.long or self._learned > HURRY:
            return self._call(rows, hurry=False)
        answered = np.cumsum(np.isfinite(rows[:, -2]) & (rows[:, -1] > 0))
        early = int(np.searchsorted(answered, HURRY - self._learned, "right"))
        self._learned += int(answered[-1])
        if early in (0, len(rows)):
            return self._call(rows, hurry=early > 0)
        first, second = np.copy(rows), np.roll(rows, -early, axis=0)
        first[early:, -1] = second[len(rows) - early :, -1] = NO_ROW
        made = self._call(first, hurry=True)[:early], self._call(second, hurry=False)
        return np.concatenate(made)[: len(rows)]

    def _call(self, rows: np.ndarray, hurry: bool) -> np.ndarray:
        program = self._programs.get((len(rows), hurry))
        if program is None:
            program = _program(self._kind, len(rows), LEVELS[hurry])
            self._programs[len(rows), hurry] = program
        self._words, estimates, _ = program(self._words, self._key_data, rows)
        return np.asarray(estimates)


_packed = quickly(Packing.pack, static_argnums=0)


def _impl(key: Any) -> str | None:
    return key_words(key)[1]


_drawing: dict[Any, bool] = {}


def _draws(packing: Packing, impl: str | None, xs: Any, ds: Any) -> bool:
    """Whether what is learned depends on the key, though the model does not need one."""
    seen = (packing, impl, xs.shape, xs.dtype)
    if seen not in _drawing:

        def learn(words: Any, data: Any) -> Any:
            model, state = packing.unpack(words)
            return model.update(state, xs[0], ds[0], key=jax.random.wrap_key_data(data, impl=impl))

        data = jax.random.key_data(jax.random.key(0, impl=impl))
        words = jax.ShapeDtypeStruct((packing.width,), jnp.uint32)
        program = jax.make_jaxpr(learn)(words, data).jaxpr
        needed = {id(out) for out in program.outvars}
        for step in reversed(program.eqns):
            if any(id(out) in needed for out in step.outvars):
                needed |= {id(operand) for operand in step.invars}
        _drawing[seen] = id(program.invars[-1]) in needed
    return _drawing[seen]


@functools.lru_cache(maxsize=1024)
def _program(kind: _Kind, length: int, level: int) -> Callable[..., Any]:
    """The program for a kind of model, compiled at its first call; a long one with that effort."""
    r = kind.num_features

    def advance(words: Any, key_data: Any, rows: Any) -> Any:
        model, state = kind.packing.unpack(words)
        key = key_of(key_data, kind.impl)
        weights = rows[:, r + 1]

        def more(carried: tuple[Any, ...]) -> Any:
            i, _, _ = carried
            weight = jax.lax.dynamic_index_in_dim(weights, i, keepdims=False)
            return (i < length) & (weight >= 0)

        def step(carried: tuple[Any, ...]) -> tuple[Any, ...]:
            i, state, estimates = carried
            row = jax.lax.dynamic_index_in_dim(rows, i, keepdims=False)
            x, d, weight = row[:r], row[r], row[r + 1]
            has_answer = usable(d) & (weight > 0)
            after, _ = one_step(model, state, x, d, key, weight=weight, has_answer=has_answer)
            estimate = _said(model, state, x)
            return i + 1, after, jax.lax.dynamic_update_index_in_dim(estimates, estimate, i, 0)

        like = jax.eval_shape(_said, model, state, rows[0, :r])
        start = (jnp.zeros((), jnp.int32), state, jnp.zeros((length, *like.shape), rows.dtype))
        _, state, estimates = jax.lax.while_loop(more, step, start)
        return kind.packing.pack((model, state)), estimates

    def kernel(words: Any, key_data: Any, rows: Any) -> Any:
        outputs, corners = one_kernel(advance, words, key_data, rows)
        return *outputs, corners

    if kind.kernel:
        return outermost(kernel, kernel=True, level=level if kind.long else None)
    return outermost(lambda *operands: (*advance(*operands), None))


def _said(model: Learner, state: State, x: Any) -> Any:
    """The estimate; by a model that has intervals the estimate, low and high."""
    estimate = model.predict(state, x)
    if isinstance(model, Intervals):
        return jnp.stack([estimate, *model.interval(state, x)])
    return estimate


@quickly
def _looked(model: Learner, state: State, x: Any, key: Any) -> Any:
    return model.info(state, model.sample(state, x, jnp.nan, key=key))["y"]


def _is_booster(state: State) -> bool:
    return isinstance(state, BoostedState)


def _with_new_learners(same: np.ndarray, grown: Any, new: Any) -> Any:
    """A booster's state where the learners whose estimates are not the same begin anew."""
    if not _is_booster(grown):
        return grown
    learners, first = [], 0
    for states, others in zip(grown.learners, new.learners, strict=True):
        last = first + len(jax.tree.leaves(states)[0])
        learners.append(states if same[first:last].all() else _anew(states, others))
        first = last
    return grown._replace(learners=tuple(learners))


def _anew(grown: State, new: State) -> State:
    """A learner as it starts, but for what is known of the scales before it."""
    if isinstance(grown, (PipelineState, ScaledState)):
        return grown._replace(learner=_anew(grown.learner, new.learner))
    return new


def _in_last_places(new: Any, old: Any) -> Any:
    """An array with a smaller one in its last places, along every axis, where it fits."""
    if new.shape == old.shape:
        return old
    if any(n < m for n, m in zip(new.shape, old.shape, strict=True)):
        return new
    places = (slice(n - m, n) for n, m in zip(new.shape, old.shape, strict=True))
    return new.at[tuple(places)].set(old)
