"""Describes a model by JSON and arrays, and rebuilds the model from them.

The description has the names of the model's classes and the values of their fields. A class is
looked up by its name among those that :func:`jboost.core.pytree.model` has made: nothing is
imported, called or evaluated because a file says so. Numbers come back exactly, with their types.

| in the model                       | in the description                                          |
|------------------------------------|-------------------------------------------------------------|
| None, bool, int, finite float, str | the same value (a str in static fields only)                |
| inf, nan                           | {"float": "inf"}                                            |
| tuple                              | [...]                                                       |
| list, dict with str keys           | {"list": [...]}, {"dict": {...}}                            |
| NumPy array or scalar, JAX array   | {"array": name, "kind": "numpy", "scalar" or "jax"}         |
| model                              | {"class": "SGD", "fields": {...}}                           |
| anything else in a static field    | {"opaque": its name}: whoever loads the file must supply it |
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost.checkpoints.archive import DTYPES, Arrays, CheckpointError
from jboost.core import checks
from jboost.core.pytree import MODELS, name_of

DEEPEST = 100  # levels of nesting; far below where Python's own stack would end


class Store:
    """The arrays of a checkpoint, by name."""

    def __init__(self, arrays: Arrays | None = None, keys: Mapping[str, str] | None = None) -> None:
        self.arrays: Arrays = {} if arrays is None else arrays
        self.keys = dict(keys or {})  # the implementation of each array that is a PRNG key
        self.taken: list[str] = []  # the names of the arrays that :meth:`take` has returned

    def put(self, name: str, leaf: object) -> str:
        """Add an array, a number or a PRNG key; returns the name it has in the file."""
        if checks.is_traced(leaf):
            raise TypeError(f"{name} must be known to be saved; got a tracer: save outside of jit")
        name = re.sub(r"[^A-Za-z0-9_.\[\]-]", "_", name)  # any archive can hold these
        while name in self.arrays:
            name += "~"
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            self.keys[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        if array.dtype.name not in DTYPES:
            raise TypeError(f"{name} must be of dtype {', '.join(DTYPES)}; got {array.dtype}")
        self.arrays[name] = array
        return name

    def put_leaves(self, name: str, tree: object) -> list[str]:
        """Add all leaves of a pytree; returns the names they have in the file."""
        leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
        return [self.put(name + jax.tree_util.keystr(path), leaf) for path, leaf in leaves]

    def take(self, name: str) -> np.ndarray:
        """Return the array of a name, as it is in the file."""
        self.taken.append(name)
        return self.arrays[name]

    def take_jax(self, name: str) -> jax.Array:
        """Return the array or key of a name, on the default device, in the dtype that was saved."""
        array = self.take(name)
        if name in self.keys:
            return jax.random.wrap_key_data(jnp.asarray(array), impl=self.keys[name])
        refuse_narrowing(array.dtype)
        return jnp.array(array)  # a copy, which shares its memory with no NumPy array


def refuse_narrowing(dtype: np.dtype) -> None:
    """Refuse 64-bit numbers where JAX would silently cut them to 32 bits."""
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise CheckpointError(
            f"holds {dtype.name} numbers, which JAX is set to cut to 32 bits. Switch on float64 "
            "before loading: jax.config.update('jax_enable_x64', True)"
        )


def refuse_deep(name: str, value: object) -> None:
    """Refuse an argument with lists and dicts nested so deeply that JSON could not hold it."""
    level = {0: value}
    for _ in range(DEEPEST + 1):
        outer = [v for v in level.values() if isinstance(v, (Mapping, list, tuple))]
        inner = (v.values() if isinstance(v, Mapping) else v for v in outer)
        # By identity: what occurs many times, or holds itself, is gone through once a level.
        level = {id(item): item for items in inner for item in items}
    if level:
        raise ValueError(f"{name} must be nested at most {DEEPEST} levels deep; it is deeper")


def describe(model: object, store: Store, *, opaque: bool = False) -> Any:
    """Return the description of a model, for JSON; its arrays are put into the store.

    >>> from jboost.learners import SGD
    >>> describe(SGD(step_size=0.1), Store())
    {'class': 'SGD', 'fields': {'step_size': 0.1, 'guard': True, 'loss': None}}

    With ``opaque`` a function is described by its name alone, which :func:`rebuild` refuses.
    """

    def encode(value: object, path: str, static: bool, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError(f"{path} is nested too deeply to be saved: at most {DEEPEST} levels")
        if value is None or type(value) in (bool, int) or (type(value) is str and static):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is tuple:
            return [encode(v, f"{path}[{i}]", static, depth + 1) for i, v in enumerate(value)]
        if type(value) is list:
            return {"list": encode(tuple(value), path, static, depth)}
        if type(value) is dict and all(type(key) is str for key in value):
            items = value.items()
            return {"dict": {k: encode(v, f"{path}.{k}", static, depth + 1) for k, v in items}}
        if isinstance(value, (np.ndarray, np.generic, jax.Array)):
            kind = "scalar" if isinstance(value, np.generic) else "numpy"
            kind = "jax" if isinstance(value, jax.Array) else kind
            return {"array": store.put(path, value), "kind": kind}
        name = name_of(type(value))
        cls = MODELS.get(name)
        if cls is not None and cls is type(value):
            fields = {}
            for field in dataclasses.fields(cls):
                inner, is_static = getattr(value, field.name), bool(field.metadata.get("static"))
                fields[field.name] = encode(inner, f"{path}.{field.name}", is_static, depth + 1)
            return {"class": name, "fields": fields}
        if not static:
            required = "a number, an array or a model"
            raise TypeError(f"{path} must be {required} to be saved; got {checks.shown(value)}")
        if not opaque:
            raise TypeError(
                f"{path} is {_qualified_name(value)}, which a file cannot hold. Save with "
                "supply_model=True, and pass the model again to load(path, model=…)"
            )
        return {"opaque": _qualified_name(value)}

    return encode(model, "model", False, 0)


def rebuild(description: object, store: Store) -> Any:
    """Return the model that was described; a :class:`CheckpointError` if that is not possible."""

    def decode(node: object, path: str, static: bool, depth: int) -> Any:
        if depth > DEEPEST:
            raise CheckpointError(f"is not usable: {path} is nested too deeply")
        if node is None or type(node) in (bool, int, float) or (type(node) is str and static):
            return node
        if type(node) is list:
            return tuple(decode(v, f"{path}[{i}]", static, depth + 1) for i, v in enumerate(node))
        match node:
            case {"float": "inf" | "-inf" | "nan" as text, **rest} if not rest:
                return float(text)
            case {"list": list(inner), **rest} if not rest:
                return list(decode(inner, path, static, depth))
            case {"dict": dict(inner), **rest} if not rest:
                return {k: decode(v, f"{path}.{k}", static, depth + 1) for k, v in inner.items()}
            case {"array": str(name), "kind": kind, **rest} if not rest and name in store.arrays:
                if kind == "jax":
                    return store.take_jax(name)
                if kind in ("numpy", "scalar"):
                    return store.take(name) if kind == "numpy" else store.take(name)[()]
            case {"class": str(name), "fields": dict(inner), **rest} if not rest:
                cls = MODELS.get(name)
                if cls is None:
                    raise CheckpointError(
                        f"needs the model class {name!s:.100}, which is not known here. Import the "
                        "module that defines it before loading, or upgrade jboost"
                    )
                fields, values = {field.name: field for field in dataclasses.fields(cls)}, {}
                for key, value in inner.items():
                    if key not in fields:
                        raise CheckpointError(
                            f"has a setting {path}.{key!s:.100}, which {name} does not know here. "
                            "Upgrade jboost or the package that defines it"
                        )
                    is_static = bool(fields[key].metadata.get("static"))
                    values[key] = decode(value, f"{path}.{key}", is_static, depth + 1)
                # The constructor refuses values that are not allowed, such as absurd sizes, and
                # fills in the defaults of fields that the class got after the file was written. It
                # may also convert values, which are then set to exactly what was saved.
                node = cls(**values)
                for key, value in values.items():
                    object.__setattr__(node, key, value)
                return node
            case {"opaque": str(name), **rest} if not rest:
                raise CheckpointError(
                    f"cannot hold all of its model: {path} is {name!s:.100}. Build the same model "
                    "and pass it: load(path, model=…)"
                )
        raise CheckpointError(f"is not usable: {path} is nothing that save writes")

    return decode(description, "model", False, 0)


def difference(saved: Any, supplied: Any, path: str = "model") -> str | None:
    """Return where two descriptions first differ; fields that the file lacks do not count."""
    match saved, supplied:
        case {"class": _, "fields": dict(older)}, {"class": _, "fields": dict(newer)}:
            supplied = supplied | {"fields": {k: v for k, v in newer.items() if k in older}}
    if isinstance(saved, dict) and isinstance(supplied, dict) and saved.keys() == supplied.keys():
        # The words of the description itself do not belong to the path in the model.
        words = ("class", "fields", "list", "dict", "float", "opaque", "array", "kind")
        inside = [(path if k in words else f"{path}.{k}", saved[k], supplied[k]) for k in saved]
    elif isinstance(saved, list) and isinstance(supplied, list) and len(saved) == len(supplied):
        inside = [(f"{path}[{i}]", saved[i], supplied[i]) for i in range(len(saved))]
    elif type(saved) is type(supplied) and saved == supplied:
        return None
    else:
        return f"{path} is {_brief(saved)} in the file and {_brief(supplied)} in the model given"
    differences = (difference(old, new, name) for name, old, new in inside)
    return next((text for text in differences if text), None)


def _qualified_name(value: object) -> str:
    if callable(value) and hasattr(value, "__qualname__"):
        return f"the function {value.__module__}.{value.__qualname__}"
    return f"an object of the class {type(value).__module__}.{type(value).__qualname__}"


def _brief(node: object) -> str:
    return str(node["class"]) if isinstance(node, dict) and "class" in node else f"{node!r:.60}"
