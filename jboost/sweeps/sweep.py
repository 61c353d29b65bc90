"""Sweeps: thousands of runs in one call, over settings, keys and streams.

The models of a sweep are pytrees. Those of one structure are stacked, float by float, and run as
one compiled program (:mod:`.many`), laid over all cores, devices and processes
(:mod:`.devices`). Another step size compiles nothing; another mode or learner is another
structure and compiles once; boosters that differ in their length alone share one run
(:mod:`.chains`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost.core import checks
from jboost.core.learner import Learner
from jboost.core.progress import Progress
from jboost.running.run import Observe, _array, checked, checked_key
from jboost.sweeps import chains
from jboost.sweeps import devices as places
from jboost.sweeps import grid as grids
from jboost.sweeps.devices import Device
from jboost.sweeps.jobs import Cells, Draws, Job, groups
from jboost.sweeps.many import Metric
from jboost.sweeps.results import Table


class SweepInterrupted(KeyboardInterrupt):
    """A sweep was stopped by the user; ``table`` has what was done until then."""

    def __init__(self, table: Table):
        self.table = table
        done, rows = int(table.done.sum()), table.done.size
        super().__init__(f"stopped after {done:,} of {rows:,} runs, which are in .table")


def sweep(
    make: Callable[..., Learner],
    grid: Any,
    xs: Any,
    ds: Any,
    keys: Any = None,
    *,
    metric: Metric | None = None,
    observe: Observe | None = None,
    share: bool = True,
    batch: int | None = None,
    devices: Iterable[Device] | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> Table:
    """Run a model at every point of a grid, with every key, on every stream.

    A row of the table is what ``run(make(**point), xs, ds, key)`` gives: the same draws for the
    same key wherever it runs, and the same numbers to rounding. On a CPU each run is an iteration
    of its own, a thread for each core, with nothing to be set before.

    Args:
      make: ``make(**point)`` returns a model, such as ``jb.bsgd_wu`` or a function of yours.
      grid: values by name, of which all combinations are run: an array or list of numbers, words,
        learners, modes; or (n, m) for n settings of one number per learner. Or a list of points,
        each a dict, which are run as they are.
      xs: (T, r) inputs, or (S, T, r) for S streams. Fill shorter ones up with targets of NaN.
      ds: (T,) targets, or (S, T).
      keys: a ``jax.random.key``, or several, as ``jax.random.split`` gives. A model that does not
        draw runs once, and has the same row for each.
      metric: ``metric(trace, ds)``, in JAX, for further columns: a number, an array or a dict of
        them for each run. A function defined once compiles once.
      observe: as for :func:`jboost.run`; its record is the metric's ``trace.observed``.
      share: whether boosters that differ in their length alone are run as one, the longest.
        Rounding may differ then from separate runs.
      batch: how many runs make a batch; by default what takes about 0.3 s. Memory grows with
        batch × T only.
      devices: which to use, by default all of ``jax.devices()``.
      workers: how many threads, by default one for each core of a single CPU device.
      progress: whether to report on standard error; by default on a terminal, after two seconds.

    Returns:
      A :class:`.results.Table`. Under ``jax.distributed`` every process gets the whole.

    Raises:
      SweepInterrupted: at Ctrl-C; a ``KeyboardInterrupt`` whose ``table`` has what was done.

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
    settings = grids.points(grid)
    models = grids.models(make, settings.points)
    xs, ds = _streams(xs, ds)
    draws = _draws(keys, any(model.needs_key for model in models))
    if batch is not None:
        batch = checks.whole("batch", batch, at_least=1)
    layout = places.layout(devices, workers)
    cells = Cells(len(models), draws.keys, len(xs), settings.points[0])
    bar = Progress("sweep", cells.done.size, progress)

    def table(columns: dict[str, np.ndarray]) -> Table:
        seconds = time.perf_counter() - start
        return Table(*settings, (draws.keys, len(xs)), columns, cells.done, seconds)

    try:
        with places.Workers(layout.workers) as crew:
            wanted = chains.share(models) if share and observe is None else chains.alone(models)
            data = jax.device_put((xs, ds), places.sharding_of(layout.devices, places.ALL))
            for group in groups(wanted, xs.dtype):
                job = Job(group, draws, data, layout, observe, metric, batch)
                cells.expect(job.shapes)
                for runs in job.batches:  # computed while the next group compiles
                    compute = partial(job.compute, job.arguments(runs))
                    crew.give(compute, partial(job.keep, runs, cells, bar.add))
            crew.finish()
    except KeyboardInterrupt:
        raise SweepInterrupted(table(cells.columns)) from None
    finally:
        bar.close()
    columns = places.gathered(layout, cells.done, cells.columns)
    cells.done[:] = True
    return table(columns)


def _streams(xs: Any, ds: Any) -> tuple[np.ndarray, np.ndarray]:
    """(S, T, r) and (S, T), of one float dtype, on the host."""
    xs = _array("xs", xs, "(T, r), or (S, T, r) for several streams")
    ds = _array("ds", ds, "(T,), or (S, T) for several streams")
    if xs.ndim != 3:
        xs, ds, dtype = checked(xs, ds, jnp.result_type(float))
        return np.asarray(xs, dtype)[None], np.asarray(ds, dtype)[None]
    if ds.shape != xs.shape[:2] or not len(xs):
        raise ValueError(
            f"several streams, xs of shape (S, T, r), need targets ds of shape (S, T), S >= 1; "
            f"got xs {xs.shape} and ds {ds.shape}"
        )
    _, _, dtype = checked(xs[0], ds[0], jnp.result_type(float))
    return np.asarray(xs, dtype), np.asarray(ds, dtype)


def _draws(keys: Any, needed: bool) -> Draws:
    if keys is None:
        return Draws(checked_key(None) if needed else None, None, 1)
    keys = jnp.stack(keys) if isinstance(keys, (list, tuple)) and keys else keys
    if not isinstance(keys, jax.Array) or not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        raise TypeError(f"keys must be jax.random keys; got {keys!r:.200}")
    if keys.ndim > 1 or not keys.size:
        raise ValueError(f"keys must be one key, or (K,) of them, K >= 1; got shape {keys.shape}")
    words = np.asarray(jax.random.key_data(jnp.atleast_1d(keys)))
    return Draws(words, str(jax.random.key_impl(keys)), len(words))
