"""The booster: m learners in a chain, each with a weight for every sample, and their combiner.

A step follows the paper's Algorithm 2. First come the estimates y of all learners and the combined
estimate d̂ = zᵀy. Then the chain makes λ of the errors, each learner learns as the mode spends λ, δ
and Λ are recorded, and the combiner learns z.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting import copies
from jboost.boosting.emphasis import Emphasis, EmphasisState
from jboost.boosting.modes import Mode
from jboost.core import DType, Key, Learner, Sample, State, draws, model, static
from jboost.core.learner import required_key
from jboost.core.numerics import dtype_of
from jboost.learners.newton import ForwardNewton

# The default combiner. The copies of a learner hardly differ until the stream changes; in the
# directions of their differences z is not known well, and would throw the estimate far off. The
# forward form shrinks the estimate just there (experiments/paper/README.md compares the two).
RLS_COMBINER = ForwardNewton(forgetting=0.999, ridge=1.0, max_variance=100.0, shrink=True)

OfCopy = Callable[..., State]  # a function of one copy of a learner, and of rows that belong to it
Row = Array | None  # the row of one learner, or None where a number holds for all learners
COMBINER = 2**31  # what is folded into a key for the combiner; a learner's number is smaller


class BoostedState(NamedTuple):
    """The state of a booster."""

    t: Array  # the number of samples learned, modulo 2³², 0 at the start
    wraps: Array  # how often t has passed 2³², 0 at the start
    learners: tuple[State, ...]  # of each group of alike learners, stacked along the first axis
    emphasis: EmphasisState  # the record of δ and Λ
    combiner: State  # as the combiner starts


class Spending(NamedTuple):
    """How a booster spends one sample, before anything is learned from it."""

    y: Array  # (m,) the estimate of each learner
    lam: Array  # (m,) the importance λ of the sample to each learner
    emphasis: EmphasisState  # the record of δ and Λ, this sample included
    weight: ArrayLike  # (m,), or a number for all learners: the weight that the mode makes of λ
    repeats: ArrayLike  # (m,), or a number for all learners: the repeats that the mode makes of λ


@model
class Boosted(Learner):
    """m learners, the emphasis of each, the mode that spends it, and the combiner.

    It is made by :func:`jboost.boost`. The weight of a sample multiplies the weights of the
    learners, what enters Λ, and the weight of the combiner. Its repeats are that many updates.
    """

    learner: Learner | tuple[Learner, ...]  # the learner of which there are m copies, or groups
    emphasis: Emphasis  # the rule that computes λ
    mode: Mode  # how λ is spent
    combiner: Learner  # the learner of the m estimates
    sizes: tuple[int, ...] = static()  # the number of copies in each group

    per_learner: ClassVar[tuple[str, ...]] = ("learner", "emphasis")

    @property
    def m(self) -> int:
        return sum(self.sizes)

    @property
    def needs_key(self) -> bool:
        return any(child.needs_key for child in (self.mode, self.combiner, *self.groups))

    @property
    def takes_missing(self) -> bool:
        return all(learner.takes_missing for learner in self.groups)

    @property
    def groups(self) -> tuple[Learner, ...]:
        return self.learner if isinstance(self.learner, tuple) else (self.learner,)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> BoostedState:
        dtype = dtype_of(dtype)

        def start(learner: Learner, key: Key) -> State:
            return learner.init(num_features, dtype, key=key)

        groups = zip(self.groups, self.sizes, self._learner_keys(key), strict=True)
        return BoostedState(
            t=jnp.zeros((), jnp.uint32),
            wraps=jnp.zeros((), jnp.uint32),
            learners=tuple(copies.each(start, *group) for group in groups),
            emphasis=self.emphasis.init(self.m, dtype),
            combiner=self.combiner.init(self.m, dtype, key=self._combiner_key(key)),
        )

    def predict(self, state: BoostedState, x: ArrayLike) -> Array:
        return self.combiner.predict(state.combiner, self.estimates(state, x))

    def estimates(self, state: BoostedState, x: ArrayLike) -> Array:
        """Return the estimate of each learner, (m,)."""

        def predict(learner: Learner, state: State) -> Array:
            return learner.predict(state, x)

        groups = zip(self.groups, self.sizes, state.learners, strict=True)
        return jnp.concatenate([self.each_copy(predict, *group) for group in groups])

    def learn(self, state: BoostedState, sample: Sample) -> BoostedState:
        # Each repeat draws anew, as t has moved on.
        return sample.repeat(lambda state: self._learn_once(state, sample), state, guard=False)

    def info(self, state: BoostedState, sample: Sample) -> dict[str, Array]:
        """Report y, e, lam, delta (before the sample), z, and updates: how often each learns."""
        spending = self._spend(state, sample)
        updates = jnp.broadcast_to(jnp.asarray(spending.repeats, jnp.int32), spending.y.shape)
        return {
            "y": spending.y,
            "e": jnp.where(sample.good, sample.d - spending.y, 0),
            "lam": jnp.where(sample.good, spending.lam, 0),
            "delta": self.emphasis.delta(state.emphasis),
            "updates": jnp.where(sample.good, updates, 0),
            "z": self.combiner.coefficients(state.combiner, spending.y),
        }

    def _learn_once(self, state: BoostedState, sample: Sample) -> BoostedState:
        spending = self._spend(state, sample)
        key = None
        if any(child.needs_key for child in (self.combiner, *self.groups)):
            key = required_key(sample.key)
            key = jax.random.fold_in(jax.random.fold_in(key, state.wraps), state.t)
        for_learners = sample.replace(repeats=spending.repeats, most_repeats=self.mode.most_repeats)
        for_combiner = sample.replace(repeats=1, key=self._combiner_key(key))
        for_combiner = for_combiner.with_input(spending.y, self.combiner.takes_missing)
        emphasis = jax.tree.map(partial(jnp.where, sample.good), spending.emphasis, state.emphasis)
        t = state.t + sample.good.astype(jnp.uint32)
        return BoostedState(
            t=t,
            wraps=state.wraps + (t < state.t).astype(jnp.uint32),
            learners=self._learners_after(state, for_learners, spending.weight, key),
            emphasis=emphasis,
            combiner=self.combiner.learn(state.combiner, for_combiner),
        )

    def _spend(self, state: BoostedState, sample: Sample) -> Spending:
        """Return the estimates, λ, and what the mode makes of λ, before anything is learned."""
        y = self.estimates(state, sample.raw)
        weight = jnp.minimum(sample.weight, 1)  # a heavy sample must not outweigh δ's whole past
        lam, emphasis = self.emphasis.weigh(state.emphasis, y, sample.d, weight)
        uniform, now = None, (state.t, state.wraps)
        if self.mode.needs_key:
            uniform = draws.uniform(required_key(sample.key), now, y.shape[0], y.dtype)
        return Spending(y, lam, emphasis, *self.mode.spend(lam, uniform))

    def _learners_after(
        self, state: BoostedState, sample: Sample, weight: ArrayLike, key: Key
    ) -> tuple[State, ...]:
        """Return the states of the learners; weight and ``sample.repeats`` are numbers, or (m,)."""

        def learn(learner: Learner, state: State, lam: Row, n: Row, key: Row) -> State:
            lam = jnp.asarray(weight, sample.weight.dtype) if lam is None else lam
            repeats = sample.repeats if n is None else n
            sample_k = sample.replace(weight=sample.weight * lam, repeats=repeats, key=key)
            return learner.learn(state, sample_k)

        spent = self._split(weight), self._split(sample.repeats), self._learner_keys(key)
        groups = zip(self.groups, self.sizes, state.learners, *spent, strict=True)
        return tuple(self.updated_copies(learn, *group) for group in groups)

    def each_copy(self, f: OfCopy, learner: Learner, size: int, *rows: State) -> State:
        """Return f(copy, row, …) for every copy of a learner, with one row of each of ``rows``.

        This method and the next are hooks: a subclass may lay out the copies otherwise, as the
        engine does.
        """
        return copies.each(f, learner, size, *rows)

    def updated_copies(self, f: OfCopy, learner: Learner, size: int, *rows: State) -> State:
        """Return the state of every copy after f(copy, state, λ, n, key) has updated it."""
        return self.each_copy(f, learner, size, *rows)

    def _split(self, rows: ArrayLike | None) -> list[Row]:
        """Return the rows of each group; None where there is not one row per learner."""
        if rows is None or not jnp.ndim(rows):
            return [None] * len(self.sizes)
        rows, starts = jnp.asarray(rows), [sum(self.sizes[:g]) for g in range(len(self.sizes))]
        return [rows[start : start + size] for start, size in zip(starts, self.sizes, strict=True)]

    def _learner_keys(self, key: Key) -> list[Row]:
        """Return the keys of each group, one per learner; None where the learner draws nothing."""
        keys = self._split(draws.keys(key, jnp.arange(self.m, dtype=jnp.uint32)))
        pairs = zip(self.groups, keys, strict=True)
        return [rows if learner.needs_key else None for learner, rows in pairs]

    def _combiner_key(self, key: Key) -> Array | None:
        if key is None or not self.combiner.needs_key:
            return None
        return jax.random.fold_in(key, COMBINER)
