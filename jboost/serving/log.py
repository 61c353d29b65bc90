"""The write-ahead log and the open questions of a server, in one SQLite file.

A transaction is durable when it is committed: SQLite writes it ahead of the database (WAL mode) and
flushes it to the disk (``synchronous=FULL``). One thread uses the log; no other does.

The ages of questions are counted in seconds that the server was up, by a clock that nobody sets.
So neither a jump of the system's clock nor a night without the server makes a question expire.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS questions (
  number INTEGER PRIMARY KEY, stream TEXT NOT NULL, id TEXT NOT NULL, features TEXT NOT NULL,
  prediction REAL, asked REAL NOT NULL, UNIQUE (stream, id));
CREATE TABLE IF NOT EXISTS answered (
  number INTEGER PRIMARY KEY, stream TEXT NOT NULL, id TEXT NOT NULL, answered REAL NOT NULL,
  UNIQUE (stream, id));
CREATE TABLE IF NOT EXISTS log (
  number INTEGER PRIMARY KEY, stream TEXT NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL,
  rows TEXT NOT NULL);
"""
ASK = """
INSERT OR REPLACE INTO questions (stream, id, features, prediction, asked)
SELECT ?1, ?2, ?3, ?4, ?5
WHERE NOT EXISTS (SELECT 1 FROM answered WHERE stream = ?1 AND id = ?2)
"""
LISTED = "WHERE stream = ? AND id IN (SELECT value FROM json_each(?))"
OPEN = f"SELECT id, features, prediction FROM questions {LISTED}"
CLOSED = f"SELECT id FROM answered {LISTED}"
COUNTS = "SELECT stream, count(*) FROM questions GROUP BY stream"
BUSY = 5.0  # seconds that a reader from outside, such as the sqlite3 shell, may hold the file
FRESH, SHORT = 10_000, 4096  # questions that need no look-up, and characters of their features
AT_ONCE = 1000  # rows of a table that are removed in one transaction: more would be felt


class LogError(OSError):
    """The file cannot be used; the message is a sentence."""


class Limits(NamedTuple):
    """How much a log keeps."""

    questions: int = 100_000  # open questions; the oldest give way to new ones
    answered: int = 1_000_000  # ids of answers, by which a repeated one is known
    age: float = 7 * 86400.0  # seconds after which both are forgotten


class Question(NamedTuple):
    """An open question."""

    id: str
    features: str  # JSON
    prediction: float | None  # the one that was returned; None if it was no number
    values: dict[str, Any] | None = None  # the features; None where only their text is at hand


class Found(NamedTuple):
    """What is there of some ids."""

    questions: dict[str, Question]  # those that are open
    answered: set[str]  # the ids of those that were answered


class Entry(NamedTuple):
    """Answers that were committed together."""

    first: int  # how many answers of the stream came before
    length: int  # how many these are
    rows: str  # JSON


