"""The work of a sweep: models of one structure form a job, whose runs are cut into batches."""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jboost.core import Learner, State
from jboost.core.step import Observe, over_time
from jboost.engine.folds import plan_for
from jboost.running import blocks
from jboost.sweeps import program
from jboost.sweeps.devices import SPLIT, Resources, sharding_of

# Between two batches the progress is shown and an interruption is noticed.
CALLS = 1000  # a batch takes about as long as this many calls of a program, 0.3 s in all
LARGEST_TRACES = 2**25  # bytes that the traces of a batch may take


class Group(NamedTuple):
    """The models of one structure.

    model: the first of them.
    stacked: all of them as one model, its floats with a leading axis over the models.
    points: the number of each model's point in the grid.
    """

    model: Learner
    stacked: Learner
    points: np.ndarray


def groups(models: Sequence[Learner], dtype: DTypeLike) -> list[Group]:
    """The models, grouped by structure and shapes; their floats are cast to ``dtype``."""

    def cast(leaf: object) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(dtype) if array.dtype.kind == "f" else array

    same_structure: dict[Any, list[int]] = {}
    cast_models = [jax.tree.map(cast, model) for model in models]
    for point, model in enumerate(cast_models):
        leaves, structure = jax.tree.flatten(model)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        same_structure.setdefault((structure, shapes), []).append(point)
    return [
        Group(
            models[points[0]],
            jax.tree.map(lambda *leaves: np.stack(leaves), *(cast_models[p] for p in points)),
            np.array(points),
        )
        for points in same_structure.values()
    ]


class Columns:
    """The results so far, as columns with a row for each point, key and stream.

    arrays: the columns by name; rows without a result hold NaN, or 0 where a column has no NaN.
    done: (rows,), whether a row has its result.
    """

    def __init__(
        self,
        points: int,
        keys: int,
        streams: int,
        settings: Iterable[str],
        report: Callable[[int], None],
    ):
        self._report, self._lock = report, threading.Lock()
        self._reserved = {*settings, "key", "stream"}
        self._rows = np.arange(points * keys * streams).reshape(points, keys, streams)
        self.done = np.zeros(self._rows.size, bool)
        self.arrays: dict[str, np.ndarray] = {}

    def expect(self, shapes: dict[str, jax.ShapeDtypeStruct]) -> None:
        """Make the columns for a program's results, or check that they fit those there are."""
        if self.arrays and shapes.keys() != self.arrays.keys():
            raise ValueError("metric must return the same names for all models")
        _refuse_names(self._reserved & shapes.keys())
        for name, leaf in shapes.items():
            empty = np.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0
            column = np.full((self.done.size, *leaf.shape), empty, leaf.dtype)
            if self.arrays.setdefault(name, column).shape != column.shape:
                raise ValueError(
                    f"metric must return one shape for all models; {name!r} has "
                    f"{self.arrays[name].shape[1:]} for one and {leaf.shape} for another: return a "
                    "mean, or sweep them apart"
                )

    def fill(
        self,
        points: np.ndarray,
        keys: np.ndarray | None,
        streams: np.ndarray,
        results: dict[str, np.ndarray],
    ) -> None:
        """Write the results of runs down, and report how many rows they fill.

        Without ``keys`` the runs did not draw, and each fills the rows of all keys.
        """
        rows = self._rows[points, :, streams]  # (runs, keys)
        if keys is not None:
            rows = np.take_along_axis(rows, keys[:, None], axis=1)
        with self._lock:
            for name, values in results.items():
                self.arrays[name][rows] = values[:, None]
            self.done[rows] = True
            self._report(rows.size)


