"""One sample of a stream, as a learner is given it to learn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core.numerics import known, usable
from jboost.core.pytree import Key

_State = TypeVar("_State")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("x", "d", "good", "weight", "repeats", "key"),
    meta_fields=("most_repeats",),
)
@dataclasses.dataclass(frozen=True)
class Sample:
    """An input, its answer, and how much to make of them.

    x: the input, (r,). Its unusable entries (NaN, infinite or beyond 1e15) are 0, except for
      a learner that takes missing entries and finds them for itself.
    d: the target; 0 where the sample is not good.
    good: whether the sample can be learned from. Where it is False, ``learn`` must return the
      state as it was.
    weight: the importance λ ≥ 0 of the sample; 0 where it is not good.
    repeats: how often the sample is to be learned: the Python number 1, or an array.
    key: the key of the whole run, or None. A learner that draws folds its step count into it.
    most_repeats: the largest number that ``repeats`` can be, or None where nobody knows.
    """

    x: Array
    d: Array
    good: Array
    weight: Array
    repeats: ArrayLike = 1
    key: Key = None
    most_repeats: int | None = None

    @classmethod
    def of(
        cls,
        x: ArrayLike,
        d: ArrayLike,
        *,
        dtype: DTypeLike,
        takes_missing: bool = False,
        weight: ArrayLike = 1.0,
        repeats: ArrayLike = 1,
        key: Key = None,
    ) -> Sample:
        """Make the sample of an input and its target, which may both be unusable."""
        d, good = jnp.asarray(d, dtype), jnp.ones((), bool)
        bare = cls(jnp.asarray(x, dtype), d, good, jnp.asarray(weight, dtype), repeats, key)
        return bare.with_target(d).with_input(bare.x, takes_missing)

    def with_input(self, x: Array, takes_missing: bool = False) -> Sample:
        """Return the sample with another input.

        It is not good where that has an unusable entry, unless the learner takes missing entries.
        """
        if takes_missing:
            return dataclasses.replace(self, x=x)
        clean = dataclasses.replace(self, x=known(x, x.dtype))
        return clean.only_if(jnp.all(usable(x)))

    def with_target(self, d: Array) -> Sample:
        """Return the sample with another target; it is not good where that is unusable."""
        return dataclasses.replace(self, d=d).only_if(usable(d))

    def only_if(self, condition: Array) -> Sample:
        """Return the sample, no longer good where the condition does not hold."""
        good = self.good & condition
        d = jnp.where(good, self.d, jnp.zeros((), self.d.dtype))
        weight = jnp.where(good, self.weight, jnp.zeros((), self.weight.dtype))
        return dataclasses.replace(self, d=d, good=good, weight=weight)

    def replace(self, **changes: Any) -> Sample:
        """Return the sample with other values of some fields."""
        return dataclasses.replace(self, **changes)

    def repeat(
        self, once: Callable[[_State], _State], state: _State, *, guard: bool = True
    ) -> _State:
        """Apply ``once`` to the state as often as the sample is to be learned.

        A sample that is not good leaves the state as it was. With ``guard=False`` that is left to
        ``once``: for updates that change nothing at weight 0, where a choice between two large
        states would cost more than the update.
        """
        if isinstance(self.repeats, int) and self.repeats == 1:
            new = once(state)
            return _where(self.good, new, state) if guard else new
        repeats = jnp.asarray(self.repeats).astype(jnp.int32)
        if guard:
            repeats = jnp.where(self.good, repeats, 0)
        return jax.lax.fori_loop(0, repeats, lambda _, state: once(state), state)

    def keep(self, new: _State, old: _State) -> _State:
        """Return ``new`` where the sample counts, ``old`` bit for bit where it does not.

        For what learns a sample once, however heavy it is and however often it is repeated. A
        sample that is not good, or whose weight or repeats are zero, does not count.
        """
        return _where(self.counts, new, old)

    @property
    def counts(self) -> Array:
        """Whether the sample is good and neither its weight nor its repeats are zero."""
        counts = self.weight > 0
        if not isinstance(self.repeats, int) or self.repeats == 0:
            counts = counts & jnp.asarray(self.repeats).astype(bool)
        return counts


def _where(condition: Array, new: _State, old: _State) -> _State:
    return jax.tree.map(
        lambda new, old: old if new is old else jnp.where(condition, new, old), new, old
    )
