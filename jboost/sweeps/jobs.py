"""The work of a sweep: models of one structure form a job, whose runs are cut into batches.

A batch is one call of a compiled program. On a CPU the runs of a batch are the iterations of one
``lax.map`` in one kernel, so every run does what :func:`jboost.run` does, at the same cost per
sample. On other devices the runs are a ``vmap``.
"""

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import Key, Learner, State
from jboost.core.squared_errors import mean_squared_error
from jboost.core.step import Observe, Trace, over_time, pairs
from jboost.core.template import template
from jboost.engine.kernel import key_of, key_words, one_kernel, programs
from jboost.engine.layout import Layout, lay_out
from jboost.engine.loop import plan_for, watched
from jboost.engine.pieces import samples_per_call
from jboost.engine.plan import Plan, bytes_of
from jboost.sweeps.devices import COPIED, SPLIT, Device, Resources, on_each, sharding_of
from jboost.sweeps.grid import RESERVED

# A batch has as many samples as are computed in the time that CALLS calls of a program take, 0.3 s:
# between two batches the progress is shown and an interruption is noticed.
CALLS = 1000
LARGEST_TRACES = 2**25  # bytes that the traces of a batch may take

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


class Group(NamedTuple):
    """The models of one structure."""

    model: Learner  # the first of the models
    stacked: Learner  # all models as one, its floats with a leading axis over the models
    points: list[int]  # the number of each model's point in the grid


def groups(models: Sequence[Learner], dtype: DTypeLike) -> list[Group]:
    """Return the models, grouped by structure and shapes; their floats are cast to ``dtype``."""

    def cast(leaf: object) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(dtype) if array.dtype.kind == "f" else array

    def stacked(points: list[int]) -> Learner:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(cast_models[p] for p in points))

    same_structure: dict[Any, list[int]] = {}
    cast_models = [jax.tree.map(cast, model) for model in models]
    for point, model in enumerate(cast_models):
        leaves, structure = jax.tree.flatten(model)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        same_structure.setdefault((structure, shapes), []).append(point)
    return [Group(models[p[0]], stacked(p), p) for p in same_structure.values()]


class ResultColumns:
    """The results so far, as columns with a row for each point, key and stream."""

    def __init__(self, rows: int, settings: Iterable[str], report: Callable[[int], None]):
        self._report, self._lock = report, threading.Lock()
        self._taken = {*settings, *RESERVED}
        self.done = np.zeros(rows, bool)  # whether a row has its result; else it holds NaN or 0
        self.arrays: dict[str, np.ndarray] = {}  # the columns by name

    def expect(self, shapes: Results) -> None:
        """Make the columns for a program's results, or check that they fit those there are."""
        standard, metric = shapes
        if taken := sorted(self._taken & metric.keys()):
            names = ", ".join(taken)
            raise ValueError(f"metric must not use the names of other columns; it has {names}")
        if self.arrays and {*standard, *metric} != self.arrays.keys():
            raise ValueError("metric must return the same names for all models")
        for name, leaf in (standard | metric).items():
            empty = np.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0
            column = np.full((self.done.size, *leaf.shape[1:]), empty, leaf.dtype)
            other = self.arrays.setdefault(name, column)
            if other.shape != column.shape:
                raise ValueError(
                    f"metric must return one shape for all models; {name!r} is {other.shape[1:]} "
                    f"for one, {column.shape[1:]} for another: return a mean, or sweep them apart"
                )

    def fill(self, rows: np.ndarray, results: dict[str, np.ndarray]) -> None:
        """Write the results of runs down, each into its rows, and report how many they are."""
        with self._lock:
            for name, values in results.items():
                self.arrays[name][rows] = values[:, None]
            self.done[rows] = True
            self._report(np.unique(rows).size)  # a batch may end with copies of its last run


