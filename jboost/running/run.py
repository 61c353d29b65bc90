"""Running a learner over arrays: predict, then learn, folded over time."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from numpy.typing import ArrayLike

from jboost.core import Key, Learner, State, checks, forks
from jboost.core.guards import mismatch
from jboost.core.learner import instance, required_key
from jboost.core.numerics import LARGEST, as_array, cast
from jboost.core.squared_errors import mean_squared_error
from jboost.core.step import Observe, Trace, pairs
from jboost.core.template import template
from jboost.engine import fold
from jboost.engine.plan import inside_a_transformation
from jboost.engine.start import start
from jboost.wrappers.targets import Separate, Targets, targets


def run(
    model: Learner,
    xs: ArrayLike,
    ds: ArrayLike,
    key: Key = None,
    state: State = None,
    observe: Observe | None = None,
    *,
    on_bad: str = "skip",
) -> tuple[State, Trace]:
    """Run a model over a stream: at every sample predict, then learn.

    A run cut anywhere and continued with the returned state and the same key is the same run, bit
    for bit. The loop is compiled as a whole, and works inside ``jit``, ``vmap`` and ``grad``.

    Args:
      model: any learner.
      xs: (T, r) inputs, real numbers; T ≥ 1. Integers, booleans and half precision are cast to
        JAX's default float; float64 is kept where JAX has it switched on, else cast to float32.
      ds: (T,) targets, likewise; or (T, q), several targets at once: the model is then made one of
        q targets by :func:`jboost.targets`, predictions are (T, q), and of a row that lacks some of
        its targets the others are learned.
      key: a ``jax.random.key``, for models that draw; it names the run: resume with the same one.
      state: where to continue; by default ``model.init``.
      observe: ``observe(state, info) -> pytree``, stacked over time as ``trace.observed``.
        ``state`` is the one after the sample; ``info`` has x, d, prediction and what the model
        reports (a booster: y, e, lam, delta, z, updates). A function defined once compiles once;
        a new lambda compiles anew.
      on_bad: "skip" leaves the state untouched by a sample that holds NaN, infinity or a number
        beyond 1e15, and marks it in ``trace.skipped``; "raise" refuses such a stream (where it is
        concrete).

    Returns:
      The final state, and the trace.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> state, trace = jb.run(jb.Newton(0.99), xs, ds)
    >>> trace.prediction.shape, int(trace.skipped.sum())
    ((500,), 0)
    """
    forks.check()
    instance("model", model)
    checks.choice("on_bad", on_bad, ("skip", "raise"))
    if observe is not None:
        checks.function("observe", observe, "(state, info), or None")
    answers = as_array("ds", ds, "(T,) or (T, q)")
    refuse_several(model, answers)
    if answers.ndim == 2 and answers.shape[1] > 1 and not isinstance(model, Targets):
        model = targets(model, answers.shape[1])
    xs, ds, dtype = checked_stream(xs, ds, jnp.result_type(float), targets_of(model))
    xs, ds = cast(xs, dtype), cast(ds, dtype)
    key = checked_key(model, key)
    if on_bad == "raise":
        _refuse_bad(model, xs, ds)
    traced = inside_a_transformation(model, state, xs, ds, key)
    if state is None:
        state = initial(model, xs.shape[1], xs.dtype, key, traced=traced)
    else:
        check_state(model, state, xs, key)
    if isinstance(model, Separate) and observe is None and not traced:
        return _on_all_cores(model, state, xs, ds, key)
    return fold(model, state, xs, ds, key, observe, traced=traced)


def mse(model: Learner, xs: ArrayLike, ds: ArrayLike, key: Key = None) -> Array:
    """Return the mean squared error of a run from the start, differentiable in the model's floats.

    Every prediction counts, the first ones too; samples whose target is not usable do not. Of
    several targets, (T, q), it is the mean over all; of a forecaster, over all pairs of a forecast
    and its answer.

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> slope = jax.grad(lambda mu: jb.mse(jb.SGD(mu), xs, ds))(0.01)
    >>> bool(slope < 0)  # a larger step would do better
    True
    """
    _, trace = run(model, xs, ds, key)
    answers = as_array("ds", ds, "(T,)")
    if trace.due is not None:
        return mean_squared_error(*pairs(trace, cast(answers, trace.due.dtype)))
    return mean_squared_error(trace.prediction.ravel(), answers.ravel())


def initial(
    model: Learner, num_features: int, dtype: DTypeLike, key: Key, *, traced: bool | None = None
) -> State:
    """Return the state before any data; ``traced`` is as for :func:`jboost.engine.fold`."""
    if traced is None:
        traced = inside_a_transformation(model, key)
    if traced:
        return model.init(num_features, np.dtype(dtype), key=key)
    return start(model, num_features, dtype, key)


def refuse_several(model: Learner, answers: Array | np.ndarray) -> None:
    """Refuse several targets of a forecaster."""
    if model.ahead and answers.ndim == 2 and answers.shape[1] > 1:
        advice = "make a forecaster of each column"
        raise ValueError(f"a forecaster has one target; got ds of {answers.shape}: {advice}")


def targets_of(model: Learner) -> int | None:
    """Return the number of targets of a model of several, None for a model of one."""
    return model.q if isinstance(model, Targets) else None


def checked_stream(
    xs: ArrayLike, ds: ArrayLike, default: DTypeLike, q: int | None = None
) -> tuple[Array | np.ndarray, Array | np.ndarray, np.dtype]:
    """Return a stream's inputs and targets as arrays, and the dtype to cast them to.

    ``default`` is JAX's default float, which may differ between threads. With ``q`` targets ds is
    (T, q).
    """
    shape = "(T,)" if q is None else f"(T, {q})"
    inputs, answers = as_array("xs", xs, "(T, r)"), as_array("ds", ds, shape)
    check_shapes(inputs, answers, q)
    double = np.float64 in (inputs.dtype, answers.dtype) and default == np.float64
    single = all(array.dtype == np.float32 for array in (inputs, answers))
    dtype = np.dtype(np.float64 if double else np.float32 if single else default)
    return inputs, answers, dtype


def check_shapes(xs: Array | np.ndarray, ds: Array | np.ndarray, q: int | None = None) -> None:
    """Refuse inputs that are not (T, r) and targets that are not (T,), or (T, q)."""
    if xs.ndim != 2:
        hint = "; for one feature pass xs[:, None]" if xs.ndim == 1 else ""
        raise ValueError(f"xs must have shape (T, r); got {xs.shape}{hint}")
    if q is not None and (ds.ndim != 2 or ds.shape[1] != q):
        raise ValueError(f"ds must have shape (T, {q}), a column per target; got {ds.shape}")
    if q is None and ds.ndim != 1:
        hint = "; pass ds[:, 0]" if ds.ndim == 2 and ds.shape[1] == 1 else ""
        raise ValueError(f"ds must have shape (T,), here ({xs.shape[0]},); got {ds.shape}{hint}")
    if len(ds) != len(xs):
        lengths = f"{len(xs)} rows and {len(ds)} targets"
        raise ValueError(f"xs and ds must be equally long; got {lengths}")
    if min(xs.shape) == 0:
        raise ValueError(f"xs must have at least one row and one column; got shape {xs.shape}")


def checked_key(model: Learner, key: Key) -> Key:
    """Return the key of a run, which may be None where the model draws nothing."""
    if model.needs_key:
        required_key(key)
    if key is not None and jnp.ndim(checks.key("key", key)):
        raise ValueError(f"key must be one key; got an array of shape {key.shape}: vmap over it")
    return key


def check_state(model: Learner, state: State, xs: Array | np.ndarray, key: Key) -> None:
    """Refuse a state that this model does not make for this width and dtype."""
    problem = mismatch(template(model, xs.shape[1], xs.dtype.name, key), state)
    if problem is not None:
        raise ValueError(
            f"state does not belong to this model on xs of {xs.shape[1]} columns and dtype "
            f"{xs.dtype}: {problem}. Pass the state that a run of the same model returned"
        )


def _refuse_bad(model: Learner, xs: Array, ds: Array) -> None:
    """Name the first row that would be skipped."""
    if checks.is_traced(xs) or checks.is_traced(ds):
        return
    numbers = np.asarray(ds).reshape(len(xs), -1)
    if not model.takes_missing:
        numbers = np.column_stack([xs, numbers])
    bad = np.any(~(np.abs(numbers) < LARGEST), axis=1)  # a comparison with NaN is False
    if bad.any():
        raise bad_rows(xs, ds, bad)


def bad_rows(
    xs: Array | np.ndarray, ds: Array | np.ndarray, bad: np.ndarray, start: int | None = None
) -> ValueError:
    """Return the error of rows that must not be skipped; ``start`` is where their block begins."""
    row = int(np.argmax(bad))
    where = "all" if start is None else "this block"
    return ValueError(
        f"row {(start or 0) + row} of the stream holds NaN, infinity or a number beyond 1e15 "
        f"(x = {np.asarray(xs)[row]}, d = {np.asarray(ds)[row]}); {int(bad.sum())} such "
        f"rows in {where}. Clean them, or pass on_bad='skip' to leave them out"
    )


def _on_all_cores(
    model: Separate, state: State, xs: Array, ds: Array, key: Key
) -> tuple[State, Trace]:
    """Run each target by itself, as the engine would not lay out a ``vmap`` over the targets."""
    double: Any = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def run_target(j: int) -> tuple[State, Trace]:
        with jax.enable_x64(double):  # which threads do not inherit
            return jax.block_until_ready(fold(model.alone(j), states[j], xs, columns[j], key))

    states, columns = _apart(state, ds)
    first = run_target(0)  # compiles
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return _joined([first, *pool.map(run_target, range(1, model.q))])


# Each as one call: a hundred small operations by themselves take as long as a short run.
@jax.jit
def _apart(state: State, ds: Array) -> tuple[list[State], list[Array]]:
    numbers = range(ds.shape[1])
    return [jax.tree.map(lambda a, j=j: a[j], state) for j in numbers], [ds[:, j] for j in numbers]


@jax.jit
def _joined(runs: list[tuple[State, Trace]]) -> tuple[State, Trace]:
    states, traces = zip(*runs, strict=True)
    state = jax.tree.map(lambda *rows: jnp.stack(rows), *states)
    return state, jax.tree.map(lambda *columns: jnp.stack(columns, axis=1), *traces)
