"""Which devices, threads and processes compute the runs; the caller sets up nothing.

* One CPU device, JAX's default: one thread for each core. XLA runs one program of a device per
  calling thread, so this needs no setting before JAX starts.
* Several devices (accelerators, or a CPU split by
  ``jax.config.update("jax_num_cpu_devices", n)`` before its first use): ``shard_map`` lays each
  batch over the devices.
* Several processes (each called ``jax.distributed.initialize``): every process computes its share
  of the batches on its own devices, and at the end every process has all results.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from jboost.core import checks

SPLIT = PartitionSpec("run")  # each device holds its part of the first axis
COPIED = PartitionSpec()  # each device holds the whole array


class Device(Protocol):
    """The attributes of a ``jax.Device`` that are used; type checkers do not know that class."""

    platform: str
    process_index: int


class Resources(NamedTuple):
    """What this process computes with, and its number among the processes.

    devices: this process's devices, all of one platform.
    workers: how many threads call compiled programs.
    process: this process's number, from 0.
    processes: how many processes there are.
    """

    devices: tuple[Device, ...]
    workers: int
    process: int
    processes: int


def resources(devices: Iterable[Device] | None = None, workers: int | None = None) -> Resources:
    """The resources that the caller names; by default all that JAX has.

    Args:
      devices: devices such as ``jax.devices()`` lists, all of one platform.
      workers: how many threads; by default one for each core if there is a single CPU device, and
        one thread otherwise.

    >>> resources(workers=2).workers
    2
    """
    chosen = tuple(jax.devices() if devices is None else devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise TypeError(f"devices must be devices such as jax.devices() lists; got {devices!r}")
    if len({device.platform for device in chosen}) > 1:
        raise ValueError(f"devices must be of one platform; got {list(chosen)}")
    process = jax.process_index()
    processes = sorted({device.process_index for device in chosen})
    if process not in processes:
        raise ValueError(f"devices must include one of every process; process {process} has none")
    local = tuple(device for device in chosen if device.process_index == process)
    if workers is not None:
        workers = checks.whole("workers", workers, at_least=1)
    else:
        workers = cores() if local[0].platform == "cpu" and len(local) == 1 else 1
    return Resources(local, workers, processes.index(process), len(processes))


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def mesh_of(devices: tuple[Device, ...]) -> Mesh | None:
    """A mesh of one axis over several devices; None for a single device, which needs no mesh."""
    return Mesh(np.array(devices), ("run",)) if len(devices) > 1 else None


def sharding_of(devices: tuple[Device, ...], spec: PartitionSpec) -> Sharding:
    """Where the devices hold an array; ``spec`` is SPLIT or COPIED."""
    mesh = mesh_of(devices)
    return SingleDeviceSharding(devices[0]) if mesh is None else NamedSharding(mesh, spec)


def gathered(
    computed: np.ndarray, columns: dict[str, np.ndarray], processes: int
) -> dict[str, np.ndarray]:
    """The columns with the rows that each of the processes computed.

    ``computed`` is True at the rows that this process computed.
    """
    if processes == 1:
        return columns
    from jax.experimental import multihost_utils

    process = np.argmax(multihost_utils.process_allgather(computed), axis=0)
    gathered = multihost_utils.process_allgather(columns)
    rows = np.arange(len(process))
    return {name: np.asarray(column)[process, rows] for name, column in gathered.items()}
