"""Fleets: one model for each of very many streams, whose samples arrive in any order.

A block is rows (stream, x, d) in the order of their arrival: a stream may have no row in it, or
several. Every stream's run is the same as if the stream were alone. The states of all streams are
one array, a row of words for each (:mod:`jboost.engine.packing`). Several devices share the
streams: ``jax.config.update("jax_num_cpu_devices", 2)`` makes two devices of two cores.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, State, checks
from jboost.core.learner import instance
from jboost.core.numerics import as_array, dtype_of
from jboost.core.step import Trace
from jboost.engine.kernel import key_words
from jboost.engine.loop import plan_for
from jboost.engine.packing import Packing
from jboost.engine.pieces import samples_per_call
from jboost.fleets import loops
from jboost.running.run import checked_key, checked_stream
from jboost.sweeps import devices as hardware
from jboost.sweeps.devices import SPLIT, Device, sharding_of
from jboost.sweeps.jobs import example_state


class FleetState(NamedTuple):
    """The states of all N streams, on D devices."""

    words: Array  # (D, ceil(N / D), width), packed states; stream i is row i // D on device i % D


class Fleet:
    """One model for each of many streams.

    Args:
      model: any learner; all streams share its settings, and each has its own state.
      num_streams: how many streams there are, numbered 0 … num_streams − 1.
      num_features: r, the same for all streams.
      key: a ``jax.random.key``, for models that draw; stream i has ``fold_in(key, i)``.
      dtype: the dtype of the states, by default JAX's default float.
      devices: the devices to use, by default all of this process.
      schedule: "rows" takes a block row by row; "rounds" takes the first row of every stream at
        once, then all second rows, and so on. By default "rows" on a CPU, "rounds" elsewhere.

    >>> import jboost as jb
    >>> fleet = Fleet(jb.SGD(0.5), num_streams=1000, num_features=1)
    >>> state = fleet.init()
    >>> state, trace = fleet.run(state, ids=[7, 3, 7], xs=[[1.0], [1.0], [1.0]], ds=[1.0, 2.0, 1.0])
    >>> trace.prediction.tolist()
    [0.0, 0.0, 0.5]
    >>> fleet.states(state, [7, 3, 0]).w.ravel().tolist()
    [0.75, 1.0, 0.0]
    """

    def __init__(
        self,
        model: Learner,
        num_streams: int,
        num_features: int,
        *,
        key: Key = None,
        dtype: DType = None,
        devices: Iterable[Device] | None = None,
        schedule: str | None = None,
    ):
        self.model = instance("model", model)
        self.num_streams = checks.whole("num_streams", num_streams, at_least=1)
        self.num_features = checks.whole("num_features", num_features, at_least=1)
        key = checked_key(model, key)
        self.key = key if model.needs_key else None
        self.dtype = dtype_of(dtype)
        self._devices = hardware.checked(jax.local_devices() if devices is None else devices)
        self._rows_per_device = -(-self.num_streams // len(self._devices))
        if schedule is None:
            schedule = "rows" if self._devices[0].platform == "cpu" else "rounds"
        checks.choice("schedule", schedule, ("rows", "rounds"))
        self._key_words, generator = key_words(self.key)
        state = example_state(model, self.num_features, self.dtype.name, self.key)
        samples = jnp.zeros((2, self.num_features), self.dtype), jnp.zeros(2, self.dtype)
        xs, ds = jax.device_put(samples, self._devices[0])
        plan = plan_for(model, state, xs, ds, self.key, None)
        loop = "rounds" if schedule == "rounds" else "kernel" if plan.form == "kernel" else "plain"
        self._call_cost = samples_per_call(state)  # in samples
        self._spec = loops.FleetSpec(Packing.of(state), loop, self._devices, generator)

    def init(self) -> FleetState:
        """Return the states before any data."""
        sharding, size = sharding_of(self._devices, SPLIT), (self.num_features, self.dtype)
        streams = jax.device_put(self._streams_by_device(), sharding)
        words = _init(self._spec.packing, size, self.model, self.key, streams)
        return FleetState(jax.device_put(words, sharding))

    def run(
        self,
        state: FleetState,
        ids: ArrayLike | Sequence[int],
        xs: ArrayLike,
        ds: ArrayLike,
        *,
        donate: bool = False,
    ) -> tuple[FleetState, Trace]:
        """Run a block: at each row, the row's stream predicts, then learns.

        Returns the new state, and the trace of the rows, in their order.

        Args:
          state: the state that :meth:`init` or the block before returned.
          ids: (n,) numbers of streams, in the order of arrival; a stream may come several times.
          xs: (n, r) inputs.
          ds: (n,) targets; NaN asks for a prediction and teaches nothing.
          donate: let the new state take the memory of the old one, which cannot be used again.
        """
        inputs, targets, _ = checked_stream(xs, ds, jnp.result_type(float))
        streams = self._checked_ids(ids, len(inputs))
        if inputs.shape[1] != self.num_features:
            raise ValueError(f"xs must have {self.num_features} columns; got shape {inputs.shape}")
        state, donate = self._checked_state(state), checks.flag("donate", donate)
        devices, most = len(self._devices), self._rows_per_device
        inputs, targets = np.asarray(inputs, self.dtype), np.asarray(targets, self.dtype)
        words = state.words if donate else state.words.copy()
        run, calls = loops.RUN[self._spec.loop], []
        for rows in self._calls(streams):
            is_row = rows >= 0
            beyond = devices * (most + np.arange(rows.shape[1]))  # no streams: they fill up a call
            block = (
                np.where(is_row, streams[rows], beyond).astype(np.int32),
                np.where(is_row[..., None], inputs[rows], 0),
                np.where(is_row, targets[rows], np.nan).astype(self.dtype),
            )
            words, trace = run(self._spec, self.model, self._key_words, words, block)[0]
            calls.append((rows, is_row, trace))
        # Only now: to read a trace is to wait for its call.
        parts = [jax.tree.map(lambda a, at=at: np.asarray(a)[at], trace) for _, at, trace in calls]
        order = np.argsort(np.concatenate([rows[is_row] for rows, is_row, _ in calls]))
        joined = jax.tree.map(lambda *a: jnp.asarray(np.concatenate(a)[order]), *parts)
        return FleetState(words), joined

    def states(self, state: FleetState, ids: ArrayLike | Sequence[int] | None = None) -> State:
        """Return the model's states of the named streams, or of all, stacked for ``save``."""
        streams = np.arange(self.num_streams) if ids is None else self._checked_ids(ids)
        device, row = streams % len(self._devices), streams // len(self._devices)
        words = self._checked_state(state).words[device, row]
        return jax.vmap(self._spec.packing.unpack)(words)

    def from_states(self, states: State) -> FleetState:
        """Return the fleet's state from the stacked states of all streams."""
        lengths = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(states)}
        if lengths != {(self.num_streams,)}:
            got = sorted(lengths)
            raise ValueError(f"states must be of {self.num_streams} streams, stacked; got {got}")
        words = jax.vmap(self._spec.packing.pack)(states)[self._streams_by_device()]
        return FleetState(jax.device_put(words, sharding_of(self._devices, SPLIT)))

    def _streams_by_device(self) -> np.ndarray:
        """Return the stream of each row of each device, (D, ceil(N / D)); the last fills up."""
        padded = np.arange(self._rows_per_device * len(self._devices), dtype=np.int32)
        return np.minimum(padded, self.num_streams - 1).reshape(-1, len(self._devices)).T

    def _checked_state(self, state: FleetState) -> FleetState:
        advice = "the state that init or run of this fleet returned"
        checks.instance("state", state, FleetState, advice)
        shape = (len(self._devices), self._rows_per_device, self._spec.packing.width)
        if jnp.shape(state.words) != shape:
            raise ValueError(f"state must be {advice}; got one of another fleet")
        return state

    def _checked_ids(self, ids: ArrayLike | Sequence[int], rows: int | None = None) -> np.ndarray:
        array = np.asarray(as_array("ids", ids, "(n,)"))
        if array.ndim != 1 or rows not in (None, len(array)):
            shape = "(n,)" if rows is None else f"({rows},), one for each row of xs"
            raise ValueError(f"ids must have shape {shape}; got {array.shape}")
        if array.dtype.kind not in "iu":
            raise TypeError(f"ids must be whole numbers; got dtype {array.dtype}")
        bad = (array < 0) | (array >= self.num_streams)
        if bad.any():
            row, last = int(np.argmax(bad)), self.num_streams - 1
            raise ValueError(f"ids must be streams from 0 to {last}; row {row} has {array[row]}")
        return array.astype(np.int64)

    def _calls(self, streams: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the rows (D, L) for each call of the loop; −1 where a device has fewer rows."""
        turn = np.zeros(len(streams), np.int64)  # the round in which a row is taken
        if self._spec.loop == "rounds":
            order = np.argsort(streams, kind="stable")
            first = np.r_[True, np.diff(streams[order]) > 0]
            turn[order] = np.arange(len(streams)) - np.flatnonzero(first)[np.cumsum(first) - 1]
        devices = len(self._devices)
        for now in range(int(turn.max()) + 1):
            device_of = np.where(turn == now, streams % devices, -1)
            taken = [np.flatnonzero(device_of == device) for device in range(devices)]
            lengths = loops.compiled_lengths(max(map(len, taken)), self._call_cost)
            rows = np.full((devices, sum(lengths)), -1)
            for of_device, numbers in zip(rows, taken, strict=True):
                of_device[: len(numbers)] = numbers
            yield from np.split(rows, np.cumsum(lengths)[:-1], axis=1)


@partial(jax.jit, static_argnums=(0, 1))
def _init(packing: Packing, size: Any, model: Learner, key: Key, streams: Array) -> Array:
    """Return the packed states of the streams before any data."""

    def pack(stream: Array) -> Array:
        stream_key = None if key is None else jax.random.fold_in(key, stream)
        return packing.pack(model.init(*size, key=stream_key))

    return jax.vmap(jax.vmap(pack))(streams)
