"""The floats of a model by name: which there are, which one a name means, another value for it.

A float is named by the path of fields that leads to it, ``combiner.learner.forgetting`` or, in a
list of learners, ``learner[0].step_size``. A shorter name does where only one float fits it: fields
may be left out from the front or in between, as in ``forgetting`` or ``combiner.forgetting``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

_Model = TypeVar("_Model")


def paths(model: Any) -> dict[str, int]:
    """Every float of a model: its full name, and its place among the leaves.

    >>> import jboost as jb
    >>> list(paths(jb.boost(jb.SGD(0.1), 3, target_mse=0.2, combiner=jb.Uniform())))
    ['learner.step_size', 'emphasis.target_mse', 'emphasis.dependence']
    """
    leaves = jax.tree_util.tree_flatten_with_path(model)[0]
    return {_joined(path): i for i, (path, leaf) in enumerate(leaves) if _is_float(leaf)}


def places(model: Any, wrt: str | Iterable[str]) -> dict[str, int]:
    """Where the named floats are among the model's leaves, in the order of the names.

    >>> import jboost as jb
    >>> places(jb.bsgd_wu(3, target_mse=0.2, step_size=0.1), "step_size")
    {'step_size': 0}
    """
    known = paths(model)
    one = isinstance(wrt, str) or not isinstance(wrt, Iterable)
    names: list[Any] = [wrt] if one else list(wrt)
    if not names:
        raise ValueError(f"wrt must name at least one float of the model: {_listed(known)}")
    found = {name: known[_match(name, known)] for name in names}
    if len(set(found.values())) < len(names):
        raise ValueError(f"wrt must name each float once; got {', '.join(map(repr, names))}")
    return found


def take(model: Any, where: Iterable[int]) -> list[Any]:
    """The leaves at these places."""
    leaves = jax.tree.leaves(model)
    return [leaves[i] for i in where]


def put(model: _Model, where: Iterable[int], values: Iterable[Any]) -> _Model:
    """The model with other values at these places. Nothing is checked: values may be traced."""
    leaves, structure = jax.tree.flatten(model)
    for i, value in zip(where, values, strict=True):
        leaves[i] = value
    return structure.unflatten(leaves)


def owner(model: Any, place: int) -> tuple[str, str]:
    """The class that a leaf is a field of, and that field's name."""
    path = jax.tree_util.tree_flatten_with_path(model)[0][place][0]
    node, cls, field = model, type(model).__name__, ""
    for key in path:
        if isinstance(key, jax.tree_util.GetAttrKey):
            cls, field = type(node).__name__, key.name
            node = getattr(node, key.name)
        else:
            node = node[getattr(key, "idx", getattr(key, "key", None))]
    return cls, field


def _match(name: Any, known: dict[str, int]) -> str:
    """The one full name that a name stands for: itself, or the only one that it abbreviates."""
    if not isinstance(name, str):
        raise TypeError(f"wrt must hold names such as 'step_size'; got {name!r}")
    parts = _parts(name)
    for full in known:
        if parts == _parts(full):
            return full
    fitting = [full for full in known if parts and _abbreviates(parts, _parts(full))]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ValueError(
            f"wrt names {name!r}, which may be {' or '.join(fitting)}: give the full path"
        )
    raise ValueError(f"wrt names {name!r}, which this model does not have; {_listed(known)}")


def _abbreviates(parts: Sequence[str], full: Sequence[str]) -> bool:
    """Whether the parts stand in this order in the full name, its last part among them."""
    rest = iter(full)
    return parts[-1] == full[-1] and all(part in rest for part in parts)


def _listed(known: dict[str, int]) -> str:
    return f"it has {', '.join(known)}" if known else "it has no floats"


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[.\[\]]", name) if part]


def _joined(path: Sequence[Any]) -> str:
    """learner[0].step_size, from what JAX calls .learner[0].step_size."""
    return jax.tree_util.keystr(tuple(path)).replace("['", "[").replace("']", "]").lstrip(".")


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", type(leaf)), jnp.floating)
