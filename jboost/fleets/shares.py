"""What a worker does: it runs the streams of its share of the names, in several states.

It knows nothing of Ray: :mod:`.ray` makes actors of it.
"""

from __future__ import annotations

import os
import pickle
import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost.core import State
from jboost.core.step import Observe
from jboost.fleets.columns import joined
from jboost.fleets.fleet import Fleet
from jboost.fleets.names import Name, Names, hashes
from jboost.fleets.state import FleetState

# Names, xs, ds and what to report: a function that was pickled, or None.
Rows = tuple[Names, np.ndarray, np.ndarray, bytes | None]


class LostState(Exception):  # noqa: N818  (nothing is wrong: a new worker has no states yet)
    """A worker does not have the state of this number."""


def share_of(column: Names, workers: int) -> np.ndarray:
    """Return the worker of each name: by the upper half of its hash, alike on every machine."""
    return ((hashes(column) >> np.uint64(32)) % np.uint64(workers)).astype(np.int64)


class Share:
    """What an actor does: a fleet of a share of the names, in several states."""

    def __init__(self, arguments: dict[str, Any], key: Any) -> None:
        if key is not None:
            arguments["key"] = jax.random.wrap_key_data(jnp.asarray(key[0]), impl=key[1])
        self._fleet = Fleet(**arguments)
        self._states: dict[int, FleetState] = {0: self._fleet.init()}
        self._observe: tuple[bytes | None, Observe | None] = (None, None)
        self._identity = f"{os.getpid()} {secrets.token_hex(8)}"

    def identity(self) -> str:
        """Return the number of the process, and a word that no other worker has."""
        return self._identity

    def _state(self, token: int) -> FleetState:
        if token not in self._states:
            raise LostState(token)
        return self._states[token]

    def run(self, before: int, after: int, rows: Rows) -> Any:
        """Run rows from the state ``before``; the state afterwards gets the number ``after``."""
        names, xs, ds, pickled = rows
        if not len(names):
            self._states[after] = self._state(before)
            return None
        observe = self._unpickled(pickled)
        state, trace = self._fleet.run(self._state(before), names, xs, ds, observe=observe)
        self._states[after] = state
        return jax.tree.map(np.asarray, trace)

    def _unpickled(self, pickled: bytes | None) -> Observe | None:
        """Return the function; the same one for the same bytes, so that it is compiled once."""
        if pickled is not None and pickled != self._observe[0]:
            self._observe = pickled, pickle.loads(pickled)
        return None if pickled is None else self._observe[1]

    def predict(self, token: int, names: Names, xs: np.ndarray) -> np.ndarray | None:
        """Return predictions."""
        if not len(names):
            return None
        return np.asarray(self._fleet.predict(self._state(token), names, xs))

    def states(self, token: int, names: Names | None) -> Any:
        """Return the stacked states of names, or of all, and how many they are."""
        state = self._state(token)
        stacked = self._fleet.states(state, names)
        return jax.tree.map(np.asarray, stacked), len(state) if names is None else len(names)

    def names(self, token: int) -> list[Name]:
        """Return the names of the streams."""
        return self._fleet.names(self._state(token))

    def save(self, folder: str, token: int) -> None:
        """Keep a state in a folder."""
        self._fleet.save(folder, self._state(token))

    def load(self, token: int, folders: list[str], number: int, workers: int) -> None:
        """Give a number to the state that folders hold together; only names of this share count."""
        if len(folders) == 1:
            self._states[token] = self._fleet.load(folders[0])
            return
        names: list[Names] = []
        stacked: list[State] = []
        for folder in folders:
            state = self._fleet.load(folder)
            every = self._fleet.column(state)
            mine = every.take(np.flatnonzero(share_of(every, workers) == number))
            if len(mine):
                names.append(mine)
                stacked.append(self._fleet.states(state, mine))
        state = self._fleet.init()
        if names:
            whole = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *stacked)
            state = self._fleet.from_states(joined(names), whole)
        self._states[token] = state

    def take(self, token: int, names: Names, states: State) -> None:
        """Give a number to the state in which the named streams have these states, stacked."""
        self._states[token] = self._fleet.from_states(names, states)

    def forget(self, token: int) -> None:
        """Let a state go."""
        self._states.pop(token, None)