class Job:
    """The runs of one group: a compiled program, and the batches that this process gives to it.

    ``rows`` are the numbers of the table's rows, by point, key and stream.
    """

    def __init__(
        self, group: Group, rows: np.ndarray, keys: Array | None, data: tuple[Array, Array],
        resources: Resources, observe: Observe | None, metric: Metric | None, batch: int | None,
    ):  # fmt: skip
        self._group, self._data = group, data
        self._sharding = sharding_of(resources.devices, SPLIT)
        xs, ds = data
        keys = keys if group.model.needs_key else None
        words, generator = key_words(keys)
        self._words = None if words is None else np.asarray(words)
        key = None if keys is None else keys[0]
        # Without keys the runs do not draw, and each fills the rows of all keys.
        rows = np.moveaxis(rows[group.points], 1, -1) if keys is None else rows[group.points]
        self._rows = rows.reshape(-1, rows.shape[-1] if keys is None else 1)  # (runs, rows of each)
        sizes = (len(group.points), 1 if keys is None else len(keys), len(xs))
        # (3, runs): the number of each run's model, key and stream
        self._runs = np.indices(sizes, np.int32).reshape(3, -1)

        state = example_state(group.model, xs.shape[-1], xs.dtype.name, key)
        x, d = (jax.device_put(np.asarray(a[0, :2]), resources.devices[0]) for a in data)
        plan = plan_for(group.model, state, x, d, key, observe)
        spec = BatchSpec(plan, resources.devices, generator, observe, metric)
        most = batch or self._most(spec, state, key)
        concurrent = resources.workers * resources.processes
        batches = _cut(self._runs.shape[1], most, concurrent, len(resources.devices))
        # Compiled in the caller's thread, whose settings it takes; other threads may call it.
        traced = _programs[plan.form == "kernel"].trace(spec, self.arguments(batches[0]), xs, ds)
        if traced.jaxpr not in _compiled:
            _compiled[traced.jaxpr] = traced.lower().compile()
        self._program, self.shapes = _compiled[traced.jaxpr], traced.out_info[0]
        self.batches = batches[resources.process :: resources.processes]

    def arguments(self, runs: np.ndarray) -> Batch:
        """Return the program's argument for these runs, on the devices.

        The caller's thread makes it: whether JAX has float64 is a setting of that thread.
        """
        model, key, stream = self._runs[:, runs]
        models = jax.tree.map(lambda leaf: leaf[model], self._group.stacked)
        words = None if self._words is None else self._words[key]
        return Batch(*jax.device_put((models, words, stream), self._sharding))

    def compute(self, batch: Batch) -> dict[str, np.ndarray]:
        """Return the results of a batch by column: (runs, …)."""
        (standard, metric), _ = self._program(batch, *self._data)
        return {name: np.asarray(leaf) for name, leaf in (standard | metric).items()}

    def run(self, runs: np.ndarray, batch: Batch, columns: ResultColumns) -> None:
        """Compute a batch, whose runs have these numbers, and write its results down."""
        columns.fill(self._rows[runs], self.compute(batch))

    def _most(self, spec: BatchSpec, state: State, key: Key) -> int:
        """Return how many runs a batch may have, by its time and its memory."""
        xs, ds = (jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in self._data)
        _, trace = _shapes_of_run(self._group.model, state, xs, ds, key, spec.observe)
        arrays = jax.tree.leaves(trace)
        on_cpu = spec.devices[0].platform == "cpu"
        if not on_cpu and self._data[0].shape[0] > 1:
            arrays += [xs, ds]  # under vmap every run has its own copy of its stream
        most = LARGEST_TRACES // sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays)
        if on_cpu:
            samples = CALLS * samples_per_call(bytes_of(state))
            most = min(most, samples // xs.shape[0] * len(spec.devices))
        return max(most, 1)


# jit traces it only once for each structure.
_shapes_of_run = jax.jit(over_time, static_argnums=5).eval_shape


def _cut(count: int, most: int, concurrent: int, devices: int) -> list[np.ndarray]:
    """Cut the numbers 0 … count − 1 into batches of one size; the last number fills up the last.

    The size is a multiple of ``devices``, about ``most`` or less, and the number of batches about a
    multiple of ``concurrent``.

    >>> [batch.tolist() for batch in _cut(5, most=2, concurrent=1, devices=1)]
    [[0, 1], [2, 3], [4, 4]]
    """
    rounds = math.ceil(count / (most * concurrent))
    size = math.ceil(count / (rounds * concurrent))
    size = math.ceil(size / devices) * devices
    starts = range(0, count, size)
    return [np.minimum(np.arange(start, start + size), count - 1) for start in starts]


def example_state(model: Learner, num_features: int, dtype: str, key: Key) -> State:
    """Return a state of zeros: the engine plans with its shapes, and ``init`` is not compiled."""
    shapes = template(model, num_features, dtype, key)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


# JAX caches the traced program by everything it depends on; when JAX drops it, the entry goes too.
_compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _run_batch(spec: BatchSpec, batch: Batch, xs: Array, ds: Array) -> tuple[Results, Any]:
    run = on_each(spec.devices, partial(_on_one_device, spec), SPLIT, COPIED, COPIED)
    return run(batch, xs, ds)


_programs = programs(_run_batch, static_argnums=0)


def _on_one_device(spec: BatchSpec, batch: Batch, xs: Array, ds: Array) -> tuple[Results, Any]:
    """Return the results of every run, and the corners that :func:`one_kernel` asks to return."""
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
        trace, targets = trace_and_stream[0], one_of(ds, trace_and_stream[1])
        skipped = jnp.sum(trace.skipped, dtype=jnp.int32)
        standard = {"mse": mean_squared_error(*pairs(trace, targets)), "skipped": skipped}
        values = None if spec.metric is None else spec.metric(trace, targets)
        name = partial(jax.tree_util.keystr, simple=True, separator=".")
        leaves = jax.tree_util.tree_flatten_with_path(values)[0]
        return standard, {name(path) or "metric": jnp.asarray(leaf) for path, leaf in leaves}

    models, states = jax.vmap(partial(lay_out, layout))(batch.models, each(init, batch))
    operands = (batch._replace(models=models), states, xs, ds)
    if spec.plan.form == "kernel":
        traces, corners = one_kernel(fold, *operands)
    else:
        traces, corners = fold(*operands), ()
    return each(measure, (traces, batch.stream)), corners
