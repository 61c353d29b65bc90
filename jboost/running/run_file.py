"""The checkpoint file of a run over a stream: claimed, read, written every few blocks."""

import contextlib
import errno
import os
from typing import Any, NamedTuple

from jax import Array

from jboost.checkpoints import archive, atomic
from jboost.checkpoints.archive import CheckpointError
from jboost.checkpoints.checkpoint import contents, inspect, read, save
from jboost.core import Key, Learner, State, checks

ROOM = 2**17  # bytes, by which the caller's dict may grow: a command's accounts grow by 50,000


class Reached(NamedTuple):
    """How far a run has come, with the caller's dict as it was then."""

    state: State = None  # the model's state after ``position`` rows
    position: int = 0  # how many rows of the stream were run
    skipped: int = 0  # how many of the rows nothing was learned from
    scored: int = 0  # how many predictions had a usable target
    squared_error: float = 0.0  # the sum of their squared errors
    extra: dict[str, Any] = {}  # noqa: RUF012  (the caller's dict, for JSON; never changed)


class RunFile:
    """A checkpoint file, written after ``every`` blocks; no other process may write to it."""

    def __init__(self, path: atomic.PathLike, every: int):
        self._path = checks.path("checkpoint", path)
        self._every = every
        self._blocks, self._position = 0, 0  # since, and at, the last time the file was written
        self._claim = contextlib.ExitStack()
        self._claim.enter_context(atomic.owning(path))

    def resume(self, model: Learner, key: Key, *, allowed: bool) -> tuple[Reached, Key] | None:
        """Return how far the run in the file has come, and its key; None where there is no file.

        A ``key`` that is given must be the key of that run. Unless resuming is ``allowed``, a file
        that exists is an error.
        """
        if not os.path.exists(self._path):
            return None
        if not allowed:
            message = "There is a file already; pass resume=True to go on from it, or another name"
            raise FileExistsError(errno.EEXIST, message, self._path)
        checkpoint = read(self._path, model)
        try:
            totals = checkpoint.extra["stream"]
            counts = int(checkpoint.position or 0), int(totals["skipped"]), int(totals["scored"])
            error, extra = float(totals["squared_error"]), dict(checkpoint.extra["caller"])
            reached = Reached(checkpoint.state, *counts, error, extra)
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{self._path} was not written by run_stream") from None
        if key is not None and not _same_key(checks.key("key", key), checkpoint.key):
            raise ValueError(f"key must be the one of the run that {self._path} is of; got {key!r}")
        self._position = reached.position
        return reached, checkpoint.key

    def write(
        self, model: Learner, key: Key, reached: Reached, width: int | None, *, at_once: bool
    ) -> None:
        """Write a run that has come a block further: at once, or if it is the turn."""
        if reached.position == self._position:
            return
        self._blocks += 1
        if not at_once and self._blocks < self._every:
            return
        # Also if it fails: one attempt is enough.
        self._blocks, self._position = 0, reached.position
        save(self._path, model, reached.state, key, **_described(reached, width))

    def check(self, model: Learner, key: Key, reached: Reached, width: int) -> None:
        """Refuse a run that the file could not hold, before it begins."""
        header, arrays = contents(model, reached.state, key, **_described(reached, width))
        archive.encode(header, arrays, room=0 if reached.position else ROOM)

    def note(self, error: BaseException) -> None:
        """Add to an error how many rows the file holds, read from the file itself."""
        try:
            rows = inspect(self._path)["position"]
            error.add_note(f"{self._path} holds the first {rows:,} rows")
        except FileNotFoundError:
            error.add_note(f"{self._path} is not there: no row was kept")
        except Exception:
            error.add_note(f"{self._path} cannot be read now")

    def release(self) -> None:
        """Let other processes have the file."""
        self._claim.close()


def _described(reached: Reached, width: int | None) -> dict[str, Any]:
    """What is saved beside model, state and key, as :func:`save` takes it."""
    # The error of a model that diverged is not a number that JSON has, so it is kept as text.
    error = repr(reached.squared_error)
    totals = {"skipped": reached.skipped, "scored": reached.scored, "squared_error": error}
    extra = {"stream": totals, "caller": reached.extra}
    at = {"position": reached.position, "num_features": width}
    return {"extra": extra, "supply_model": True, **at}


def _same_key(key: Array, other: Array | None) -> bool:
    return other is not None and key.dtype == other.dtype and bool(key == other)
