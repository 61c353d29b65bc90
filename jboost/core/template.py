"""The structure, shapes and dtypes of a model's states, found without computing a state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jboost.core.guards import mismatch
from jboost.core.learner import Learner, State
from jboost.core.pytree import Key


class StateSize(NamedTuple):
    """The arguments of ``init`` that make a state of certain shapes, and the axes beyond them."""

    num_features: int  # the number of inputs
    dtype: str  # the name of the dtype of the inputs
    batch: tuple[int, ...]  # the leading axes of all leaves, for states of many streams or trials


def _init(model: Learner, num_features: int, dtype: str, key: Key) -> State:
    return model.init(num_features, jnp.dtype(dtype), key=key)


# Under jit, `init` is traced once for each structure and width, however often a run is saved.
_shapes_of_init = jax.jit(_init, static_argnames=("num_features", "dtype")).eval_shape


def template(model: Learner, num_features: int, dtype: str, key: Key = None) -> State:
    """Return a state of the model whose leaves are shapes and dtypes instead of arrays.

    >>> import jboost as jb
    >>> template(jb.SGD(0.1), 3, "float32").w.shape
    (3,)
    """
    if not model.needs_key:
        key = None
    elif key is None or jnp.ndim(key):  # any key will do; its implementation may show in a state
        key = jax.random.key(0, impl=None if key is None else jax.random.key_impl(key))
    return _shapes_of_init(model, num_features, dtype, key)


def size_of(model: Learner, state: State, key: Key, num_features: int | None = None) -> StateSize:
    """Return the size of a state; a ``ValueError`` says that it belongs to another model.

    >>> import jboost as jb
    >>> size_of(jb.Newton(), jb.Newton().init(3), None)
    StateSize(num_features=3, dtype='float32', batch=())
    """
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(state) if hasattr(leaf, "dtype")]
    floats = [dtype.name for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
    problems = []
    for dtype in dict.fromkeys(floats or [jnp.result_type(float).name]):
        try:
            width = num_features or _search_width(model, state, dtype, key)
            expected = template(model, width, dtype, key)
        except Exception as error:
            reason = f"{type(error).__name__}: {error!s:.200}"
            raise ValueError(
                f"state could not be compared with the model ({reason}): pass num_features=, and "
                "the state that a run of this model returned"
            ) from error
        batch = _batch(expected, state)
        problem = mismatch(expected, state, batch)
        if problem is None:
            return StateSize(width, dtype, batch)
        problems.append(problem)
    asked = f" with num_features={num_features}" if num_features else ""
    raise ValueError(
        f"state does not belong to this model{asked}: {problems[0]}. "
        "Pass the state that a run of the same model returned"
    )


def _search_width(model: Learner, state: State, dtype: str, key: Key) -> int:
    """Return the number of features n for which ``init`` makes states as large as this state.

    The sum of the lengths of all axes is a polynomial in n, mostly of degree 1: the secant method
    finds n at the third try. A model that treats few columns differently (``Select``) has another
    structure for small n. The polynomial has a kink there, at which a step of the secant method may
    round to 0; it is then taken to be 1. Where the sum is no such polynomial, as that of
    ``BoostedTrees``, n is looked for among the lengths of the axes.
    """

    def expected_at(n: int) -> State | None:
        try:
            return template(model, n, dtype, key)
        except Exception:
            return None  # the model needs more columns than n

    def excess(n: int) -> int:
        expected = expected_at(n)
        alike = jax.tree.structure(expected) == jax.tree.structure(state)
        axes = len(_batch(expected, state)) if alike else 0
        length = sum(sum(jnp.shape(leaf)[axes:]) for leaf in jax.tree.leaves(state))
        return sum(sum(leaf.shape) for leaf in jax.tree.leaves(expected)) - length

    def fits(n: int) -> bool:
        expected = expected_at(n)
        return expected is not None and mismatch(expected, state, _batch(expected, state)) is None

    last = next((2**i for i in range(12) if expected_at(2**i) is not None), 1)
    n = last + 1
    before, now = excess(last), excess(n)
    for _ in range(20):
        if before == 0 and fits(last):
            return last
        if now in (0, before):
            break
        step = round(now * (n - last) / (now - before)) or (1 if now > 0 else -1)
        last, before, n = n, now, max(n - step, 1)
        now = excess(n)
    lengths = {length for leaf in jax.tree.leaves(state) for length in jnp.shape(leaf)}
    return next((length for length in (n, *sorted(lengths)) if fits(length)), n)


def _batch(expected: State, state: State) -> tuple[int, ...]:
    """Return the leading axes of the first leaf of a state that the template does not have."""
    for shape, leaf in zip(jax.tree.leaves(expected), jax.tree.leaves(state), strict=False):
        return tuple(jnp.shape(leaf)[: max(jnp.ndim(leaf) - len(shape.shape), 0)])
    return ()
