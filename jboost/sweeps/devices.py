"""Where runs are computed: on all cores, all devices, all processes, without the caller's help.

* One CPU device, which is what JAX has by default: a thread for each core. XLA runs one program of
  a device per calling thread, so nothing has to be set before JAX starts, and nothing has to be
  undone where it has started with one device already.
* Several devices (accelerators, or a CPU that was split with
  ``jax.config.update("jax_num_cpu_devices", n)`` before its first use): each batch is laid over
  them with ``shard_map``.
* Several processes (``jax.distributed.initialize`` was called in each): every process runs its
  part on its own devices, and at the end each is given the whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from jboost.core import checks

Device = Any  # a jax.Device, which type checkers do not know as a class
EACH, ALL = PartitionSpec("run"), PartitionSpec()  # a part on each device; the whole on each


class Layout(NamedTuple):
    """This process's devices, the threads that feed them, and its place among the processes."""

    devices: tuple[Device, ...]
    workers: int
    process: int
    processes: int

    def mine(self, items: Sequence[Any]) -> Sequence[Any]:
        """This process's part of the work."""
        return items[self.process :: self.processes]

    @property
    def ways(self) -> int:
        """How many batches all processes together compute at a time."""
        return self.workers * self.processes


def layout(devices: Iterable[Device] | None = None, workers: int | None = None) -> Layout:
    """All that there is, or what is asked for.

    Args:
      devices: of the kind that ``jax.devices()`` lists, all of one platform.
      workers: how many threads; by default one for each core where there is one CPU device.

    >>> layout(workers=2).workers
    2
    """
    chosen = tuple(jax.devices() if devices is None else devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise TypeError(f"devices must be devices such as jax.devices() lists; got {devices!r}")
    if len({device.platform for device in chosen}) > 1:
        raise ValueError(f"devices must be of one platform; got {list(chosen)}")
    processes = sorted({device.process_index for device in chosen})
    if jax.process_index() not in processes:
        raise ValueError(
            f"devices must have some of every process; process {jax.process_index()} has none"
        )
    own = tuple(d for d in chosen if d.process_index == jax.process_index())
    threads = cores() if own[0].platform == "cpu" and len(own) == 1 else 1
    if workers is not None:
        threads = checks.whole("workers", workers, at_least=1)
    return Layout(own, threads, processes.index(jax.process_index()), len(processes))


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def mesh_of(devices: tuple[Device, ...]) -> Mesh | None:
    """The devices in a row, where there are several."""
    return Mesh(np.array(devices), ("run",)) if len(devices) > 1 else None


def sharding_of(devices: tuple[Device, ...], spec: PartitionSpec) -> Sharding:
    """Where arrays go: a copy on each device (ALL), or a part of the first axis on each (EACH)."""
    mesh = mesh_of(devices)
    return SingleDeviceSharding(devices[0]) if mesh is None else NamedSharding(mesh, spec)


def gathered(places: Layout, mine: np.ndarray, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """The columns of all processes in one; ``mine`` is True where this process filled them."""
    if places.processes == 1:
        return columns
    from jax.experimental import multihost_utils

    def chosen(parts: np.ndarray, owner: np.ndarray) -> np.ndarray:
        return parts[owner, np.arange(len(owner))]

    owner = np.argmax(multihost_utils.process_allgather(mine), axis=0)
    parts = multihost_utils.process_allgather(columns)
    return {name: chosen(np.asarray(part), owner) for name, part in parts.items()}


class Workers:
    """Threads that do what they are given, until something fails or the caller is interrupted."""

    def __init__(self, count: int):
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="jboost-sweep")
        self._given: list[Future[None]] = []
        self._lock = threading.Lock()

    def give(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have ``then(work())`` done; no two calls of ``then`` at once."""

        def both() -> None:
            result = work()
            with self._lock:
                then(result)

        self._given.append(self._pool.submit(both))

    def finish(self) -> None:
        """Wait for all that was given; raises what one of them raised."""
        for future in self._given:
            future.result()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: Any) -> None:
        # What has begun is done in a moment, and its results count; the rest is not begun.
        self._pool.shutdown(wait=True, cancel_futures=True)
