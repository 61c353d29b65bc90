"""A state for new streams to start from: the average of what many streams have learned."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jboost.core import Learner, State, checks
from jboost.core.learner import instance
from jboost.core.template import size_of

WEIGHTS = ("w",)  # what the weights of linear learners are called in their states


def average(model: Learner, states: State, num_features: int | None = None) -> State:
    """Return the model's state at its start, with the mean weights of many streams.

    The weights of linear learners (``SGD``, ``NLMS``, ``Newton``, and boosters of them) are
    averaged; all else is as before any data, so that a stream is as quick to learn as a new one.

    Args:
      model: the model of the streams; it must not draw its start.
      states: their states, stacked, as ``fleet.states(state)`` returns them.
      num_features: the number of inputs; by default it is found from the states.

    >>> import jboost as jb
    >>> model = jb.SGD(0.5)
    >>> fleet = jb.Fleet(model, 1)
    >>> state, _ = fleet.run(fleet.init(), ["a", "b"], [[1.0], [1.0]], [2.0, 4.0])
    >>> start = average(model, fleet.states(state))
    >>> later = jb.Fleet(model, 1, start=start)
    >>> start.w.tolist(), later.predict(later.init(), ["c"], [[2.0]]).tolist()
    ([1.5], [3.0])
    """
    instance("model", model)
    if model.needs_key:
        raise ValueError("model must not draw: its streams have no start in common")
    size = size_of(model, states, None, num_features)
    if len(size.batch) != 1:
        raise ValueError(f"states must be stacked, as fleet.states returns; got {size.batch}")
    start = model.init(size.num_features, jnp.dtype(size.dtype))
    found = 0

    def mean(path: tuple[object, ...], first: jax.Array, stacked: jax.Array) -> jax.Array:
        nonlocal found
        if getattr(path[-1], "name", None) not in WEIGHTS or stacked.dtype.kind != "f":
            return first
        found += 1
        return jnp.asarray(np.mean(np.asarray(stacked), axis=0, dtype=np.float64), first.dtype)

    averaged = jax.tree_util.tree_map_with_path(mean, start, states)
    if not found:
        raise ValueError(f"model must have linear learners in it; got {checks.shown(model)}")
    return averaged
