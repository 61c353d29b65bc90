"""The one thread that changes anything: it handles the requests of a moment as one transaction.

In a round it takes all requests that wait, notes their answers and questions in the log, learns,
predicts, and commits. Only then does anybody see the new state, and only then are the clients told.
The states of models never change, so a round that fails leaves no trace: the next ones were made
beside them. Predictions that no answer will come for need no disk, and are made even so.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jboost.serving.log import Found, Log, Question
from jboost.serving.members import Estimates
from jboost.serving.refusal import Refusal
from jboost.serving.rows import Row
from jboost.serving.streams import (
    Asked,
    Counted,
    Now,
    Prepared,
    Stream,
    entry_of,
    question_of,
    reply_of,
)

MOST_JOBS = 256  # requests of a round
MOST_ROWS = 10_000  # about so many rows end a round
TIDY, IDLE = 1.0, 60.0  # seconds between two looks at what can be removed
LEARNED = {"learned": True}

Work = Callable[[], Any]  # something else that the thread is to do between rounds


@dataclass(eq=False, slots=True)
class Job:
    """A request on its way through the thread."""

    stream: Stream
    rows: list[Row]
    learn: bool  # whether its rows are answers; otherwise they are questions
    tell: Callable[[Job], None]  # called with the job when it is done, by the one who waits for it
    reply: list[dict[str, Any]] | None = None  # one for each row, once it is done
    refusal: Refusal | None = None


@dataclass
class Health:
    """What the thread says of itself."""

    ready: bool = True  # False while a model is compiled
    trouble: str = ""  # why the last transaction failed; empty if it did not
    rounds: int = 0  # transactions that were tried
    begun: int = 0  # jobs that were handed over
    ended: int = 0  # jobs that are done


@dataclass(eq=False)
class Round:
    """What a transaction has made so far, by the names of streams."""

    there: dict[str, Found] = field(default_factory=dict)  # questions that are answered
    now: dict[str, Now] = field(default_factory=dict)
    prepared: dict[str, list[Prepared]] = field(default_factory=dict)
    counted: dict[str, Counted] = field(default_factory=dict)


class Writer(threading.Thread):
    """The thread. It calls ``done`` with jobs that are done, a few times for each round.

    Args:
      log: the log, which nobody else uses from now on.
      done: takes a list of jobs; it is called in this thread and must not wait.
      most_features: columns that the first rows may have.
      reached: returns how many answers of each stream are in all checkpoints.
    """

    def __init__(
        self,
        log: Log,
        done: Callable[[list[Job]], None],
        most_features: int,
        reached: Callable[[], dict[str, int]],
    ):
        super().__init__(name="jboost-writer", daemon=True)
        self.health = Health()
        self._log, self._done, self._most, self._reached = log, done, most_features, reached
        self._queue: queue.SimpleQueue[list[Job] | Work | None] = queue.SimpleQueue()
        self._tidied, self._rounds = time.monotonic(), 0  # when, and after how many rounds

    def submit(self, jobs: list[Job]) -> None:
        """Hand over requests."""
        self.health.begun += len(jobs)
        self._queue.put(jobs)

    def call(self, work: Work) -> None:
        """Have something done between two rounds; it must not raise."""
        self._queue.put(work)

    def stop(self) -> None:
        """End the thread once all that was handed over is done, and wait for that."""
        self._queue.put(None)
        if self.ident is not None:
            self.join()

    def run(self) -> None:
        """Work until :meth:`stop`."""
        while True:
            try:
                item = self._queue.get(timeout=TIDY)
            except queue.Empty:
                self._tidy()
                continue
            jobs: list[Job] = []
            rows = 0
            while isinstance(item, list):
                jobs += item
                rows += sum(len(job.rows) for job in item)
                if len(jobs) >= MOST_JOBS or rows >= MOST_ROWS:
                    item = self._tidy
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    item = self._tidy
            if jobs:
                self._round(jobs)
            if item is None:
                return
            if not isinstance(item, list):
                item()

    def _round(self, jobs: list[Job]) -> None:
        """Handle requests as one transaction."""
        self.health.rounds += 1
        draft = Round()
        try:
            if all(map(is_quick, jobs)):
                self._predict(jobs)
            else:
                with self._log.transaction():
                    self._handle(jobs, draft)
                self.health.trouble = ""
        except (sqlite3.Error, OSError) as error:
            self.health.trouble = f"the log cannot be written: {error}"
            sentence = f"nothing was changed, since {self.health.trouble}; try again later"
            self._fail([job for job in jobs if not is_quick(job)], 507, sentence)
            if quick := [job for job in jobs if is_quick(job)]:
                self._round(quick)
            jobs = [job for job in jobs if job not in quick]
        except Exception as error:  # of a model or the compiler: the thread must go on
            self.health.trouble = f"{type(error).__name__}: {error}"
            self._fail(jobs, 500, "nothing was changed, since the model failed")
        else:
            streams = {job.stream.name: job.stream for job in jobs}
            for name, now in draft.now.items():
                streams[name].now = now
                if name in draft.counted:
                    streams[name].count(draft.counted[name])
        self.health.ended += len(jobs)
        self._done(jobs)

    def _fail(self, jobs: list[Job], status: int, sentence: str) -> None:
        for job in jobs:
            job.reply, job.refusal = None, job.refusal or Refusal(status, sentence)

    def _handle(self, jobs: list[Job], draft: Round) -> None:
        """Do all but commit."""
        streams = {job.stream.name: job.stream for job in jobs}
        for name in streams:
            ids = [r.id for j in jobs if j.learn and j.stream.name == name for r in j.rows if r.id]
            draft.there[name] = self._log.look_up(name, ids) if ids else Found({}, set())
        for job in jobs:
            began = self._begin(job, draft)
            if job.learn and job.refusal is None:
                self._answer(job, draft)
            if began:
                self._asked([job], draft.now[job.stream.name])
                if job.refusal is not None:  # it changes nothing, not even by its columns
                    del draft.now[job.stream.name]
                    job.stream.forget_columns(self._log)
        for name, stream in streams.items():
            prepared = draft.prepared.get(name, [])
            now = draft.now.get(name, stream.now)
            pairs = self._asked([job for job in jobs if job.stream is stream], now)
            if prepared:
                self._log.append(name, entry_of(now, [p.pending for p in prepared]))
                ids = [i for p in prepared for i in p.pending.ids if i is not None]
                self._log.close_questions(name, ids)
            if prepared or pairs:
                asked = [of for _, of in pairs]
                draft.now[name], draft.counted[name], found = stream.step(now, prepared, asked)
                if found is not None:
                    self._log.ask(name, reply(stream, [job for job, _ in pairs], found))

    def _begin(self, job: Job, draft: Round) -> bool:
        """Let the first request of a stream fix its columns; return whether it did."""
        now = draft.now.get(job.stream.name, job.stream.now)
        rows = [row.features for row in job.rows if row.features is not None]
        if now.leading.columns is not None or not rows:
            return False
        self.health.ready = False
        try:
            draft.now[job.stream.name] = job.stream.begin(now, rows, self._log, self._most)
        except Refusal as refusal:
            job.refusal = refusal
        finally:
            self.health.ready = True
        return job.refusal is None

    def _asked(self, jobs: list[Job], now: Now) -> list[tuple[Job, Asked]]:
        """Return the questions of a stream that can be predicted, with their x."""
        found = []
        for job in jobs:
            if not job.learn and job.refusal is None:
                try:
                    found.append((job, job.stream.encode(now, job.rows)))
                except Refusal as refusal:
                    job.refusal = refusal
        return found

    def _predict(self, jobs: list[Job]) -> None:
        """Predict by the durable state; nothing is kept of it."""
        for stream in {job.stream for job in jobs}:
            pairs = self._asked([job for job in jobs if job.stream is stream], stream.now)
            if pairs:
                x = np.concatenate([of.x for _, of in pairs])
                keys = [key for _, of in pairs for key in of.keys]
                found = stream.now.leading.predict(x, keys)
                reply(stream, [job for job, _ in pairs], found)

    def _answer(self, job: Job, draft: Round) -> None:
        """Check the answers of a job, and note them to be learned at the end of the round."""
        stream = job.stream
        now = draft.now.get(stream.name, stream.now)
        try:
            there = draft.there[stream.name]
            pending = stream.check_answers(there, job.rows)
            if pending.answers:
                stream.errors.refuse_many(now.leading.keys(pending.features))
                draft.now[stream.name], prepared = stream.prepare(now, pending)
                draft.prepared.setdefault(stream.name, []).append(prepared)
            there.answered.update(name for name in pending.ids if name is not None)
            job.reply = [LEARNED] * len(job.rows)
        except Refusal as refusal:
            job.refusal = refusal

    def _tidy(self) -> None:
        """Remove what is no longer needed, now and then; while nobody comes, seldom."""
        now = time.monotonic()
        if now - self._tidied < (TIDY if self.health.rounds > self._rounds else IDLE):
            return
        self._tidied, self._rounds = now, self.health.rounds
        try:
            if self._log.tidy(self._reached()):
                self._tidied, self._rounds = 0.0, -1  # there may be more
        except sqlite3.Error as error:
            self.health.trouble = f"the log cannot be written: {error}"


def is_quick(job: Job) -> bool:
    """Return whether a job changes nothing: a prediction that no answer will come for."""
    fixed = job.stream.now.leading.columns is not None
    return not job.learn and fixed and all(row.id is None for row in job.rows)


def reply(stream: Stream, jobs: list[Job], found: Estimates) -> list[Question]:
    """Give jobs their predictions; return the questions that are to be kept."""
    arrays = [array.tolist() for array in found if array is not None]
    estimates = [*zip(*arrays, strict=True)]
    stream.predictions += len(estimates)
    questions, at = [], 0
    for job in jobs:
        n = len(job.rows)
        answered = [*zip(job.rows, estimates[at : at + n], strict=True)]
        job.reply, at = [reply_of(row, estimate) for row, estimate in answered], at + n
        questions += [question_of(row, e[0]) for row, e in answered if row.id is not None]
    return questions
