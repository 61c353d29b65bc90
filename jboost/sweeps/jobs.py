"""The work of a sweep: models of one structure together, cut into batches, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jboost.core.learner import Learner
from jboost.engine import fold as engine
from jboost.running import blocks
from jboost.running.run import Observe, scan
from jboost.sweeps import chains, many
from jboost.sweeps.devices import EACH, Layout, sharding_of

# Between two batches progress shows and an interruption is heard.
CALLS = 1000  # a batch takes as long as so many calls, about 0.3 s
LARGEST_TRACES = 2**25  # bytes that the traces of a batch take


class Draws(NamedTuple):
    """The keys as numbers, (K, …), None without any; the name of their generator; K."""

    words: np.ndarray | None
    generator: str | None
    keys: int


class Group(NamedTuple):
    """Models of one structure: one of them, all of them stacked, whose predictions each makes."""

    model: Learner
    stacked: Learner
    members: list[tuple[tuple[int, ...], ...]]


def groups(wanted: list[chains.Shared], dtype: Any) -> list[Group]:
    """Models by structure and shapes; their floats stacked in the dtype of the stream."""

    def number(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(dtype) if array.dtype.kind == "f" else array

    def stack(*leaves: Any) -> np.ndarray:
        return np.stack([number(leaf) for leaf in leaves])

    alike: dict[Any, list[chains.Shared]] = {}
    for one in wanted:
        leaves, structure = jax.tree.flatten(one.model)
        shapes = tuple((np.shape(leaf), number(leaf).dtype) for leaf in leaves)
        alike.setdefault((structure, shapes), []).append(one)
    return [
        Group(
            same[0].model,
            jax.tree.map(stack, *(one.model for one in same)),
            [one.members for one in same],
        )
        for same in alike.values()
    ]


class Cells:
    """The results so far: columns with a row for each point, key and stream."""

    def __init__(self, points: int, keys: int, streams: int, settings: Iterable[str]):
        self._taken = {*settings, "key", "stream"}
        self.done = np.zeros(points * keys * streams, bool)
        self.columns: dict[str, np.ndarray] = {}
        self._rows = np.arange(self.done.size).reshape(points, keys, streams)

    def expect(self, shapes: dict[str, jax.ShapeDtypeStruct]) -> None:
        """Make room for what a program returns for each run; the same for all programs."""
        if self.columns and shapes.keys() != self.columns.keys():
            raise ValueError("metric must return the same names for all models")
        if self._taken & shapes.keys():
            taken = ", ".join(sorted(self._taken & shapes.keys()))
            raise ValueError(f"metric must not use the names of other columns; it has {taken}")
        for name, leaf in shapes.items():
            nothing = np.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0
            room = np.full((self.done.size, *leaf.shape), nothing, leaf.dtype)
            if self.columns.setdefault(name, room).shape != room.shape:
                had = self.columns[name].shape[1:]
                raise ValueError(
                    f"metric must return one shape for all models; {name!r} has {had} for one and "
                    f"{leaf.shape} for another: return a mean, or sweep them apart"
                )

    def fill(self, points: tuple[int, ...], key: Any, stream: int, values: dict[str, Any]) -> int:
        """Put down one result, for all keys if there is none; returns how many rows it fills."""
        keys = slice(None) if key is None else key
        rows = self._rows[list(points), keys, stream].ravel()
        for name, value in values.items():
            self.columns[name][rows] = value
        self.done[rows] = True
        return rows.size


class Job:
    """The runs of one group: a compiled program, and the batches that this process gives it."""

    def __init__(
        self,
        group: Group,
        draws: Draws,
        data: tuple[jax.Array, jax.Array],
        layout: Layout,
        observe: Observe | None,
        metric: many.Metric | None,
        batch: int | None,
    ):
        self._group, self._data = group, data
        self._sharding = sharding_of(layout.devices, EACH)
        self._words = draws.words if group.model.needs_key else None
        xs, ds = data
        keys = 1 if self._words is None else draws.keys
        sizes = (len(group.members), keys, len(xs))
        model, key, stream = np.unravel_index(np.arange(math.prod(sizes)), sizes)
        self._runs = np.stack([model, key, stream], axis=1).astype(np.int32)

        example = None
        if self._words is not None:
            example = jax.random.wrap_key_data(self._words[0], impl=draws.generator)
        state = many.example_state(group.model, xs.shape[-1], xs.dtype.name, example)
        x, d = (jax.device_put(np.asarray(part[0, :2]), layout.devices[0]) for part in data)
        plan = engine.plan_for(scan, group.model, state, x, d, example, observe)
        way = many.Way(plan, layout.devices, draws.generator, observe, metric)
        most = batch or self._most(way, state, example)
        batches = _cut(len(self._runs), most, layout.ways, len(layout.devices))
        self._program, shapes = many.prepare(way, self.arguments(batches[0]), xs, ds)
        self.shapes = {
            name: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype)
            for name, leaf in _named(shapes).items()
        }
        self.batches = layout.mine(batches)

    def arguments(self, runs: np.ndarray) -> many.Batch:
        """A batch on the devices; in the caller's thread, whose settings say what a float is."""
        model, key, stream = self._runs[runs].T
        models = jax.tree.map(lambda leaf: leaf[model], self._group.stacked)
        words = None if self._words is None else self._words[key]
        return jax.device_put(many.Batch(models, words, stream), self._sharding)

    def compute(self, batch: many.Batch) -> dict[str, np.ndarray]:
        """The results of a batch, by name: (runs, predictions of the model, …)."""
        results, _ = self._program(batch, *self._data)
        return {name: np.asarray(leaf) for name, leaf in _named(results).items()}

    def keep(
        self,
        runs: np.ndarray,
        cells: Cells,
        report: Callable[[int], None],
        results: dict[str, np.ndarray],
    ) -> None:
        """Put a batch's results where they belong."""
        filled = 0
        for place, run in enumerate(np.unique(runs)):  # what fills up a batch is its last run
            model, key, stream = self._runs[run]
            for column, points in enumerate(self._group.members[model]):
                values = {name: leaf[place, column] for name, leaf in results.items()}
                drawn = None if self._words is None else key
                filled += cells.fill(points, drawn, stream, values)
        report(filled)

    def _most(self, way: many.Way, state: Any, key: Any) -> int:
        """How many runs a batch may have, for its time and its memory."""
        xs, ds = (jax.ShapeDtypeStruct(part.shape[1:], part.dtype) for part in self._data)
        _, trace = _shapes_of_scan(self._group.model, state, xs, ds, key, way.observe)
        parts = jax.tree.leaves(trace)
        on_cpu = way.devices[0].platform == "cpu"
        if not on_cpu and self._data[0].shape[0] > 1:
            parts += [xs, ds]  # under vmap every run has its own copy of its stream
        size = sum(math.prod(part.shape) * part.dtype.itemsize for part in parts)
        most = LARGEST_TRACES // size
        if on_cpu:
            samples = CALLS * blocks.samples_per_call(state)
            most = min(most, samples // xs.shape[0] * len(way.devices))
        return max(most, 1)


# Under jit it is traced once for each structure.
_shapes_of_scan = jax.jit(scan, static_argnums=5).eval_shape


def _cut(count: int, most: int, ways: int, devices: int) -> list[np.ndarray]:
    """The numbers from 0 to count − 1 in batches of one size, the last filled up with its last.

    As many batches as can be computed at a time, or a multiple, of a multiple of ``devices`` runs.

    >>> [batch.tolist() for batch in _cut(5, most=2, ways=1, devices=1)]
    [[0, 1], [2, 3], [4, 4]]
    """
    rounds = math.ceil(count / (most * ways))
    size = math.ceil(count / (rounds * ways))
    size = math.ceil(size / devices) * devices
    starts = range(0, count, size)
    return [np.minimum(np.arange(start, start + size), count - 1) for start in starts]


def _named(tree: dict[str, Any]) -> dict[str, Any]:
    """Results by the names of their columns: a metric's dict has its own."""
    flat = {name: tree[name] for name in ("mse", "skipped")}
    if "metric" not in tree:
        return flat
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree["metric"])[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "metric"
        if name in flat:
            raise ValueError(f"metric must not use the names of other columns; it has {name}")
        flat[name] = leaf
    return flat
