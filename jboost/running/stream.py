"""Streams without end: a run that takes its data block by block, in constant memory.

A thread pulls the next block from the source, checks it and copies it (`jboost.running.blocks`) while
the block before is computed and the caller looks at the one before that. The compiled loop knows a
few lengths only: a block is cut into pieces of those, and the last piece is filled up with samples
that have no answer, which leave every state as it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jboost.checkpoints import atomic
from jboost.checkpoints.archive import CheckpointError
from jboost.checkpoints.checkpoint import inspect, read, save
from jboost.core import checks
from jboost.core.learner import Learner, State
from jboost.core.numerics import LARGEST
from jboost.core.step import Observe, Trace
from jboost.engine import fold
from jboost.running.blocks import Ahead, Prepared, Source, fitting, pieces, prepare, worth_of_a_call
from jboost.running.run import bad_rows, check_state, checked_key, initial, targets_of


class Block(NamedTuple):
    """What one block of the source led to.

    start: how many rows of the stream came before it.
    prediction: (n,), each made before its answer was seen.
    skipped: (n,), True where nothing was learned because x or d was NaN, infinite or beyond 1e15.
    observed: what ``observe`` returned, stacked; None without it.
    """

    start: int
    prediction: np.ndarray
    skipped: np.ndarray
    observed: Any


class _Progress(NamedTuple):
    """How far a run has come."""

    state: State = None
    position: int = 0
    skipped: int = 0
    scored: int = 0
    squared_error: float = 0.0


class _Running(NamedTuple):
    """A block that is being computed, and the state there will be after it."""

    block: Prepared
    state: State
    traces: list[Trace]


def run_stream(
    model: Learner,
    blocks: Source,
    key: Any = None,
    state: State = None,
    observe: Observe | None = None,
    *,
    block: int | None = None,
    on_bad: str = "skip",
    checkpoint: atomic.PathLike | None = None,
    every: int = 16,
    resume: bool = False,
    ahead: int = 1,
) -> StreamRun:
    """Run a model over a stream that need not fit into memory or ever end.

    The numbers are those of one :func:`jboost.run` over all rows, bit for bit, however the stream
    is cut into blocks. Iterate over the result for a :class:`Block` after each block, and read
    ``state``, ``position``, ``skipped`` and ``mse`` from it at any time; after an interruption they
    stand at the last block that was handed over. ``finish()`` runs to the end without a loop.

    With ``checkpoint`` the run is kept in a file, and goes on from there with ``resume``, bit for
    bit. The file never counts a block before the loop has come back for the next one, so whatever
    the loop wrote of a block is written when the file says it was seen; beyond ``position`` rows
    of output are to be made again. In a ``with`` statement the file is also brought up to date
    when the loop's own code fails or is interrupted. Whatever ends a run early is given a note that
    says how many rows the file holds then.

    Args:
      model: any learner.
      blocks: an iterable of (x, d) blocks, x (n, r) and d (n,), of any lengths; or a pair (xs, ds)
        of arrays or memory maps, of which only the rows in use are read; or a function that is
        given a position in the stream and returns either, from that row on. For a model of q
        targets, made by :func:`jboost.targets`, d is (n, q).
      key: a ``jax.random.key``, for models that draw; it names the run.
      state: where to begin; by default ``model.init``.
      observe: as for :func:`jboost.run`.
      block: how many rows of a pair of arrays make a block; by default 65,536, and fewer where that
        would be more than 16 MB.
      on_bad: "skip" or "raise", as for :func:`jboost.run`; a block with a bad row is refused whole.
      checkpoint: a file that nobody else writes to while the run lasts. One that exists is only
        replaced with ``resume``.
      every: after how many blocks the file is written; it is also written at the end.
      resume: go on from the file, where there is one: its state takes the place of ``state``, and
        the first ``position`` rows of the source are left out.
      ahead: how many blocks are prepared ahead, by a thread. With 0 the source is called from the
        caller's own thread and only when the block before is handed over: for sources that depend
        on the predictions, or that wait for input that may never come.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(1000)
    >>> stream = run_stream(
    ...     jb.Newton(0.99), ((xs[i : i + 100], ds[i : i + 100]) for i in range(0, 1000, 100))
    ... )
    >>> for part in stream:
    ...     if part.start % 500 == 0:
    ...         print(part.start, part.prediction.shape, stream.position)
    0 (100,) 100
    500 (100,) 600
    >>> bool(abs(stream.mse - jb.mse(jb.Newton(0.99), xs, ds)) < 1e-6)
    True
    """
    checks.instance("model", model, Learner, "a learner such as bsgd_wu(…) or SGD(step_size=0.1)")
    checks.choice("on_bad", on_bad, ("skip", "raise"))
    if resume and checkpoint is None:
        raise ValueError("resume=True needs a file to go on from; got checkpoint=None")
    rows = None if block is None else checks.whole("block", block, at_least=1)
    every = checks.whole("every", every, at_least=1)
    ahead = checks.whole("ahead", ahead, at_least=0)
    stream = StreamRun(model, key, state, observe, strict=on_bad == "raise")
    try:
        if checkpoint is not None:
            stream._own(checkpoint, every, resume)
        if model.needs_key:
            stream.key = checked_key(stream.key)
        targets = targets_of(model)
        prepared = prepare(blocks, rows, stream.position, jnp.result_type(float), targets)
        stream._source = Ahead(prepared, ahead)
    except BaseException:
        stream._release()
        raise
    return stream


class StreamRun:
    """A run in progress, made by :func:`run_stream`: an iterator of blocks, and a context manager.

    ``extra`` is a dict of the caller's own, kept in the checkpoint and found again on resume.
    """

    def __init__(
        self, model: Learner, key: Any, state: State, observe: Observe | None, *, strict: bool
    ):
        self.model = model
        self.key = key
        self.extra: dict[str, Any] = {}
        self._observe = observe
        self._strict = strict
        self._progress = _Progress(state)  # up to the block that was handed over
        self._handled = self._progress  # up to the block that the caller is done with,
        self._noted: dict[str, Any] = {}  # with what ``extra`` was then
        self._early: _Running | BaseException | None = None  # the next one, where it has begun
        self._front = state  # after all that has begun
        self._width: int | None = None
        self._call = 0
        self._path: atomic.PathLike | None = None
        self._every, self._since = 1, 0  # blocks between saves, and since the last
        self._saved = 0  # the position of the last
        self._source: Ahead | None = None
        self._claim = contextlib.ExitStack()
        self._open = True

    @property
    def state(self) -> State:
        """The model's state after ``position`` rows; None before the first."""
        return self._progress.state

    @property
    def position(self) -> int:
        """How many rows of the stream were run, those before a resumed checkpoint included."""
        return self._progress.position

    @property
    def skipped(self) -> int:
        """How many of them nothing was learned from."""
        return self._progress.skipped

    @property
    def mse(self) -> float:
        """The mean squared error so far, over all rows with a usable target; NaN before any."""
        return self._progress.squared_error / (self._progress.scored or float("nan"))

    def finish(self) -> StreamRun:
        """Run to the end of the source."""
        for _ in self:
            pass
        return self

    def close(self) -> None:
        """Stop here: write the checkpoint, end the thread and let go of the file."""
        if self._open:
            self._handled, self._noted = self._progress, dict(self.extra)
            self._end()

    def __iter__(self) -> StreamRun:
        return self

    def __enter__(self) -> StreamRun:
        return self

    def __exit__(self, kind: Any, error: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        elif self._open:  # the caller may not be done with the last block: it is not counted
            self._fail(error)

    def __del__(self) -> None:
        self._release()

    def __next__(self) -> Block:
        if not self._open:
            raise StopIteration
        assert self._source is not None
        try:
            self._handled, self._noted = self._progress, dict(self.extra)
            if self._since >= self._every:
                self._save()
            item = self._early or self._source.take()
            self._early = None
            if isinstance(item, BaseException):  # StopIteration at the end of the source
                raise item
            running = item if isinstance(item, _Running) else self._begin(item)
            self._early = self._ahead()
            return self._complete(running)
        except BaseException as error:
            self._fail(error)
            raise

    def _ahead(self) -> _Running | BaseException | None:
        """Have the next block computed where it is there already; it fails in its own turn."""
        assert self._source is not None
        following = self._source.poll()
        try:
            return self._begin(following) if isinstance(following, Prepared) else following
        except Exception as error:
            return error

    def _begin(self, block: Prepared) -> _Running:
        """Have a block computed; nothing here waits for the numbers."""
        with fitting(block.start):
            return self._folded(block)

    def _folded(self, block: Prepared) -> _Running:
        if self._width is None:
            rows = block.xs[:1]
            self._width = int(rows.shape[1])
            if self._front is None:
                self._front = initial(self.model, rows.shape[1], rows.dtype.name, self.key)
            else:
                check_state(self.model, self._front, jnp.asarray(rows), self.key)
            self._call = worth_of_a_call(self._front)
        state, traces, start = self._front, [], 0
        for length in pieces(block.n, self._call):
            piece = slice(start, start + length)
            # With their dtype: without it, NaN among them is an error under jax_debug_nans.
            xs = jnp.asarray(block.xs[piece], block.xs.dtype)
            ds = jnp.asarray(block.ds[piece], block.ds.dtype)
            # The states between blocks are promised to the caller; those within one are ours.
            ours = bool(traces)
            state, trace = fold(self.model, state, xs, ds, self.key, self._observe, donate=ours)
            traces.append(trace)
            start += length
        self._front = state
        return _Running(block, state, traces)

    def _complete(self, running: _Running) -> Block:
        """Wait for a block and count it."""
        (start, n, xs, ds), state, traces = running

        def join(*parts: Any) -> np.ndarray:
            return np.concatenate([np.asarray(part) for part in parts])[:n]

        with fitting(start):
            prediction, skipped, observed = jax.tree.map(join, *traces)
        each = skipped.reshape(n, -1)  # of several targets, a row may lack some
        if self._strict and each.any():
            raise bad_rows(xs, ds, each.any(axis=1), start)
        ds = ds[:n].astype(np.float64)
        scored = np.abs(ds) < LARGEST
        error = prediction[scored].astype(np.float64) - ds[scored]
        before = self._progress
        self._progress = _Progress(
            state,
            start + n,
            before.skipped + int(each.all(axis=1).sum()),
            before.scored + int(scored.sum()),
            before.squared_error + float(np.square(error).sum()),
        )
        self._since += 1
        return Block(start, prediction, skipped, observed)

    def _own(self, path: atomic.PathLike, every: int, resume: bool) -> None:
        """Claim the file, and go on from it."""
        self._claim.enter_context(atomic.owning(path))
        self._path, self._every = path, every
        if not os.path.exists(path):
            return
        name = os.fspath(path)
        if not resume:
            advice = "pass resume=True to go on from it, or another name"
            raise FileExistsError(errno.EEXIST, f"There is a file already; {advice}", name)
        kept = read(path, self.model)
        try:
            totals = kept.extra["stream"]
            counts = int(totals["skipped"]), int(totals["scored"]), float(totals["squared_error"])
            self._saved, self.extra = int(kept.position or 0), dict(kept.extra["own"])
            self._noted = dict(self.extra)
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{name} was not written by run_stream") from None
        given, own = self.key, kept.key
        if given is not None and (own is None or not _same(checked_key(given), own)):
            raise ValueError(f"key must be the one of the run that {name} is of; got {given!r}")
        self.key = kept.key
        self._progress = self._handled = _Progress(kept.state, self._saved, *counts)
        self._front = kept.state

    def _save(self) -> None:
        state, position, skipped, scored, error = self._handled
        if self._path is None or position == self._saved:
            return
        self._since, self._saved = 0, position
        # The error of a model that diverged is not a number that JSON has.
        totals = {"skipped": skipped, "scored": scored, "squared_error": repr(error)}
        save(
            self._path,
            self.model,
            state,
            self.key,
            position=position,
            extra={"stream": totals, "own": self._noted},
            num_features=self._width,
            supply_model=True,
        )

    def _fail(self, error: BaseException) -> None:
        """End because of an error, which is told what the file holds."""
        try:
            self._end()
        except BaseException as worse:
            self._note(worse)
            raise
        self._note(error)

    def _note(self, error: BaseException) -> None:
        if self._path is None or isinstance(error, StopIteration):
            return
        name = os.fspath(self._path)
        try:  # what is there now, and not what was meant to be
            error.add_note(f"{name} holds the first {inspect(name)['position']:,} rows")
        except FileNotFoundError:
            error.add_note(f"{name} is not there: no row was kept")
        except Exception:
            error.add_note(f"{name} cannot be read now")

    def _end(self) -> None:
        self._open = False
        try:
            self._save()
        finally:
            self._release()

    def _release(self) -> None:
        self._early = None
        if self._source is not None:
            self._source.stop()
        self._claim.close()


def _same(one: Any, other: Any) -> bool:
    """Whether two keys are the same key."""
    return one.dtype == other.dtype and bool(one == other)
