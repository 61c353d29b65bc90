"""Streams without end: a run that takes its data block by block, in constant memory.

A thread prepares the next block (:mod:`.blocks`) while the block before is computed and the caller
looks at the block before that. One program serves blocks of every length.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jboost.checkpoints import atomic
from jboost.core import Key, Learner, State, checks, forks
from jboost.core.learner import instance
from jboost.core.step import Observe
from jboost.engine import pieces
from jboost.engine.loop import begin
from jboost.running.blocks import (
    Ahead,
    Block,
    PreparedBlock,
    StreamSource,
    naming_the_block,
    prepare,
)
from jboost.running.run import bad_rows, check_state, checked_key, initial, targets_of
from jboost.running.run_file import Reached, RunFile


class _Running(NamedTuple):
    """A block whose computation has begun."""

    block: PreparedBlock
    state: State  # after the block
    traces: list[pieces.PieceTrace]


def run_stream(
    model: Learner,
    blocks: StreamSource,
    key: Key = None,
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
    is cut into blocks. Iterate over the result to have a :class:`~jboost.running.blocks.Block`
    after each block; ``finish()`` runs to the end without a loop. ``state``, ``position``,
    ``skipped`` and ``mse`` stand at the last block that was handed over.

    With ``checkpoint`` the run is kept in a file, and goes on from there with ``resume``, bit for
    bit. The file counts a block only when the loop has come back for the next block. So the output
    that the loop wrote for the rows in the file is complete; output for later rows will be made
    again. In a ``with`` statement the file is also brought up to date when the loop's own code
    fails. An exception that ends a run early gets a note of how many rows the file holds.

    Args:
      model: any learner.
      blocks: an iterable of (x, d) blocks of any lengths, x (n, r) and d (n,), or d (n, q) for a
        model of q targets; or a pair (xs, ds) of arrays or memory maps, of which only the rows in
        use are read; or a function of a position in the stream, returning either from there on.
      key: a ``jax.random.key``, for models that draw; it names the run.
      state: where to begin; by default ``model.init``.
      observe: as for :func:`jboost.run`.
      block: how many rows of a pair of arrays make a block; by default 65,536, within 16 MB.
      on_bad: "skip" or "raise", as for :func:`jboost.run`; a block with a bad row is refused whole.
      checkpoint: a file that no other process writes to. A file that exists needs ``resume``.
      every: after how many blocks the file is written; it is also written at the end.
      resume: go on from the file, where there is one: its state takes the place of ``state``, and
        the first ``position`` rows of the source are left out.
      ahead: how many blocks a thread prepares ahead. With 0 the source is called from the caller's
        thread when a block is asked for: for sources that depend on the predictions, or wait for
        input that may never come.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(1000)
    >>> halves = ((xs[rows], ds[rows]) for rows in (slice(0, 500), slice(500, 1000)))
    >>> stream = run_stream(jb.Newton(0.99), halves)
    >>> [(done.start, done.prediction.shape, stream.position) for done in stream]
    [(0, (500,), 500), (500, (500,), 1000)]
    >>> bool(abs(stream.mse - jb.mse(jb.Newton(0.99), xs, ds)) < 1e-6)
    True
    """
    forks.check()
    instance("model", model)
    checks.choice("on_bad", on_bad, ("skip", "raise"))
    if checks.flag("resume", resume) and checkpoint is None:
        raise ValueError("resume=True needs a file to go on from; got checkpoint=None")
    if observe is not None:
        checks.function("observe", observe, "(state, info), or None")
    rows = None if block is None else checks.whole("block", block, at_least=1)
    every = checks.whole("every", every, at_least=1)
    ahead = checks.whole("ahead", ahead, at_least=0)
    reached, file = Reached(state), None
    with contextlib.ExitStack() as failed:
        if checkpoint is not None:
            file = RunFile(checkpoint, every)
            failed.callback(file.release)
            reached, key = file.resume(model, key, allowed=resume) or (reached, key)
        key = checked_key(model, key)
        default = jnp.result_type(float)
        prepared = prepare(blocks, rows, reached.position, default, targets_of(model))
        failed.pop_all()  # nothing failed: the run releases the file
    return StreamRun(model, key, reached, observe, Ahead(prepared, ahead), file, on_bad == "raise")


