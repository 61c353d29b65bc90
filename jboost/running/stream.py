"""Streams without end: a run that takes its data block by block, in constant memory.

A thread pulls the next block from the source, checks it and copies it while the block before is
computed and the caller looks at the block before that (:mod:`jboost.running.blocks`). The loop is
compiled for a few lengths only. A block is cut into these, and padded with samples that have no
target, which leave every state as it was. The checkpoint is :mod:`jboost.running.run_file`'s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.checkpoints import atomic
from jboost.core import Key, Learner, State, checks
from jboost.core.step import Observe, Trace
from jboost.engine import fold
from jboost.running.blocks import (
    Ahead,
    Block,
    PreparedBlock,
    StreamSource,
    compiled_lengths,
    naming_the_block,
    prepare,
    samples_per_call,
)
from jboost.running.run import bad_rows, check_state, checked_key, initial, targets_of
from jboost.running.run_file import Reached, RunFile


class _Running(NamedTuple):
    """A block whose computation has begun.

    block: the rows.
    state: the state after the block.
    traces: the results, one trace for each length that the block was cut into.
    """

    block: PreparedBlock
    state: State
    traces: list[Trace]


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
    after each block. Its ``state``, ``position``, ``skipped`` and ``mse`` can be read at any time;
    after an interruption they stand at the last block that was handed over. ``finish()`` runs to
    the end without a loop.

    With ``checkpoint`` the run is kept in a file, and goes on from there with ``resume``, bit for
    bit. The file counts a block only when the loop has come back for the next block. So the output
    that the loop wrote for the rows in the file is complete; output for later rows will be made
    again. In a ``with`` statement the file is also brought up to date when the loop's own code
    fails or is interrupted. An exception that ends a run early gets a note that says how many rows
    the file holds.

    Args:
      model: any learner.
      blocks: an iterable of (x, d) blocks, x (n, r) and d (n,), of any lengths; or a pair (xs, ds)
        of arrays or memory maps, of which only the rows in use are read; or a function that takes
        a position in the stream and returns either, from that row on. For a model of q targets,
        made by :func:`jboost.targets`, d is (n, q).
      key: a ``jax.random.key``, for models that draw; it names the run.
      state: where to begin; by default ``model.init``.
      observe: as for :func:`jboost.run`.
      block: how many rows of a pair of arrays make a block; by default 65,536, and fewer where that
        would be more than 16 MB.
      on_bad: "skip" or "raise", as for :func:`jboost.run`; a block with a bad row is refused whole.
      checkpoint: a file that nobody else writes to while the run lasts. A file that exists is only
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
    >>> for done in stream:
    ...     if done.start % 500 == 0:
    ...         print(done.start, done.prediction.shape, stream.position)
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
            stream._use(RunFile(checkpoint, every), resume)
        if model.needs_key:
            stream.key = checked_key(stream.key)
        num_targets = targets_of(model)
        prepared = prepare(blocks, rows, stream.position, jnp.result_type(float), num_targets)
        stream._source = Ahead(prepared, ahead)
    except BaseException:
        stream._release()
        raise
    return stream


class StreamRun:
    """A run in progress, made by :func:`run_stream`: an iterator of blocks, and a context manager.

    ``extra`` is a dict for the caller, kept in the checkpoint and restored on resume.
    """

    def __init__(
        self, model: Learner, key: Key, state: State, observe: Observe | None, strict: bool
    ):
        self.model = model
        self.key = key
        self.extra: dict[str, Any] = {}
        self._observe = observe
        self._strict = strict
        self._reached = Reached(state)  # after the block that was handed to the caller
        self._handled = self._reached  # after the block that the caller has finished with
        self._next: _Running | BaseException | None = None  # the next block, where it has begun
        self._last_state = state  # after all blocks that have begun
        self._num_features: int | None = None
        self._call_cost = 0  # in samples
        self._file: RunFile | None = None
        self._source: Ahead | None = None
        self._open = True

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

    def finish(self) -> StreamRun:
        """Run to the end of the source."""
        for _ in self:
            pass
        return self

    def close(self) -> None:
        """Stop here: write the checkpoint, end the thread and release the file."""
        if self._open:
            self._count_as_handled()
            self._end()

    def __iter__(self) -> StreamRun:
        return self

    def __enter__(self) -> StreamRun:
        return self

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
        assert self._source is not None
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
        assert self._source is not None
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
            state, traces, start = self._last_state, [], 0
            for length in compiled_lengths(block.n, self._call_cost):
                rows = slice(start, start + length)
                # With their dtype: without it, NaN among them is an error under jax_debug_nans.
                xs = jnp.asarray(block.xs[rows], block.xs.dtype)
                ds = jnp.asarray(block.ds[rows], block.ds.dtype)
                # A state between two blocks is the caller's. One within a block may be overwritten.
                within = bool(traces)
                state, trace = fold(
                    self.model, state, xs, ds, self.key, self._observe, donate=within
                )
                traces.append(trace)
                start += length
            self._last_state = state
            return _Running(block, state, traces)

    def _check_first(self, xs: np.ndarray) -> None:
        """Make the first state for inputs like these, or check the state to go on from."""
        self._num_features = int(xs.shape[1])
        if self._last_state is None:
            self._last_state = initial(self.model, self._num_features, xs.dtype.name, self.key)
        else:
            check_state(self.model, self._last_state, jnp.asarray(xs), self.key)
        self._call_cost = samples_per_call(self._last_state)

    def _complete(self, running: _Running) -> Block:
        """Wait for a block and count it."""
        (start, n, xs, ds), state, traces = running

        def join(*arrays: Array) -> np.ndarray:
            return np.concatenate([np.asarray(array) for array in arrays])[:n]

        with naming_the_block(start):
            trace = jax.tree.map(join, *traces)
        skipped = trace.skipped.reshape(n, -1)  # a row may lack some of several targets
        if self._strict and skipped.any():
            raise bad_rows(xs, ds, skipped.any(axis=1), start)
        block = Block(start, ds[:n].copy(), trace.prediction, trace.skipped, trace.observed)
        before = self._reached
        self._reached = Reached(
            state,
            start + n,
            before.skipped + int(skipped.all(axis=1).sum()),
            before.scored + len(block.squared_errors),
            before.squared_error + float(block.squared_errors.sum()),
        )
        return block

    def _use(self, file: RunFile, resume: bool) -> None:
        """Keep the run in a file, and go on from what the file holds."""
        self._file = file
        resumed = file.resume(self.model, self.key, allowed=resume)
        if resumed is not None:
            self._reached, self.key = resumed
            self._handled = self._reached
            self._last_state, self.extra = self._reached.state, dict(self._reached.extra)

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
            self._note(worse)
            raise
        self._note(error)

    def _note(self, error: BaseException) -> None:
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
        if self._source is not None:
            self._source.stop()
        if self._file is not None:
            self._file.release()
