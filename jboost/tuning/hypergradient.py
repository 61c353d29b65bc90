"""The error of a run and its gradient in chosen settings of the model.

Forward mode carries the state and its derivative in every chosen number, and keeps nothing over
time. The cost of reverse mode does not depend on how many numbers are chosen. It keeps the state at
√T times and runs each stretch between two of them again, so its memory grows as √T.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jboost.core import Key, Learner, State, checks, static
from jboost.core import model as pytree
from jboost.core.learner import instance
from jboost.core.numerics import Sum, usable
from jboost.core.step import Observe, Trace, over_time, step
from jboost.core.template import template
from jboost.engine.loop import call
from jboost.running.run import checked_key, checked_stream
from jboost.settings import leaves
from jboost.settings.surrogates import SURROGATES, relaxed

Metric = Callable[[Trace, Array], ArrayLike]

# The work of forward mode grows with the count of chosen numbers. Measured on boosted SGD and
# Newton learners with 3 and 20 features: reverse mode is the faster one from 16 to 32 numbers on.
MOST_FORWARD = 16


def hypergradient(
    model: Learner,
    xs: ArrayLike,
    ds: ArrayLike,
    key: Key = None,
    wrt: str | Iterable[str] = ("step_size",),
    *,
    metric: Metric | None = None,
    observe: Observe | None = None,
    method: str | None = None,
    surrogate: str = "straight-through",
) -> tuple[Array, dict[str, Array]]:
    """Return the mean squared error of a run from the start, and its gradient in settings.

    Args:
      model: any learner.
      xs: (T, r) inputs.
      ds: (T,) targets.
      key: a ``jax.random.key``, for models that draw; boosters do not under "expected".
      wrt: names of floats of the model: a field's name ("step_size"), or a path where the name is
        ambiguous ("combiner.step_size", "learner[0].step_size").
      metric: ``metric(trace, ds) -> scalar``, which is differentiated in place of the mean squared
        error. It sees the whole trace, so memory grows with T.
      observe: as for :func:`jboost.run`; the metric finds its record in ``trace.observed``.
      method: "forward" (memory independent of T) or "reverse" (memory as √T); by default forward
        for up to 16 numbers.
      surrogate: how a whole number of repeats is differentiated: "straight-through" (the value is
        that of the run) or "expected" (value and gradient are those of a smooth model); see
        :mod:`jboost.settings.surrogates`.

    Returns:
      The value, and for each name an array of the shape of its float.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model = jb.bsgd_wu(m=5, target_mse=0.25, step_size=0.001)
    >>> value, grads = hypergradient(model, xs, ds, wrt=("step_size", "target_mse"))
    >>> bool(grads["step_size"] < 0)  # a larger step would do better
    True
    """
    instance("model", model)
    checks.choice("surrogate", surrogate, SURROGATES)
    if method is not None:
        checks.choice("method", method, ("forward", "reverse"))
    if metric is not None:
        checks.function("metric", metric, "(trace, ds), or None")
    if observe is not None:
        checks.function("observe", observe, "(state, info), or None")
    inputs, targets, dtype = checked_stream(xs, ds, jnp.result_type(float))
    inputs, targets = jnp.asarray(inputs, dtype), jnp.asarray(targets, dtype)
    key = checked_key(relaxed(model, surrogate), key)
    places = leaves.places(model, wrt)
    values = [jnp.asarray(leaf, dtype) for leaf in leaves.take(model, places.values())]
    count = sum(value.size for value in values)
    # The engine goes by the size of what is carried: here the state and its derivatives.
    state = template(model, inputs.shape[1], inputs.dtype.name, key)
    carried = sum(leaf.size for leaf in jax.tree.leaves(state)) * (1 + count) * dtype.itemsize

    def solve(method: str) -> tuple[Array, list[Array]]:
        problem = _Problem(values, model, tuple(places.values()), method, metric, surrogate)
        return call(_solve, carried, (problem, inputs, targets), key, observe)

    try:
        value, slopes = solve(method or ("forward" if count <= MOST_FORWARD else "reverse"))
    except ValueError as error:
        if "Reverse-mode differentiation does not work" not in str(error):
            raise
        if method is not None:
            reason = "a learner repeats its updates in a loop, as a booster inside DataReuse does"
            raise ValueError(f"method='reverse': {reason}; use method='forward'") from None
        value, slopes = solve("forward")
    return value, dict(zip(places, slopes, strict=True))


@pytree
class _Problem:
    """What is differentiated: the error of a model as a function of some of its settings.

    The last three fields are arguments of :func:`hypergradient`.
    """

    values: list[Array]  # the settings at which the gradient is computed
    model: Learner  # the model; its values of these settings are not used
    places: tuple[int, ...] = static()  # where the settings are among the leaves of the model
    method: str = static()
    metric: Metric | None = static()
    surrogate: str = static()


class _Score(NamedTuple):
    """A run so far."""

    state: State  # the model's state
    loss: Sum  # the sum of the squared errors, 0 at the start
    seen: Array  # how many targets were usable, 0 at the start


def _solve(
    problem: _Problem, xs: Array, ds: Array, key: Key, observe: Observe | None
) -> tuple[Array, list[Array]]:
    """Return the error and its slopes."""

    def error(values: list[Array]) -> Array:
        model = relaxed(leaves.put(problem.model, problem.places, values), problem.surrogate)
        state = model.init(xs.shape[1], xs.dtype, key=key)
        if problem.metric is not None:
            trace = over_time(model, state, xs, ds, key, observe)[1]
            value = jnp.asarray(problem.metric(trace, ds))
            if value.ndim or not jnp.issubdtype(value.dtype, jnp.floating):
                kind = f"{value.dtype}{[*value.shape]}"
                raise TypeError(f"metric must return one real number; got an array of {kind}")
            return value
        walk = _walk if problem.method == "forward" else _walk_in_stretches
        start = _Score(state, Sum.zeros((), xs.dtype), jnp.zeros((), jnp.int32))
        end = walk(model, start, xs, ds, key)
        return end.loss.total / jnp.maximum(end.seen, 1).astype(xs.dtype)

    if problem.method == "reverse":
        return jax.value_and_grad(error)(problem.values)
    flat, unravel = ravel_pytree(problem.values)

    def along(direction: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda flat: error(unravel(flat)), (flat,), (direction,))

    # A derivative of the whole run along each number; the run itself is computed once.
    value, slopes = jax.vmap(along, out_axes=(None, 0))(jnp.eye(flat.size, dtype=flat.dtype))
    return value, unravel(slopes)


def _walk(model: Learner, score: _Score, xs: Array, ds: Array, key: Key) -> _Score:
    """Run over the samples; a target that is not usable does not count."""

    def scored_step(score: _Score, sample: tuple[Array, Array]) -> tuple[_Score, None]:
        x, d = sample
        after, trace = step(model, score.state, x, d, key)
        estimate, answer = trace.prediction, d
        if trace.due is not None:
            there = ~jnp.isnan(trace.due)
            estimate, answer = jnp.where(there, trace.due, 0), jnp.where(there, d, jnp.nan)
        counted = usable(answer)
        e = jnp.where(counted, estimate - jnp.where(counted, answer, 0), 0)
        seen = score.seen + jnp.sum(counted, dtype=jnp.int32)
        return _Score(after, score.loss.add(jnp.sum(jnp.square(e))), seen), None

    return jax.lax.scan(scored_step, score, (xs, ds))[0]


def _walk_in_stretches(model: Learner, score: _Score, xs: Array, ds: Array, key: Key) -> _Score:
    """As :func:`_walk`; the way back runs √T stretches again, each from the score at its start."""
    width = math.isqrt(len(xs))
    count = len(xs) // width

    @jax.checkpoint
    def stretch(model: Learner, score: _Score, first: Array) -> _Score:
        x, d = (jax.lax.dynamic_slice_in_dim(a, first, width) for a in (xs, ds))
        return _walk(model, score, x, d, key)

    starts = width * jnp.arange(count)
    score, _ = jax.lax.scan(lambda score, t: (stretch(model, score, t), None), score, starts)
    if count * width < len(xs):
        score = _walk(model, score, xs[count * width :], ds[count * width :], key)
    return score
