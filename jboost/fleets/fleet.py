"""Fleets: one model for each of very many streams, whose samples come as they come.

A block is rows (stream, x, d) in the order of their arrival: some streams have none in it, some
several. Only the states of the streams in it are touched, each in the order of its own rows, so
that every stream's run is the one it would have had alone.

The states of all streams are one array, a row of words for each (:mod:`jboost.engine.packing`).
On a CPU one kernel walks the rows of a block and changes the states in place. On other devices the
rows are taken in rounds, of which each has a stream at most once: gather, ``vmap``, scatter.
Several devices share the streams by ``shard_map``; two cores are two devices after
``jax.config.update("jax_num_cpu_devices", 2)``, which JAX wants before its first computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.core import checks
from jboost.core.learner import Learner, State
from jboost.core.numerics import dtype_of
from jboost.engine import fold as engine
from jboost.engine.packing import Packing
from jboost.fleets.loops import Way, init, run
from jboost.running import blocks
from jboost.running.run import Trace, checked, checked_key, scan
from jboost.sweeps import many
from jboost.sweeps.devices import EACH, Device, sharding_of


class FleetState(NamedTuple):
    """(D, ceil(N / D), words): stream i is row i // D on device i % D."""

    words: Array


class Fleet:
    """One model for each of many streams.

    Args:
      model: any learner; all streams have its settings, each its own state.
      num_streams: how many there are; they are called 0 … num_streams − 1.
      num_features: r, of all of them.
      key: a ``jax.random.key``, for models that draw; stream i has ``fold_in(key, i)``.
      dtype: of the states, by default JAX's default float.
      devices: which to use, by default all that this process has.
      form: "rows" walks a block row by row, "rounds" takes one row of each stream at a time; by
        default the former on a CPU.

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
        key: Any = None,
        dtype: Any = None,
        devices: Iterable[Device] | None = None,
        form: str | None = None,
    ):
        advice = "a learner such as bsgd_wu(…) or SGD(step_size=0.1)"
        self.model = checks.instance("model", model, Learner, advice)
        self.num_streams = checks.whole("num_streams", num_streams, at_least=1)
        self.num_features = checks.whole("num_features", num_features, at_least=1)
        self.key = checked_key(key) if model.needs_key else None
        self.dtype = dtype_of(dtype)
        self._devices = tuple(jax.local_devices() if devices is None else devices)
        on_cpu = self._devices[0].platform == "cpu"
        walk = ("rows" if on_cpu else "rounds") if form is None else form
        self._by_rounds = checks.choice("form", walk, ("rows", "rounds")) == "rounds"
        self._words = None if self.key is None else jax.random.key_data(self.key)
        generator = None if self.key is None else str(jax.random.key_impl(self.key))

        state = many.example_state(model, self.num_features, self.dtype.name, self.key)
        sample = jnp.zeros((2, self.num_features), self.dtype), jnp.zeros(2, self.dtype)
        x, d = jax.device_put(sample, self._devices[0])
        plan = engine.plan_for(scan, model, state, x, d, self.key, None)
        self._call = blocks.samples_per_call(state)
        self._way = Way(
            Packing.of(state),
            "rounds" if self._by_rounds else plan.form,
            self._devices,
            self.num_features,
            self.dtype,
            generator,
        )

    def init(self) -> FleetState:
        """The states before any data."""
        return FleetState(init(self._way, self.model, self._words, self._places(self._all())))

    def run(
        self, state: FleetState, ids: Any, xs: Any, ds: Any, *, donate: bool = False
    ) -> tuple[FleetState, Trace]:
        """Run a block of rows: at each predict, then learn, by the stream it belongs to.

        Args:
          state: of :meth:`init`, or of the block before.
          ids: (n,) streams, in the order of arrival; the same one may come again.
          xs: (n, r) inputs.
          ds: (n,) targets; NaN asks for a prediction and teaches nothing.
          donate: let the new state take the old one's memory, which saves a copy of all states; the
            old one cannot be used again.

        Returns:
          The new state, and the trace of the rows, in their order.
        """
        xs, ds, _ = checked(xs, ds, jnp.result_type(float))
        ids = self._checked_ids(ids, len(xs))
        if xs.shape[1] != self.num_features:
            raise ValueError(f"xs must have {self.num_features} columns; got shape {xs.shape}")
        fits = (len(self._devices), -(-self.num_streams // len(self._devices)))
        if state.words.shape != (*fits, self._way.packing.width):
            raise ValueError("state does not belong to this fleet; pass what init or run returned")
        xs, ds = np.asarray(xs, self.dtype), np.asarray(ds, self.dtype)
        words = state.words if donate else state.words.copy()
        calls = []
        for rows in self._calls(ids):
            real = rows >= 0
            beyond = len(self._devices) * (words.shape[1] + np.arange(rows.shape[1]))
            block = (
                np.where(real, ids[rows], beyond).astype(np.int32),
                np.where(real[..., None], xs[rows], 0),
                np.where(real, ds[rows], np.nan).astype(self.dtype),
            )
            words, trace = run(self._way, self.model, self._words, words, block)
            calls.append((rows, trace))
        prediction, skipped = np.empty(len(ids), self.dtype), np.empty(len(ids), bool)
        for rows, trace in calls:
            real = rows >= 0
            prediction[rows[real]] = np.asarray(trace.prediction)[real]
            skipped[rows[real]] = np.asarray(trace.skipped)[real]
        return FleetState(words), Trace(jnp.asarray(prediction), jnp.asarray(skipped), None)

    def states(self, state: FleetState, ids: Any = None) -> State:
        """The model's states of some streams, or of all, stacked: what ``jboost.save`` takes."""
        ids = self._all() if ids is None else self._checked_ids(ids)
        count = len(self._devices)
        words = state.words[ids % count, ids // count]
        return jax.vmap(self._way.packing.unpack)(words)

    def from_states(self, states: State) -> FleetState:
        """The fleet's state from the stacked states of all streams."""
        have = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(states)}
        if have != {(self.num_streams,)}:
            raise ValueError(f"states must be of {self.num_streams} streams, stacked; got {have}")
        words = jax.vmap(self._way.packing.pack)(states)[self._places(self._all())]
        return FleetState(jax.device_put(words, sharding_of(self._devices, EACH)))

    def _all(self) -> np.ndarray:
        return np.arange(self.num_streams)

    def _places(self, ids: np.ndarray) -> np.ndarray:
        """(D, …): which stream has which place; the last stands in where there are too few."""
        count = len(self._devices)
        rows = -(-len(ids) // count)
        padded = np.minimum(np.arange(rows * count), len(ids) - 1)
        return ids[padded].reshape(rows, count).T.astype(np.int32)

    def _checked_ids(self, ids: Any, rows: int | None = None) -> np.ndarray:
        array = np.asarray(ids)
        if array.ndim != 1 or rows not in (None, len(array)):
            wanted = "(n,)" if rows is None else f"({rows},), one for each row of xs"
            raise ValueError(f"ids must have shape {wanted}; got {array.shape}")
        if array.dtype.kind not in "iu":
            raise TypeError(f"ids must be whole numbers; got dtype {array.dtype}")
        bad = (array < 0) | (array >= self.num_streams)
        if bad.any():
            place = int(np.argmax(bad))
            raise ValueError(
                f"ids must be streams from 0 to {self.num_streams - 1}; "
                f"row {place} has {array[place]}"
            )
        return array.astype(np.int64)

    def _calls(self, ids: np.ndarray) -> Iterator[np.ndarray]:
        """(D, L) rows for every call of the program, −1 where a device has fewer."""
        nth = np.zeros(len(ids), np.int64)  # how many rows of its stream come before a row
        if self._by_rounds:
            order = np.argsort(ids, kind="stable")
            first = np.r_[True, np.diff(ids[order]) > 0]
            nth[order] = np.arange(len(ids)) - np.flatnonzero(first)[np.cumsum(first) - 1]
        count = len(self._devices)
        for turn in range(int(nth.max()) + 1):
            now = np.flatnonzero(nth == turn)
            own = [now[ids[now] % count == place] for place in range(count)]
            start = 0
            for length in blocks.compiled_lengths(max(map(len, own)), self._call):
                rows = np.full((count, length), -1)
                for place, mine in enumerate(own):
                    piece = mine[start : start + length]
                    rows[place, : len(piece)] = piece
                yield rows
                start += length
