"""Boosters that differ in their length alone, run as one: the longest chain holds all others.

What learner k of a chain does depends on the learners before it only, and so do its draws, which
are a function of (key, t, k). So the first m learners of a chain are the chain of m, exactly; each
length needs a combiner of its own, on the first m estimates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.boosting import copies
from jboost.boosting.booster import Boosted, BoostedState
from jboost.combiners.combine import Uniform
from jboost.core.learner import Learner, State
from jboost.core.sample import Sample
from jboost.core.model import Number, model, static
from jboost.running.run import learns_from

# Lengths that share a run. With Newton combiners 4 compile in 3 s, 8 in 6 s, 16 in 18 s.
MOST = 8


class ChainsState(NamedTuple):
    """The longest chain, and the combiner of each length."""

    booster: BoostedState
    combiners: tuple[State, ...]


@model
class Chains(Learner):
    """The longest of several boosters, and the combiners of all; predicts one number for each."""

    booster: Boosted
    combiners: tuple[Learner, ...]
    lengths: tuple[int, ...] = static()

    @property
    def needs_key(self) -> bool:
        return self.booster.needs_key

    @property
    def takes_missing(self) -> bool:
        return self.booster.takes_missing

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> ChainsState:
        members = zip(self.combiners, self.lengths, strict=True)
        return ChainsState(
            self.booster.init(num_features, dtype, key=key),
            tuple(combiner.init(m, dtype) for combiner, m in members),
        )

    def predict(self, state: ChainsState, x: ArrayLike) -> Array:
        y = self.booster._estimates(state.booster, x)
        members = zip(self.combiners, state.combiners, self.lengths, strict=True)
        return jnp.concatenate([c.predict(own, y[:m])[None] for c, own, m in members])

    def learn(self, state: ChainsState, sample: Sample) -> ChainsState:
        def once(_: Any, state: ChainsState) -> ChainsState:
            y = self.booster._estimates(state.booster, x)
            d_ = jnp.asarray(d, y.dtype)
            ok = learns_from(self.booster, jnp.asarray(x, y.dtype), d_)
            answer = jnp.where(ok, d_, jnp.nan)
            members = zip(self.combiners, state.combiners, self.lengths, strict=True)
            return ChainsState(
                self.booster.update(state.booster, x, d, weight=weight, key=key),
                tuple(c.update(own, y[:m], answer, weight=weight) for c, own, m in members),
            )

        return repeated(once, state, repeats)


class Shared(NamedTuple):
    """One model to run, and which of the models that were asked for its predictions are of."""

    model: Learner
    members: tuple[tuple[int, ...], ...]  # for each prediction


def share(models: Sequence[Learner]) -> list[Shared]:
    """Models as few as will do: boosters that differ only in their length become one.

    >>> import jboost as jb
    >>> models = [jb.bsgd_wu(m, target_mse=0.1, step_size=0.1) for m in (2, 5)] + [jb.SGD(0.1)]
    >>> [(type(one.model).__name__, one.members) for one in share(models)]
    [('Chains', ((0,), (1,))), ('SGD', ((2,),))]
    """
    if len({one.sizes for one in models if isinstance(one, Boosted)}) < 2:
        return alone(models)
    alike: dict[Any, list[int]] = {}
    for place, one in enumerate(models):
        alike.setdefault(_all_but_length(one, place), []).append(place)
    return [shared for places in alike.values() for shared in _join(models, places)]


def alone(models: Sequence[Learner]) -> list[Shared]:
    """Every model by itself."""
    return [Shared(one, ((place,),)) for place, one in enumerate(models)]


def _all_but_length(one: Learner, place: int) -> Any:
    """Equal for models that differ in nothing but their length, and for no others."""
    if type(one) is not Boosted or len(one.sizes) != 1 or one.combiner.needs_key:
        return place
    if any(copies.one_each(one.learner)) or any(copies.one_each(one.emphasis)):
        return place  # a value per learner
    leaves, structure = jax.tree.flatten(dataclasses.replace(one, sizes=(0,)))
    return structure, tuple((np.shape(leaf), np.asarray(leaf).tobytes()) for leaf in leaves)


def _join(models: Sequence[Learner], places: list[int]) -> Iterator[Shared]:
    """Models that differ in their length, in chains of a few lengths each."""
    by_length: dict[int, list[int]] = {}
    for place in places:
        one = models[place]
        by_length.setdefault(one.m if isinstance(one, Boosted) else 0, []).append(place)
    lengths = sorted(by_length)
    for start in range(0, len(lengths), MOST):
        own = tuple(lengths[start : start + MOST])
        members = tuple(tuple(by_length[m]) for m in own)
        longest = models[members[-1][0]]
        if len(own) > 1:
            assert isinstance(longest, Boosted)
            booster = dataclasses.replace(longest, combiner=Uniform())
            longest = Chains(booster, (longest.combiner,) * len(own), own)
        yield Shared(longest, members)
