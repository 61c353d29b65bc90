"""A mixture of experts that share the scaling of the stream.

    x → x′, scaled once;  d → d′ in a few kinds of units → experts → combiner → d̂

It is a booster with dependence 0, in which every λ is 1. But what its experts would each compute
for themselves is computed, and compiled, once.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting import copies
from jboost.combiners.mean import from_mean
from jboost.core import DType, Key, Learner, Sample, State, draws, model, static
from jboost.core.numerics import known, real
from jboost.transforms.scale import Scale, Units

COMBINED = Scale(clip=10.0)  # how far estimates may lie from the mean of d where they are combined


class MixtureState(NamedTuple):
    """The state of a mixture."""

    inputs: Units  # of the columns of x
    targets: tuple[Units, ...]  # of d, by each of the scales of the target
    learners: tuple[State, ...]  # the stacked states of each group of experts
    combiner: State


@model
class Mixture(Learner):
    """Experts of x and d in common units, and a combiner of their estimates.

    It is made by :func:`mixture`. An expert's estimate is put back into the units of d, as these
    change from sample to sample. The combiner then sees all estimates, and d, in the newest units
    of the first scale of d. A missing entry of x is the column's mean. Like a booster it reports y,
    e, lam and z.
    """

    inputs: Scale  # how the columns of x are scaled
    targets: tuple[Scale, ...]  # the ways in which d is scaled
    groups: tuple[Learner, ...]  # one learner per group of alike experts, its settings stacked
    combiner: Learner
    sizes: tuple[int, ...] = static()  # how many experts each group has
    taught: tuple[int, ...] = static()  # the number of the scale of d that each group learns by

    per_learner: ClassVar[tuple[str, ...]] = ("groups",)

    @property
    def m(self) -> int:
        """The number of experts."""
        return sum(self.sizes)

    @property
    def needs_key(self) -> bool:
        return any(learner.needs_key for learner in self.groups)

    @property
    def takes_missing(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> MixtureState:
        def start(learner: Learner, key: Key) -> State:
            return learner.init(num_features, dtype, key=key)

        starts, keys = [], draws.keys(key, jnp.arange(self.m, dtype=jnp.uint32))
        for number, (group, size) in enumerate(zip(self.groups, self.sizes, strict=True)):
            first = sum(self.sizes[:number])
            of_group = None if keys is None else keys[first : first + size]
            starts.append(copies.each(start, group, size, of_group))
        return MixtureState(
            inputs=self.inputs.init(num_features, dtype),
            targets=tuple(target.init(1, dtype) for target in self.targets),
            learners=tuple(starts),
            combiner=self.combiner.init(self.m, dtype, key=key),
        )

    def predict(self, state: MixtureState, x: ArrayLike) -> Array:
        units = state.targets[0]
        y = COMBINED.scaled(units, self.estimates(state, x))
        return COMBINED.unscaled(units, self.combiner.predict(state.combiner, y)[None])[0]

    def estimates(self, state: MixtureState, x: ArrayLike) -> Array:
        """Return the estimate of each expert, (m,)."""
        scaled = self._scaled(state, x)

        def estimate(number: int, group: Learner, size: int, states: State) -> Array:
            y = copies.each(lambda expert, s: expert.predict(s, scaled), group, size, states)
            return self.targets[number].unscaled(state.targets[number], y)

        groups = zip(self.taught, self.groups, self.sizes, state.learners, strict=True)
        return jnp.concatenate([estimate(*group) for group in groups])

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

    def _scaled(self, state: MixtureState, x: ArrayLike) -> Array:
        """Return x′; a missing entry is 0, the mean."""
        scaled = self.inputs.apply(state.inputs, real(x))
        return known(scaled, scaled.dtype)

    def _learn_once(self, state: MixtureState, sample: Sample) -> MixtureState:
        once, d = sample.replace(repeats=1), sample.d[None]
        scaled = once.with_input(self._scaled(state, sample.raw), takes_missing=True)
        pairs = [*zip(self.targets, state.targets, strict=True)]
        samples = [scaled.with_target(scale.apply(units, d)[0]) for scale, units in pairs]
        units = (
            self.inputs.after(state.inputs, sample.raw),
            tuple(scale.after(units, d) for scale, units in pairs),
        )
        inputs, targets = sample.keep(units, (state.inputs, state.targets))

        def learn(number: int, group: Learner, size: int, states: State) -> State:
            return copies.each(lambda e, s: e.learn(s, samples[number]), group, size, states)

        groups = zip(self.taught, self.groups, self.sizes, state.learners, strict=True)
        y = COMBINED.scaled(units[1][0], self.estimates(state, sample.raw))
        combined = once.with_input(y).with_target(COMBINED.scaled(units[1][0], d)[0])
        return MixtureState(
            inputs=inputs,
            targets=targets,
            learners=tuple(learn(*group) for group in groups),
            combiner=self.combiner.learn(state.combiner, combined),
        )


def mixture(
    inputs: Scale, targets: Sequence[Scale], experts: Sequence[tuple[int, Learner]],
    combiner: Learner,
) -> Mixture:  # fmt: skip
    """Make a mixture of experts, each with the number of the scale of d that it learns by.

    Experts that differ only in the values of their settings run as one if they are neighbours. They
    may draw at random in ``init`` alone.

    >>> from jboost.combiners.convex import BOA
    >>> from jboost.learners import NLMS
    >>> experts = [(0, NLMS(0.1)), (0, NLMS(0.5)), (1, NLMS(0.1))]
    >>> mixture(Scale(), [Scale(), Scale("held")], experts, BOA()).sizes
    (2, 1)
    """
    groups, sizes, taught = [], [], []
    for number in dict.fromkeys(number for number, _ in experts):
        for alike in copies.groups_of_alike([learner for n, learner in experts if n == number]):
            groups.append(copies.stack(alike))
            sizes.append(len(alike))
            taught.append(number)
    fields = tuple(targets), tuple(groups), from_mean(combiner), tuple(sizes), tuple(taught)
    return Mixture(inputs, *fields)
