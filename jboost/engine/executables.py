"""A compiled program as bytes, and bytes as a program. Only this file uses inner parts of JAX.

``jax.experimental.serialize_executable`` does the same, but its files are pickles: to read one runs
whatever it says. Here the bytes are those of XLA, and what JAX must know besides is plain data.
"""

import math
import threading
from importlib import import_module
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray

from jboost.engine import descriptions
from jboost.engine.descriptions import NotDescribedError
from jboost.engine.plan import FIRST_TESTED, LAST_TESTED

# Whether the inner parts of this version of JAX are those that this file was tested with.
KNOWN = FIRST_TESTED <= jax.__version_info__[:3] <= LAST_TESTED


def _inner(name: str) -> Any:
    return import_module(f"jax._src.{name}") if KNOWN else None


config, stages, pxla, lib = map(_inner, ("config", "stages", "interpreters.pxla", "lib"))


def context() -> Any:
    """Return all that JAX's tracing depends on beside the arguments, to be compared."""
    return config.trace_context()


def is_plain(context: Any) -> bool:
    """Return whether nothing but JAX's settings is in a context: no mesh, no tags, no axes."""
    names = config.trace_context_names()
    at_rest = ((), None, False)
    return all(
        value in at_rest or name.startswith("jax_") or name in jax.config.values
        for name, value in zip(names, context, strict=True)
        if name != "axis_env_state"  # it is empty outside of transformations
    )


def fingerprint_of(device: Any) -> str:
    """Return what a program depends on of the machine that it was compiled for."""
    topology = lib.xla_client.get_topology_for_devices([device])
    return f"{device.client.platform_version} {device.device_kind} {topology.fingerprint()}"


def compile_afresh(lowered: Any) -> tuple[Any, bool]:
    """Return a lowered program compiled, and whether XLA compiled it now.

    If not, it was in JAX's cache, and cannot be kept: XLA writes a program that it has read itself
    without its functions. So JAX is told to keep no program that is compiled here.
    """
    if not _listening:
        jax.monitoring.register_event_listener(_listen)
        _listening.append(True)
    before = getattr(_heard, "hits", 0)
    with config.persistent_cache_min_compile_time_secs(math.inf):
        compiled = lowered.compile()
    return compiled, getattr(_heard, "hits", 0) == before


_heard, _listening = threading.local(), []


def _listen(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":  # in the thread that compiles
        _heard.hits = getattr(_heard, "hits", 0) + 1


def to_bytes(compiled: Any) -> tuple[dict[str, Any], bytes]:
    """Return a compiled program as plain data and bytes.

    A program that calls back into Python, or holds arrays outside of itself, is more than that, and
    raises ``NotDescribedError``.
    """
    program = compiled._executable
    parts = program._unloaded_executable
    more = (parts.unordered_effects, parts.ordered_effects, parts.host_callbacks, parts.keepalive)
    if any(more) or parts.mut is not None or compiled._params.const_args:
        raise NotDescribedError("the program calls Python, or holds arrays outside of itself")
    outputs = [_described(aval) for aval in program.out_avals]
    data = {
        "name": parts.name,
        "used": sorted(program._kept_var_idx),
        "inputs": [_described(aval) for aval in program.in_avals],
        "outputs": outputs,
        "tree": descriptions.of_structure(compiled.out_tree),
    }
    return data, compiled.runtime_executable().serialize()


def from_bytes(data: dict[str, Any], program: bytes, arguments: tuple[Any, ...]) -> Any:
    """Return the program, to be called with arguments of the structure of these."""
    device = jax.local_devices()[0]
    devices = lib._jax.DeviceList((device,))
    sharding = jax.sharding.SingleDeviceSharding(device)
    inputs, outputs = ([_aval(one) for one in data[name]] for name in ("inputs", "outputs"))
    tree = descriptions.tree_of(data["tree"], iter(range(len(outputs))))
    loaded = pxla.UnloadedMeshExecutable(
        xla_executable=device.client.deserialize_executable(program, devices, None),
        device_list=devices,
        backend=device.client,
        input_avals=inputs,
        input_shardings=[sharding] * len(inputs),
        output_avals=outputs,
        output_shardings=[sharding] * len(outputs),
        committed=False,
        name=data["name"],
        unordered_effects=[],
        ordered_effects=[],
        keepalive=[],
        host_callbacks=[],
        kept_var_idx=set(data["used"]),
        mut=None,
        xla_in_layouts=[None] * len(inputs),
        dispatch_in_layouts=[None] * len(inputs),
        xla_out_layouts=[None] * len(outputs),
        all_args_info=None,
        pgle_profiler=None,
    ).load()
    return stages.Compiled(loaded, [], (arguments, {}), jax.tree.structure(tree))


def _described(aval: Any) -> list[Any]:
    if not isinstance(aval.dtype, np.dtype):  # such as a key
        raise NotDescribedError(f"an array of {aval.dtype}")
    return [list(aval.shape), aval.dtype.name, bool(aval.weak_type)]


def _aval(described: list[Any]) -> Any:
    shape, dtype, weak_type = described
    return ShapedArray(tuple(shape), jax.numpy.dtype(dtype), weak_type=weak_type)