class Job:
    """The runs of one group: a compiled program, and the batches that this process gives to it."""

    def __init__(
        self,
        group: Group,
        keys: jax.Array | None,
        data: tuple[jax.Array, jax.Array],
        resources: Resources,
        observe: Observe | None,
        metric: program.Metric | None,
        batch: int | None,
    ):
        self._group, self._data = group, data
        self._sharding = sharding_of(resources.devices, SPLIT)
        xs, ds = data
        self._words = key = generator = None
        if keys is not None and group.model.needs_key:
            key, generator = keys[0], str(jax.random.key_impl(keys))
            self._words = np.asarray(jax.random.key_data(keys))
        sizes = (len(group.points), 1 if self._words is None else len(self._words), len(xs))
        # (3, runs): the number of each run's model, key and stream
        self._runs = np.indices(sizes, np.int32).reshape(3, -1)

        state = program.example_state(group.model, xs.shape[-1], xs.dtype.name, key)
        x, d = (jax.device_put(np.asarray(a[0, :2]), resources.devices[0]) for a in data)
        plan = plan_for(group.model, state, x, d, key, observe)
        spec = program.BatchSpec(plan, resources.devices, generator, observe, metric)
        most = batch or self._most(spec, state, key)
        concurrent = resources.workers * resources.processes
        batches = _cut(self._runs.shape[1], most, concurrent, len(resources.devices))
        self._program, shapes = program.prepare(spec, self.arguments(batches[0]), xs, ds)
        self.shapes = {
            name: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
            for name, leaf in _by_column(shapes).items()
        }
        self.batches = batches[resources.process :: resources.processes]

    def arguments(self, runs: np.ndarray) -> program.Batch:
        """The program's argument for these runs, on the devices.

        The caller's thread makes it: whether JAX has float64 is a setting of that thread.
        """
        model, key, stream = self._runs[:, runs]
        models = jax.tree.map(lambda leaf: leaf[model], self._group.stacked)
        words = None if self._words is None else self._words[key]
        return jax.device_put(program.Batch(models, words, stream), self._sharding)

    def compute(self, batch: program.Batch) -> dict[str, np.ndarray]:
        """The results of a batch by column: (runs, …)."""
        results, _ = self._program(batch, *self._data)
        return {name: np.asarray(leaf) for name, leaf in _by_column(results).items()}

    def run(self, runs: np.ndarray, batch: program.Batch, columns: Columns) -> None:
        """Compute a batch, whose runs have these numbers, and write its results down."""
        results = self.compute(batch)
        runs = np.unique(runs)  # without the copies of the last run that fill up a batch
        model, key, stream = self._runs[:, runs]
        keys = None if self._words is None else key
        results = {name: values[: len(runs)] for name, values in results.items()}
        columns.fill(self._group.points[model], keys, stream, results)

    def _most(self, spec: program.BatchSpec, state: State, key: jax.Array | None) -> int:
        """How many runs a batch may have, by its time and its memory."""
        xs, ds = (jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in self._data)
        _, trace = _shapes_of_run(self._group.model, state, xs, ds, key, spec.observe)
        arrays = jax.tree.leaves(trace)
        on_cpu = spec.devices[0].platform == "cpu"
        if not on_cpu and self._data[0].shape[0] > 1:
            arrays += [xs, ds]  # under vmap every run has its own copy of its stream
        most = LARGEST_TRACES // sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays)
        if on_cpu:
            samples = CALLS * blocks.samples_per_call(state)
            most = min(most, samples // xs.shape[0] * len(spec.devices))
        return max(most, 1)


# jit traces it only once for each structure.
_shapes_of_run = jax.jit(over_time, static_argnums=5).eval_shape


def _cut(count: int, most: int, concurrent: int, devices: int) -> list[np.ndarray]:
    """The numbers 0 … count − 1 in batches of one size; the last number fills up the last batch.

    The size is a multiple of ``devices``, at most about ``most``, and such that the number of
    batches is about a multiple of ``concurrent``.

    >>> [batch.tolist() for batch in _cut(5, most=2, concurrent=1, devices=1)]
    [[0, 1], [2, 3], [4, 4]]
    """
    rounds = math.ceil(count / (most * concurrent))
    size = math.ceil(count / (rounds * concurrent))
    size = math.ceil(size / devices) * devices
    starts = range(0, count, size)
    return [np.minimum(np.arange(start, start + size), count - 1) for start in starts]


def _by_column(results: program.Results) -> dict[str, Any]:
    """Results by the names of their columns: every entry of a metric's dict is a column."""
    columns = {name: results[name] for name in ("mse", "skipped")}
    paths = jax.tree_util.tree_flatten_with_path(results.get("metric"))[0]
    metric = {jax.tree_util.keystr(p, simple=True, separator=".") or "metric": v for p, v in paths}
    _refuse_names(columns.keys() & metric.keys())
    return columns | metric


def _refuse_names(taken: set[str]) -> None:
    if taken:
        names = ", ".join(sorted(taken))
        raise ValueError(f"metric must not use the names of other columns; it has {names}")
