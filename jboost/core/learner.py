"""The one idea of the library: everything is a Learner, and a Learner is a frozen pytree.

A learner holds hyperparameters only. What it has learned is its *state*, an immutable pytree that
three pure, unbatched functions pass along:

    init(num_features, dtype)                          -> state
    predict(state, x)                                  -> estimate of d
    update(state, x, d, weight=, repeats=, key=)       -> state

``weight`` (a real number) and ``repeats`` (a whole number) are how a booster speaks to a learner.
Float hyperparameters are pytree leaves, so a sweep is ``jax.vmap`` over the model and a
hypergradient is ``jax.grad`` with respect to it.
"""

from __future__ import annotations

import abc
import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp

State = Any
Number = Any  # a float, or an array or tracer that stands for one (or for one per learner)

_Class = TypeVar("_Class", bound=type)

MODELS: dict[str, type] = {}  # every class made by `model`: what a checkpoint may name


def name_of(cls: type) -> str:
    """What a checkpoint calls a class: no module for the library's own, so that they may move."""
    own = cls.__module__.partition(".")[0] == "jboost"
    return cls.__qualname__ if own else f"{cls.__module__}.{cls.__qualname__}"


def static(*, default: Any = dataclasses.MISSING) -> Any:
    """A field that is part of the model's structure: a whole number, a string, a function."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static,))
def model(cls: _Class) -> _Class:
    """Turn a class of annotated fields into a frozen dataclass that is a pytree.

    Fields are leaves or sub-pytrees, except those declared with :func:`static`. Unflattening fills
    the fields directly and does not call the constructor, so ``__post_init__`` may check and
    convert what a user passes: it never sees the placeholders that transformations put into leaves.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)  # type: ignore[assignment]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    meta = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if not f.metadata.get("static")]

    structure, children = _values_of(meta), _values_of(data)

    def flatten(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return children(node), structure(node)

    def flatten_with_keys(node: Any) -> tuple[list[Any], tuple[Any, ...]]:
        keys = map(jax.tree_util.GetAttrKey, data)
        return [*zip(keys, children(node), strict=True)], structure(node)

    def unflatten(aux: tuple[Any, ...], children: Any) -> Any:
        node = object.__new__(cls)
        for name, value in zip([*meta, *data], [*aux, *children], strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    MODELS[name_of(cls)] = cls
    return cls


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The named attributes of an object. A call of a run flattens its model several times."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda node: tuple(getattr(node, name) for name in names)


def repeated(once: Callable[[Any, State], State], state: State, repeats: Any) -> State:
    """``once(j, state)`` for j = 0 … repeats − 1: how an update without a closed form repeats."""
    if isinstance(repeats, int) and repeats == 1:
        return once(0, state)
    return jax.lax.fori_loop(0, jnp.asarray(repeats, jnp.int32), once, state)


class Learner(abc.ABC):
    """The protocol. Subclasses are final, decorated with :func:`model`, and override the three.

    An ``update`` whose target is not a usable number (NaN marks "no answer") must return the state
    bit for bit as it was; :func:`jboost.core.numerics.sanitize` gives what that takes.
    """

    # Whether ``update`` repeats by `jboost.core.numerics.geometric`: it then gets ``repeats`` in as few
    # bits as they need, which other arithmetic cannot use.
    repeats_in_closed_form: ClassVar[bool] = False

    @property
    def needs_key(self) -> bool:
        """Whether ``init`` or ``update`` draws at random."""
        return False

    @property
    def takes_missing(self) -> bool:
        """Whether a sample whose x has non-finite entries is still one to learn from."""
        return False

    @abc.abstractmethod
    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> State:
        """The state before any data."""

    @abc.abstractmethod
    def predict(self, state: State, x: Any) -> jax.Array:
        """The estimate of d, a scalar: finite whatever x holds."""

    @abc.abstractmethod
    def update(
        self,
        state: State,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> State:
        """The state after learning (x, d) ``repeats`` times with importance ``weight``.

        ``repeats`` is the Python number 1, a boolean array or an integer array, so that only what
        may be repeated pays for the closed form. It may be an int8: ``repeats + 1`` may not fit.
        ``key`` is the key of the whole run: a learner
        that draws folds its own step count into it.
        """

    def info(self, state: State, x: Any, d: Any, key: Any = None) -> dict[str, Any]:
        """What a run may record about one step besides the prediction."""
        del state, x, d, key
        return {}

    def coefficients(self, state: State, x: Any) -> jax.Array:
        """z of the estimate zᵀx at x; the slopes of an estimate that is not of that form."""
        return jax.grad(self.predict, argnums=1)(state, x)

    @property
    def knows_leverage(self) -> bool:
        """Whether there is a :meth:`leverage`."""
        return False

    def leverage(self, state: State, x: Any) -> jax.Array:
        """The variance of the estimate at x over that of the noise: how little is known there."""
        raise TypeError(f"{type(self).__name__} has no leverage, as a Newton learner has")


class Around(Learner):
    """A learner around one ``learner``: what it wants of a run is what that one wants.

    Its leverage is that one's too, which sees the same x and whose state is ``state.learner``.
    """

    learner: Any

    @property
    def needs_key(self) -> bool:
        return self.learner.needs_key

    @property
    def takes_missing(self) -> bool:
        return self.learner.takes_missing

    @property
    def knows_leverage(self) -> bool:
        return self.learner.knows_leverage

    def leverage(self, state: State, x: Any) -> jax.Array:
        return self.learner.leverage(state.learner, x)
