"""The compiled part of a fleet: packed states and rows in, packed states and predictions out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jboost.core import Key, Learner, State
from jboost.core.guards import mismatch
from jboost.core.step import Observe
from jboost.core.template import template
from jboost.engine.kernel import key_words
from jboost.engine.loop import plan_for
from jboost.engine.packing import Packing
from jboost.engine.pieces import aligned, samples_per_call
from jboost.engine.plan import bytes_of
from jboost.fleets import blocks, loops
from jboost.fleets.streams import Streams
from jboost.fleets.versions import Change, put
from jboost.running.run import targets_of
from jboost.sweeps.devices import Device
from jboost.sweeps.jobs import example_state

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # xs, ds, and the hashes of the names


class Program:
    """How the streams of a fleet are started and run."""

    def __init__(
        self, model: Learner, num_features: int, dtype: np.dtype, key: Key, start: State,
        devices: tuple[Device, ...], schedule: str,
    ) -> None:  # fmt: skip
        self.model, self.key, self.devices = model, key, devices
        self._num_features, self._dtype = num_features, dtype
        self._words, generator = key_words(key)
        example = example_state(model, num_features, dtype.name, key)
        q = targets_of(model)
        shapes = (2, num_features), (2,) if q is None else (2, q)
        xs, ds = jax.device_put(tuple(jnp.zeros(shape, dtype) for shape in shapes), devices[0])
        plan = plan_for(model, example, xs, ds, key, None)
        loop = "rounds" if schedule == "rounds" else plan.form
        self._call_cost = samples_per_call(bytes_of(example))  # in samples
        self.spec = loops.FleetSpec(Packing.of(example), loop, devices, generator)
        self.width = self.spec.packing.width
        self.template = template(model, num_features, dtype.name, key)  # of a stream's state
        self._start: np.ndarray | None = None  # the words that every stream starts with
        if start is not None:
            problem = mismatch(self.template, start)
            if problem is not None:
                detail = f"a state of this model for {num_features} inputs"
                raise ValueError(f"start must be {detail}: {problem}")
            self._start = np.asarray(self.spec.packing.pack(start))
        elif key is None:
            self._start = self.first_words(np.zeros(1, np.uint64))[0]

    def run(
        self, streams: Streams, change: Change, numbers: np.ndarray, count: int, block: Rows,
        begin: tuple[int, int], observe: Observe | None,
    ) -> list[blocks.Called]:  # fmt: skip
        """Run a few rows; streams from the number ``count`` on are new.

        ``begin`` is the number of the first row in its block, and in all blocks. Returns of each
        call its rows, whether each is a row, and its trace.
        """
        hashed = block[2]
        unique, positions, firsts = blocks.compact(numbers)
        states_of, ranks, words = self._room(unique)
        before_is_known = True  # rows of new streams may hold states of another branch of runs
        for device, chosen in enumerate(states_of):
            of_device = words[device, : len(chosen)]
            new = np.flatnonzero(unique[chosen] >= count)
            if len(new) < len(chosen):
                streams.read(unique[chosen], out=of_device)
            if len(new):
                put(of_device, new, self.first_words(hashed[firsts[chosen[new]]]))
                before_is_known = before_is_known and count >= streams.used
        position_of = positions if ranks is None else ranks[positions]
        after, calls = self._calls(words, numbers, position_of, block, begin[0], observe)
        for device, chosen in enumerate(states_of):
            rows = slice(0, len(chosen))
            before = words[device, rows] if before_is_known else None
            streams.write(change, unique[chosen], after[device, rows], begin[1], before)
        return calls

    def predict(self, words: np.ndarray, positions: np.ndarray, block: Rows) -> np.ndarray:
        """Return the prediction for each row, whose packed state is at its position.

        Every row has a copy of its state and is run as a block is, with targets that are NaN: only
        the same program rounds in the same way.
        """
        numbers = np.arange(len(positions))
        states_of, ranks, copies = self._room(numbers)
        for device, chosen in enumerate(states_of):
            words.take(positions[chosen], axis=0, out=copies[device, : len(chosen)], mode="clip")
        position_of = numbers if ranks is None else ranks
        _, calls = self._calls(copies, numbers, position_of, block, 0, None)
        return np.asarray(blocks.joined(calls, len(numbers)).prediction)

    def _room(self, unique: np.ndarray) -> tuple[list[np.ndarray], np.ndarray | None, np.ndarray]:
        """Return which streams each device has, their ranks there, and memory for their states.

        The last state of each device belongs to the rows that fill up a call.
        """
        devices = len(self.devices)
        states_of, ranks, room = blocks.shares(unique, devices, 4 * self.width)
        words = aligned((devices, room + 1, self.width), np.dtype(np.uint32))
        words[:, -1] = 0 if self._start is None else self._start
        return states_of, ranks, words

    def _calls(
        self, words: np.ndarray, numbers: np.ndarray, position_of: np.ndarray, block: Rows,
        begin: int, observe: Observe | None,
    ) -> tuple[np.ndarray, list[blocks.Called]]:  # fmt: skip
        """Run rows whose states are ``words``, and return the states afterwards and the calls."""
        spec = self.spec._replace(observe=observe)
        inputs, targets, hashed = block
        run, calls, states = loops.RUN[spec.loop], [], words
        position_of, last = position_of.astype(np.int32), words.shape[1] - 1
        drawn = blocks.halves(hashed) if self.key is not None else None
        rounds = spec.loop == "rounds"
        for rows in blocks.calls(numbers, len(words), self._call_cost, rounds=rounds):
            is_row = rows >= 0
            beyond = last + (np.arange(rows.shape[1], dtype=np.int32) + 1 if rounds else 0)
            call = (
                blocks.laid(position_of, rows, is_row, beyond),
                blocks.laid(inputs, rows, is_row, 0),
                blocks.laid(targets, rows, is_row, np.nan),
                None if drawn is None else blocks.laid(drawn, rows, is_row, 0),
            )
            states, trace = run(spec, self.model, self._words, states, call)[0]
            calls.append((np.where(is_row, rows + begin, -1), is_row, trace))
        return np.asarray(states), calls

    def first_words(self, hashed: np.ndarray) -> np.ndarray:
        """Return the packed states that names start from, (n, width), by their hashes."""
        if self._start is not None:
            return np.broadcast_to(self._start, (len(hashed), self.width))
        n = len(hashed)
        padded = np.zeros(next((size for size in loops.LENGTHS if size >= n), n), np.uint64)
        padded[:n] = hashed
        size = (self.spec.packing, self._num_features, self.spec.generator, self._dtype)
        words = loops.init(*size, self.model, self._words, blocks.halves(padded))
        return np.asarray(words)[:n]
