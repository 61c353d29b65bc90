"""Descriptions of trees and settings in plain data, which are the same in every process.

A program that is kept between processes is found by the description of all that was traced. What
the library cannot know for certain has no description: classes and functions of a user, whose
source may change, and objects that are not made of plain values. It raises ``NotDescribedError``.
"""

import enum
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

# Their versions, or their source, belong to the key of a program.
OURS = ("jboost", "jax", "jaxlib", "numpy", "optax", "builtins")


class NotDescribedError(Exception):
    """Something has no description that is the same in every process."""


def of_structure(structure: Any) -> list[Any]:
    """Return the description of a tree's structure.

    >>> of_structure(jax.tree.structure((1.0, {"a": None})))
    ['builtins.tuple', None, [[], ['builtins.dict', [['str', 'a']], [['none']]]]]
    """
    node = structure.node_data()
    if node is None:
        return []  # a leaf
    kind, fields = node
    if kind is type(None):
        return ["none"]
    children = [of_structure(child) for child in structure.children()]
    if kind is dict:
        return [name_of(kind), [of_value(name) for name in fields], children]
    return [name_of(kind), None if fields is None else of_value(fields), children]


def of_value(value: Any) -> list[Any]:
    """Return the description of a plain value, of a function or of a class.

    >>> of_value((3, "root", np.dtype(np.float32)))
    ['builtins.tuple', ['int', '3'], ['str', 'root'], ['dtype', 'float32']]
    """
    kind = type(value)
    if value is None:
        return ["none"]
    if kind is str:
        return ["str", value]
    if kind in (bool, int, float):
        return [kind.__name__, repr(value)]
    if isinstance(value, np.dtype):
        return ["dtype", str(value)]
    if isinstance(value, enum.Enum):
        return [name_of(kind), value.name]
    if kind in (tuple, list) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        return [name_of(kind), *map(of_value, value)]
    if isinstance(value, functools.partial):
        parts = value.func, value.args, *value.keywords.items()
        return ["partial", *map(of_value, parts)]
    if isinstance(value, jax.tree_util.PyTreeDef):
        return ["structure", of_structure(value)]
    if isinstance(value, type) or callable(value):
        return ["name", name_of(value)]
    raise NotDescribedError(f"{kind.__name__} is no plain value")


def name_of(value: Any) -> str:
    """Return the full name of a class or function, by which every process finds the same one."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module is None or name is None or module.partition(".")[0] not in OURS:
        raise NotDescribedError(f"{value!r:.80} is not of the library")
    if _found(module, name) is not value:
        raise NotDescribedError(f"{module}.{name} is another object")
    return f"{module}.{name}"


def _found(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "builtins.tuple": tuple,
    "builtins.list": list,
}


def tree_of(description: Any, leaves: Iterator[Any]) -> Any:
    """Return a tree from the description of its structure, with these leaves.

    Only tuples, lists, dicts and named tuples are made, and nothing is imported. A description that
    says anything else raises an error.

    >>> described = of_structure(jax.tree.structure((1.0, {"a": None})))
    >>> tree_of(described, iter([5.0]))
    (5.0, {'a': None})
    """
    if description == []:
        return next(leaves)
    if description == ["none"]:
        return None
    kind, fields, children = description
    if kind == "builtins.dict":
        names = [name for text, name in fields if text == "str"]
        return dict(zip(names, (tree_of(child, leaves) for child in children), strict=True))
    inner = [tree_of(child, leaves) for child in children]
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](inner)
    module, _, name = kind.rpartition(".")
    found = _found(module, name)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise NotDescribedError(f"{kind} is no named tuple")
    return found(*inner)
