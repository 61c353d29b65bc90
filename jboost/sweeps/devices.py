"""Which devices, threads and processes compute the runs; the caller sets up nothing.

* A single CPU device, JAX's default: one thread for each core calls compiled programs.
* Several devices (accelerators, or a CPU that ``jax.config.update("jax_num_cpu_devices", n)`` split
  before its first use): ``shard_map`` lays each batch over the devices.
* Several processes (each called ``jax.distributed.initialize``): every process computes its share
  of the batches, and at the end every process has all results.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

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
    """What this process computes with, and its number among the processes."""

    devices: tuple[Device, ...]  # the devices of this process, all of one platform
    workers: int  # how many threads call compiled programs
    process: int  # the number of this process, from 0
    processes: int  # how many processes there are


def resources(devices: Iterable[Device] | None = None, workers: int | None = None) -> Resources:
    """Return the resources that the caller names; by default all devices that JAX has.

    By default a single CPU device has a thread for each core; otherwise there is one thread.
    """
    chosen = checked(jax.devices() if devices is None else devices)
    if len({device.platform for device in chosen}) > 1:
        raise ValueError(f"devices must be of one platform; got {list(chosen)}")
    process = jax.process_index()
    processes = sorted({device.process_index for device in chosen})
    if process not in processes:
        raise ValueError(f"devices must include one of every process; process {process} has none")
    local = tuple(device for device in chosen if device.process_index == process)
    if workers is None:
        workers = cores() if local[0].platform == "cpu" and len(local) == 1 else 1
    workers = checks.whole("workers", workers, at_least=1)
    return Resources(local, workers, processes.index(process), len(processes))


def checked(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Refuse what is no list of at least one device."""
    chosen = tuple(devices) if isinstance(devices, Iterable) else ()
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        got = checks.shown(devices)
        raise TypeError(f"devices must be devices such as jax.devices() lists; got {got}")
    return chosen


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sharding_of(devices: tuple[Device, ...], spec: PartitionSpec) -> Sharding:
    """Return where the devices hold an array; ``spec`` is SPLIT or COPIED."""
    if len(devices) == 1:
        return SingleDeviceSharding(devices[0])
    return NamedSharding(Mesh(np.array(devices), ("run",)), spec)


def on_each(
    devices: tuple[Device, ...], f: Callable[..., Any], *specs: PartitionSpec
) -> Callable[..., Any]:
    """Return f for all devices; ``specs`` tells which arguments are SPLIT. Results are SPLIT."""
    if len(devices) == 1:
        return f
    mesh = Mesh(np.array(devices), ("run",))
    return jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=SPLIT, check_vma=False)


def gathered(
    computed: np.ndarray, columns: dict[str, np.ndarray], processes: int
) -> dict[str, np.ndarray]:
    """Join the rows of all processes; ``computed`` is True at those that this process computed."""
    if processes == 1:
        return columns
    from jax.experimental import multihost_utils

    process = np.argmax(multihost_utils.process_allgather(computed), axis=0)
    gathered = multihost_utils.process_allgather(columns)
    rows = np.arange(len(process))
    return {name: np.asarray(column)[process, rows] for name, column in gathered.items()}
