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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from jboost.serving.estimates import Estimates, reply_of
from jboost.serving.log import Found, Log, Question
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


class Taken(NamedTuple):
    """What a transaction has to do for one stream."""

    now: Now  # with places for the texts of the answers
    answers: list[Prepared]
    questions: list[tuple[list[Job], Asked]]


Draft = list[tuple[Stream, Now, Counted | None]]  # what is seen once a transaction is durable


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
        draft: Draft = []
        try:
            if all(map(is_quick, jobs)):
                self._predict(jobs)
            else:
                with self._log.transaction():
                    for stream, of in by_stream(jobs):
                        self._handle(stream, of, draft)
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
            for stream, now, counted in draft:
                stream.now = now
                if counted is not None:
                    stream.count(counted)
        self.health.ended += len(jobs)
        self._done(jobs)

    def _fail(self, jobs: list[Job], status: int, sentence: str) -> None:
        for job in jobs:
            job.reply, job.refusal = None, job.refusal or Refusal(status, sentence)

    def _handle(self, stream: Stream, jobs: list[Job], draft: Draft) -> None:
        """Do what the requests of one stream ask for, all but commit."""
        ids = [row.id for job in jobs if job.learn for row in job.rows if row.id is not None]
        there = self._log.look_up(stream.name, ids) if ids else Found({}, set())
        try:
            now, prepared, questions = self._together(stream, jobs, there)
        except Refusal:  # of one of them
            now, prepared, questions = self._one_by_one(stream, jobs, there)
        counted = None
        if prepared:
            self._log.append(stream.name, entry_of(now, [p.pending for p in prepared]))
            ids = [i for p in prepared for i in p.pending.ids if i is not None]
            self._log.close_questions(stream.name, ids)
        if prepared or questions:
            now, counted, found = stream.step(now, prepared, [asked for _, asked in questions])
            if found is not None:
                asking = [job for of, _ in questions for job in of]
                self._log.ask(stream.name, reply(stream, asking, found))
        if now is not stream.now:
            draft.append((stream, now, counted))

    def _together(self, stream: Stream, jobs: list[Job], there: Found) -> Taken:
        """Take all requests of a stream as one; refuse if one of them must be refused."""
        now, prepared, questions = stream.now, [], []
        if now.leading.columns is None:
            raise Refusal(422, "the first request is looked at alone: it fixes the columns")
        learning, asking = [job for job in jobs if job.learn], [j for j in jobs if not j.learn]
        if learning:
            now, prepared = self._answers(stream, now, rows_of(learning), there)
        if asking:
            questions.append((asking, stream.encode(now, rows_of(asking))))
        for job in learning:
            job.reply = [LEARNED] * len(job.rows)
        return Taken(now, prepared, questions)

    def _one_by_one(self, stream: Stream, jobs: list[Job], there: Found) -> Taken:
        """Take the requests of a stream that can be carried out, and refuse the others."""
        now, prepared, questions = stream.now, list[Prepared](), list[tuple[list[Job], Asked]]()
        for job in jobs:
            before = now
            try:
                now = self._begin(job, now)
                if job.learn:
                    now, more = self._answers(stream, now, job.rows, there)
                    prepared += more
                    there.answered.update(i for p in more for i in p.pending.ids if i is not None)
                    job.reply = [LEARNED] * len(job.rows)
                elif now is not before:  # its columns must do for itself
                    stream.encode(now, job.rows)
            except Refusal as refusal:  # it changes nothing, not even by its columns
                job.refusal = refusal
                if before.leading.columns is None and now is not before:
                    stream.forget_columns(self._log)
                now = before
        for job in jobs:
            if not job.learn and job.refusal is None:
                try:
                    questions.append(([job], stream.encode(now, job.rows)))
                except Refusal as refusal:
                    job.refusal = refusal
        return Taken(now, prepared, questions)

    def _begin(self, job: Job, now: Now) -> Now:
        """Let the first request of a stream fix its columns."""
        rows = [row.features for row in job.rows if row.features is not None]
        if now.leading.columns is not None or not rows:
            return now
        self.health.ready = False
        try:
            return job.stream.begin(now, rows, self._log, self._most)
        finally:
            self.health.ready = True

    def _answers(
        self, stream: Stream, now: Now, rows: list[Row], there: Found
    ) -> tuple[Now, list[Prepared]]:
        """Check answers; return those to be learned at the end of the round."""
        pending = stream.check_answers(there, rows)
        if not pending.answers:
            return now, []
        stream.errors.refuse_many(now.leading.keys(pending.features))
        now, prepared = stream.prepare(now, pending)
        return now, [prepared]

    def _predict(self, jobs: list[Job]) -> None:
        """Predict by the durable state; nothing is kept of it."""
        for stream, of in by_stream(jobs):
            try:
                questions = self._together(stream, of, Found({}, set())).questions
            except Refusal:
                questions = self._one_by_one(stream, of, Found({}, set())).questions
            if questions:
                x = np.concatenate([asked.x for _, asked in questions])
                keys = [key for _, asked in questions for key in asked.keys]
                found = stream.now.leading.predict(x, keys)
                reply(stream, [job for asking, _ in questions for job in asking], found)

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


def by_stream(jobs: list[Job]) -> Iterator[tuple[Stream, list[Job]]]:
    """Yield each stream that jobs are for, with its jobs."""
    for stream in dict.fromkeys(job.stream for job in jobs):
        yield stream, [job for job in jobs if job.stream is stream]


def rows_of(jobs: list[Job]) -> list[Row]:
    """Return the rows of jobs, in their order."""
    return [row for job in jobs for row in job.rows]


def is_quick(job: Job) -> bool:
    """Return whether a job changes nothing: a prediction that no answer will come for."""
    fixed = job.stream.now.leading.columns is not None
    return not job.learn and fixed and all(row.id is None for row in job.rows)


def reply(stream: Stream, jobs: list[Job], found: Estimates) -> list[Question]:
    """Give jobs their predictions; return the questions that are to be kept."""
    n, questions = len(found.prediction), list[Question]()
    low, high, horizons = (None if a is None else a.tolist() for a in found[1:4])
    bounds = repeat(None, n) if low is None or high is None else zip(low, high, strict=True)
    rest = bounds, repeat(None, n) if horizons is None else horizons
    estimates = zip(found.prediction.tolist(), *rest, strict=True)
    for job in jobs:
        job.reply = []
        for row, estimate in zip(job.rows, estimates, strict=False):
            job.reply.append(reply_of(row, *estimate))
            if row.id is not None:
                questions.append(question_of(row, estimate[0]))
    stream.predictions += n
    return questions
