"""The booster: m learners in a chain, each told how much to care about a sample, then combined.

One step, in the order of the paper's Algorithm 2: all estimates y; the combiner's d̂ = zᵀy; then
the chain errors → l → λ; each learner by the mode that spends λ; δ and Λ; and z. A booster is a
Learner, so it can be boosted, mixed, piped and swept like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.boosting import copies
from jboost.boosting.emphasis import Emphasis, EmphasisState
from jboost.boosting.modes import Mode, Weighted
from jboost.combiners.combine import NSGD, from_mean
from jboost.core import checks, draws
from jboost.core.learner import Learner, Number, State, model, repeated, static
from jboost.core.numerics import dtype_of, usable
from jboost.learners.newton import ForwardNewton

# Recursive least squares in its forward form. Copies of a learner hardly differ until the stream
# changes, and then all of a sudden: what z came to in the directions of their differences would
# throw the estimate far off, and is held back by the leverage, which is large just there.
# experiments/paper/README.md has it beside the plain form, for all six models on both of the
# streams.
RLS_COMBINER = ForwardNewton(forgetting=0.999, ridge=1.0, max_variance=100.0, shrink=True)

COMBINER = 2**31  # its number among the learners, where keys are told apart


class BoostedState(NamedTuple):
    """The step t (with the times it wrapped at 2³²), the learners, the chain's record, z."""

    t: Array
    wraps: Array
    learners: tuple[State, ...]
    emphasis: EmphasisState
    combiner: State


class _Look(NamedTuple):
    """What one sample means to a booster, before anything is learned from it."""

    ok: Array
    d: Array
    y: Array
    lam: Array
    emphasis: EmphasisState
    weight: Any
    repeats: Any


