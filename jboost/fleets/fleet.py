"""Fleets: one model for each of very many named streams, whose samples arrive in any order.

A block is rows (name, x, d) in the order of their arrival: a stream may have no row in it, or
several. Every stream's run is the same as if the stream were alone. A stream is made when its name
first appears. Several devices share the work of a block: ``jax.config.update("jax_num_cpu_devices",
2)`` makes two devices of two cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from jboost.checkpoints.atomic import PathLike
from jboost.core import DType, Key, Learner, State, checks
from jboost.core.guards import mismatch
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of
from jboost.core.step import Observe, Trace
from jboost.fleets import blocks, loops, tables
from jboost.fleets.columns import Keys, names_of
from jboost.fleets.directory import Directory
from jboost.fleets.names import Name, Names, hashes
from jboost.fleets.program import Program
from jboost.fleets.shards import Columns, Saved, Settings, contents, read_shards, write_shards
from jboost.fleets.state import FleetState, marked, rows_per_shard
from jboost.fleets.streams import Streams
from jboost.running.run import checked_key, checked_stream, targets_of
from jboost.sweeps import devices as hardware
from jboost.sweeps.devices import Device


class Fleet:
    """One model for each of many streams, which have names.

    A name is a text, bytes, a whole number, a date, a UUID, or a tuple of these. Names come as a
    list, an array of NumPy, or a column of an Arrow, pandas or polars table.

    Args:
      model: any learner; all streams share its settings, and each has its own state.
      num_features: r, the same for all streams.
      key: a ``jax.random.key``, for models that draw; a stream has :meth:`key_of` its name.
      start: the state that a new stream starts from, by default ``model.init``.
      bound: how many streams have their states in memory, by default all. The states of streams
        that were silent the longest move to a file, and return when their names do.
      spill: the folder for that file, by default the system's folder for temporary files.
      dtype: the dtype of the states, by default JAX's default float.
      devices: the devices to use, by default all of this process.
      schedule: "rows" takes a block row by row; "rounds" takes the first row of every stream at
        once, then all second rows, and so on. By default "rows" on a CPU, "rounds" elsewhere.

    >>> import jboost as jb
    >>> fleet = jb.Fleet(jb.SGD(0.5), num_features=1)
    >>> state = fleet.init()
    >>> names = ["kitchen", "cellar", "kitchen"]
    >>> state, trace = fleet.run(state, names, [[1.0], [1.0], [1.0]], [1.0, 2.0, 1.0])
    >>> trace.prediction.tolist()
    [0.0, 0.0, 0.5]
    >>> fleet.states(state, ["kitchen", "cellar", "attic"]).w.ravel().tolist()
    [0.75, 1.0, 0.0]
    >>> fleet.names(state)
    ['kitchen', 'cellar']
    """

    def __init__(
        self,
        model: Learner,
        num_features: int,
        *,
        key: Key = None,
        start: State = None,
        bound: int | None = None,
        spill: PathLike | None = None,
        dtype: DType = None,
        devices: Iterable[Device] | None = None,
        schedule: str | None = None,
    ):
        self.model = instance("model", model)
        self.num_features = checks.whole("num_features", num_features, at_least=1)
        key = checked_key(model, key)
        self.key = key if model.needs_key else None
        self.dtype = dtype_of(dtype)
        self.bound = None if bound is None else checks.whole("bound", bound, at_least=1)
        self._spill = None if spill is None else checks.path("spill", spill)
        self._devices = hardware.checked(jax.local_devices() if devices is None else devices)
        if schedule is None:
            schedule = "rows" if self._devices[0].platform == "cpu" else "rounds"
        checks.choice("schedule", schedule, ("rows", "rounds"))
        self._program = Program(
            model, self.num_features, self.dtype, self.key, start, self._devices, schedule
        )
        self.width = self._program.width  # words of 32 bits that the state of a stream takes
        self._most = min(loops.LENGTHS[-1], self.bound or loops.LENGTHS[-1])  # rows of a chunk
        self._saved: dict[str, Saved] = {}  # what lies in the folders that this fleet wrote or read

    def init(self) -> FleetState:
        """Return the state before any data, without a stream."""
        streams = Streams(self._program.spec.packing, self.bound, self._spill)
        return FleetState(
            Directory(), 0, 0, None, streams, streams.arrays.current, np.zeros(0, int)
        )

    def run(
        self,
        state: FleetState,
        names: Keys,
        xs: ArrayLike,
        ds: ArrayLike,
        *,
        observe: Observe | None = None,
    ) -> tuple[FleetState, Trace]:
        """Run a block: at each row, the row's stream predicts, then learns.

        Returns the new state, and the trace of the rows, in their order. The old state stays as it
        was: to use it again takes as long as the rows that were changed since are many.

        Args:
          state: the state that :meth:`init`, :meth:`load` or the block before returned.
          names: (n,) names of streams, in the order of arrival; a name may come several times.
          xs: (n, r) inputs.
          ds: (n,) targets; NaN asks for a prediction and teaches nothing. Or (n, q) for a model of
            several targets.
          observe: ``observe(state, info)``, as for ``jb.run``; stacked as ``trace.observed``.
        """
        state = self._checked_state(state)
        if observe is not None:
            checks.function("observe", observe, "(state, info), or None")
        inputs, targets, _ = checked_stream(xs, ds, jnp.result_type(float), targets_of(self.model))
        inputs = self._checked_inputs(inputs)
        with np.errstate(all="ignore"):  # beyond float32 is infinite, and so a sample to skip
            targets = np.asarray(targets, self.dtype)
        column = names_of("names", names, len(inputs))
        hashed = hashes(column)
        directory, count, marks = state.directory, state.count, state.marks
        arrays, rows, traces = state.streams.arrays, state.rows + len(inputs), []
        with arrays.changing(state.version) as change:
            for first in range(0, len(inputs), self._most):
                chunk = slice(first, first + self._most)
                of_chunk = column.take(chunk), hashed[chunk]
                directory, numbers = directory.including(*of_chunk, count)
                before, count = count, max(count, int(numbers.max()) + 1)
                for piece in blocks.pieces(numbers, 4 * self.width):
                    at = slice(first + piece.start, first + piece.stop)
                    block = (inputs[at], targets[at], hashed[at])
                    begin = (at.start, state.rows + at.start)
                    streams = numbers[piece]
                    traces += self._program.run(
                        state.streams, change, streams, before, block, begin, observe
                    )
                    before = max(before, int(streams.max()) + 1)
                marks = marked(marks, numbers, count, self.width)
            trace = jax.device_put(blocks.joined(traces, len(inputs)))
        new = FleetState(directory, count, rows, None, state.streams, change.version, marks)
        return new, trace

    def learn(self, state: FleetState, names: Keys, xs: ArrayLike, ds: ArrayLike) -> FleetState:
        """Return the state after learning a block, where the predictions are not asked for."""
        return self.run(state, names, xs, ds)[0]

    def predict(self, state: FleetState, names: Keys, xs: ArrayLike) -> Array:
        """Return the predictions for rows, (n,); a new name predicts as it would at its start.

        Nothing is learned, and no stream is made. Every bit is what ``run`` predicts for the row;
        a forecaster predicts as at a row without an answer.
        """
        state = self._checked_state(state)
        inputs, _, _ = checked_stream(xs, blocks.no_targets(xs), jnp.result_type(float))
        inputs = self._checked_inputs(inputs)
        column = names_of("names", names, len(inputs))
        hashed, answers = hashes(column), targets_of(self.model)
        shape = (len(inputs),) if answers is None else (len(inputs), answers)
        targets, results = np.full(shape, np.nan, self.dtype), []
        for piece in blocks.pieces(np.arange(len(inputs)), 4 * self.width):
            for first in range(piece.start, piece.stop, self._most):
                rows = slice(first, min(first + self._most, piece.stop))
                words, positions = self._words(state, column.take(rows))
                block = (inputs[rows], targets[rows], hashed[rows])
                results.append(self._program.predict(words, positions, block))
        return jax.device_put(np.concatenate(results))

    def run_table(
        self, state: FleetState, table: object, *, names: str | Sequence[str], target: str,
        inputs: Sequence[str] | None = None,
    ) -> tuple[FleetState, Trace]:  # fmt: skip
        """Run the rows of an Arrow, pandas or polars table.

        Args:
          state: as for :meth:`run`.
          table: the table; a missing number is NaN.
          names: the column of the names of the streams, or several, whose values make a tuple.
          target: the column of the targets.
          inputs: the columns of x, by default all others, which must hold numbers.
        """
        column, xs, ds = tables.split(table, names, target, inputs)
        return self.run(state, column, xs, ds)

    def states(self, state: FleetState, names: Keys | None = None) -> State:
        """Return the model's states of the named streams, or of all, stacked for ``jb.save``.

        A name that has no stream yet has the state that it would start from.
        """
        state = self._checked_state(state)
        column = self.column(state) if names is None else names_of("names", names)
        words, positions = self._words(state, column)
        return self._program.spec.unpacked(words[positions])

    def names(self, state: FleetState) -> list[Name]:
        """Return the names of all streams, in the order in which they first appeared."""
        return self.column(state).tolist()

    def column(self, state: FleetState) -> Names:
        """Return the same names as a column that the other methods take, every kind exactly."""
        state = self._checked_state(state)
        with state.streams.arrays.lock:  # another thread may be adding names
            return state.directory.names(np.arange(state.count))

    def key_of(self, name: Name) -> Key:
        """Return the key of the stream with this name; None for a model that does not draw."""
        words = blocks.halves(hashes(names_of("name", [name])))[0]
        return None if self.key is None else loops.folded(self.key, jnp.asarray(words))

    def from_states(self, names: Keys, states: State) -> FleetState:
        """Return the fleet's state in which the named streams have these states, stacked."""
        column = names_of("names", names)
        lengths = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(states)}
        if lengths != {(len(column),)}:
            got = sorted(lengths)
            raise ValueError(f"states must be of {len(column)} streams, stacked; got {got}")
        one = self._program.template
        problem = mismatch(one, jax.tree.map(jnp.asarray, states), (len(column),))
        if problem is not None:
            advice = f"those of this fleet's model for {self.num_features} inputs, stacked"
            raise ValueError(f"states must be {advice}: {problem.replace('state', 'states', 1)}")
        words = np.asarray(self._program.spec.packed(states))
        return self.init().with_streams(column, words, self._most)

    def save(
        self, folder: PathLike, state: FleetState, *, position: Any = None,
        columns: Columns | None = None,
    ) -> None:  # fmt: skip
        """Keep a state in a folder, all or nothing; shards without changes are not written again.

        Args:
          folder: the folder, which is made where there is none.
          state: the state to keep.
          position: where the input stands, as anything that JSON can hold: it is kept with the
            state, and ``load(folder).position`` has it.
          columns: arrays by name with a number for each stream, in the order of :meth:`names`, such
            as sums of errors; ``load(folder).columns`` has them. A number may change only when its
            stream has rows.
        """
        state = self._checked_state(state)
        path = checks.path("folder", folder)
        with state.streams.arrays.reading(state.version):
            self._saved[path] = write_shards(
                path, self._settings(), state, position, columns or {}, self._saved.get(path)
            )

    def load(self, folder: PathLike) -> FleetState:
        """Return the state that :meth:`save` kept in a folder."""
        path, state = checks.path("folder", folder), self.init()
        saved, header = read_shards(path, self._settings())
        shards: list[Columns] = []
        for names, words, columns in contents(path, saved, self.width):
            state = state.with_streams(names, words, self._most)
            shards.append(columns)
        joined = {
            name: np.concatenate([columns[name] for columns in shards])
            for name in (shards[0] if shards else ())
        }
        fields = {"rows": header["rows"], "position": header["position"], "columns": joined}
        state = state.replace(**fields)
        if header["each"] == rows_per_shard(self.width):
            self._saved[path] = saved._replace(marks=state.marks)
        return state

    def _settings(self) -> Settings:
        names = self.num_features, self.dtype.name, self.width
        return Settings(self.model, self.key, *names)

    def _words(self, state: FleetState, column: Names) -> tuple[np.ndarray, np.ndarray]:
        """Return the packed states of the streams in a column, and of each row which it is.

        There may be more states than streams, so that programs fit.
        """
        hashed = hashes(column)
        with state.streams.arrays.lock:  # another thread may be adding names
            numbers = state.directory.find(column, hashed)
        numbers[numbers >= state.count] = -1
        if (numbers < 0).any():  # each new name by itself: it may have draws of its own
            numbers = np.where(numbers < 0, -1 - np.arange(len(numbers)), numbers)
        unique, positions, firsts = blocks.compact(numbers)
        room = next((length for length in loops.LENGTHS if length >= len(unique)), len(unique))
        words = np.zeros((room, self.width), np.uint32)
        old, new = np.flatnonzero(unique >= 0), np.flatnonzero(unique < 0)
        with state.streams.arrays.reading(state.version):
            words[old] = state.streams.read(unique[old])
        if len(new):
            words[new] = self._program.first_words(hashed[firsts[new]])
        return words, positions

    def _checked_state(self, state: FleetState) -> FleetState:
        advice = "the state that init, load or run of this fleet returned"
        checks.instance("state", state, FleetState, advice)
        packing = self._program.spec.packing
        if state.streams.packing != packing or state.streams.bound != self.bound:
            raise ValueError(f"state must be {advice}; got one of another fleet")
        return state

    def _checked_inputs(self, inputs: Array | np.ndarray) -> np.ndarray:
        if inputs.shape[1] != self.num_features:
            raise ValueError(f"xs must have {self.num_features} columns; got shape {inputs.shape}")
        with np.errstate(all="ignore"):  # beyond float32 is infinite, and so a sample to skip
            return np.asarray(inputs, self.dtype)
