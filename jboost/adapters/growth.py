"""Carries what a model has learned over to wider inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.boosting.booster import BoostedState
from jboost.core import Key, Learner, State
from jboost.core.learner import float_dtype
from jboost.engine.kernel import quickly
from jboost.transforms.pipelines import PipelineState
from jboost.transforms.target import ScaledState


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
    same = np.isclose(before, after, rtol=1e-3, atol=1e-3)
    if not same.any():
        return None

    def restart(state: State, new: State) -> State:
        if not isinstance(state, BoostedState):
            return state
        learners, start = [], 0
        for group, new_group in zip(state.learners, new.learners, strict=True):
            stop = start + len(jax.tree.leaves(group)[0])
            learners.append(group if same[start:stop].all() else _first_state(group, new_group))
            start = stop
        return state._replace(learners=tuple(learners))

    return jax.tree.map(restart, filled, new, is_leaf=lambda node: isinstance(node, BoostedState))


@quickly
def _estimates(model: Learner, state: State, x: Array, key: Key) -> Array:
    """Return the estimate of each learner of a booster, or else the estimate of the model."""
    reported = model.info(state, model.sample(state, x, jnp.nan, key=key))
    return reported["y"] if "y" in reported else model.predict(state, x)[None]


def _fill(new: State, old: State) -> State:
    """Return ``new`` with the numbers of ``old`` wherever the structures of both agree."""
    if jax.tree.structure(new) == jax.tree.structure(old):
        return jax.tree.map(_fill_array, new, old)
    if isinstance(new, tuple) and type(new) is type(old) and len(new) == len(old):
        children = map(_fill, new, old)
        return type(new)(*children) if hasattr(new, "_fields") else tuple(children)
    return new


def _fill_array(new: Array, old: Array) -> Array:
    """Return ``new`` with ``old`` at the end of every axis; ``new`` as it is if that is smaller."""
    if new.ndim != old.ndim or any(n < o for n, o in zip(new.shape, old.shape, strict=True)):
        return new
    ends = tuple(slice(n - o, n) for n, o in zip(new.shape, old.shape, strict=True))
    return new.at[ends].set(old)


def _first_state(state: State, new: State) -> State:
    """Return a learner's first state, behind the scales that were learned before it."""
    if isinstance(state, (PipelineState, ScaledState)):
        return state._replace(learner=_first_state(state.learner, new.learner))
    return new
