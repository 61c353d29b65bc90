"""The settings of a model, its floats: their names, their values, and other values in their place.

A setting is named by the fields that lead to it: ``combiner.learner.forgetting``, or
``learner[0].step_size`` in a list of learners. A name may leave out fields at the front or in
between, as in ``forgetting`` or ``combiner.forgetting``, where only one setting fits it. The place
of a setting is its index among the leaves of the model.
"""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jboost.core import Learner, checks

_Model = TypeVar("_Model", bound=Learner)


def paths(model: Learner) -> dict[str, int]:
    """Return the place of every setting of a model, by its full name.

    >>> import jboost as jb
    >>> list(paths(jb.boost(jb.SGD(0.1), 3, target_mse=0.2, combiner=jb.Uniform())))
    ['learner.step_size', 'emphasis.target_mse', 'emphasis.dependence']
    """
    places = {}
    for index, (path, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(model)[0]):
        if jnp.issubdtype(getattr(leaf, "dtype", type(leaf)), jnp.floating):
            printed = jax.tree_util.keystr(path)  # .learner['name'].step_size
            places[printed.replace("['", "[").replace("']", "]").lstrip(".")] = index
    return places


def places(model: Learner, wrt: str | Iterable[str]) -> dict[str, int]:
    """Return the places of the settings that ``wrt`` names, in the order of the names.

    >>> import jboost as jb
    >>> places(jb.bsgd_wu(3, target_mse=0.2, step_size=0.1), "step_size")
    {'step_size': 0}
    """
    settings = paths(model)
    names = list(wrt) if isinstance(wrt, Iterable) and not isinstance(wrt, str) else [wrt]
    if not names:
        raise ValueError(f"wrt must name at least one setting of the model: {', '.join(settings)}")
    places = {name: settings[_match(name, settings)] for name in names}
    if len(set(places.values())) < len(names):
        raise ValueError(f"wrt must name each float once; got {', '.join(map(repr, names))}")
    return places


def take(model: Learner, places: Iterable[int]) -> list[ArrayLike]:
    """Return the leaves of a model at these places."""
    leaves = jax.tree.leaves(model)
    return [leaves[index] for index in places]


def put(model: _Model, places: Iterable[int], values: Iterable[ArrayLike]) -> _Model:
    """Return the model with other values at these places, unchecked: they may be traced."""
    leaves, structure = jax.tree.flatten(model)
    for index, value in zip(places, values, strict=True):
        leaves[index] = value
    return structure.unflatten(leaves)


def owner(model: Learner, index: int) -> tuple[str, str]:
    """Return the names of the class and of the field that hold the leaf at this index."""
    holder, field = _holder(model, index)
    return type(holder).__name__, field


def put_checked(model: _Model, places: Iterable[int], values: Iterable[ArrayLike]) -> _Model:
    """Return what :func:`put` does; a value that is out of range is refused, with its range.

    >>> import jboost as jb
    >>> put_checked(jb.pipeline(jb.Bias(), jb.NLMS(0.5)), [0], [3.0])
    Traceback (most recent call last):
    ValueError: step_size must be ...
    """
    for index, value in zip(places, values, strict=True):
        holder, field = _holder(model, index)
        if getattr(holder, field) is jax.tree.leaves(model)[index]:  # and not a list of numbers
            dataclasses.replace(holder, **{field: value})  # the constructor checks it
        model = put(model, [index], [value])
    return model


def _holder(model: Learner, index: int) -> tuple[Any, str]:
    """Return the object that holds the leaf at this index, and the name of the field."""
    path = jax.tree_util.tree_flatten_with_path(model)[0][index][0]
    node: Any = model
    holder, field = model, ""
    for key in path:
        if isinstance(key, jax.tree_util.GetAttrKey):
            holder, field, node = node, key.name, getattr(node, key.name)
        else:
            node = node[getattr(key, "idx", getattr(key, "key", None))]
    return holder, field


def _match(name: str, settings: dict[str, int]) -> str:
    """Return the full name that ``name`` is, or the only full name that it abbreviates."""
    if not isinstance(name, str):
        raise TypeError(f"wrt must hold names such as 'step_size'; got {checks.shown(name)}")
    fields = _fields(name)
    fitting = [full for full in settings if _abbreviates(fields, _fields(full))]
    exact = [full for full in fitting if _fields(full) == fields]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    if fitting:
        names = " or ".join(fitting)
        raise ValueError(f"wrt names {name!r}, which may be {names}: give the full path")
    names = ", ".join(settings) or "no settings"
    raise ValueError(f"wrt names {name!r}, which this model does not have; it has {names}")


def _abbreviates(fields: list[str], full: list[str]) -> bool:
    """Return whether the fields stand in this order in the full name, and both end alike."""
    remaining = iter(full)
    return fields[-1:] == full[-1:] and all(field in remaining for field in fields)


def _fields(name: str) -> list[str]:
    return [field for field in re.split(r"[.\[\]]", name) if field]
