"""Running a learner over a stream: predict, score, then learn, folded over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.core import checks
from jboost.core.arrays import as_array, cast
from jboost.core.errors import ase as ase
from jboost.core.errors import mean_squared_error
from jboost.core.learner import Learner, State
from jboost.core.numerics import usable
from jboost.core.template import mismatch, template
from jboost.engine import fold as engine

Observe = Callable[[State, "Info"], Any]


@jax.tree_util.register_pytree_node_class
class Info(dict[str, Any]):
    """What is known about one step: ``info["lam"]`` or ``info.lam``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(sorted(self))
            raise AttributeError(f"this model reports no {name!r}; it reports {known}") from None

    def tree_flatten(self) -> tuple[list[Any], tuple[str, ...]]:
        names = tuple(sorted(self))
        return [self[name] for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], values: list[Any]) -> Info:
        return cls(zip(names, values, strict=True))


class Trace(NamedTuple):
    """What a run leaves behind, over time.

    prediction: (T,), each made before its answer was seen.
    skipped: (T,), True where nothing was learned because x or d was NaN, infinite or beyond 1e15.
    observed: what ``observe`` returned, stacked; None without it.
    """

    prediction: Array
    skipped: Array
    observed: Any


def run(
    model: Learner,
    xs: Any,
    ds: Any,
    key: Any = None,
    state: State = None,
    observe: Observe | None = None,
    *,
    on_bad: str = "skip",
) -> tuple[State, Trace]:
    """Run a model over a stream: at every sample predict, then learn.

    A run cut anywhere and continued with the returned state and the same key is the same run, bit
    for bit. It is one compiled ``lax.scan``, and works inside ``jit``, ``vmap`` and ``grad``.

    Args:
      model: any learner.
      xs: (T, r) inputs, real numbers; T ≥ 1. Integers, booleans and half precision are cast to
        JAX's default float; float64 is kept where JAX has it switched on, else cast to float32.
      ds: (T,) targets, likewise; or (T, q), several targets at once (:func:`jboost.multi.run`).
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
    checks.instance("model", model, Learner, "a learner such as bsgd_wu(…) or SGD(step_size=0.1)")
    checks.choice("on_bad", on_bad, ("skip", "raise"))
    if observe is not None and not callable(observe):
        raise TypeError(f"observe must be a function of (state, info), or None; got {observe!r}")
    ds = as_array("ds", ds, "(T,)")
    if ds.ndim == 2 and ds.shape[1] > 1 and on_bad == "skip":
        from jboost.running import targets as multi

        return multi.run(model, xs, ds, key, state, observe)
    xs, ds = _stream(xs, ds)
    if model.needs_key:
        key = checked_key(key)
    if on_bad == "raise":
        _refuse_bad(model, xs, ds)
    traced = engine.inside_a_transformation(model, state, xs, ds, key)
    if state is None:
        state = initial(model, xs.shape[1], xs.dtype, key, traced=traced)
    else:
        check_state(model, state, xs, key)
    return engine.fold(scan, model, state, xs, ds, key, observe, traced=traced)


def mse(model: Learner, xs: Any, ds: Any, key: Any = None) -> Array:
    """The mean squared error of a run from the start, differentiable in the model's floats.

    Every prediction counts, the first ones too; samples whose target is not usable do not. Of
    several targets, (T, q), it is the mean over all.

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> slope = jax.grad(lambda mu: jb.mse(jb.SGD(mu), xs, ds))(0.01)
    >>> bool(slope < 0)  # a larger step would do better
    True
    """
    _, trace = run(model, xs, ds, key)
    prediction, ds = trace.prediction, as_array("ds", ds, "(T,)")
    if prediction.ndim == 2:
        prediction, ds = prediction.ravel(), ds.ravel()
    return mean_squared_error(prediction, ds)


def learns_from(model: Learner, x: Array, d: Array) -> Array:
    """Whether a sample is one the model learns from."""
    return usable(d) if model.takes_missing else usable(d) & jnp.all(usable(x))


def initial(
    model: Learner, num_features: int, dtype: Any, key: Any, *, traced: bool | None = None
) -> State:
    """The state before any data; ``traced`` where it is known whether a transformation runs."""
    if traced is None:
        traced = engine.inside_a_transformation(model, key)
    make = _init if traced else _initial
    return make(model, num_features, jnp.dtype(dtype), key)


def _init(model: Learner, num_features: int, dtype: Any, key: Any) -> State:
    return model.init(num_features, dtype, key=key)


# Run once, it need not be fast: unoptimised it compiles in a third of the time.
_initial = jax.jit(
    _init,
    static_argnames=("num_features", "dtype"),
    compiler_options={"xla_backend_optimization_level": 0},
)


def scan(
    model: Learner, state: State, xs: Array, ds: Array, key: Any, observe: Observe | None
) -> tuple[State, Trace]:
    """The fold over time: predict, then learn."""

    def step(state: State, sample: tuple[Array, Array]) -> tuple[State, Trace]:
        x, d = sample
        prediction = model.predict(state, x)
        after = model.update(state, x, d, key=key)
        observed = None
        if observe is not None:
            reported = model.info(state, x, d, key)
            observed = observe(after, Info(reported, x=x, d=d, prediction=prediction))
        return after, Trace(prediction, ~learns_from(model, x, d), observed)

    return jax.lax.scan(step, state, (xs, ds))


def _stream(xs: Any, ds: Any) -> tuple[Array, Array]:
    """(T, r) and (T,), of one float dtype."""
    xs, ds, dtype = checked(xs, ds, jnp.result_type(float))
    return cast(xs, dtype), cast(ds, dtype)


def checked(xs: Any, ds: Any, default: Any) -> tuple[Any, Any, Any]:
    """A stream's inputs and targets as arrays, and the dtype to cast them to.

    ``default`` is JAX's default float, which may differ between threads.
    """
    xs, ds = as_array("xs", xs, "(T, r)"), as_array("ds", ds, "(T,)")
    check_shapes(xs, ds)
    double = np.float64 in (xs.dtype, ds.dtype) and default == np.float64
    single = all(array.dtype == np.float32 for array in (xs, ds))
    return xs, ds, np.dtype(np.float64 if double else np.float32 if single else default)


def check_shapes(xs: Any, ds: Any) -> None:
    """Inputs (T, r) and targets (T,), T and r at least 1."""
    if xs.ndim != 2:
        hint = "; for one feature pass xs[:, None]" if xs.ndim == 1 else ""
        raise ValueError(f"xs must have shape (T, r); got {xs.shape}{hint}")
    if ds.ndim != 1:
        hint = "; pass ds[:, 0]" if ds.ndim == 2 and ds.shape[1] == 1 else ""
        raise ValueError(f"ds must have shape (T,), here ({xs.shape[0]},); got {ds.shape}{hint}")
    if len(ds) != len(xs):
        raise ValueError(
            f"xs and ds must be equally long; got {len(xs)} rows and {len(ds)} targets"
        )
    if min(xs.shape) == 0:
        raise ValueError(f"xs must have at least one row and one column; got shape {xs.shape}")


def checked_key(key: Any) -> Any:
    if key is None:
        raise ValueError("key is missing: this model draws at random; pass key=jax.random.key(0)")
    checks.key("key", key)
    if jnp.ndim(key):
        raise ValueError(f"key must be one key; got an array of shape {key.shape}: vmap over it")
    return key


def _refuse_bad(model: Learner, xs: Array, ds: Array) -> None:
    """Name the first row that would be skipped."""
    if checks.is_traced(xs) or checks.is_traced(ds):
        return
    good = np.asarray(_good(model, xs, ds))
    if not good.all():
        raise bad_rows(xs, ds, ~good)


@jax.jit
def _good(model: Learner, xs: Array, ds: Array) -> Array:
    return jax.vmap(lambda x, d: learns_from(model, x, d))(xs, ds)


def bad_rows(xs: Any, ds: Any, bad: np.ndarray, start: int | None = None) -> ValueError:
    """What to say of rows that must not be skipped; ``start`` is where their block begins."""
    row = int(np.argmax(bad))
    where = "all" if start is None else "this block"
    return ValueError(
        f"row {(start or 0) + row} of the stream holds NaN, infinity or a number beyond 1e15 "
        f"(x = {np.asarray(xs)[row]}, d = {np.asarray(ds)[row]}); {int(bad.sum())} such "
        f"rows in {where}. Clean them, or pass on_bad='skip' to leave them out"
    )


def check_state(model: Learner, state: State, xs: Array, key: Any) -> None:
    """A state to continue from must be one this model makes for this width and dtype."""
    problem = mismatch(template(model, xs.shape[1], xs.dtype.name, key), state)
    if problem is not None:
        raise ValueError(
            f"state does not belong to this model on xs of {xs.shape[1]} columns and dtype "
            f"{xs.dtype}: {problem}. Pass the state that a run of the same model returned"
        )
