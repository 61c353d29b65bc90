"""Actors of Ray with a share of the names each, of which any may die.

Ray starts it again; it loads its share from the last folder that was saved, and does the blocks
since then once more.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jboost.core import extras
from jboost.core.step import Observe
from jboost.fleets.names import Names
from jboost.fleets.shares import LostState, Share

ray = extras.need("ray", "ray")
log = logging.getLogger("jboost.fleets")

PATIENCE = 30  # seconds until the caller is told that workers have not started
Ask = Callable[[Any, int], Any]  # asks an actor of this number, and returns a reference
Rows = tuple[Names, np.ndarray, np.ndarray]  # names, xs and ds


class _Entry(NamedTuple):
    """Rows that an actor ran since the last time it was saved."""

    before: int  # the number of the state before them
    after: int  # the number of the state after them
    rows: Any  # a reference to them in Ray's store


class Workers:
    """The actors, and what it takes to make one of them anew.

    Args:
      count: how many there are.
      arguments: of :class:`~jboost.fleets.shares.Share`.
      folder: where the actors keep their shares for those that come after them.
    """

    def __init__(self, count: int, arguments: tuple[Any, ...], folder: str) -> None:
        actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(Share)
        self._actors = [actor.remote(*arguments) for _ in range(count)]
        self._folder = folder
        self._log: list[list[_Entry]] = [[] for _ in self._actors]
        self._dropped: set[int] = set()  # states that nobody refers to
        self._last_save: tuple[int, str] | None = None  # the last state that was saved, and where
        self._letter = "b"
        # The last function that was to be observed, and its bytes: while these are the same, an
        # actor takes it for the same function, and compiles it once.
        self._observe: tuple[Observe | None, bytes | None] = (None, None)
        # Of each actor, its identity: another one is that of a new actor in its place.
        asked = [actor.identity.remote() for actor in self._actors]
        waiting = ray.wait(asked, num_returns=count, timeout=PATIENCE)[1]
        if waiting:
            advice = "pass fewer workers, or wait until the cluster has a free CPU for each"
            log.warning("%d of %d workers have not started yet: %s", len(waiting), count, advice)
        self._identities = ray.get(asked)

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def unsaved(self) -> int:
        """How many blocks the actors have run since they were saved."""
        return len(self._log[0])

    def run(
        self, before: int, after: int, shares: list[Rows], observe: Observe | None
    ) -> Callable[[], list[Any]]:
        """Give each actor its rows of a block; return what waits for their traces."""
        if observe != self._observe[0]:
            as_bytes = None if observe is None else ray.cloudpickle.dumps(observe)
            self._observe = observe, as_bytes
        entries = [_Entry(before, after, ray.put((*share, self._observe[1]))) for share in shares]
        for log, entry in zip(self._log, entries, strict=True):
            log.append(entry)

        def ask(actor: Any, number: int) -> Any:
            return actor.run.remote(*entries[number])

        asked = [ask(actor, number) for number, actor in enumerate(self._actors)]
        return lambda: self._answers(asked, ask)

    def all(self, ask: Ask) -> list[Any]:
        """Return what all actors answer."""
        return self._answers([ask(actor, i) for i, actor in enumerate(self._actors)], ask)

    def save(self, path: str, letter: str, token: int) -> None:
        """Let each actor keep its share of a state in a folder."""
        self.all(lambda actor, i: actor.save.remote(folder_of(path, letter, i), token))

    def keep(self, token: int) -> None:
        """Save the shares where new actors find them, and forget the blocks until here."""
        self._letter = "b" if self._letter == "a" else "a"
        self.save(self._folder, self._letter, token)
        self._last_save = (token, self._letter)
        self._log = [[] for _ in self._actors]
        self._dropped.clear()

    def drop_with(self, state: object, token: int) -> None:
        """Let the actors drop the state of this number when nobody refers to ``state`` any more."""
        weakref.finalize(state, _drop, self._actors, token, self._dropped).atexit = False

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
                    folder = folder_of(self._folder, letter, number)
                    ray.get(actor.load.remote(token, [folder], number, len(self)))
                for entry in self._log[number]:
                    ray.get(actor.run.remote(*entry))
                for entry in self._log[number]:
                    if entry.after in self._dropped:
                        actor.forget.remote(entry.after)
                self._identities[number] = identity
                return True
            except ray.exceptions.RayActorError:
                continue  # it died again


def _drop(actors: list[Any], token: int, dropped: set[int]) -> None:
    dropped.add(token)
    if ray.is_initialized():
        for actor in actors:
            actor.forget.remote(token)


def folder_of(path: str, letter: str, number: int) -> str:
    """Return the folder of an actor's share within a folder."""
    return os.path.join(path, f"{letter}-{number:04d}")
