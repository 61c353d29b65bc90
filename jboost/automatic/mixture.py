"""A mixture of experts that share the scaling and the past of the stream.

    x → x′, scaled once;  d → d′ in a few kinds of units;  answers → past, found once
        → experts, and naive estimates → y → first mix p ─┬→ combiner → d̂
                  (x, past, p, some of y) → trees of d − p ┘

It is a booster with dependence 0, in which every λ is 1, followed by a learner of what the experts
leave. What the experts would each compute for themselves is computed, and compiled, once.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting import copies
from jboost.combiners.mean import from_mean
from jboost.core import DType, Key, Learner, Sample, State, draws, model, static
from jboost.core.numerics import known, usable
from jboost.core.surroundings import stage
from jboost.transforms.past import Past, PastState
from jboost.transforms.scale import Scale, Units

# How far estimates may lie from the mean of d where they are combined.
COMBINED = Scale(clip=10.0, floor=False)
NAIVE = ("last value", "value a season ago", "last value and the season's change")


class Expert(NamedTuple):
    """A learner of a mixture."""

    learner: Learner
    past: bool = False  # whether it sees past answers beside x
    taught: int = 0  # the number of the scale of d that it learns by


class MixtureState(NamedTuple):
    """The state of a mixture."""

    inputs: Units  # of the columns of x
    targets: tuple[Units, ...]  # of d, by each of the scales of the target
    past: PastState
    learners: tuple[State, ...]  # the states of each group of experts, stacked if it has several
    first: State  # of the mix of the experts' estimates
    last: State  # of the learner of what that mix leaves; () without one
    combiner: State


class Views(NamedTuple):
    """What experts see of a sample."""

    x: Array  # scaled; 0, the mean, where missing
    with_past: Array  # the same and the past in units of the target, 0 where there is none
    raw: Array  # x and the past as they came, NaN where missing


class Seen(NamedTuple):
    """What a sample tells before any expert sees it."""

    views: Views
    naive: Array  # the estimates named in NAIVE
    answers: tuple[Array, ...]  # d by each of the scales of the target
    d: Array  # d, no farther from its mean than estimates may lie
    begun: Array  # whether there was an answer before
    inputs: Units  # what the state has of these three after the sample
    targets: tuple[Units, ...]
    past: PastState


class Mixed(NamedTuple):
    """The estimates of all experts, put together."""

    y: Array  # in units of d
    p: Array  # their mix
    shown: Array  # what the last learner sees


@model
class Mixture(Learner):
    """Experts of x and d in common units, a learner of what they leave, and a combiner of all.

    It is made by :func:`mixture`. An expert's estimate is put back into the units of d, as these
    change from sample to sample. The combiner then sees all estimates, and d, in the newest units
    of the first scale of d. A missing entry of x is the column's mean. Like a booster it reports y,
    e, lam and z.
    """

    inputs: Scale  # how the columns of x are scaled
    targets: tuple[Scale, ...]  # the ways in which d is scaled
    past: Past
    groups: tuple[Learner, ...]  # one learner per group of alike experts, settings stacked
    first: Learner  # the combiner of the experts' estimates
    last: Learner | None  # learns what that combiner leaves, from x, the past and the estimates
    combiner: Learner
    sizes: tuple[int, ...] = static()  # how many experts each group has
    sees_past: tuple[bool, ...] = static()  # whether each group sees the past
    taught: tuple[int, ...] = static()  # the number of the scale of d that each group learns by

    per_learner: ClassVar[tuple[str, ...]] = ("groups",)

    @property
    def m(self) -> int:
        """The number of estimates that are combined."""
        return self._m_first + (self.last is not None)

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
        r = num_features

        def start(learner: Learner, width: int, key: Key) -> State:
            return learner.init(width, dtype, key=key)

        starts, keys = [], draws.keys(key, jnp.arange(self.m, dtype=jnp.uint32))
        for number, (group, size) in enumerate(zip(self.groups, self.sizes, strict=True)):
            first = sum(self.sizes[:number])
            of_group = keys
            if keys is not None:
                of_group = keys[first : first + size] if size > 1 else keys[first]
            width = self.past.width(r) if self.sees_past[number] else r
            starts.append(
                _each(lambda learner, key, w=width: start(learner, w, key), group, size, of_group)
            )
        shown = self.past.width(r) + 1 + len(self.groups)
        return MixtureState(
            inputs=self.inputs.init(r, dtype),
            targets=tuple(target.init(1, dtype) for target in self.targets),
            past=self.past.init(r, dtype),
            learners=tuple(starts),
            first=self.first.init(self._m_first, dtype, key=key),
            last=() if self.last is None else self.last.init(shown, dtype, key=key),
            combiner=self.combiner.init(self.m, dtype, key=key),
        )

    def predict(self, state: MixtureState, x: ArrayLike) -> Array:
        y = self.estimates(state, x)
        return stage(lambda: self._combined(state, y))

    def estimates(self, state: MixtureState, x: ArrayLike) -> Array:
        """Return all estimates, (m,)."""
        views, ys, trees = stage(lambda: self._views(state, x)), [], self.last
        for _, seen, group in self._groups(state, views):
            y = stage(partial(_each, lambda expert, s, x=seen: expert.predict(s, x), *group))
            ys.append(jnp.atleast_1d(y))
        mixed = stage(lambda: self._mixed(state, views, ys, self._naive(state)))
        if trees is None:
            return mixed.y
        more = stage(lambda: trees.predict(state.last, mixed.shown))
        return jnp.append(mixed.y, mixed.p + more)

    def learn(self, state: MixtureState, sample: Sample) -> MixtureState:
        def once(state: MixtureState) -> MixtureState:
            return self._once(state, sample.replace(repeats=1))[1]

        return sample.repeat(once, state, guard=False)

    def predict_and_learn(self, state: MixtureState, sample: Sample) -> tuple[Array, MixtureState]:
        if isinstance(sample.repeats, int) and sample.repeats == 1:
            return self._once(state, sample)
        return super().predict_and_learn(state, sample)

    def info(self, state: MixtureState, sample: Sample) -> dict[str, Any]:
        """Report y, e, lam (1 where the sample is learned) and z."""
        y = self.estimates(state, sample.raw)
        return {
            "y": y,
            "e": jnp.where(sample.good, sample.d - y, 0),
            "lam": jnp.where(sample.good, jnp.ones_like(y), 0),
            "z": self.combiner.coefficients(state.combiner, COMBINED.scaled(state.targets[0], y)),
        }

    def _views(self, state: MixtureState, x: ArrayLike) -> Views:
        units = state.targets[0]
        raw = self.past.apply(state.past, jnp.asarray(x, units.frame[0].dtype))
        raw = jnp.where(usable(raw), raw, jnp.nan)
        r = len(raw) - self.past.columns
        scaled = self.inputs.apply(state.inputs, raw[:r])
        scaled = known(scaled, scaled.dtype)
        past = self.targets[0].scaled(units, known(raw[r:], raw.dtype))
        past = jnp.where(jnp.isnan(raw[r:]), 0, past)
        return Views(scaled, jnp.concatenate([scaled, past]), raw)

    def _groups(self, state: MixtureState, views: Views) -> list[tuple[int, Array, Any]]:
        """Return, for each group, the number of its scale of d, its inputs, and itself."""
        whole = zip(self.groups, self.sizes, state.learners, strict=True)
        inputs = [views.with_past if past else views.x for past in self.sees_past]
        return [*zip(self.taught, inputs, whole, strict=True)]

    def _mixed(self, state: MixtureState, views: Views, ys: list[Array], naive: Array) -> Mixed:
        """Put the estimates together: those of each group, as it was taught, and the naive ones."""
        scales = [(self.targets[number], state.targets[number]) for number in self.taught]
        ys = [scale.unscaled(units, y) for (scale, units), y in zip(scales, ys, strict=True)]
        shown, units = [y[0] for y in ys], state.targets[0]  # the first of each group
        y = COMBINED.scaled(units, jnp.concatenate([*ys, naive]))
        p = COMBINED.unscaled(units, self.first.predict(state.first, y)[None])
        shown = jnp.concatenate([views.raw, p, jnp.stack(shown)])
        return Mixed(COMBINED.unscaled(units, y), p[0], shown)

    def _combined(self, state: MixtureState, y: Array) -> Array:
        units = state.targets[0]
        combined = self.combiner.predict(state.combiner, COMBINED.scaled(units, y))
        return COMBINED.unscaled(units, combined[None])[0]

    def _naive(self, state: MixtureState) -> Array:
        """Return the estimates named in NAIVE; without a past the mean, without a season the last
        value."""
        mean, latest = state.targets[0].frame[0][0], self.past.latest(state.past)[0]
        latest = jnp.where(usable(latest), latest, mean)
        season, earlier = self.past.a_season_ago(state.past)[:2]
        changed = jnp.where(usable(earlier), latest + season - earlier, latest)
        return jnp.stack([latest, jnp.where(usable(season), season, latest), changed])

    def _seen(self, state: MixtureState, sample: Sample) -> Seen:
        d, pairs = sample.d[None], [*zip(self.targets, state.targets, strict=True)]
        targets = tuple(scale.after(units, d) for scale, units in pairs)
        return Seen(
            views=self._views(state, sample.raw),
            naive=self._naive(state),
            answers=tuple(scale.apply(units, d)[0] for scale, units in pairs),
            d=COMBINED.unscaled(targets[0], COMBINED.scaled(targets[0], d))[0],
            begun=state.past.samples > 0,
            inputs=sample.keep(self.inputs.after(state.inputs, sample.raw), state.inputs),
            targets=sample.keep(targets, state.targets),
            past=sample.keep(self.past.learn(state.past, sample), state.past),
        )

    def _once(self, state: MixtureState, sample: Sample) -> tuple[Array, MixtureState]:
        """Return the estimate, and the state after the sample was learned once."""
        seen = stage(lambda: self._seen(state, sample))
        ys, learners = [], []
        for number, x, group in self._groups(state, seen.views):
            taught = sample.with_input(x, takes_missing=True).with_target(seen.answers[number])
            y, learner = stage(partial(_step, taught, *group))
            ys.append(jnp.atleast_1d(y))
            learners.append(learner)
        mixed = stage(lambda: self._mixed(state, seen.views, ys, seen.naive))
        y, trees, last = mixed.y, self.last, state.last
        if trees is not None:
            left = sample.with_input(mixed.shown, trees.takes_missing)
            # Before the first answer the mix knows nothing, not even the size of d.
            left = left.with_target(seen.d - mixed.p).only_if(seen.begun)
            more, last = trees.predict_and_learn(state.last, left)
            y = jnp.append(y, mixed.p + more)

        def combine() -> tuple[Array, State, State]:
            units = seen.targets[0]
            taught = sample.with_input(COMBINED.scaled(units, y))
            taught = taught.with_target(COMBINED.scaled(units, seen.d[None])[0])
            firsts = taught.replace(raw=taught.raw[: self._m_first])
            first, combiner = state.first, state.combiner
            learned = self.first.learn(first, firsts), self.combiner.learn(combiner, taught)
            return self._combined(state, y), *learned

        estimate, first, combiner = stage(combine)
        after = seen.inputs, seen.targets, seen.past, tuple(learners), first, last, combiner
        return estimate, MixtureState(*after)


def mixture(
    inputs: Scale, targets: Sequence[Scale], past: Past, experts: Sequence[Expert],
    first: Learner, last: Learner | None, combiner: Learner,
) -> Mixture:  # fmt: skip
    """Make a mixture of experts.

    Experts that differ only in the values of their settings run as one if they are neighbours. They
    may draw at random in ``init`` alone.

    >>> from jboost.combiners.convex import BOA
    >>> from jboost.learners import NLMS
    >>> experts = [Expert(NLMS(0.1)), Expert(NLMS(0.5)), Expert(NLMS(0.1), past=True)]
    >>> mixture(Scale(), [Scale()], Past(), experts, BOA(), None, BOA()).sizes
    (2, 1)
    """
    groups, sizes, roles = [], [], []
    for role, neighbours in itertools.groupby(experts, key=lambda expert: expert[1:]):
        for alike in copies.groups_of_alike([expert.learner for expert in neighbours]):
            groups.append(copies.stack(alike) if len(alike) > 1 else alike[0])
            sizes.append(len(alike))
            roles.append(role)
    sees_past, taught = zip(*roles, strict=True)
    learners = tuple(groups), from_mean(first), last, from_mean(combiner)
    return Mixture(inputs, tuple(targets), past, *learners, tuple(sizes), sees_past, taught)


def _each(f: Callable[..., State], learner: Learner, count: int, *stacked: State) -> State:
    """Return f(copy, row, …) for every copy of a learner; one alone is not stacked."""
    return copies.each(f, learner, count, *stacked) if count > 1 else f(learner, *stacked)


def _step(taught: Sample, learner: Learner, count: int, states: State) -> tuple[Array, State]:
    """Return the estimates of a group of experts, and their states after the sample."""
    return _each(lambda expert, s: expert.predict_and_learn(s, taught), learner, count, states)
