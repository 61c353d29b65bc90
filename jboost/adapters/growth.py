"""Carries what a model has learned over to wider inputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.automatic.mixture import MixtureState
from jboost.boosting.booster import BoostedState
from jboost.core import Key, Learner, State
from jboost.core.learner import float_dtype
from jboost.engine.kernel import quickly
from jboost.transforms.pipelines import PipelineState, ScaledState

GROUPS = (BoostedState, MixtureState)  # states of models that hold groups of learners


def carry_over(
    model: Learner, old: State, new: State, widths: tuple[int, int], key: Key
) -> State | None:
    """Return ``new``, a first state for wider inputs, with what ``old`` has learned.

    ``widths`` are the numbers of inputs of ``old`` and of ``new``. The additional inputs come
    before the others, so the old numbers of an array belong at the end of the new one: there they
    stay next to the inputs that transforms append, such as a bias.

    The result must predict what ``old`` predicted. Learners of a booster that do not, such as
    networks with a fixed number of parameters, start from their first state. The result is None
    where no learner predicts the same.
    """
    dtype = np.dtype(float_dtype(old))
    probe = np.linspace(-1.0, 1.0, widths[0], dtype=dtype)
    wider_probe = np.append(np.zeros(widths[1] - widths[0], dtype), probe)
    filled = _fill(new, old)
    before, after = _estimates(model, old, probe, key), _estimates(model, filled, wider_probe, key)
    same = np.isclose(before, after, rtol=1e-3, atol=1e-3)  # float32 adds up in another order
    if not same.any():
        return None

    def restart(state: State, new: State) -> State:
        if not isinstance(state, GROUPS):
            return state
        learners, start = [], 0
        for group, new_group in zip(state.learners, new.learners, strict=True):
            stop = start + len(jax.tree.leaves(group)[0])
            learners.append(group if same[start:stop].all() else _first_state(group, new_group))
            start = stop
        return state._replace(learners=tuple(learners))

    return jax.tree.map(restart, filled, new, is_leaf=lambda node: isinstance(node, GROUPS))


@quickly
def _estimates(model: Learner, state: State, x: Array, key: Key) -> Array:
    """Return the estimate of each learner of a booster, or else the estimate of the model."""
    reported = model.info(state, model.sample(state, x, jnp.nan, key=key))
    return reported["y"] if "y" in reported else model.predict(state, x)[None]


def _fill(new: State, old: State) -> State:
    """Return ``new`` with each array of ``old`` at the end of its namesake, if it fits there."""
    old_arrays = dict(jax.tree_util.tree_leaves_with_path(old))

    def fill(path: tuple[Any, ...], array: Array) -> np.ndarray | Array:
        old_array = old_arrays.get(path, array)
        pairs = [*zip(array.shape, old_array.shape, strict=False)]
        if array.ndim != old_array.ndim or any(n < o for n, o in pairs):
            return array
        filled = np.array(array)  # NumPy compiles nothing
        filled[tuple(slice(n - o, n) for n, o in pairs)] = old_array
        return filled

    return jax.tree_util.tree_map_with_path(fill, new)


def _first_state(state: State, new: State) -> State:
    """Return a learner's first state, behind the scales that were learned before it."""
    if isinstance(state, (PipelineState, ScaledState)):
        return state._replace(learner=_first_state(state.learner, new.learner))
    return new
