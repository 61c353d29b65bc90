"""One sample of a stream, as a learner is given it to learn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core.checks import LARGEST_WEIGHT
from jboost.core.numerics import all_usable, known, usable
from jboost.core.pytree import Key, static

_State = TypeVar("_State")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sample:
    """An input, its answer, and how much to make of them.

    An entry of the input that is NaN, infinite or beyond 1e15 is unusable.
    """

    raw: Array  # the input as it came, (r,)
    d: Array  # the target; 0 where the sample is not good
    good: Array  # whether it can be learned from; if not, `learn` returns the state as it was
    weight: Array  # the importance, 0 ≤ λ ≤ 1,000; 0 where the sample is not good
    repeats: ArrayLike = 1  # how often it is to be learned: the Python number 1, or an array
    key: Key = None  # of the whole run; a learner that draws folds its step count into it
    most_repeats: int | None = static(default=None)  # the largest `repeats`; None if not known
    takes_missing: bool = static(default=False)  # whether the learner finds unusable entries itself

    @classmethod
    def of(
        cls, x: ArrayLike, d: ArrayLike, dtype: DTypeLike, takes_missing: bool = False,
        weight: ArrayLike = 1.0, repeats: ArrayLike = 1, key: Key = None,
    ) -> Sample:  # fmt: skip
        """Make the sample of an input, its target and its weight, which may all be unusable."""
        d, good = jnp.asarray(d, dtype), jnp.ones((), bool)
        bare = cls(jnp.asarray(x, dtype), d, good, jnp.ones((), dtype), repeats, key)
        return bare.weighted(weight).with_target(d).with_input(bare.raw, takes_missing)

    @property
    def x(self) -> Array:
        """The input, whose unusable entries are 0 unless the learner takes missing entries.

        It is the same expression as in ``predict``, so the compiler computes an estimate once for
        both. Inside ``learn``, call ``predict`` with ``raw``.
        """
        return self.raw if self.takes_missing else known(self.raw, self.raw.dtype)

    def with_input(self, x: Array, takes_missing: bool = False) -> Sample:
        """Return the sample with another input.

        It is not good where that has an unusable entry, unless the learner takes missing entries.
        """
        changed = self.replace(raw=x, takes_missing=takes_missing)
        return changed if takes_missing else changed.only_if(all_usable(x))

    def with_target(self, d: Array) -> Sample:
        """Return the sample with another target; it is not good where that is unusable."""
        return self.replace(d=d).only_if(usable(d))

    def weighted(self, factor: ArrayLike) -> Sample:
        """Return the sample with its weight multiplied by a factor, up to ``LARGEST_WEIGHT``.

        It is not good where the factor is no weight: negative, NaN or infinite.
        """
        factor = jnp.asarray(factor, self.weight.dtype)
        valid = (factor >= 0) & (factor < jnp.inf)
        weight = self.weight * jnp.where(valid, factor, 0)
        return self.replace(weight=jnp.minimum(weight, LARGEST_WEIGHT)).only_if(valid)

    def only_if(self, condition: Array) -> Sample:
        """Return the sample, no longer good where the condition does not hold."""
        good = self.good & condition
        d = jnp.where(good, self.d, jnp.zeros((), self.d.dtype))
        weight = jnp.where(good, self.weight, jnp.zeros((), self.weight.dtype))
        return self.replace(d=d, good=good, weight=weight)

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

        For what learns a sample once, however heavy it is and however often it is repeated.
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
