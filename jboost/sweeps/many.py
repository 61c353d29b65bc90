"""Many runs as one program: each on its own, one after the other on every core or device.

On a CPU the runs of a batch are the iterations of one ``lax.map`` in one kernel (see
:mod:`jboost.engine`), so each does what :func:`jboost.run` does, and costs as much a step. On other
devices they are a ``vmap``. Several devices share a batch by ``shard_map``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.core.errors import mean_squared_error
from jboost.core.learner import Learner
from jboost.core.template import template
from jboost.engine import fold as engine
from jboost.engine import lanes
from jboost.running.run import Observe, Trace, scan
from jboost.sweeps.devices import ALL, EACH, Device, mesh_of

Metric = Callable[[Trace, Array], Any]


class Way(NamedTuple):
    """How a batch is compiled; all that is not an array."""

    plan: engine.Plan
    devices: tuple[Device, ...]
    generator: str | None  # of the keys
    observe: Observe | None
    metric: Metric | None


class Batch(NamedTuple):
    """What tells the runs of a batch apart, by run: floats of the model, key, place of the stream.

    ``words`` are the keys as numbers, None for models that do not draw.
    """

    models: Learner
    words: Any
    stream: Any


def example_state(model: Learner, num_features: int, dtype: str, key: Any) -> Any:
    """A state of zeros: what a plan needs to know of one, without compiling ``init``."""
    shapes = template(model, num_features, dtype, key)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def prepare(way: Way, batch: Batch, xs: Any, ds: Any) -> tuple[Callable[..., Any], Any]:
    """The compiled program ``f(batch, xs, ds)``, and the shapes of what it returns.

    It is compiled here and now, under the settings of the calling thread, so that other threads
    may call it; once for each structure of model and shape of batch.
    """
    program = _kernels[way.plan.unrolled] if way.plan.form == "kernel" else _plain
    traced = program.trace(way, batch, xs, ds)
    if traced.jaxpr not in _compiled:
        _compiled[traced.jaxpr] = traced.lower().compile()
    return _compiled[traced.jaxpr], traced.out_info[0]


# JAX remembers a traced program by all that it depends on, and lets go of it by its own rules.
_compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _run_batch(way: Way, batch: Batch, xs: Array, ds: Array) -> Any:
    mesh = mesh_of(way.devices)
    if mesh is None:
        return _on_one_device(way, batch, xs, ds)
    several = jax.shard_map(
        partial(_on_one_device, way),
        mesh=mesh,
        in_specs=(EACH, ALL, ALL),
        out_specs=EACH,
        check_vma=False,
    )
    return several(batch, xs, ds)


_plain = jax.jit(_run_batch, static_argnums=0)
_kernels = engine.kernels(_run_batch, static_argnums=0)


def _on_one_device(way: Way, batch: Batch, xs: Array, ds: Array) -> Any:
    """What each run is measured by; and what a kernel wants returned."""
    on_cpu = way.devices[0].platform == "cpu"
    each: Any = jax.lax.map if on_cpu else lambda f, tree: jax.vmap(f)(tree)
    layouts = way.plan.layouts if on_cpu else ()

    def init(run: Batch) -> Any:
        model, words, _ = run
        return model.init(xs.shape[-1], xs.dtype, key=_key(words, way))

    def fold(models: Any, states: Any, words: Any, stream: Any, xs: Array, ds: Array) -> Trace:
        def one(run: Any) -> Trace:
            model, state, words, stream = run
            watch = engine.watched(way.observe, layouts)
            sample = _one_of(xs, stream), _one_of(ds, stream)
            return scan(model, state, *sample, _key(words, way), watch)[1]

        return each(one, (models, states, words, stream))

    def measure(run: tuple[Trace, Any]) -> Any:
        trace, stream = run
        return _measure(way.metric, trace, _one_of(ds, stream))

    models, words, stream = batch
    models, states = jax.vmap(partial(lanes.spread, layouts))(models, each(init, batch))
    operands = (models, states, words, stream, xs, ds)
    if way.plan.form == "kernel":
        traces, corners = engine.one_kernel(fold, *operands)
    else:
        traces, corners = fold(*operands), ()
    return each(measure, (traces, stream)), corners


def _key(words: Any, way: Way) -> Any:
    return None if words is None else jax.random.wrap_key_data(words, impl=way.generator)


def _one_of(stack: Array, stream: Array) -> Array:
    return stack[0] if stack.shape[0] == 1 else stack[stream]


def _measure(metric: Metric | None, trace: Trace, ds: Array) -> dict[str, Any]:
    """MSE, samples skipped, and the caller's metric; each with an axis over the predictions."""

    def one(prediction: Array) -> dict[str, Any]:
        own = trace._replace(prediction=prediction)
        found = {
            "mse": mean_squared_error(prediction, ds),
            "skipped": jnp.sum(trace.skipped, dtype=jnp.int32),
        }
        return found if metric is None else {**found, "metric": metric(own, ds)}

    if trace.prediction.ndim == 2:
        return jax.vmap(one, in_axes=1)(trace.prediction)
    return jax.tree.map(lambda value: jnp.asarray(value)[None], one(trace.prediction))
