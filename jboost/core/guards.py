"""Guards around the methods that the author of a model writes, so that a wrong call is explained.

The base classes put them around the methods of every subclass. ``init`` refuses wrong arguments and
a state that is too large before anything of it is built. ``predict`` and ``apply`` refuse complex
numbers, whose imaginary part would be dropped, and look at their arguments more closely only after
they have failed: a call that succeeds costs hardly more than without a guard.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

from jboost.core import checks

LARGEST_STATE = 2**32  # bytes: no checkpoint can hold more
_checked: ContextVar[bool] = ContextVar("checked", default=False)  # whether inside such an ``init``


def around(cls: type, *methods: str) -> None:
    """Put guards around those of the named methods that a class defines itself."""
    for name in methods:
        if name in vars(cls):
            guard = _init if name == "init" else _explained
            setattr(cls, name, guard(vars(cls)[name]))


def _init(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def init(self: Any, num_features: int, dtype: Any = None, *key: Any, **named_key: Any) -> Any:
        num_features = checks.whole("num_features", num_features, at_least=1)
        for value in (*key, *named_key.values()):
            if value is not None:
                checks.key("key", value)
        build = functools.partial(method, self, num_features, dtype, *key, **named_key)
        if _checked.get():  # this model is part of another one, whose whole state was looked at
            return build()
        token = _checked.set(True)
        try:
            if checks.is_traced(jnp.zeros(())):  # nothing is built yet
                return _refuse_large(self, num_features, build())
            with suppress(TypeError):  # the author's code cannot be traced, or fails again below
                _refuse_large(self, num_features, jax.eval_shape(build))
            return build()
        finally:
            _checked.reset(token)

    return init


def _refuse_large(model: object, num_features: int, state: Any) -> Any:
    leaves = jax.tree.leaves(state)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves if hasattr(leaf, "dtype"))
    if size > LARGEST_STATE:
        name, columns = type(model).__name__, f"num_features={num_features:,}"
        raise ValueError(
            f"the state of this {name} with {columns} would take {size:,} bytes; at most "
            f"{LARGEST_STATE:,} are allowed. Make a size of the model smaller"
        )
    return state


def _explained(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def explained(self: Any, state: Any, x: Any) -> Any:
        checks.refuse_complex("x", x)
        try:
            return method(self, state, x)
        except Exception as error:
            explain(self, state, error, x=x)
            raise

    return explained


def explain(model: Any, state: Any, error: Exception, *, x: Any, d: Any = 0.0) -> None:
    """Raise an error that names the argument which made a method fail, if it is x, d or the state.

    ``error`` is what the method raised.
    """
    for name, value, form in (("x", x, "an array of shape (r,)"), ("d", d, "such as 0.5")):
        array = value if hasattr(value, "dtype") else checks.array_of(value)
        if array is None or (array.dtype.kind not in "biuf" and array.dtype != "bfloat16"):
            form = f"{name} must hold real numbers, {form}"
            raise TypeError(f"{form}; got {checks.shown(value)}") from error
        if not array.size or (name == "x" and array.ndim != 1):
            raise ValueError(f"{name} must be {form}; got shape {array.shape}") from error
    try:
        arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
        floats = [a.dtype for a in arrays if jnp.issubdtype(a.dtype, jnp.floating)]
        key = jax.random.key(0) if model.needs_key else None
        init = functools.partial(model.init, len(x), floats[0] if floats else None, key=key)
        problem = mismatch(jax.eval_shape(init), state)
    except Exception:  # the model cannot say which states it has: its error is the one to raise
        problem = None
    if problem is not None:
        raise ValueError(
            f"state does not belong to this {type(model).__name__} and x of shape ({len(x)},): "
            f"{problem}. Pass the state that init or a run of the same model returned"
        ) from error


def mismatch(expected: Any, state: Any, batch: tuple[int, ...] = ()) -> str | None:
    """Say where a state differs from a template; ``batch`` are leading axes of every leaf.

    >>> import jboost as jb
    >>> from jboost.core.template import template
    >>> mismatch(template(jb.SGD(0.1), 3, "float32"), jb.SGD(0.1).init(2))
    'state.w has float32[2] where float32[3] fits'
    """
    if jax.tree.structure(expected) != jax.tree.structure(state):
        return "it has another structure"
    named = jax.tree_util.tree_flatten_with_path(expected)[0]
    for (path, shape), leaf in zip(named, jax.tree.leaves(state), strict=True):
        # A Python number, or a float64 of NumPy, is not converted: a run has no such leaves.
        dtype = getattr(leaf, "dtype", type(leaf).__name__)
        if jnp.shape(leaf) != batch + shape.shape or dtype != shape.dtype:
            name = "state" + jax.tree_util.keystr(path)
            fitting = f"{shape.dtype}{[*batch, *shape.shape]}"
            return f"{name} has {dtype}{[*jnp.shape(leaf)]} where {fitting} fits"
    return None