@model
class Boosted(Learner):
    """m learners, their emphasis, the mode that spends it, and the combiner. Made by :func:`boost`.

    ``learner`` is one learner of which there are m copies, or a tuple of them; ``sizes`` says how
    many copies there are of each. A float of a learner may hold one value, shared by its copies, or
    one per copy. ``weight`` multiplies the learners' weights, the chain's Λ and the combiner's
    weight; ``repeats`` is that many updates.

    ``walk`` is how the learners are updated: "together" (one batched update), "side by side" (the
    same, with the copies along the last axis of the states), or "one by one", which does not
    compute the updates that a random mode did not draw. The last ``idle`` copies only fill vector
    lanes: nothing reads them. The numbers are the same; the engine behind ``run`` chooses.
    """

    learner: Any
    emphasis: Emphasis
    mode: Mode
    combiner: Learner
    sizes: tuple[int, ...] = static()
    walk: str = static(default="together")
    idle: int = static(default=0)

    per_learner: ClassVar[tuple[str, ...]] = ("learner", "emphasis")

    @property
    def m(self) -> int:
        """The number of learners."""
        return self._width - self.idle

    @property
    def _width(self) -> int:
        return sum(self.sizes)

    @property
    def needs_key(self) -> bool:
        parts = (self.mode, self.combiner, *self._learners)
        return any(part.needs_key for part in parts)

    @property
    def takes_missing(self) -> bool:
        return all(learner.takes_missing for learner in self._learners)

    @property
    def _learners(self) -> tuple[Learner, ...]:
        return self.learner if isinstance(self.learner, tuple) else (self.learner,)

    @property
    def _groups(self) -> list[tuple[Learner, slice]]:
        """Each different learner with the places of its copies in the chain."""
        ends = np.cumsum(self.sizes)
        places = [
            slice(int(end) - size, int(end)) for end, size in zip(ends, self.sizes, strict=True)
        ]
        return list(zip(self._learners, places, strict=True))

    @property
    def _axis(self) -> int:
        """Where the states have the copies."""
        return -1 if self.walk == "side by side" else 0

    def _combiner_key(self, key: Any) -> Any:
        if key is None or not self.combiner.needs_key:
            return None
        return jax.random.fold_in(key, COMBINER)

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> BoostedState:
        dtype = dtype_of(dtype)
        keys = None if key is None else _keys_of(key, self._width)
        learners = []
        for learner, place in self._groups:
            own = keys[place] if keys is not None and learner.needs_key else None

            def make(one, key=None) -> State:
                return one.init(num_features, dtype, key=key)

            made = copies.each(make, learner, place, own)
            learners.append(jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, self._axis), made))
        return BoostedState(
            t=jnp.zeros((), jnp.uint32),
            wraps=jnp.zeros((), jnp.uint32),
            learners=tuple(learners),
            emphasis=self.emphasis.init(self._width, dtype),
            combiner=self.combiner.init(self.m, dtype, key=self._combiner_key(key)),
        )

    def predict(self, state: BoostedState, x: Any) -> Array:
        return self.combiner.predict(state.combiner, self._estimates(state, x)[: self.m])

    def update(
        self,
        state: BoostedState,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> BoostedState:
        checks.spending(weight, repeats)

        def once(_: Any, state: BoostedState) -> BoostedState:
            return self._update_once(state, x, d, weight, key)  # t has moved on: other draws

        return repeated(once, state, repeats)

    def info(self, state: BoostedState, x: Any, d: Any, key: Any = None) -> dict[str, Any]:
        """y, e, lam, delta (before the sample), z, and updates: how often each learner learns."""
        look = self._look(state, x, d, 1.0, key)
        updates = jnp.broadcast_to(jnp.asarray(look.repeats, jnp.int32), look.y.shape)
        reported = {
            "y": look.y,
            "e": jnp.where(look.ok, look.d - look.y, 0),
            "lam": jnp.where(look.ok, look.lam, 0),
            "delta": self.emphasis.delta(state.emphasis),
            "updates": jnp.where(look.ok, updates, 0),
        }
        reported = {name: values[: self.m] for name, values in reported.items()}
        return reported | {"z": self.combiner.coefficients(state.combiner, reported["y"])}

    def _estimates(self, state: BoostedState, x: Any) -> Array:
        groups = zip(self._groups, state.learners, strict=True)

        def predict(one, own) -> Array:
            return one.predict(own, x)

        return jnp.concatenate(
            [copies.each(predict, *group, states, axis=self._axis) for group, states in groups]
        )

    def _look(self, state: BoostedState, x: Any, d: Any, weight: Any, key: Any) -> _Look:
        y = self._estimates(state, x)
        d = jnp.asarray(d, y.dtype)
        ok = usable(d)
        if not self.takes_missing:
            ok = ok & jnp.all(usable(jnp.asarray(x, y.dtype)))
        lam, emphasis = self.emphasis.chain(
            state.emphasis, y, jnp.where(ok, d, 0), jnp.asarray(weight, y.dtype)
        )
        uniform = None
        if self.mode.needs_key:
            uniform = draws.uniform(_given(key), (state.t, state.wraps), self._width, y.dtype)
        return _Look(ok, d, y, lam, emphasis, *self.mode.spend(lam, uniform))

    def _update_once(
        self, state: BoostedState, x: Any, d: Any, weight: Any, key: Any
    ) -> BoostedState:
        look = self._look(state, x, d, weight, key)
        answer = jnp.where(look.ok, look.d, jnp.nan)  # NaN: no part learns from this sample
        now = keys = None
        if any(part.needs_key for part in (self.combiner, *self._learners)):
            now = jax.random.fold_in(jax.random.fold_in(_given(key), state.wraps), state.t)
            keys = _keys_of(now, self._width)

        def learn(
            one: Learner, own: State, lam: Any = None, n: Any = None, key: Any = None
        ) -> State:
            lam = look.weight if lam is None else lam
            n = look.repeats if n is None else n
            return one.update(own, x, answer, weight=weight * lam, repeats=n, key=key)

        learners = []
        for (learner, place), states in zip(self._groups, state.learners, strict=True):
            lam = look.weight[place] if jnp.ndim(look.weight) else None
            n = look.repeats[place] if jnp.ndim(look.repeats) else None
            if n is not None and learner.repeats_in_closed_form:
                n = self.mode.in_few_bits(n)
            own = keys[place] if keys is not None and learner.needs_key else None
            if self.walk == "one by one":
                learners.append(copies.one_by_one(learn, learner, place, n, states, lam, n, own))
            else:
                rows = (states, lam, n, own)
                learners.append(copies.each(learn, learner, place, *rows, axis=self._axis))

        combiner = self.combiner.update(
            state.combiner,
            look.y[: self.m],
            answer,
            weight=weight,
            key=self._combiner_key(now),
        )
        t = state.t + look.ok.astype(jnp.uint32)
        return BoostedState(
            t=t,
            wraps=state.wraps + (t < state.t).astype(jnp.uint32),
            learners=tuple(learners),
            emphasis=jax.tree.map(
                lambda new, old: jnp.where(look.ok, new, old), look.emphasis, state.emphasis
            ),
            combiner=combiner,
        )


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
        k-th, k = 0 … m − 1. Learners alike but for their floats run as one stack; a learner whose
        floats have shape (m,) is such a stack already. Copies of a learner that draws at its start,
        such as one behind ``RandomFourier``, draw differently.
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
        runs = copies.runs_of_alike([_learner("learner", one) for one in learner])
        learners = tuple(copies.stack(run) for run in runs)
        sizes = tuple(len(run) for run in runs)
    else:
        if m is None:
            raise ValueError("m, the number of copies of the learner, is missing; got None")
        learners = (_learner("learner", learner),)
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
        form=chain,
        literal=literal,
    )
    if combiner is None:
        combiner = NSGD(step_size=0.01, epsilon=0.0) if literal else RLS_COMBINER
    mode = Weighted() if mode is None else mode
    boosted = Boosted(
        learner=learners[0] if len(learners) == 1 else learners,
        emphasis=emphasis,
        mode=checks.instance("mode", mode, Mode, "Weighted(), DataReuse(…), RandomUpdate() or so"),
        combiner=from_mean(_learner("combiner", combiner)),
        sizes=sizes,
    )
    for one, size in zip(learners, sizes, strict=True):
        copies.check(one, size)
    copies.check(emphasis, boosted.m)
    return boosted


def _learner(name: str, value: Any) -> Learner:
    return checks.instance(name, value, Learner, "a learner such as SGD(step_size=0.1)")


def _given(key: Any) -> Any:
    if key is None:
        raise ValueError("key is missing: this model draws at random; pass key=jax.random.key(0)")
    return key


def _keys_of(key: Any, count: int) -> Array:
    """A key for each learner."""
    numbers = jnp.arange(count, dtype=jnp.uint32)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
