"""One step of a run: predict, then learn. And the fold of it over time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core.learner import Learner, State
from jboost.core.pytree import Key


class Info(dict[str, Any]):
    """What is known about one step: ``info["lam"]`` or ``info.lam``.

    ``info.before()`` is the state before the sample, as the prediction was made.
    """

    before: Callable[[], State]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            names = ", ".join(sorted(self))
            raise AttributeError(f"this model reports no {name!r}; it reports {names}") from None


jax.tree_util.register_pytree_node(
    Info,
    lambda info: ([info[name] for name in sorted(info)], tuple(sorted(info))),
    lambda names, values: Info(zip(names, values, strict=True)),
)

Observe = Callable[[State, Info], Any]


class Trace(NamedTuple):
    """What a run leaves behind, over time."""

    prediction: Array  # (T,), each made before its answer was seen; (T, H) of a forecaster
    skipped: Array  # (T,), whether nothing was learned: x or d was NaN, infinite or beyond 1e15
    observed: Any  # what `observe` returned, stacked; None without it
    # Of a forecaster: what was forecast of each row, 1 … H rows before it, NaN where nothing was,
    # (T, H). None for any other model.
    due: Any = None

    def _repr_html_(self) -> str:
        skipped = int(self.skipped.sum())
        note = f"; nothing was learned from {skipped:,} of the samples" if skipped else ""
        return f"<p>{self.prediction.shape[0]:,} predictions{note}</p>"  # in a notebook


def step(
    model: Learner, state: State, x: Array, d: Array, key: Key, observe: Observe | None = None, *,
    weight: ArrayLike = 1.0,
) -> tuple[State, Trace]:  # fmt: skip
    """Predict, then learn; return the state after the sample and the trace of the step."""
    sample = model.sample(state, x, d, weight=weight, key=key)
    prediction, after = model.predict_and_learn(state, sample)
    observed = None
    if observe is not None:
        reported = model.info(state, sample)
        info = Info(reported, x=x, d=d, prediction=prediction)
        info.before = lambda: state
        observed = observe(after, info)
    due = model.due(state, sample) if model.ahead else None
    return after, Trace(prediction, ~sample.good, observed, due)


def pairs(trace: Trace, ds: Array) -> tuple[Array, Array]:
    """Return estimates and answers that belong together, (n,) each; NaN where an answer lacks.

    A forecaster has H estimates of each answer.
    """
    if trace.due is None:
        return trace.prediction.ravel(), ds.ravel()
    there = ~jnp.isnan(trace.due)
    answers = jnp.where(there, ds[:, None], jnp.nan)
    return jnp.where(there, trace.due, 0).ravel(), answers.ravel()


def over_time(
    model: Learner, state: State, xs: Array, ds: Array, key: Key, observe: Observe | None = None
) -> tuple[State, Trace]:
    """Fold :func:`step` over the rows of a stream."""
    return jax.lax.scan(
        lambda state, sample: step(model, state, *sample, key, observe), state, (xs, ds)
    )