@dataclass(eq=False, repr=False)
class StreamRun(Iterator[Block], contextlib.AbstractContextManager["StreamRun"]):
    """A run in progress, made by :func:`run_stream`: an iterator of blocks, and a context manager.

    ``extra`` is a dict for the caller, kept in the checkpoint and restored on resume.
    """

    model: Learner
    key: Key
    _reached: Reached  # after the block that was handed to the caller
    _observe: Observe | None
    _source: Ahead
    _file: RunFile | None
    _strict: bool  # whether a row that cannot be learned ends the run
    # The next block, where it has begun, or was taken from the source.
    _next: _Running | PreparedBlock | BaseException | None = None
    _num_features: int | None = None
    _open: bool = True

    def __post_init__(self) -> None:
        self.extra = dict(self._reached.extra)
        self._handled = self._reached  # after the block that the caller has finished with
        self._last_state = self._reached.state  # after all blocks that have begun

    @property
    def state(self) -> State:
        """The model's state after ``position`` rows; None before the first."""
        return self._reached.state

    @property
    def position(self) -> int:
        """How many rows of the stream were run, those before a resumed checkpoint included."""
        return self._reached.position

    @property
    def skipped(self) -> int:
        """How many of these rows nothing was learned from."""
        return self._reached.skipped

    @property
    def mse(self) -> float:
        """The mean squared error so far, over all rows with a usable target; NaN before any."""
        return self._reached.squared_error / (self._reached.scored or float("nan"))

    def _repr_html_(self) -> str:
        skipped = f", nothing learned from {self.skipped:,}" if self.skipped else ""
        seen = f"{self.position:,} rows{skipped}, MSE {self.mse:.6g}"
        model = f"<details><summary>the model</summary>{self.model._repr_html_()}</details>"
        return f"<p>{seen}</p>{model}"  # a notebook shows it

    def finish(self) -> StreamRun:
        """Run to the end of the source."""
        for _ in self:
            pass
        return self

    def check(self, num_features: int) -> None:
        """Refuse now what the first block would be refused for, if it has so many inputs."""
        with naming_the_block(self.position):
            self._check_first(np.zeros((1, num_features), jnp.result_type(float)))

    def warm_up(self) -> None:
        """Wait for the first block, and compile the program that will run it.

        Errors of the source are raised when the block is asked for.
        """
        if self._next is None and self._open:
            self._next = block = self._source.take()
            if isinstance(block, PreparedBlock):
                with naming_the_block(block.start):
                    if self._num_features is None:
                        self._check_first(block.xs[:1])
                    # A row without a target is not learned, and the state after it is not kept.
                    row = block.xs[:1], np.full_like(block.ds[:1], np.nan)
                    run = (self.model, self._last_state, *row, self.key, self._observe)
                    jax.block_until_ready(begin(*run)[0])

    def close(self) -> None:
        """Stop here: write the checkpoint, end the thread and release the file."""
        if self._open:
            self._count_as_handled()
            self._end()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
        elif self._open:  # the caller may not have finished with the last block: it is not counted
            self._fail(error)

    def __del__(self) -> None:
        self._release()

    def __next__(self) -> Block:
        if not self._open:
            raise StopIteration
        try:
            self._count_as_handled()
            self._save(at_once=False)
            item = self._next or self._source.take()
            self._next = None
            if isinstance(item, BaseException):  # StopIteration at the end of the source
                raise item
            running = item if isinstance(item, _Running) else self._begin(item)
            self._next = self._begin_next()
            return self._complete(running)
        except BaseException as error:
            self._fail(error)
            raise

    def _begin_next(self) -> _Running | BaseException | None:
        """Begin the next block if it has come; its errors are raised when it is asked for."""
        following = self._source.poll()
        try:
            return self._begin(following) if isinstance(following, PreparedBlock) else following
        except Exception as error:
            return error

    def _begin(self, block: PreparedBlock) -> _Running:
        """Have a block computed, without waiting for the numbers."""
        with naming_the_block(block.start):
            if self._num_features is None:
                self._check_first(block.xs[:1])
            run = (self.model, self._last_state, block.xs, block.ds, self.key, self._observe)
            self._last_state, traces = begin(*run)
            return _Running(block, self._last_state, traces)

    def _check_first(self, xs: np.ndarray) -> None:
        """Make the first state for inputs like these, or check the state to go on from.

        A run that its file could not hold is refused.
        """
        self._num_features = int(xs.shape[1])
        if self._last_state is None:
            self._last_state = initial(self.model, self._num_features, xs.dtype.name, self.key)
        else:
            check_state(self.model, self._last_state, jnp.asarray(xs), self.key)
        if self._file is not None:
            first = self._reached._replace(state=self._last_state, extra=self.extra)
            self._file.check(self.model, self.key, first, self._num_features)

    def _complete(self, running: _Running) -> Block:
        """Wait for a block and count it."""
        (start, xs, ds), state, traces = running
        n = len(xs)
        with naming_the_block(start):
            trace = pieces.joined(traces)
        skipped = trace.skipped.reshape(n, -1)  # a row may lack some of several targets
        if self._strict and skipped.any():
            raise bad_rows(xs, ds, skipped.any(axis=1), start)
        block = Block(start, ds, trace.prediction, trace.skipped, trace.observed, trace.due)
        before, errors = self._reached, block.squared_errors
        counts = before.skipped + int(skipped.all(axis=1).sum()), before.scored + len(errors)
        error = before.squared_error + float(errors.sum())
        self._reached = Reached(state, start + n, *counts, error)
        return block

    def _count_as_handled(self) -> None:
        self._handled = self._reached._replace(extra=dict(self.extra))

    def _save(self, *, at_once: bool) -> None:
        if self._file is not None:
            run = (self.model, self.key, self._handled, self._num_features)
            self._file.write(*run, at_once=at_once)

    def _fail(self, error: BaseException) -> None:
        """End because of an error, and note on the error what the file holds."""
        try:
            self._end()
        except BaseException as worse:
            error = worse
            raise
        finally:
            if self._file is not None and not isinstance(error, StopIteration):
                self._file.note(error)

    def _end(self) -> None:
        self._open = False
        try:
            self._save(at_once=True)
        finally:
            self._release()

    def _release(self) -> None:
        self._next = None
        self._source.stop()
        if self._file is not None:
            self._file.release()
