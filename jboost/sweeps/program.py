"""One compiled program for a batch of runs.

On a CPU the runs of a batch are the iterations of one ``lax.map`` in one kernel (see
:mod:`jboost.engine`), so every run does what :func:`jboost.run` does, at the same cost per sample.
On other devices the runs are a ``vmap``. Several devices share a batch by ``shard_map``.
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
from jboost.core.numerics import mean_squared_error
from jboost.core.step import Observe, Trace, over_time
from jboost.core.template import template
from jboost.engine.folds import watched
from jboost.engine.kernel import key_of, one_kernel, programs
from jboost.engine.layout import Layout, lay_out
from jboost.engine.plan import Plan
from jboost.sweeps.devices import COPIED, SPLIT, Device, mesh_of

Metric = Callable[[Trace, Array], Any]  # returns a number, an array, or a dict of them
Results = dict[str, Any]  # "mse", "skipped" and, where the caller has one, "metric"


class BatchSpec(NamedTuple):
    """How a batch is compiled: everything that is not an array.

    plan: the form of the loop over time that the engine chose.
    devices: the devices that share the batch.
    generator: the name of the keys' random generator; None without keys.
    observe, metric: functions of the caller, as :func:`jboost.sweep` takes them; None without.
    """

    plan: Plan
    devices: tuple[Device, ...]
    generator: str | None
    observe: Observe | None
    metric: Metric | None


class Batch(NamedTuple):
    """What differs between the runs of a batch; every array has a leading axis over the runs.

    models: one model whose floats are stacked.
    words: the data of the keys (``jax.random.key_data``); None for models that do not draw.
    stream: which of the streams a run reads.
    """

    models: Learner
    words: ArrayLike | None
    stream: ArrayLike


def example_state(model: Learner, num_features: int, dtype: str, key: Key) -> State:
    """A state of zeros: the engine plans with its shapes, and ``init`` need not be compiled."""
    shapes = template(model, num_features, dtype, key)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def prepare(
    spec: BatchSpec, batch: Batch, xs: Array, ds: Array
) -> tuple[Callable[..., tuple[Results, Any]], Results]:
    """The compiled program ``f(batch, xs, ds)``, and the shapes of the results it returns.

    The program is compiled now, under the settings of the calling thread, so that other threads
    may call it; once for each structure of model and shape of batch.
    """
    traced = _programs[spec.plan.level].trace(spec, batch, xs, ds)
    if traced.jaxpr not in _compiled:
        _compiled[traced.jaxpr] = traced.lower().compile()
    return _compiled[traced.jaxpr], traced.out_info[0]


# JAX caches the traced program by everything it depends on; when JAX drops it, the entry goes too.
_compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _run_batch(spec: BatchSpec, batch: Batch, xs: Array, ds: Array) -> tuple[Results, Any]:
    mesh = mesh_of(spec.devices)
    on_each = partial(_on_one_device, spec)
    if mesh is not None:
        on_each = jax.shard_map(
            on_each,
            mesh=mesh,
            in_specs=(SPLIT, COPIED, COPIED),
            out_specs=SPLIT,
            check_vma=False,
        )
    return on_each(batch, xs, ds)


_programs = programs(_run_batch, static_argnums=0)


def _on_one_device(spec: BatchSpec, batch: Batch, xs: Array, ds: Array) -> tuple[Results, Any]:
    """The results of every run, and the arrays that a kernel must return besides."""
    on_cpu = spec.devices[0].platform == "cpu"
    each: Any = jax.lax.map if on_cpu else lambda f, runs: jax.vmap(f)(runs)
    layout = spec.plan.layout if on_cpu else Layout()

    def init(run: Batch) -> State:
        return run.models.init(xs.shape[-1], xs.dtype, key=key_of(run.words, spec.generator))

    def fold(batch: Batch, states: State, xs: Array, ds: Array) -> Trace:
        def one_run(run_and_state: tuple[Batch, State]) -> Trace:
            (model, words, stream), state = run_and_state
            key = key_of(words, spec.generator)
            observe = watched(spec.observe, layout)
            return over_time(model, state, _row(xs, stream), _row(ds, stream), key, observe)[1]

        return each(one_run, (batch, states))

    def measure(trace_and_stream: tuple[Trace, Array]) -> Results:
        trace, stream = trace_and_stream
        return _measure(spec.metric, trace, _row(ds, stream))

    models, states = jax.vmap(partial(lay_out, layout))(batch.models, each(init, batch))
    operands = (batch._replace(models=models), states, xs, ds)
    if spec.plan.kernel:
        traces, corners = one_kernel(fold, *operands)
    else:
        traces, corners = fold(*operands), ()
    return each(measure, (traces, batch.stream)), corners


def _row(streams: Array, stream: ArrayLike) -> Array:
    """One of several streams; a single stream is taken without an index."""
    return streams[0] if streams.shape[0] == 1 else streams[stream]


def _measure(metric: Metric | None, trace: Trace, ds: Array) -> Results:
    results = {
        "mse": mean_squared_error(trace.prediction, ds),
        "skipped": jnp.sum(trace.skipped, dtype=jnp.int32),
    }
    if metric is not None:
        results["metric"] = jax.tree.map(jnp.asarray, metric(trace, ds))
    return results
