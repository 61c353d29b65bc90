"""Many copies of a learner, computed as one.

Each setting of a learner is one value, shared by its copies, or an array with one value per copy.
Boosters nest, so a setting may have an axis for each booster around it, the outermost first.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import Learner, State


def each(f: Callable[..., State], learner: Learner, count: int, *stacked: State) -> State:
    """Return f(copy, row, …) for every copy of a learner, with one row of each of ``stacked``.

    Settings that the copies share stay unbatched, so what depends on them alone is computed once.
    """
    varied, copy_with = apart(learner)
    call = jax.vmap(lambda varied, rows: f(copy_with(varied), *rows), axis_size=count)
    return call(varied, stacked)


def apart(learner: Learner) -> tuple[list[Array], Callable[[list[Array]], Learner]]:
    """Return the settings that differ between copies, and a function that makes a copy of them."""
    leaves, structure = jax.tree.flatten(learner)
    pairs = list(zip(leaves, differs_by_copy(learner), strict=True))

    def copy_with(values: list[Array]) -> Learner:
        remaining = iter(values)
        return structure.unflatten([next(remaining) if varies else leaf for leaf, varies in pairs])

    return [jnp.asarray(leaf) for leaf, varies in pairs if varies], copy_with


def differs_by_copy(model: object) -> list[bool]:
    """Return, for each setting of a copied model, whether it holds one value per copy."""
    leaves = jax.tree.leaves(model)
    return [jnp.ndim(leaf) > level for leaf, level in zip(leaves, _levels(model), strict=True)]


def check(model: object, count: int) -> None:
    """Refuse a setting that is neither one value nor one for each of the copies."""
    paths = jax.tree_util.tree_flatten_with_path(model)[0]
    for (path, leaf), level in zip(paths, _levels(model), strict=True):
        extra = jnp.ndim(leaf) - level
        if extra > 1 or (extra == 1 and jnp.shape(leaf)[0] != count):
            name, shape = jax.tree_util.keystr(path).lstrip("."), jnp.shape(leaf)
            wish = f"a number or one per learner, here {count}"
            raise ValueError(f"{name} must be {wish}; got shape {shape}")


def groups_of_alike(learners: list[Learner]) -> list[list[Learner]]:
    """Group neighbours of one structure: stacked, they run much faster than as a list."""
    groups: list[list[Learner]] = []
    for learner in learners:
        alike = groups and _structure_and_shapes(groups[-1][0]) == _structure_and_shapes(learner)
        # The new axis of a setting that inner learners share would be taken for an axis over those.
        pairs = zip(jax.tree.leaves(learner), _levels(learner), strict=True)
        if alike and not any(jnp.ndim(leaf) < level for leaf, level in pairs):
            groups[-1].append(learner)
        else:
            groups.append([learner])
    return groups


def stack(learners: list[Learner]) -> Learner:
    """Return learners of one structure as one learner with an array for each setting."""
    if len(learners) == 1:
        return learners[0]

    def join(*leaves: ArrayLike) -> Array | np.ndarray:
        on_device = any(isinstance(leaf, jax.Array) for leaf in leaves)
        return (jnp if on_device else np).stack(leaves)

    return jax.tree.map(join, *learners)


def _levels(node: object) -> list[int]:
    """Return, for each setting of a model, how many boosters inside the model hold it.

    A class says with ``per_learner`` which of its fields may hold a value per learner.
    """
    if fields := getattr(type(node), "per_learner", ()):
        children, _ = jax.tree_util.tree_flatten_with_path(
            node, is_leaf=lambda child: child is not node
        )
        return [
            level + (path[0].name in fields) for path, child in children for level in _levels(child)
        ]

    def holds_learners(child: object) -> bool:
        return bool(getattr(type(child), "per_learner", ()))

    children = jax.tree.leaves(node, is_leaf=holds_learners)
    return [
        level for child in children for level in (_levels(child) if holds_learners(child) else [0])
    ]


def _structure_and_shapes(learner: Learner) -> tuple[object, list[tuple[int, ...]]]:
    leaves, structure = jax.tree.flatten(learner)
    return structure, [jnp.shape(leaf) for leaf in leaves]
