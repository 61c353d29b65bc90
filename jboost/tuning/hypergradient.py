"""The error of a run and its gradient in chosen hyperparameters.

Forward mode carries, beside the state, its derivative in every chosen number, and adds up the
squared errors as it goes: nothing is kept over time. Reverse mode costs the same for any count of
numbers; it keeps the state at √T places, runs each stretch between two of them again, and keeps
what it needs of that stretch only, so its memory grows as √T.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from jboost.core import checks
from jboost.core.learner import Learner, State
from jboost.core.numerics import Sum, usable
from jboost.core.step import Observe, Trace, over_time, step
from jboost.core.template import template
from jboost.engine.folds import call
from jboost.running.run import checked_key, checked_stream
from jboost.settings import leaves
from jboost.settings.surrogates import SURROGATES, relaxed

Metric = Callable[[Trace, Array], Any]

# Measured on boosted SGD and Newton learners, 3 and 20 features: from 16 to 32 numbers on reverse
# mode is the faster one, forward mode's work being the state times their count.
MOST_FORWARD = 16


def hypergradient(
    model: Learner,
    xs: Any,
    ds: Any,
    key: Any = None,
    wrt: str | Iterable[str] = ("step_size",),
    *,
    metric: Metric | None = None,
    observe: Observe | None = None,
    method: str | None = None,
    surrogate: str = "straight-through",
) -> tuple[Array, dict[str, Array]]:
    """The mean squared error of a run from the start, and its gradient in the model's floats.

    Args:
      model: any learner.
      xs: (T, r) inputs.
      ds: (T,) targets.
      key: a ``jax.random.key``, for models that draw; "expected" has no draws of modes.
      wrt: names of floats: a field's name ("step_size"), or a path where that is ambiguous
        ("combiner.step_size", "learner[0].step_size"). A float that copies share is one number,
        one given per copy is (m,) numbers.
      metric: ``metric(trace, ds) -> scalar``, to differentiate in place of the mean squared error.
        It sees the whole trace, so memory then grows with T. A function defined once compiles once.
      observe: as for :func:`jboost.run`: what ``trace.observed`` holds for the metric.
      method: "forward" (memory independent of T), "reverse" (memory as √T), or None: forward for up
        to 16 numbers.
      surrogate: what the derivative of a whole number of repeats is, for boosters that do not use
        weighted updates: "straight-through" (the run's own value) or "expected" (value and gradient
        of a smooth relaxation); see :mod:`jboost.settings.surrogates`.

    Returns:
      The value, and for each name an array of its float's shape.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model = jb.bsgd_wu(m=5, target_mse=0.25, step_size=0.001)
    >>> value, grads = hypergradient(model, xs, ds, wrt=("step_size", "target_mse"))
    >>> bool(grads["step_size"] < 0)  # a larger step would do better
    True
    """
    checks.instance("model", model, Learner, "a learner such as bsgd_wu(…) or SGD(step_size=0.1)")
    checks.choice("surrogate", surrogate, SURROGATES)
    if method is not None:
        checks.choice("method", method, ("forward", "reverse"))
    xs, ds, dtype = checked_stream(xs, ds, jnp.result_type(float))
    xs, ds = jnp.asarray(xs, dtype), jnp.asarray(ds, dtype)
    if relaxed(model, surrogate).needs_key:
        key = checked_key(key)
    places = leaves.places(model, wrt)
    chosen = [jnp.asarray(leaf, dtype) for leaf in leaves.take(model, places.values())]
    count = sum(leaf.size for leaf in chosen)
    way = method or ("forward" if count <= MOST_FORWARD else "reverse")
    question = _Question(chosen, model, tuple(places.values()), way, metric, surrogate)
    # The engine goes by the size of what is carried: here the state and its derivatives.
    state = template(model, xs.shape[1], xs.dtype.name, key)
    carried = sum(leaf.size for leaf in jax.tree.leaves(state)) * (1 + count) * dtype.itemsize
    value, slopes = _ask(question, carried, xs, ds, key, observe, insist=method is not None)
    return value, dict(zip(places, slopes, strict=True))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("chosen", "model"),
    meta_fields=("places", "method", "metric", "surrogate"),
)
@dataclasses.dataclass(frozen=True)
class _Question:
    """What is differentiated: a model, and apart from it the floats that are varied."""

    chosen: list[Array]
    model: Learner
    places: tuple[int, ...]
    method: str
    metric: Metric | None
    surrogate: str

    def at(self, values: list[Array]) -> Learner:
        return relaxed(leaves.put(self.model, self.places, values), self.surrogate)


def _ask(
    question: _Question,
    carried: int,
    xs: Array,
    ds: Array,
    key: Array | None,
    observe: Observe | None,
    *,
    insist: bool,
) -> tuple[Array, list[Array]]:
    """The answer; forward all the same where a loop of unknown length lets nothing back through."""
    try:
        return call(_answer, carried, (question, xs, ds), key, observe)
    except ValueError as error:
        if "Reverse-mode differentiation does not work" not in str(error):
            raise
        if insist:
            raise ValueError(
                "method='reverse' cannot pass a learner that repeats its updates in a loop, as a "
                "booster inside DataReuse does; use method='forward'"
            ) from None
    question = dataclasses.replace(question, method="forward")
    return call(_answer, carried, (question, xs, ds), key, observe)


class _Score(NamedTuple):
    """A state, and on the way to it the squared errors and how many there were."""

    state: State
    loss: Sum
    seen: Array

    @property
    def mean(self) -> Array:
        return self.loss.total / jnp.maximum(self.seen, 1).astype(self.loss.total.dtype)


def _answer(
    question: _Question, xs: Array, ds: Array, key: Array | None, observe: Observe | None
) -> tuple[Array, list[Array]]:
    way = _forward if question.method == "forward" else _reverse
    return way(question, xs, ds, key, observe)


def _forward(
    question: _Question, xs: Array, ds: Array, key: Any, observe: Any
) -> tuple[Array, list[Array]]:
    """One derivative of the whole run along each number; the run itself is computed once."""

    def error(values: list[Array]) -> Array:
        model = question.at(values)
        if question.metric is not None:
            return _metric(question.metric, model, xs, ds, key, observe)
        return _walk(model, _start(model, xs, key), xs, ds, key).mean

    flat, unravel = ravel_pytree(question.chosen)

    def along(direction: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda flat: error(unravel(flat)), (flat,), (direction,))

    basis = jnp.eye(flat.size, dtype=flat.dtype)
    value, slopes = jax.vmap(along, out_axes=(None, 0))(basis)
    return value, unravel(slopes)


def _reverse(
    question: _Question, xs: Array, ds: Array, key: Any, observe: Any
) -> tuple[Array, list[Array]]:
    """Back through √T stretches, each run again from the state kept at its start."""
    T = xs.shape[0]
    width = math.isqrt(T)
    count = T // width

    def error(values: list[Array]) -> Array:
        model = question.at(values)
        if question.metric is not None:
            return _metric(question.metric, model, xs, ds, key, observe)

        @jax.checkpoint
        def stretch(model: Learner, score: _Score, first: Array) -> _Score:
            x, d = (jax.lax.dynamic_slice_in_dim(a, first, width) for a in (xs, ds))
            return _walk(model, score, x, d, key)

        def link(score: _Score, first: Array) -> tuple[_Score, None]:
            return stretch(model, score, first), None

        score, _ = jax.lax.scan(link, _start(model, xs, key), width * jnp.arange(count))
        if count * width < T:
            score = _walk(model, score, xs[count * width :], ds[count * width :], key)
        return score.mean

    return jax.value_and_grad(error)(question.chosen)


def _start(model: Learner, xs: Array, key: Any) -> _Score:
    state = model.init(xs.shape[1], xs.dtype, key=key)
    return _Score(state, Sum.zeros((), xs.dtype), jnp.zeros((), jnp.int32))


def _walk(model: Learner, score: _Score, xs: Array, ds: Array, key: Any) -> _Score:
    """Predict, score, learn; a target that is not usable does not count."""

    def scored_step(score: _Score, sample: tuple[Array, Array]) -> tuple[_Score, None]:
        x, d = sample
        after, trace = step(model, score.state, x, d, key)
        counted = usable(d)
        e = jnp.where(counted, trace.prediction - jnp.where(counted, d, 0), 0)
        seen = score.seen + counted.astype(jnp.int32)
        return _Score(after, score.loss.add(jnp.square(e)), seen), None

    return jax.lax.scan(scored_step, score, (xs, ds))[0]


def _metric(metric: Metric, model: Learner, xs: Array, ds: Array, key: Any, observe: Any) -> Array:
    state = model.init(xs.shape[1], xs.dtype, key=key)
    value = jnp.asarray(metric(over_time(model, state, xs, ds, key, observe)[1], ds))
    if value.ndim or not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(
            f"metric must return one real number; got an array of {value.dtype}{[*value.shape]}"
        )
    return value
