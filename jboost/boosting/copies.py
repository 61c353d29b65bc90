"""Copies of a learner: a float that they share, or one for each.

A learner inside a booster is written once. Each of its floats holds one value, shared by the
copies, or an array with one value per copy. Boosters nest, so a float may have an axis for each
booster around it; axes are read from the inside out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost.core.learner import Learner
from jboost.core.products import written_for
from jboost.engine import trailing


def each(
    f: Callable[..., Any], learner: Learner, place: slice, *stacked: Any, axis: int = 0
) -> Any:
    """f(copy, …) for every copy of a learner, with the rows of ``stacked``; None stays None.

    Floats that the copies share stay unbatched: what depends on them alone is computed once.
    ``axis`` is where states have the copies: the first, or the last (side by side).
    """
    leaves, structure = jax.tree.flatten(learner)
    own = one_each(learner)

    def one(varied: list[Any], rows: tuple[Any, ...]) -> Any:
        mine = iter(varied)
        copy = [next(mine) if o else leaf for leaf, o in zip(leaves, own, strict=True)]
        return f(structure.unflatten(copy), *rows)

    varied = [jnp.asarray(leaf) for leaf, o in zip(leaves, own, strict=True) if o]
    size = place.stop - place.start
    if axis == 0:
        return jax.vmap(one, axis_size=size)(varied, stacked)
    varied = [jnp.moveaxis(leaf, 0, -1) for leaf in varied]
    with written_for("side by side"):
        return trailing.vmap(one, size)(varied, stacked)


def one_by_one(
    f: Callable[..., Any], learner: Learner, place: slice, drawn: Any, states: Any, *stacked: Any
) -> Any:
    """f(copy, state, …) for the copies whose entry of ``drawn`` is not zero; all, if it is None.

    A loop that changes the stacked states in place: what is not drawn is neither computed nor
    copied. Under ``vmap`` the condition would become a choice between computed values.
    """
    leaves, structure = jax.tree.flatten(learner)
    own = one_each(learner)

    def row(k: Any, tree: Any) -> Any:
        return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, k, keepdims=False), tree)

    def change(k: Any, states: Any) -> Any:
        copy = [
            row(k, jnp.asarray(leaf)) if o else leaf for leaf, o in zip(leaves, own, strict=True)
        ]
        new = f(structure.unflatten(copy), row(k, states), *row(k, stacked))
        return jax.tree.map(
            lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, k, 0), states, new
        )

    def visit(k: Any, states: Any) -> Any:
        if drawn is None:
            return change(k, states)
        return jax.lax.cond(
            row(k, drawn).astype(bool),
            lambda states: change(k, states),
            lambda states: states,
            states,
        )

    return jax.lax.fori_loop(0, place.stop - place.start, visit, states)


def one_each(part: Any) -> list[bool]:
    """For each float of a copied learner: whether it holds one value per copy."""
    leaves = jax.tree.leaves(part)
    return [jnp.ndim(leaf) > level for leaf, level in zip(leaves, _levels(part), strict=True)]


def check(part: Any, size: int) -> None:
    """Every float is one value, or as many as there are copies."""
    paths = jax.tree_util.tree_flatten_with_path(part)[0]
    for (path, leaf), level in zip(paths, _levels(part), strict=True):
        extra = jnp.ndim(leaf) - level
        if extra > 1 or (extra == 1 and jnp.shape(leaf)[0] != size):
            name = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(
                f"{name} must be a number or one per learner, here {size}; "
                f"got shape {jnp.shape(leaf)}"
            )


def runs_of_alike(learners: list[Learner]) -> list[list[Learner]]:
    """Neighbours of one structure together: stacked, they run much faster than as a list.

    Not so boosters with a float that their own learners share: its new axis would be taken for one
    over these.
    """
    runs: list[list[Learner]] = []
    for learner in learners:
        alike = runs and _shape_of(runs[-1][0]) == _shape_of(learner)
        if alike and not any(_shared(learner)):
            runs[-1].append(learner)
        else:
            runs.append([learner])
    return runs


def stack(learners: list[Learner]) -> Learner:
    """Learners of one structure as one, each float with an axis over them."""
    if len(learners) == 1:
        return learners[0]

    def join(*leaves: Any) -> Any:
        on_device = any(isinstance(leaf, jax.Array) for leaf in leaves)
        return (jnp if on_device else np).stack(leaves)

    return jax.tree.map(join, *learners)


def _levels(node: Any) -> list[int]:
    """For each float of a model, how many axes it may have for boosters inside that model.

    A class says with ``per_learner`` which of its fields may hold a value per learner.
    """
    fields = getattr(type(node), "per_learner", ())
    if fields:
        children, _ = jax.tree_util.tree_flatten_with_path(
            node, is_leaf=lambda part: part is not node
        )
        return [
            level + (path[0].name in fields) for path, child in children for level in _levels(child)
        ]

    def inside(part: Any) -> bool:
        return bool(getattr(type(part), "per_learner", ()))

    parts = jax.tree.leaves(node, is_leaf=inside)
    return [level for part in parts for level in (_levels(part) if inside(part) else [0])]


def _shared(part: Any) -> list[bool]:
    """For each float of a model: whether the learners of a booster inside share it."""
    leaves = jax.tree.leaves(part)
    return [jnp.ndim(leaf) < level for leaf, level in zip(leaves, _levels(part), strict=True)]


def _shape_of(learner: Learner) -> Any:
    leaves, structure = jax.tree.flatten(learner)
    return structure, [jnp.shape(leaf) for leaf in leaves]
