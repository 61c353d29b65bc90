"""What states of a model look like, without making one: which states belong to which model."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jboost.core.learner import Learner, State


class Width(NamedTuple):
    """What ``init`` was called with, as far as a state shows it, and leading axes beyond that."""

    num_features: int
    dtype: str
    batch: tuple[int, ...]


def _init(model: Learner, num_features: int, dtype: str, key: Any) -> State:
    return model.init(num_features, jnp.dtype(dtype), key=key)


# Under jit it is traced once for each structure and width, however often a run is saved.
_shapes_of_init = jax.jit(_init, static_argnames=("num_features", "dtype")).eval_shape


def template(model: Learner, num_features: int, dtype: str, key: Any = None) -> State:
    """Structure, shapes and dtypes of the model's states; nothing is computed.

    >>> import jboost as jb
    >>> template(jb.SGD(0.1), 3, "float32").w.shape
    (3,)
    """
    if key is None or jnp.ndim(key):  # any will do, but its implementation may show in the state
        key = jax.random.key(0, impl=None if key is None else jax.random.key_impl(key))
    return _shapes_of_init(model, num_features, dtype, key if model.needs_key else None)


def mismatch(wanted: State, state: State, batch: tuple[int, ...] = ()) -> str | None:
    """Where a state differs from a template, in words; ``batch`` are leading axes of every leaf.

    >>> import jboost as jb
    >>> mismatch(template(jb.SGD(0.1), 3, "float32"), jb.SGD(0.1).init(2))
    'state.w has float32[2] where float32[3] fits'
    """
    if jax.tree.structure(wanted) != jax.tree.structure(state):
        return "it has another structure"
    named = jax.tree_util.tree_flatten_with_path(wanted)[0]
    for (path, want), have in zip(named, jax.tree.leaves(state), strict=True):
        # A number of Python's, or a float64 of NumPy's, is not what a run carries: no conversion.
        dtype = getattr(have, "dtype", type(have).__name__)
        if jnp.shape(have) != batch + want.shape or dtype != want.dtype:
            where = "state" + jax.tree_util.keystr(path)
            fits = f"{want.dtype}{[*batch, *want.shape]}"
            return f"{where} has {dtype}{[*jnp.shape(have)]} where {fits} fits"
    return None


def width_of(model: Learner, state: State, key: Any, num_features: int | None = None) -> Width:
    """What the model's ``init`` takes to make a state of this structure and these shapes.

    >>> import jboost as jb
    >>> width_of(jb.Newton(), jb.Newton().init(3), None)
    Width(num_features=3, dtype='float32', batch=())
    """
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(state) if hasattr(leaf, "dtype")]
    floats = [dtype.name for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
    problems = []
    for dtype in dict.fromkeys(floats or [jnp.result_type(float).name]):
        try:
            width = num_features or _search(model, state, dtype, key)
            wanted = template(model, width, dtype, key)
        except Exception as error:
            reason = f"{type(error).__name__}: {error!s:.200}"
            raise ValueError(
                f"state could not be held against the model ({reason}): pass num_features=, and "
                "the state that a run of this model returned"
            ) from error
        batch = _batch(wanted, state)
        problem = mismatch(wanted, state, batch)
        if problem is None:
            return Width(width, dtype, batch)
        problems.append(problem)
    given = f" with num_features={num_features}" if num_features else ""
    raise ValueError(
        f"state does not belong to this model{given}: {problems[0]}. "
        "Pass the state that a run of the same model returned"
    )


def _search(model: Learner, state: State, dtype: str, key: Any) -> int:
    """The number of features whose states are as large as this one.

    The sum of all axes is a polynomial in that number, mostly of degree one: the secant method
    finds it at the third try. A model that treats few columns differently (``Select``) has another
    structure and a kink there, at which a step may round to none: then it is one of 1.
    """

    def excess(n: int) -> int:
        try:
            wanted = template(model, n, dtype, key)
        except Exception:  # fewer columns than the model can do with
            wanted = ()
        alike = jax.tree.structure(wanted) == jax.tree.structure(state)
        axes = len(_batch(wanted, state)) if alike else 0
        have = sum(sum(jnp.shape(leaf)[axes:]) for leaf in jax.tree.leaves(state))
        return sum(sum(leaf.shape) for leaf in jax.tree.leaves(wanted)) - have

    last, n = 1, 2
    before, now = excess(last), excess(n)
    for _ in range(20):
        if before == 0:
            return last
        if now in (0, before):
            break
        step = round(now * (n - last) / (now - before)) or (1 if now > 0 else -1)
        last, before, n = n, now, max(n - step, 1)
        now = excess(n)
    return n


def _batch(wanted: State, state: State) -> tuple[int, ...]:
    """The leading axes that the first leaf has and ``init`` does not give it."""
    for want, have in zip(jax.tree.leaves(wanted), jax.tree.leaves(state), strict=False):
        return tuple(jnp.shape(have)[: max(jnp.ndim(have) - len(want.shape), 0)])
    return ()
