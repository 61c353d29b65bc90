"""How the copies of a booster's learner lie in memory while a run is compiled as one kernel.

A vector instruction works on eight float32 numbers. Twenty copies leave four over, which would be
worked on one at a time, exponentials and logarithms included; with four idle copies behind them
nothing is left over. And where learners are small, arithmetic runs along the copies, if these are
neighbours in memory: the last axis of every array. Measured with m = 20, one kernel, µs a step:

|                   | copies first | side by side, 24 of them |
|-------------------|--------------|--------------------------|
| BSGD-WU, r = 3    | 0.31         | 0.19                     |
| BSGD-WU, r = 21   | 0.62         | 0.27                     |
| BNM-WU, r = 3     | 0.88         | 0.29                     |
| BNM-WU, r = 21    | 8.0          | 4.4                      |

The outermost boosters of a model are rearranged on the way into the loop and back on the way out.
An idle copy starts as the last real one and learns at the end of the chain, where nothing sees it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.boosting import copies
from jboost.boosting.booster import Boosted, BoostedState
from jboost.core.learner import Learner, State
from jboost.core.products import LARGEST_SUM, VECTOR

FEWEST = 5  # copies that idle ones may join
LARGEST_IDLE = 2**11  # bytes of state of such a copy
# Random updates: below this, updating all copies at once is faster than skipping some.
SMALLEST_SKIP = 2**11  # bytes of state of a copy


class Layout(NamedTuple):
    """How the learners of one booster are walked, and how many idle ones join them."""

    walk: str
    idle: int


Layouts = tuple[Layout, ...]


def choose(model: Learner, state: State, kernel: bool) -> Layouts:
    """The best layout of each outermost booster; none where model and state do not match up."""
    boosters, states = _parts(model, Boosted), _parts(state, BoostedState)
    if len(boosters) != len(states) or any(own.t.ndim for own in states):
        return ()
    return tuple(_layout(one, own, kernel) for one, own in zip(boosters, states, strict=True))


def _layout(booster: Boosted, state: BoostedState, kernel: bool) -> Layout:
    leaves = jax.tree.leaves(state.learners)
    size = sum(leaf.nbytes for leaf in leaves) / booster.m
    if booster.mode.needs_key and size >= SMALLEST_SKIP:
        return Layout("one by one", 0)
    if not kernel or len(booster.sizes) > 1 or booster.m < FEWEST or size > LARGEST_IDLE:
        return Layout("together", 0)
    longest = max((side for leaf in leaves for side in leaf.shape[1:]), default=0)
    walk = "side by side" if longest <= LARGEST_SUM else "together"
    return Layout(walk, -booster.m % VECTOR)


def spread(layouts: Layouts, model: Learner, state: State) -> tuple[Learner, State]:
    """Model and state as the loop wants them."""
    if not layouts:
        return model, state
    model = _replace(model, Boosted, layouts, _spread_model)
    return model, _replace(state, BoostedState, layouts, _spread_state)


def gather(layouts: Layouts, state: State) -> State:
    """A spread state as it was."""
    return _replace(state, BoostedState, layouts, _gather_state) if layouts else state


def _spread_model(booster: Boosted, layout: Layout) -> Boosted:
    def padded(part: Any) -> Any:
        leaves, structure = jax.tree.flatten(part)
        own = copies.one_each(part)
        return structure.unflatten(
            [_pad(leaf, layout.idle) if o else leaf for leaf, o in zip(leaves, own, strict=True)]
        )

    if layout.idle:
        booster = dataclasses.replace(
            booster,
            learner=padded(booster.learner),
            emphasis=padded(booster.emphasis),
            sizes=(booster.m + layout.idle,),
            idle=layout.idle,
        )
    return dataclasses.replace(booster, walk=layout.walk)


def _spread_state(state: BoostedState, layout: Layout) -> BoostedState:
    def learners(leaf: Array) -> Array:
        leaf = _pad(leaf, layout.idle)
        return jnp.moveaxis(leaf, 0, -1) if layout.walk == "side by side" else leaf

    return state._replace(
        learners=jax.tree.map(learners, state.learners),
        emphasis=jax.tree.map(lambda leaf: _pad(leaf, layout.idle), state.emphasis),
    )


def _gather_state(state: BoostedState, layout: Layout) -> BoostedState:
    def real(leaf: Array) -> Array:
        return leaf[: leaf.shape[0] - layout.idle]

    def learners(leaf: Array) -> Array:
        return real(jnp.moveaxis(leaf, -1, 0) if layout.walk == "side by side" else leaf)

    return state._replace(
        learners=jax.tree.map(learners, state.learners),
        emphasis=jax.tree.map(real, state.emphasis),
    )


def _pad(leaf: Any, idle: int) -> Array:
    leaf = jnp.asarray(leaf)
    return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], idle, axis=0)]) if idle else leaf


def _parts(tree: Any, kind: type) -> list[Any]:
    """The outermost parts of a kind, in the order of the tree."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda part: isinstance(part, kind))
    return [leaf for leaf in leaves if isinstance(leaf, kind)]


def _replace(tree: Any, kind: type, layouts: Layouts, f: Callable[[Any, Layout], Any]) -> Any:
    """The outermost parts of a kind, each made anew with its layout."""
    remaining = iter(layouts)
    return jax.tree.map(
        lambda part: f(part, next(remaining)) if isinstance(part, kind) else part,
        tree,
        is_leaf=lambda part: isinstance(part, kind),
    )
