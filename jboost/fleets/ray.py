"""A fleet over several processes or machines: a share of the names in each actor of Ray.

A block is split by the hash of the names, so that a name always meets the same actor. What is
computed for a name is what :class:`jboost.Fleet` computes for it, bit for bit. An actor that dies
is started again by Ray, loads its share from the last folder that was saved, and gets the blocks
since then once more. Ray does the scheduling and the transport: ``ray.init(address=…)`` before
makes a cluster of one machine.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from jboost.checkpoints import archive
from jboost.checkpoints.archive import CheckpointError
from jboost.checkpoints.atomic import PathLike, replacing
from jboost.core import DType, Key, Learner, State, checks, extras
from jboost.core.learner import instance
from jboost.core.step import Observe, Trace
from jboost.fleets import tables
from jboost.fleets.blocks import halves, no_targets
from jboost.fleets.columns import Keys, names_of
from jboost.fleets.loops import folded
from jboost.fleets.names import Name, Names, hashes
from jboost.fleets.shares import share_of
from jboost.fleets.workers import Workers, folder_of
from jboost.running.run import checked_key, checked_stream, targets_of

ray = extras.need("ray", "ray")

MANIFEST = "workers.npz"
Block = tuple[Keys, ArrayLike, ArrayLike]  # names, xs and ds


class RayState:
    """All streams at one time; the actors have them, by this number. It does not change."""

    def __init__(self, token: int, rows: int, position: Any = None) -> None:
        self.token, self.rows, self.position = token, rows, position

    def __repr__(self) -> str:
        return f"RayState({self.rows:,} rows)"


class Fleet:
    """A model for each of many streams, with a share of the names in each actor of Ray.

    The methods are those of :class:`jboost.Fleet`.

    Args:
      model, num_features, key, start, bound, spill, dtype: as for :class:`jboost.Fleet`; the bound
        is of each actor.
      workers: how many actors there are, by default one for each CPU of the cluster.
      folder: where the actors keep their shares, so that a dead one can be started again. All
        machines must see it. By default a folder for temporary files, which suits one machine.
      every: after so many blocks the shares are saved. Blocks since then are held in memory.
      ahead: how many blocks :meth:`run_blocks` gives to the actors before it waits for the first.
    """

    def __init__(
        self, model: Learner, num_features: int, *, key: Key = None, start: State = None,
        workers: int | None = None, folder: PathLike | None = None, every: int = 16,
        ahead: int = 2, bound: int | None = None, spill: PathLike | None = None,
        dtype: DType = None,
    ) -> None:  # fmt: skip
        self.model = instance("model", model)
        self.num_features = checks.whole("num_features", num_features, at_least=1)
        self.key = checked_key(model, key) if model.needs_key else None
        self._every = checks.whole("every", every, at_least=1)
        self._ahead = checks.whole("ahead", ahead, at_least=1)
        if not ray.is_initialized():
            ray.init()
        if workers is None:
            workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.workers = checks.whole("workers", workers, at_least=1)
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="jboost-ray-")
            folder = self._temporary.name
        folder = checks.path("folder", folder)
        words = None
        if self.key is not None:
            words = np.asarray(jax.random.key_data(self.key)), str(jax.random.key_impl(self.key))
        arguments = {"model": model, "num_features": num_features, "bound": bound, "dtype": dtype}
        arguments |= {"start": jax.tree.map(np.asarray, start), "spill": spill}
        self._workers = Workers(self.workers, (arguments, words), os.path.abspath(folder))
        self._tokens = itertools.count(1)

    def init(self) -> RayState:
        """Return the state before any data."""
        return RayState(0, 0)

    def run(
        self, state: RayState, names: Keys, xs: ArrayLike, ds: ArrayLike, *,
        observe: Observe | None = None,
    ) -> tuple[RayState, Trace]:  # fmt: skip
        """Run a block: at each row, the row's stream predicts, then learns."""
        (result,) = self.run_blocks(state, [(names, xs, ds)], observe=observe)
        return result

    def run_blocks(
        self, state: RayState, blocks: Iterable[Block], *, observe: Observe | None = None
    ) -> Iterator[tuple[RayState, Trace]]:
        """Run blocks one after the other; yield of each the state after it, and its trace.

        The actors work on a few blocks while the caller handles the ones before. No further block
        is taken before the first of these is done, so that memory stays bounded.
        """
        waiting: deque[Callable[[], tuple[RayState, Trace]]] = deque()
        for block in blocks:
            collect, state = self._begin(self._checked(state), block, observe)
            waiting.append(collect)
            if self._workers.unsaved >= self._every:
                done = [collect() for collect in waiting]
                waiting.clear()
                self._workers.keep(state.token)
                yield from done
            while len(waiting) >= self._ahead:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()

    def _begin(
        self, state: RayState, block: Block, observe: Observe | None
    ) -> tuple[Callable[[], tuple[RayState, Trace]], RayState]:
        """Give a block to the actors; return what waits for them, and the state after it."""
        names, xs, ds = block
        inputs, targets = self._checked_rows(xs, ds, targets_of(self.model))
        column = names_of("names", names, len(inputs))
        after = RayState(next(self._tokens), state.rows + len(inputs))
        self._workers.drop_with(after, after.token)
        rows = self._rows(column)
        shares = [(column.take(mine), inputs[mine], targets[mine]) for mine in rows]
        wait = self._workers.run(state.token, after.token, shares, observe)
        return (lambda: (after, _joined(rows, wait(), len(inputs)))), after

    def learn(self, state: RayState, names: Keys, xs: ArrayLike, ds: ArrayLike) -> RayState:
        """Return the state after learning a block, where the predictions are not asked for."""
        return self.run(state, names, xs, ds)[0]

    def predict(self, state: RayState, names: Keys, xs: ArrayLike) -> Array:
        """Return the predictions for rows, (n,); nothing is learned, and no stream is made."""
        token = self._checked(state).token
        inputs, _ = self._checked_rows(xs, no_targets(xs))
        column = names_of("names", names, len(inputs))
        rows = self._rows(column)

        def ask(actor: Any, number: int) -> Any:
            mine = rows[number]
            return actor.predict.remote(token, column.take(mine), inputs[mine])

        return _joined(rows, self._workers.all(ask), len(inputs))

    def run_table(
        self, state: RayState, table: object, *, names: str | Sequence[str], target: str,
        inputs: Sequence[str] | None = None,
    ) -> tuple[RayState, Trace]:  # fmt: skip
        """Run the rows of an Arrow, pandas or polars table."""
        column, xs, ds = tables.split(table, names, target, inputs)
        return self.run(state, column, xs, ds)

    def states(self, state: RayState, names: Keys | None = None) -> State:
        """Return the model's states of the named streams, or of all, stacked."""
        token = self._checked(state).token
        column = None if names is None else names_of("names", names)
        rows = None if column is None else self._rows(column)

        def ask(actor: Any, number: int) -> Any:
            mine = None if column is None or rows is None else column.take(rows[number])
            return actor.states.remote(token, mine)

        found = self._workers.all(ask)
        if rows is not None and any(n for _, n in found):
            shares = [share if n else None for share, n in found]
            return _joined(rows, shares, sum(map(len, rows)))
        shares = [share for share, n in found if n] or [found[0][0]]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *shares)

    def names(self, state: RayState) -> list[Name]:
        """Return the names of all streams, in the order of :meth:`states`."""
        token = self._checked(state).token
        return [
            name
            for share in self._workers.all(lambda a, i: a.names.remote(token))
            for name in share
        ]

    def key_of(self, name: Name) -> Key:
        """Return the key of the stream with this name; None for a model that does not draw."""
        words = halves(hashes(names_of("name", [name])))[0]
        return None if self.key is None else folded(self.key, jnp.asarray(words))

    def from_states(self, names: Keys, states: State) -> RayState:
        """Return the state in which the named streams have these states, stacked."""
        column = names_of("names", names)
        rows, arrays = self._rows(column), jax.tree.map(np.asarray, states)
        lengths = {leaf.shape[:1] for leaf in jax.tree.leaves(arrays)}
        if lengths != {(len(column),)}:
            got = sorted(lengths)
            raise ValueError(f"states must be of {len(column)} streams, stacked; got {got}")
        state = RayState(next(self._tokens), 0)

        def take(actor: Any, i: int) -> Any:
            share = jax.tree.map(lambda leaf: leaf[rows[i]], arrays)
            return actor.take.remote(state.token, column.take(rows[i]), share)

        self._workers.all(take)
        self._workers.drop_with(state, state.token)
        self._workers.keep(state.token)
        return state

    def save(self, folder: PathLike, state: RayState, *, position: Any = None) -> None:
        """Keep a state in a folder, with the position of the input, all or nothing."""
        path = os.path.abspath(checks.path("folder", folder))
        letter = "a"
        if os.path.exists(os.path.join(path, MANIFEST)):
            letter = "b" if _read(path)["letter"] == "a" else "a"
        self._workers.save(path, letter, self._checked(state).token)
        header = {"workers": self.workers, "letter": letter, "rows": state.rows}
        try:
            header["position"] = json.loads(json.dumps(position, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"position must be something that JSON can hold ({error})") from None
        with replacing(os.path.join(path, MANIFEST)) as file:
            archive.write(file, header, {})

    def load(self, folder: PathLike) -> RayState:
        """Return the state that :meth:`save` kept in a folder, by however many workers."""
        path = os.path.abspath(checks.path("folder", folder))
        header = _read(path)
        before = [folder_of(path, header["letter"], i) for i in range(header["workers"])]
        same = header["workers"] == self.workers
        state = RayState(next(self._tokens), header["rows"], header["position"])

        def load(actor: Any, i: int) -> Any:
            folders = [before[i]] if same else before
            return actor.load.remote(state.token, folders, i, self.workers)

        self._workers.all(load)
        self._workers.drop_with(state, state.token)
        self._workers.keep(state.token)
        return state

    def processes(self) -> list[int]:
        """Return the numbers of the actors' processes."""
        identities = self._workers.all(lambda actor, i: actor.identity.remote())
        return [int(identity.split()[0]) for identity in identities]

    def _checked(self, state: RayState) -> RayState:
        advice = "the state that init, load or run of this fleet returned"
        return checks.instance("state", state, RayState, advice)

    def _checked_rows(
        self, xs: ArrayLike, ds: ArrayLike, answers: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets, _ = checked_stream(xs, ds, jnp.result_type(float), answers)
        if inputs.shape[1] != self.num_features:
            raise ValueError(f"xs must have {self.num_features} columns; got shape {inputs.shape}")
        return np.asarray(inputs), np.asarray(targets)

    def _rows(self, column: Names) -> list[np.ndarray]:
        """Return the rows of each actor."""
        shares = share_of(column, self.workers)
        return [np.flatnonzero(shares == number) for number in range(self.workers)]


def _read(path: str) -> dict[str, Any]:
    try:
        return archive.read(os.path.join(path, MANIFEST))[0]
    except CheckpointError as error:
        raise CheckpointError(f"{os.path.join(path, MANIFEST)} {error}") from None


def _joined(rows: list[np.ndarray], shares: list[Any], n: int) -> Any:
    """Return the rows of all actors in their order."""
    there = [(mine, share) for mine, share in zip(rows, shares, strict=True) if share is not None]
    leaves, structure = jax.tree.flatten(there[0][1])
    joined = [np.empty((n, *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
    for mine, share in there:
        for array, leaf in zip(joined, jax.tree.leaves(share), strict=True):
            array[mine] = leaf
    return jax.device_put(structure.unflatten(joined))