class Log:
    """The log in the file of that path, which is made if it is absent."""

    def __init__(self, path: Path, limits: Limits):
        self._limits = limits
        try:
            self._db = sqlite3.connect(
                path, timeout=BUSY, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            with self.transaction():
                for statement in SCHEMA.split(";\n"):
                    self._db.execute(statement)
                if self.get("format") is None:
                    self.put("format", FORMAT)
                if self.get("format") != FORMAT:
                    raise LogError(f"{path} is of another release: its format is not {FORMAT}")
        except sqlite3.Error as error:
            raise LogError(f"{path} cannot be used: {error}") from None
        newest = "SELECT (SELECT max(asked) FROM questions), (SELECT max(answered) FROM answered)"
        before = (self.get("clock"), *self._db.execute(newest).fetchone())
        self._began = max(float(seconds or 0) for seconds in before) - time.monotonic()
        # By stream, a number that its open questions do not exceed.
        self._at_most: dict[str, int] = dict(self._db.execute(COUNTS))
        self.dropped = 0  # questions that gave way or expired
        # Open questions by stream and id that need not be looked up: most answers come soon.
        self._fresh: dict[tuple[str, str], Question] = {}

    def close(self) -> None:
        """Close the file; what was committed stays."""
        with contextlib.suppress(sqlite3.Error), self.transaction():
            self.put("clock", self.clock)
        self._db.close()

    @property
    def clock(self) -> float:
        """Seconds that the server was up, over all its starts."""
        return time.monotonic() + self._began

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the ``with`` block does, or nothing of it if anything is raised."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._fresh.clear()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def get(self, name: str) -> str | int | float | None:
        """Return a setting, None if it was never put."""
        found = self._db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return found and found[0]

    def put(self, name: str, value: str | int | float) -> None:
        """Keep a setting."""
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def remove(self, name: str) -> None:
        """Forget a setting."""
        self._db.execute("DELETE FROM settings WHERE name = ?", (name,))

    def look_up(self, stream: str, names: Sequence[str]) -> Found:
        """Return what is there of the questions of these ids, in as few statements as can be."""
        fresh = ((name, self._fresh.get((stream, name))) for name in names)
        found = {name: question for name, question in fresh if question is not None}
        if others := {*names} - found.keys():
            listed = json.dumps([*others])
            opened = {row[0]: Question(*row) for row in self._db.execute(OPEN, (stream, listed))}
            found |= opened
            if len(opened) < len(others):  # what is open was not answered
                return Found(found, {row[0] for row in self._db.execute(CLOSED, (stream, listed))})
        return Found(found, set())

    def open(self, stream: str) -> int:
        """Return how many questions of a stream are open."""
        query = "SELECT count(*) FROM questions WHERE stream = ?"
        return self._db.execute(query, (stream,)).fetchone()[0]

    def ask(self, stream: str, questions: Sequence[Question]) -> None:
        """Keep questions; one of the same id is replaced, one that was answered is not reopened."""
        if not questions:
            return
        now = self.clock
        rows = [(stream, name, features, y, now) for name, features, y, _ in questions]
        asked = self._db.executemany(ASK, rows).rowcount
        if asked == len(questions):  # otherwise there are some that were answered
            if len(self._fresh) + asked > FRESH:
                self._fresh.clear()
            self._fresh |= {(stream, q.id): q for q in questions if len(q.features) <= SHORT}
        # To count them takes long, so it is done only when there may be too many.
        most = self._at_most.get(stream, 0) + len(questions)
        if most > self._limits.questions:
            most = self.open(stream)
            if (excess := most - self._limits.questions) > 0:
                oldest = "SELECT number FROM questions WHERE stream = ? ORDER BY number LIMIT ?"
                remove = f"DELETE FROM questions WHERE number IN ({oldest})"
                self._db.execute(remove, (stream, excess))
                self.dropped, most = self.dropped + excess, self._limits.questions
                self._fresh.clear()
        self._at_most[stream] = most

    def close_questions(self, stream: str, names: Sequence[str]) -> None:
        """Note that the questions of ids were answered, whether they were open or not."""
        pairs, now = [(stream, name) for name in names], self.clock
        for pair in pairs:
            self._fresh.pop(pair, None)
        self._db.executemany("DELETE FROM questions WHERE stream = ? AND id = ?", pairs)
        self._db.executemany(
            "INSERT INTO answered (stream, id, answered) VALUES (?, ?, ?)",
            [(*pair, now) for pair in pairs],
        )

    def append(self, stream: str, entry: Entry) -> None:
        """Add answers to the log."""
        self._db.execute(
            "INSERT INTO log (stream, first, count, rows) VALUES (?, ?, ?, ?)", (stream, *entry)
        )

    def entries(self, stream: str, after: int) -> Iterator[Entry]:
        """Yield the entries with answers after the first ``after`` ones, in their order."""
        query = "SELECT first, count, rows FROM log WHERE stream = ? AND first + count > ? "
        for found in self._db.execute(query + "ORDER BY number", (stream, after)):
            yield Entry(*found)

    def tidy(self, reached: dict[str, int]) -> bool:
        """Remove some of what is no longer needed; return whether anything was there to remove.

        ``reached`` has, for each stream, how many of its answers are in all checkpoints.
        """
        removed = 0
        with self.transaction():
            for pair in reached.items():
                done = "stream = ? AND first + count <= ?"
                removed += self._remove("log", "stream, first, count", done, pair)
            oldest = self.clock - self._limits.age
            expired = self._remove("questions", "asked", "asked < ?", (oldest,))
            if expired:
                self.dropped += expired
                self._fresh.clear()
            last = self._db.execute("SELECT max(number) FROM answered").fetchone()[0] or 0
            surplus = oldest, last - self._limits.answered
            removed += self._remove("answered", "answered", "answered < ? OR number <= ?", surplus)
            self.put("clock", self.clock)
        return removed + expired > 0

    def _remove(self, table: str, columns: str, where: str, values: tuple[object, ...]) -> int:
        """Remove those of the oldest rows for which a condition on columns holds; say how many."""
        oldest = f"SELECT number, {columns} FROM {table} ORDER BY number LIMIT {AT_ONCE}"
        query = f"DELETE FROM {table} WHERE number IN (SELECT number FROM ({oldest}) WHERE {where})"
        return self._db.execute(query, values).rowcount
