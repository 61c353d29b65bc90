"""A mixture of experts that share the scaling and the past of the stream.

    x, answers → views: x′ scaled, (x′, past′), (x, past) → experts → first mix p ┐
                                       (x, past, p, estimates) → trees of d − p  ┴→ combiner → d̂

It is a booster with dependence 0, in which every λ is 1. But what its experts would each compute
for themselves is computed, and compiled, once.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting import copies
from jboost.combiners.mean import from_mean
from jboost.core import DType, Key, Learner, Sample, State, draws, model, static
from jboost.core.numerics import known, real, usable
from jboost.transforms.past import Past, PastState
from jboost.transforms.scale import Scale, Units

COMBINED = Scale(clip=10.0)  # how far estimates may lie from the mean of d where they are combined
RAW = -1  # taught in the units of the stream
NAIVE = ("last value", "value one season ago", "last value and the season's change")


class Expert(NamedTuple):
    """A learner of a mixture, what it sees and in which units it is taught."""

    learner: Learner
    sees: str = "x"  # "x", scaled; "past", scaled x and past answers; "raw", both as they came
    taught: int = 0  # the number of the scale of the target, or RAW


class MixtureState(NamedTuple):
    """The state of a mixture."""

    inputs: Units  # of the columns of x
    targets: tuple[Units, ...]  # of d, by each of the scales of the target
    past: PastState
    learners: tuple[State, ...]  # the stacked states of each group of experts
    first: State  # of the first mix
    last: State  # of the learner of what the first mix leaves
    combiner: State


@model
class Mixture(Learner):
    """Experts of x and d in common units, and a combiner of their estimates."""

    inputs: Scale  # how the columns of x are scaled
    targets: tuple[Scale, ...]  # the ways in which d is scaled
    past: Past
    groups: tuple[Learner, ...]  # one learner per group of alike experts, its settings stacked
    first: Learner
    last: Learner | None
    combiner: Learner
    sizes: tuple[int, ...] = static()  # how many experts each group has
    sees: tuple[str, ...] = static()
    taught: tuple[int, ...] = static()  # the number of the scale of d that each group learns by

    per_learner: ClassVar[tuple[str, ...]] = ("groups",)

    @property
    def m(self) -> int:
        """The number of experts."""
        return self._m_first + (self.last is not None)

    @property
    def _shown(self) -> int:
        """How many columns besides x the last learner sees."""
        return self.past.columns + 1 + len(self.groups)

    @property
    def _m_first(self) -> int:
        return sum(self.sizes) + len(NAIVE)

    @property
    def needs_key(self) -> bool:
        return any(learner.needs_key for learner in self.groups)

    @property
    def takes_missing(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> MixtureState:
        past = self.past.columns
        widths = {"x": num_features, "past": num_features + past, "raw": num_features + past}
        starts, keys = [], draws.keys(key, jnp.arange(self.m, dtype=jnp.uint32))
        for number, (group, size) in enumerate(zip(self.groups, self.sizes, strict=True)):
            first, width = sum(self.sizes[:number]), widths[self.sees[number]]
            of_group = None if keys is None else keys[first : first + size]

            def start(learner: Learner, key: Key) -> State:
                return learner.init(width, dtype, key=key)

            starts.append(_each(start, group, size, of_group))
        m, last = self._m_first, ()
        if self.last is not None:
            last = self.last.init(num_features + self._shown, dtype, key=key)
        return MixtureState(
            inputs=self.inputs.init(num_features, dtype),
            targets=tuple(target.init(1, dtype) for target in self.targets),
            past=self.past.init(1, dtype),
            learners=tuple(starts),
            first=self.first.init(m, dtype, key=key),
            last=last,
            combiner=self.combiner.init(self.m, dtype, key=key),
        )

    def predict(self, state: MixtureState, x: ArrayLike) -> Array:
        units = state.targets[0]
        y = COMBINED.scaled(units, self.estimates(state, x))
        return COMBINED.unscaled(units, self.combiner.predict(state.combiner, y)[None])[0]

    def estimates(self, state: MixtureState, x: ArrayLike) -> Array:
        """Return the estimate of each expert, (m,)."""
        return self._estimates(state, self._views(state, x))[0]

    def learn(self, state: MixtureState, sample: Sample) -> MixtureState:
        return sample.repeat(lambda state: self._learn_once(state, sample), state, guard=False)

    def info(self, state: MixtureState, sample: Sample) -> dict[str, Any]:
        """Report y, e, lam (1 where the sample is learned) and z."""
        y = self.estimates(state, sample.raw)
        return {
            "y": y,
            "e": jnp.where(sample.good, sample.d - y, 0),
            "lam": jnp.where(sample.good, jnp.ones_like(y), 0),
            "z": self.combiner.coefficients(state.combiner, COMBINED.scaled(state.targets[0], y)),
        }

    def _views(self, state: MixtureState, x: ArrayLike) -> dict[str, Array]:
        """Return what experts see; a missing entry of x′ is 0, the mean."""
        x = jnp.asarray(x, state.targets[0].frame[1].dtype)
        scaled = self.inputs.apply(state.inputs, x)
        scaled = known(scaled, scaled.dtype)
        past = self.past.apply(state.past, jnp.zeros(0, x.dtype))
        there = usable(past)
        past_scaled = self.targets[0].scaled(state.targets[0], jnp.where(there, past, 0))
        past_scaled = jnp.where(there, past_scaled, 0)
        return {
            "x": scaled,
            "past": jnp.concatenate([scaled, past_scaled]),
            "raw": jnp.concatenate([jnp.where(usable(x), x, jnp.nan), past]),
        }

    def _estimates(
        self, state: MixtureState, views: dict[str, Array]
    ) -> tuple[Array, Array, Array]:
        """Return the estimates, the first mix, and what the last learner sees."""

        def estimate(taught: int, sees: str, group: Learner, size: int, states: State) -> Array:
            y = _each(lambda expert, s: expert.predict(s, views[sees]), group, size, states)
            if taught == RAW:
                return y
            return self.targets[taught].unscaled(state.targets[taught], y)

        groups = zip(
            self.taught, self.sees, self.groups, self.sizes, state.learners, strict=True
        )
        units = state.targets[0]
        mean = units.frame[0]
        newest = self.past.latest(state.past)[0]
        newest = jnp.where(usable(newest), newest, mean[0])
        season, earlier = self.past.a_season_ago(state.past)[:2]
        drift = jnp.where(usable(earlier), newest + season - earlier, newest)
        season = jnp.where(usable(season), season, newest)
        y = jnp.concatenate([*[estimate(*g) for g in groups], jnp.stack([newest, season, drift])])
        y = COMBINED.unscaled(units, COMBINED.scaled(units, y))
        p = self.first.predict(state.first, COMBINED.scaled(units, y))
        p = COMBINED.unscaled(units, p[None])
        told = [y[sum(self.sizes[:number])] for number in range(len(self.groups))]
        seen = jnp.concatenate([views["raw"], p, jnp.stack(told)])
        if self.last is not None:
            left = self.last.predict(state.last, seen)
            y = jnp.concatenate([y, p + left])
        return y, p[0], seen

    def _learn_once(self, state: MixtureState, sample: Sample) -> MixtureState:
        once, d = sample.replace(repeats=1), sample.d[None]
        views = self._views(state, sample.raw)
        pairs = [*zip(self.targets, state.targets, strict=True)]
        units = (
            self.inputs.after(state.inputs, sample.raw),
            tuple(scale.after(units, d) for scale, units in pairs),
        )
        inputs, targets = sample.keep(units, (state.inputs, state.targets))
        now = units[1][0]
        near = COMBINED.unscaled(now, COMBINED.scaled(now, d))[0]
        answers = {n: scale.apply(u, d)[0] for n, (scale, u) in enumerate(pairs)} | {RAW: near}

        def learn(taught: int, sees: str, group: Learner, size: int, states: State) -> State:
            def one(expert: Learner, s: State) -> State:
                seen = once.with_input(views[sees], takes_missing=expert.takes_missing)
                return expert.learn(s, seen.with_target(answers[taught]))

            return _each(one, group, size, states)

        groups = zip(
            self.taught, self.sees, self.groups, self.sizes, state.learners, strict=True
        )
        y, p, seen = self._estimates(state, views)
        m = self._m_first
        combined = once.with_input(COMBINED.scaled(now, y))
        combined = combined.with_target(COMBINED.scaled(now, d)[0])
        firsts = combined.replace(raw=combined.raw[:m])
        last = state.last
        if self.last is not None:
            # Before the first answer the mix knows nothing, not even the size of d.
            left = once.with_input(seen, takes_missing=True).with_target(near - p)
            left = left.only_if(state.past.count > 0)
            last = self.last.learn(state.last, left)
        bare = sample.replace(raw=jnp.zeros(0, d.dtype), takes_missing=True)
        return MixtureState(
            inputs=inputs,
            targets=targets,
            past=sample.keep(self.past.learn(state.past, bare), state.past),
            learners=tuple(learn(*group) for group in groups),
            first=self.first.learn(state.first, firsts),
            last=last,
            combiner=self.combiner.learn(state.combiner, combined),
        )


def mixture(
    inputs: Scale, targets: Sequence[Scale], experts: Sequence[Expert], first: Learner,
    last: Learner | None, combiner: Learner, past: Past = Past(),
) -> Mixture:  # fmt: skip
    groups, sizes, sees, taught = [], [], [], []
    for role in dict.fromkeys(expert[1:] for expert in experts):
        alike_roles = [expert.learner for expert in experts if expert[1:] == role]
        for alike in copies.groups_of_alike(alike_roles):
            groups.append(copies.stack(alike))
            sizes.append(len(alike))
            sees.append(role[0])
            taught.append(role[1])
    return Mixture(
        inputs, tuple(targets), past, tuple(groups), from_mean(first), last,
        from_mean(combiner), tuple(sizes), tuple(sees), tuple(taught),
    )


def _each(f: Callable[..., State], learner: Learner, count: int, *stacked: State) -> State:
    """Return f for each copy. One alone is not batched, so that it may branch."""
    if count > 1:
        return copies.each(f, learner, count, *stacked)
    alone = [jax.tree.map(lambda leaf: leaf[0], rows) for rows in stacked]
    return jax.tree.map(lambda leaf: leaf[None], f(learner, *alone))
