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
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

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
from jboost.fleets.columns import Keys, names_of
from jboost.fleets.names import Name, Names
from jboost.fleets.shares import LostState, Share, share_of
from jboost.running.run import checked_key, checked_stream, targets_of

ray = extras.need("ray", "ray")

MANIFEST = "workers.npz"
Block = tuple[Keys, ArrayLike, ArrayLike]  # names, xs and ds
Ask = Callable[[Any, int], Any]  # asks an actor of this number, and returns a reference


class RayState:
    """All streams at one time; the actors have them, by this number. It does not change."""

    def __init__(self, token: int, rows: int, position: Any = None) -> None:
        self.token, self.rows, self.position = token, rows, position

    def __repr__(self) -> str:
        return f"RayState({self.rows:,} rows)"


class _Entry(NamedTuple):
    """Rows that an actor ran since the last time it was saved."""

    before: int  # the number of the state before them
    after: int  # the number of the state after them
    rows: Any  # a reference to them in Ray's store


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
        self._folder = os.path.abspath(checks.path("folder", folder))
        words = None
        if self.key is not None:
            words = np.asarray(jax.random.key_data(self.key)), str(jax.random.key_impl(self.key))
        arguments = {"model": model, "num_features": num_features, "bound": bound, "dtype": dtype}
        arguments |= {"start": jax.tree.map(np.asarray, start), "spill": spill}
        actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(Share)
        self._actors = [actor.remote(arguments, words) for _ in range(self.workers)]
        self._tokens = itertools.count(1)
        self._log: list[list[_Entry]] = [[] for _ in self._actors]
        self._dropped: set[int] = set()  # states that nobody refers to
        self._last_save: tuple[int, str] | None = None  # the last state that was saved, and where
        self._letter = "b"
        # Of each actor, its identity: another one is that of a new actor in its place.
        self._identities = ray.get([actor.identity.remote() for actor in self._actors])

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
            if len(self._log[0]) >= self._every:
                done = [collect() for collect in waiting]
                waiting.clear()
                self._keep(state)
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
        inputs, targets, _ = checked_stream(xs, ds, jnp.result_type(float), targets_of(self.model))
        if inputs.shape[1] != self.num_features:
            raise ValueError(f"xs must have {self.num_features} columns; got shape {inputs.shape}")
        column = names_of("names", names, len(inputs))
        inputs, targets = np.asarray(inputs), np.asarray(targets)
        after = RayState(next(self._tokens), state.rows + len(inputs))
        self._drop_with(after)
        rows = self._rows(column)
        entries = []
        for number, mine in enumerate(rows):
            content = (column.take(mine), inputs[mine], targets[mine], observe)
            entry = _Entry(state.token, after.token, ray.put(content))
            self._log[number].append(entry)
            entries.append(entry)

        def ask(actor: Any, number: int) -> Any:
            return actor.run.remote(*entries[number])

        asked = [ask(actor, number) for number, actor in enumerate(self._actors)]

        def collect() -> tuple[RayState, Trace]:
            return after, _joined(rows, self._answers(asked, ask), len(inputs))

        return collect, after

    def learn(self, state: RayState, names: Keys, xs: ArrayLike, ds: ArrayLike) -> RayState:
        """Return the state after learning a block, where the predictions are not asked for."""
        return self.run(state, names, xs, ds)[0]

    def predict(self, state: RayState, names: Keys, xs: ArrayLike) -> Array:
        """Return the predictions for rows, (n,); nothing is learned, and no stream is made."""
        token = self._checked(state).token
        inputs = np.asarray(xs)
        column = names_of("names", names, len(inputs))
        rows = self._rows(column)

        def ask(actor: Any, number: int) -> Any:
            mine = rows[number]
            return actor.predict.remote(token, column.take(mine), inputs[mine])

        return _joined(rows, self._all(ask), len(inputs))

    def states(self, state: RayState, names: Keys | None = None) -> State:
        """Return the model's states of the named streams, or of all, stacked."""
        token = self._checked(state).token
        column = None if names is None else names_of("names", names)
        rows = None if column is None else self._rows(column)

        def ask(actor: Any, number: int) -> Any:
            mine = None if column is None or rows is None else column.take(rows[number])
            return actor.states.remote(token, mine)

        found = self._all(ask)
        if rows is not None:
            shares = [share if n else None for share, n in found]
            return _joined(rows, shares, sum(map(len, rows)))
        shares = [share for share, n in found if n] or [found[0][0]]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *shares)

    def names(self, state: RayState) -> list[Name]:
        """Return the names of all streams, in the order of :meth:`states`."""
        token = self._checked(state).token
        return [name for share in self._all(lambda a, i: a.names.remote(token)) for name in share]

    def save(self, folder: PathLike, state: RayState, *, position: Any = None) -> None:
        """Keep a state in a folder, with the position of the input, all or nothing."""
        path = os.path.abspath(checks.path("folder", folder))
        letter = "a"
        if os.path.exists(os.path.join(path, MANIFEST)):
            letter = "b" if _read(path)["letter"] == "a" else "a"
        self._save(path, letter, self._checked(state).token)
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
        before = [_folder(path, header["letter"], i) for i in range(header["workers"])]
        same = header["workers"] == self.workers
        state = RayState(next(self._tokens), header["rows"], header["position"])

        def load(actor: Any, i: int) -> Any:
            folders = [before[i]] if same else before
            return actor.load.remote(state.token, folders, i, self.workers)

        self._all(load)
        self._drop_with(state)
        self._keep(state)
        return state

    def processes(self) -> list[int]:
        """Return the numbers of the actors' processes."""
        identities = self._all(lambda actor, i: actor.identity.remote())
        return [int(identity.split()[0]) for identity in identities]

    def _keep(self, state: RayState) -> None:
        """Save the shares where new actors find them, and forget the blocks until here."""
        self._letter = "b" if self._letter == "a" else "a"
        self._save(self._folder, self._letter, state.token)
        self._last_save = (state.token, self._letter)
        self._log = [[] for _ in self._actors]
        self._dropped.clear()

    def _save(self, path: str, letter: str, token: int) -> None:
        self._all(lambda actor, i: actor.save.remote(_folder(path, letter, i), token))

    def _checked(self, state: RayState) -> RayState:
        advice = "the state that init, load or run of this fleet returned"
        return checks.instance("state", state, RayState, advice)

    def _rows(self, column: Names) -> list[np.ndarray]:
        """Return the rows of each actor."""
        shares = share_of(column, self.workers)
        return [np.flatnonzero(shares == number) for number in range(self.workers)]

    def _all(self, ask: Ask) -> list[Any]:
        """Return what all actors answer."""
        return self._answers([ask(actor, i) for i, actor in enumerate(self._actors)], ask)

    def _answers(self, asked: list[Any], ask: Ask) -> list[Any]:
        """Return what actors answer that were asked; one that died is restored and asked again."""
        answers = []
        for number, answer in enumerate(asked):
            while True:
                try:
                    answers.append(ray.get(answer))
                    break
                except ray.exceptions.RayActorError:
                    self._restore(number)
                except LostState:
                    if not self._restore(number):
                        text = "state died with a worker: only states since the last time the "
                        raise ValueError(f"{text}fleet was saved outlast that") from None
                answer = ask(self._actors[number], number)
        return answers

    def _restore(self, number: int) -> bool:
        """Let an actor that was started again do what the one before it did since it was saved.

        Returns False if it is the same actor as before, which has all there is.
        """
        actor = self._actors[number]
        while True:
            try:
                identity = ray.get(actor.identity.remote())
                if identity == self._identities[number]:
                    return False
                if self._last_save is not None:
                    token, letter = self._last_save
                    folder = _folder(self._folder, letter, number)
                    ray.get(actor.load.remote(token, [folder], number, self.workers))
                for entry in self._log[number]:
                    ray.get(actor.run.remote(*entry))
                for entry in self._log[number]:
                    if entry.after in self._dropped:
                        actor.forget.remote(entry.after)
                self._identities[number] = identity
                return True
            except ray.exceptions.RayActorError:
                continue  # it died again

    def _drop_with(self, state: RayState) -> None:
        """Let the actors drop a state when nobody refers to it any more."""
        weakref.finalize(state, _drop, self._actors, state.token, self._dropped).atexit = False


def _drop(actors: list[Any], token: int, dropped: set[int]) -> None:
    dropped.add(token)
    if ray.is_initialized():
        for actor in actors:
            actor.forget.remote(token)


def _folder(path: str, letter: str, number: int) -> str:
    return os.path.join(path, f"{letter}-{number:04d}")


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
