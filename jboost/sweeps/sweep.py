"""Sweeps: thousands of runs in one call, over settings, keys and streams.

Models of one structure are stacked, float by float, and run as one compiled program (:mod:`.jobs`)
on all cores, devices and processes (:mod:`.devices`). Another step size compiles nothing; another
mode, learner or number of learners is another structure and compiles once.
"""

import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import Learner, checks
from jboost.core.learner import required_key
from jboost.core.numerics import as_array
from jboost.core.progress import Progress
from jboost.core.step import Observe
from jboost.running.run import checked_stream
from jboost.sweeps import devices as hardware
from jboost.sweeps import grid as grids
from jboost.sweeps.jobs import Job, Metric, ResultColumns, groups
from jboost.sweeps.results import Table


class SweepInterrupted(KeyboardInterrupt):
    """The user stopped a sweep; ``table`` has the results until then."""

    def __init__(self, table: Table):
        self.table = table
        done, rows = int(table.done.sum()), table.done.size
        super().__init__(f"stopped after {done:,} of {rows:,} runs, which are in .table")


def sweep(
    make: Callable[..., Learner],
    grid: grids.Grid,
    xs: ArrayLike,
    ds: ArrayLike,
    keys: Array | Iterable[Array] | None = None,
    *,
    metric: Metric | None = None,
    observe: Observe | None = None,
    batch: int | None = None,
    devices: Iterable[hardware.Device] | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> Table:
    """Run a model at every point of a grid, with every key, on every stream.

    A row of the table is the result of ``run(make(**point), xs, ds, key)``: the draws are the same
    wherever the run is computed, and the numbers are equal up to rounding.

    Args:
      make: ``make(**point)`` returns a model, such as ``jb.bsgd_wu`` or a function of yours.
      grid: a dict of values by name, whose combinations are all run. The values are an array or
        list of numbers, words, learners or modes, or an (n, m) array: n settings of one number per
        learner. Or a list of points, each a dict, which are run as they are.
      xs: (T, r) inputs, or (S, T, r) for S streams. Fill up shorter streams with targets of NaN.
      ds: (T,) targets, or (S, T).
      keys: a ``jax.random.key``, or several, as ``jax.random.split`` returns. A model that does not
        draw runs once, and all keys have the same row.
      metric: ``metric(trace, ds)``, in JAX, returns the values of further columns for a run: a
        number, an array or a dict of them. A function defined once compiles once.
      observe: as for :func:`jboost.run`; the metric finds its record in ``trace.observed``.
      batch: how many runs make a batch, by default 0.3 s of them. Memory grows with batch × T only.
      devices: the devices to use, by default all of ``jax.devices()``.
      workers: how many threads; by default one for each core if there is a single CPU device.
      progress: whether to report on standard error; by default on a terminal and in a notebook.

    Returns:
      A :class:`.results.Table`. Under ``jax.distributed`` every process gets the whole table.

    Raises:
      SweepInterrupted: at Ctrl-C; a ``KeyboardInterrupt`` whose ``table`` has the results so far.

    >>> import jboost as jb
    >>> from functools import partial
    >>> xs, ds = jb.streams.duffing(1000)
    >>> make = partial(jb.bsgd_wu, target_mse=0.25)
    >>> table = sweep(make, {"m": [1, 10], "step_size": [0.01, 0.1]}, xs, ds)
    >>> table["step_size"].tolist(), table["mse"].shape
    ([0.01, 0.1, 0.01, 0.1], (4,))
    >>> table.best()
    {'m': 10, 'step_size': 0.1}
    """
    if any(map(checks.is_traced, [*jax.tree.leaves((xs, ds, keys)), jnp.zeros(())])):
        raise TypeError("a sweep compiles its runs itself: call it outside of jit, vmap and grad")
    start = time.perf_counter()
    points = grids.points(grid)
    models = grids.models(make, points)
    inputs, targets = _streams(xs, ds)
    keys = _keys(keys, needed=any(model.needs_key for model in models))
    if metric is not None:
        checks.function("metric", metric, "(trace, ds), or None")
    if observe is not None:
        checks.function("observe", observe, "(state, info), or None")
    if progress is not None:
        progress = checks.flag("progress", progress)
    if batch is not None:
        batch = checks.whole("batch", batch, at_least=1)
    resources = hardware.resources(devices, workers)
    repeats = (1 if keys is None else len(keys), len(inputs))
    rows = np.arange(len(points) * math.prod(repeats)).reshape(-1, *repeats)
    bar = Progress("sweep", rows.size, progress)
    columns = ResultColumns(rows.size, points[0], bar.add)

    def table() -> Table:
        seconds = time.perf_counter() - start
        return Table(points, repeats, columns.arrays, columns.done, seconds)

    threads = ThreadPoolExecutor(resources.workers, "jboost-sweep")
    try:
        bar.compiling()
        copied = hardware.sharding_of(resources.devices, hardware.COPIED)
        data = jax.device_put((inputs, targets), copied)
        futures = []
        for group in groups(models, inputs.dtype):
            job = Job(group, rows, keys, data, resources, observe, metric, batch)
            columns.expect(job.shapes)
            for runs in job.batches:  # they are computed while the next group compiles
                futures.append(threads.submit(job.run, runs, job.arguments(runs), columns))
        for future in futures:
            future.result()
    except KeyboardInterrupt:
        threads.shutdown(cancel_futures=True)  # batches that have begun finish within a second
        raise SweepInterrupted(table()) from None
    finally:
        threads.shutdown(cancel_futures=True)
        bar.close()
    columns.arrays = hardware.gathered(columns.done, columns.arrays, resources.processes)
    columns.done[:] = True
    return table()


def _streams(xs: ArrayLike, ds: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (S, T, r) and targets (S, T), of one float dtype, on the host."""
    inputs = as_array("xs", xs, "(T, r), or (S, T, r) for several streams")
    targets = as_array("ds", ds, "(T,), or (S, T) for several streams")
    if inputs.ndim != 3:
        inputs, targets = inputs[None], targets[None]
    elif targets.shape != inputs.shape[:2] or not len(inputs):
        got = f"got xs {inputs.shape} and ds {targets.shape}"
        raise ValueError(f"xs of shape (S, T, r) needs targets ds of shape (S, T), S >= 1; {got}")
    _, _, dtype = checked_stream(inputs[0], targets[0], jnp.result_type(float))
    return np.asarray(inputs, dtype), np.asarray(targets, dtype)


def _keys(keys: Array | Iterable[Array] | None, *, needed: bool) -> Array | None:
    """Return (K,) keys, or None if there are none and no model draws."""
    if keys is None:
        return required_key(None) if needed else None
    if isinstance(keys, (list, tuple)) and keys:
        keys = jnp.stack([checks.key("keys", key) for key in keys])
    keys = checks.key("keys", keys)
    if keys.ndim > 1 or not keys.size:
        raise ValueError(f"keys must be one key, or (K,) of them, K >= 1; got shape {keys.shape}")
    return jnp.atleast_1d(keys)
