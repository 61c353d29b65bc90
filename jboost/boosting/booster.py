"""The booster: m learners in a chain, each told how much to care about a sample, then combined.

One step, in the order of the paper's Algorithm 2: all estimates y; the combiner's d̂ = zᵀy; then
the chain errors → l → λ; each learner by the mode that spends λ; δ and Λ; and z. A booster is a
Learner, so it can be boosted, mixed, piped and swept like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.boosting import copies
from jboost.boosting.emphasis import Emphasis, EmphasisState
from jboost.boosting.modes import Mode, Weighted
from jboost.combiners.combine import NSGD, from_mean
from jboost.core import checks, draws
from jboost.core.learner import Learner, State, instance, required_key
from jboost.core.pytree import Number, model, static
from jboost.core.numerics import dtype_of
from jboost.core.sample import Sample
from jboost.learners.newton import ForwardNewton

# Recursive least squares in its forward form. Copies of a learner hardly differ until the stream
# changes, and then all of a sudden: what z came to in the directions of their differences would
# throw the estimate far off, and is held back by the leverage, which is large just there.
# experiments/paper/README.md has it beside the plain form, for all six models on both of the
# streams.
RLS_COMBINER = ForwardNewton(forgetting=0.999, ridge=1.0, max_variance=100.0, shrink=True)

COMBINER = 2**31  # the combiner's number among the learners, where keys are told apart


class BoostedState(NamedTuple):
    """The state of a booster.

    t: how many samples it has learned, modulo 2³², 0 at the start.
    wraps: how often t has passed 2³², 0 at the start.
    learners: the state of each group of alike learners, stacked along the first axis.
    emphasis: the record of δ and Λ.
    combiner: the state of the combiner.
    """

    t: Array
    wraps: Array
    learners: tuple[State, ...]
    emphasis: EmphasisState
    combiner: State


class Spending(NamedTuple):
    """What a booster makes of one sample, before anything is learned from it.

    y: the estimate of each learner, (m,).
    lam: the importance λ of the sample to each learner, (m,).
    emphasis: the record of δ and Λ with the sample.
    weight, repeats: what the mode makes of λ, (m,), or a number for all learners.
    """

    y: Array
    lam: Array
    emphasis: EmphasisState
    weight: ArrayLike
    repeats: ArrayLike


@model
class Boosted(Learner):
    """m learners, their emphasis, the mode that spends it, and the combiner. Made by :func:`boost`.

    ``learner`` is one learner of which there are m copies, or a tuple of groups; ``sizes`` says how
    many copies there are in each group. A setting of a learner may hold one value, shared by its
    copies, or one per copy. ``weight`` multiplies the learners' weights, the chain's Λ and the
    combiner's weight; ``repeats`` is that many updates.
    """

    learner: Learner | tuple[Learner, ...]
    emphasis: Emphasis
    mode: Mode
    combiner: Learner
    sizes: tuple[int, ...] = static()

    per_learner: ClassVar[tuple[str, ...]] = ("learner", "emphasis")

    @property
    def m(self) -> int:
        """The number of learners."""
        return sum(self.sizes)

    @property
    def needs_key(self) -> bool:
        return any(child.needs_key for child in (self.mode, self.combiner, *self.groups))

    @property
    def takes_missing(self) -> bool:
        return all(learner.takes_missing for learner in self.groups)

    @property
    def groups(self) -> tuple[Learner, ...]:
        """The different learners, each with all of its copies."""
        return self.learner if isinstance(self.learner, tuple) else (self.learner,)

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> BoostedState:
        dtype = dtype_of(dtype)

        def start(learner: Learner, key: Array | None = None) -> State:
            return learner.init(num_features, dtype, key=key)

        groups = zip(self.groups, self.sizes, self._split(_keys(key, self.m)), strict=True)
        learners = [
            copies.each(start, learner, size, keys if learner.needs_key else None)
            for learner, size, keys in groups
        ]
        return BoostedState(
            t=jnp.zeros((), jnp.uint32),
            wraps=jnp.zeros((), jnp.uint32),
            learners=tuple(learners),
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
        return jnp.concatenate([self._each(predict, *group) for group in groups])

    def learn(self, state: BoostedState, sample: Sample) -> BoostedState:
        def once(state: BoostedState) -> BoostedState:
            return self._learn_once(state, sample)  # t has moved on: other draws

        return sample.repeat(once, state, guard=False)

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
        """Return the state after one update of each learner, as its mode wants it."""
        spending = self._spend(state, sample)
        key = None
        if any(child.needs_key for child in (self.combiner, *self.groups)):
            key = required_key(sample.key)
            key = jax.random.fold_in(jax.random.fold_in(key, state.wraps), state.t)
        told = sample.replace(repeats=spending.repeats, most_repeats=self.mode.most_repeats)
        t = state.t + sample.good.astype(jnp.uint32)
        return BoostedState(
            t=t,
            wraps=state.wraps + (t < state.t).astype(jnp.uint32),
            learners=self._learners_after(state, told, spending.weight, key),
            emphasis=jax.tree.map(
                lambda new, old: jnp.where(sample.good, new, old), spending.emphasis, state.emphasis
            ),
            combiner=self.combiner.learn(
                state.combiner,
                sample.replace(repeats=1, key=self._combiner_key(key)).with_input(spending.y),
            ),
        )

    def _spend(self, state: BoostedState, sample: Sample) -> Spending:
        y = self.estimates(state, sample.x)
        lam, emphasis = self.emphasis.weigh(state.emphasis, y, sample.d, sample.weight)
        uniform = None
        if self.mode.needs_key:
            key = required_key(sample.key)
            uniform = draws.uniform(key, (state.t, state.wraps), y.shape[0], y.dtype)
        return Spending(y, lam, emphasis, *self.mode.spend(lam, uniform))

    def _learners_after(
        self, state: BoostedState, sample: Sample, lam: ArrayLike, key: Array | None
    ) -> tuple[State, ...]:
        """Return the states of the learners; ``lam`` and ``sample.repeats`` may have a row each."""

        def learn(
            learner: Learner, state: State, lam: Array | None, n: Array | None, key: Array | None
        ) -> State:
            told = sample.replace(key=key)
            if lam is not None:
                told = told.replace(weight=sample.weight * lam)
            return learner.learn(state, told if n is None else told.replace(repeats=n))

        groups = zip(
            *(self.groups, self.sizes, state.learners),
            *(self._split(rows) for rows in (lam, sample.repeats, _keys(key, self.m))),
            strict=True,
        )
        return tuple(
            self._each_that_learns(learn, *group, keys if group[0].needs_key else None)
            for *group, keys in groups
        )

    def _each(self, f: Callable[..., State], learner: Learner, size: int, *rows: State) -> State:
        """Return f(learner, …) for every copy. How copies lie in memory is decided here."""
        return copies.each(f, learner, size, *rows)

    def _each_that_learns(
        self,
        f: Callable[..., State],
        learner: Learner,
        size: int,
        states: State,
        lam: Array | None,
        repeats: Array | None,
        keys: Array | None,
    ) -> State:
        """Return f(learner, state, λ, n, key) for every copy: the states after an update."""
        return self._each(f, learner, size, states, lam, repeats, keys)

    def _split(self, rows: ArrayLike | None) -> list[Array | None]:
        """Return the rows of each group; None where there is not one row per learner."""
        if rows is None or not jnp.ndim(rows):
            return [None] * len(self.sizes)
        rows, starts = jnp.asarray(rows), [sum(self.sizes[:g]) for g in range(len(self.sizes))]
        return [rows[start : start + size] for start, size in zip(starts, self.sizes, strict=True)]

    def _combiner_key(self, key: Array | None) -> Array | None:
        if key is None or not self.combiner.needs_key:
            return None
        return jax.random.fold_in(key, COMBINER)


def _keys(key: Array | None, count: int) -> Array | None:
    """Return a key for each learner."""
    if key is None:
        return None
    numbers = jnp.arange(count, dtype=jnp.uint32)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)


def boost(
    learner: Learner | Sequence[Learner] | Callable[[int], Learner],
    m: int | None = None,
    *,
    target_mse: Number,
    dependence: Number | None = None,
    mode: Mode | None = None,
    combiner: Learner | None = None,
    guarantee: Number | None = None,
    chain: str = "prefix",
    literal: bool = False,
) -> Boosted:
    """Boost m copies of a learner, or a list of different ones: the paper's Algorithms 1 and 2.

    At every sample learner k gets the importance λ^(k) = min{1, δ^(c·l^(k))}. The total loss
    l^(k) = Σ_{j<k} [σ_m² − (e^(j))²] says how well the learners before it did, and δ is its own
    weighted MSE/4 so far. The estimates are combined as d̂ = zᵀy.

    With ``dependence=0`` every λ is 1: the ordinary mixture of experts.

    It is made for targets of about unit size: put it inside ``ScaleTarget`` where they are not. The
    default combiner's ridge is in those units, and in float32 it loses its digits far above them.

    Args:
      learner: a learner, or a list of them (then m is its length), or a function that makes the
        k-th, k = 0 … m − 1. Learners that differ in their floats alone run as one stack; a
        learner whose floats have shape (m,) is such a stack already. Copies of a learner that draws
        at its start, such as one behind ``RandomFourier``, draw differently.
      m: the number of learners, at least 1.
      target_mse: σ_m² ≥ 0, the modified desired MSE; about the MSE that is hoped for.
      dependence: c ≥ 0, by default 1.
      mode: how λ is spent, by default ``Weighted()``.
      combiner: a learner on the m predictions, started at their mean; by default
        ``ForwardNewton(0.999, ridge=1.0, max_variance=100.0, shrink=True)``, in literal models
        ``NSGD(step_size=0.01, epsilon=0.0)``.
      guarantee: σ² in (0, 1): Algorithm 1, λ = min{1, (σ²)^(l/2)}. Not together with dependence.
      chain: "prefix" sums the chain at once, "scan" walks it with an inner ``lax.scan``.
      literal: δ₀ = 0, y clipped inside δ and no floor under δ, as printed.

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.duffing(1000)
    >>> model = jb.boost([jb.SGD(0.1), jb.Newton(0.999)], target_mse=0.2, mode=jb.RandomUpdate())
    >>> state, trace = jb.run(model, xs, ds, key=jax.random.key(0))
    >>> trace.prediction.shape
    (1000,)
    """
    if callable(learner) and not isinstance(learner, type):
        learner = [learner(k) for k in range(checks.whole("m", m, at_least=1))]
    if isinstance(learner, (list, tuple)):
        if not learner:
            raise ValueError(
                "learner must be a Learner or a list of at least one; got an empty list"
            )
        if m is not None and m != len(learner):
            raise ValueError(
                f"m must be the length of the list of learners, {len(learner)}; got {m}"
            )
        groups = copies.groups_of_alike([instance("learner", member) for member in learner])
        learners = tuple(copies.stack(group) for group in groups)
        sizes = tuple(len(group) for group in groups)
    else:
        if m is None:
            raise ValueError("m, the number of copies of the learner, is missing; got None")
        learners = (instance("learner", learner),)
        sizes = (checks.whole("m", m, at_least=1),)
    if guarantee is not None and dependence is not None:
        raise ValueError(
            f"guarantee={guarantee!r} is Algorithm 1, whose exponent is l/2: give no dependence; "
            f"got dependence={dependence!r}"
        )
    emphasis = Emphasis(
        target_mse=target_mse,
        dependence=1.0 if dependence is None else dependence,
        guarantee=guarantee,
        chain=chain,
        literal=literal,
    )
    if combiner is None:
        combiner = NSGD(step_size=0.01, epsilon=0.0) if literal else RLS_COMBINER
    mode = Weighted() if mode is None else mode
    boosted = Boosted(
        learner=learners[0] if len(learners) == 1 else learners,
        emphasis=emphasis,
        mode=checks.instance("mode", mode, Mode, "Weighted(), DataReuse(…), RandomUpdate() or so"),
        combiner=from_mean(instance("combiner", combiner, "NSGD(step_size=0.01)")),
        sizes=sizes,
    )
    for group, size in zip(learners, sizes, strict=True):
        copies.check(group, size)
    copies.check(emphasis, boosted.m)
    return boosted
