"""What makes a class a model: a frozen dataclass that is also a pytree.

The floats and sub-models of a model are its leaves, so a sweep stacks models of one structure, and
a hypergradient is ``jax.grad`` with respect to the model. Whole numbers, words and functions belong
to its structure and are declared with :func:`static`.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
from jax import Array
from jax.typing import ArrayLike, DTypeLike

Number = ArrayLike  # a float, or an array or tracer that stands for one (or for one per learner)
Key = Array | None  # a jax.random.key, or None where nothing is drawn
DType = DTypeLike | None  # a dtype of floats, or None for the default one of JAX

_Class = TypeVar("_Class", bound=type)

MODELS: dict[str, type] = {}  # every public class made by `model`: those a checkpoint may name


def name_of(cls: type) -> str:
    """Return a class's name in a checkpoint; the library's own go without a module and may move."""
    ours = cls.__module__.partition(".")[0] == "jboost"
    return cls.__qualname__ if ours else f"{cls.__module__}.{cls.__qualname__}"


def static(*, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field of a model's structure: a whole number, a word or a function.

    Another value of such a field compiles another program.
    """
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static,))
def model(cls: _Class) -> _Class:
    """Turn a class of annotated fields into a frozen dataclass that is a pytree.

    Fields are leaves or sub-pytrees, except those declared with :func:`static`. Unflattening fills
    the fields directly and does not call the constructor, so ``__post_init__`` may check and
    convert what a user passes: it never sees the placeholders that transformations put into leaves.

    >>> @model
    ... class Step:
    ...     size: float
    ...     name: str = static(default="plain")
    >>> jax.tree.map(lambda leaf: 2 * leaf, Step(0.25))
    Step(size=0.5, name='plain')
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)  # type: ignore[assignment]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    meta_names = [field.name for field in fields if field.metadata.get("static")]
    data_names = [field.name for field in fields if not field.metadata.get("static")]
    keys = [*map(jax.tree_util.GetAttrKey, data_names)]
    structure, children = _values_of(meta_names), _values_of(data_names)

    def unflatten(meta: tuple[Any, ...], data: Iterable[Any]) -> Any:
        node = object.__new__(cls)
        for name, value in zip([*meta_names, *data_names], [*meta, *data], strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(
        cls,
        lambda node: ([*zip(keys, children(node), strict=True)], structure(node)),
        unflatten,
        lambda node: (children(node), structure(node)),
    )
    if not cls.__name__.startswith("_"):
        MODELS[name_of(cls)] = cls
    return cls


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a fast function that reads these attributes: a run flattens its model many times."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda node: tuple(getattr(node, name) for name in names)
