"""One compiled program for a batch of runs.

On a CPU the runs of a batch are the iterations of one ``lax.map`` in one kernel, so every run does
what :func:`jboost.run` does, at the same cost per sample. On other devices the runs are a ``vmap``.
"""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import Key, Learner, State
from jboost.core.errors import mean_squared_error
from jboost.core.step import Observe, Trace, over_time
from jboost.core.template import template
from jboost.engine.folds import watched
from jboost.engine.kernel import key_of, one_kernel, programs
from jboost.engine.layout import Layout, lay_out
from jboost.engine.plan import Plan
from jboost.sweeps.devices import COPIED, SPLIT, Device, on_each

Metric = Callable[[Trace, Array], Any]  # returns a number, an array, or a dict of them
Results = tuple[dict[str, Array], dict[str, Array]]  # "mse" and "skipped"; the metric's, by column


class BatchSpec(NamedTuple):
    """How a batch is compiled: everything that is not an array."""

    plan: Plan  # the form of the loop over time that the engine chose
    devices: tuple[Device, ...]  # the devices that share the batch
    generator: str | None  # the name of the keys' random generator; None without keys
    observe: Observe | None  # a function of the caller, as jboost.sweep takes it
    metric: Metric | None  # a function of the caller, as jboost.sweep takes it


class Batch(NamedTuple):
    """What differs between the runs of a batch; every array has a leading axis over the runs."""

    models: Learner  # one model whose floats are stacked
    words: Array | None  # the keys as plain numbers; None for models that do not draw
    stream: ArrayLike  # which of the streams a run reads


def example_state(model: Learner, num_features: int, dtype: str, key: Key) -> State:
    """A state of zeros: the engine plans with its shapes, and ``init`` need not be compiled."""
    shapes = template(model, num_features, dtype, key)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def prepare(
    spec: BatchSpec, batch: Batch, xs: Array, ds: Array
) -> tuple[Callable[..., tuple[Results, Any]], Results]:
    """The compiled program ``f(batch, xs, ds)``, and the shapes of the results it returns.

    It is compiled under the settings of the calling thread, so that other threads may call it.
    """
    traced = _programs[spec.plan.level].trace(spec, batch, xs, ds)
    if traced.jaxpr not in _compiled:
        _compiled[traced.jaxpr] = traced.lower().compile()
    return _compiled[traced.jaxpr], traced.out_info[0]


# JAX caches the traced program by everything it depends on; when JAX drops it, the entry goes too.
_compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _run_batch(spec: BatchSpec, batch: Batch, xs: Array, ds: Array) -> tuple[Results, Any]:
    run = on_each(spec.devices, partial(_on_one_device, spec), SPLIT, COPIED, COPIED)
    return run(batch, xs, ds)


_programs = programs(_run_batch, static_argnums=0)


def _on_one_device(spec: BatchSpec, batch: Batch, xs: Array, ds: Array) -> tuple[Results, Any]:
    """The results of every run, and the arrays that a kernel must return besides."""
    on_cpu = spec.devices[0].platform == "cpu"
    each: Any = jax.lax.map if on_cpu else lambda f, runs: jax.vmap(f)(runs)
    layout = spec.plan.layout if on_cpu else Layout()

    def init(run: Batch) -> State:
        return run.models.init(xs.shape[-1], xs.dtype, key=key_of(run.words, spec.generator))

    def one_of(streams: Array, stream: ArrayLike) -> Array:
        return streams[0] if len(streams) == 1 else streams[stream]  # no index where none is needed

    def fold(batch: Batch, states: State, xs: Array, ds: Array) -> Trace:
        def one_run(run_and_state: tuple[Batch, State]) -> Trace:
            (model, words, stream), state = run_and_state
            key, observe = key_of(words, spec.generator), watched(spec.observe, layout)
            return over_time(model, state, one_of(xs, stream), one_of(ds, stream), key, observe)[1]

        return each(one_run, (batch, states))

    def measure(trace_and_stream: tuple[Trace, Array]) -> Results:
        trace, stream = trace_and_stream
        return _measure(spec.metric, trace, one_of(ds, stream))

    models, states = jax.vmap(partial(lay_out, layout))(batch.models, each(init, batch))
    operands = (batch._replace(models=models), states, xs, ds)
    if spec.plan.kernel:
        traces, corners = one_kernel(fold, *operands)
    else:
        traces, corners = fold(*operands), ()
    return each(measure, (traces, batch.stream)), corners


def _measure(metric: Metric | None, trace: Trace, ds: Array) -> Results:
    skipped = jnp.sum(trace.skipped, dtype=jnp.int32)
    standard = {"mse": mean_squared_error(trace.prediction, ds), "skipped": skipped}
    values = None if metric is None else metric(trace, ds)
    leaves = jax.tree_util.tree_flatten_with_path(values)[0]
    name = partial(jax.tree_util.keystr, simple=True, separator=".")
    return standard, {name(path) or "metric": jnp.asarray(leaf) for path, leaf in leaves}
