"""A stream of answers and the models that learn it: one that predicts, others in its shadow."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import numpy as np

from jboost.files.columns import Columns
from jboost.running.blocks import Block
from jboost.serving import columns as request_columns
from jboost.serving.accounts import Account, Answer, Served
from jboost.serving.estimates import Estimates, finite
from jboost.serving.keys import KeyErrors
from jboost.serving.log import Entry, Found, Log, Question
from jboost.serving.members import Member
from jboost.serving.refusal import Refusal
from jboost.serving.rows import Features, Row, shown

PROBED = 32  # transactions whose last rows are kept, to see which columns matter
COMPACT = json.JSONEncoder(separators=(",", ":"))
REPLAYED = 1024  # rows of the log that are learned together after a start


class Now(NamedTuple):
    """How far a stream has come. It never changes: a transaction makes the next one."""

    members: Mapping[str, Member]  # by label
    leader: str  # the label of the member that predicts
    position: int  # answers that were learned

    @property
    def leading(self) -> Member:
        """The member that predicts."""
        return self.members[self.leader]


class Counted(NamedTuple):
    """What the accounts get once a transaction is durable."""

    blocks: list[tuple[str, Block, np.ndarray | None]]
    answers: list[Answer]
    features: list[Features]
    keys: list[str]  # of the answers; empty where there are none


class Pending(NamedTuple):
    """Answers that are not learned yet, with the features of their questions."""

    features: list[Features]
    answers: list[float]
    ids: list[str | None]
    predictions: list[float | None]  # the ones that were returned for the questions
    texts: list[str]  # the features as JSON; none are needed for answers of the log


class Prepared(NamedTuple):
    """Answers whose features are numbers: by the label of a member, x, times and keys of rows."""

    pending: Pending
    encoded: Mapping[str, tuple[np.ndarray, np.ndarray | None, list[str]]]


class Asked(NamedTuple):
    """The x of questions, (n, r), and their keys."""

    x: np.ndarray
    keys: list[str]


class Stream:
    """A stream of answers. Only the writer's thread changes it."""

    def __init__(self, name: str, target: str, now: Now, accounts: dict[str, Account]):
        self.name, self.target, self.now, self.accounts = name, target, now, accounts
        self.served, self.errors = Served(), KeyErrors()
        self.predictions = 0  # that were made since the start
        self.tolerated: frozenset[str] = frozenset()  # columns that only dropped models had
        self._allowed: dict[str, None] | None = None  # the names of all columns
        self._recent: deque[list[Features]] = deque(maxlen=PROBED)

    @property
    def time(self) -> str:
        """The name of the column that the field "time" of a row stands for."""
        columns = self.now.leading.columns
        return columns.time.name if columns is not None and columns.time else request_columns.TIME

    def begin(self, now: Now, rows: Sequence[Features], log: Log, most: int) -> Now:
        """Let the first rows fix the columns, durably; compile the models."""
        if all(member.columns is not None for member in now.members.values()):
            return now
        columns = request_columns.fixed(rows, self.target, most, self.key)
        self.put_columns(columns, log)
        return with_columns(now, columns)

    def put_columns(self, columns: Columns, log: Log) -> None:
        """Note in the log which columns the stream begins with."""
        log.put(f"columns of {self.name}", json.dumps(columns.as_dict()))

    def forget_columns(self, log: Log) -> None:
        """Take back what :meth:`put_columns` has noted."""
        log.remove(f"columns of {self.name}")

    def _refuse_other(self, now: Now, rows: Sequence[Features]) -> None:
        """Refuse features that no model has a column for."""
        allowed = self._allowed
        if allowed is None:
            beside = (m.columns.kinds for m in now.members.values() if m.columns is not None)
            names = (name for kinds in (*beside, self.tolerated) for name in kinds)
            allowed = dict.fromkeys(name for name in names if name != self.target)
            if self.now.leading.columns is not None:  # they are durable
                self._allowed = allowed
        request_columns.refuse_other(allowed.keys(), self.target, rows)

    @property
    def key(self) -> str | None:
        """The name of the column that the field "key" of a row stands for; None for one model."""
        return self.now.leading.key_column

    def encode(self, now: Now, rows: Sequence[Row]) -> Asked:
        """Return x of rows to predict; nothing changes by it."""
        features = [row.features or {} for row in rows]
        self._refuse_other(now, features)
        return Asked(now.leading.numbers(features).x, now.leading.keys(features))

    def check_answers(self, there: Found, rows: Sequence[Row]) -> Pending:
        """Return the answers of a request that are not learned yet, with their features."""
        found, seen = Pending([], [], [], [], []), set[str]()
        for number, (features, name, answer, text) in enumerate(rows, 1):
            question = None
            if name is not None:
                if name in seen or name in there.answered:
                    continue
                seen.add(name)
                question = there.questions.get(name)
                if features is None and question is None:
                    prefix = f"row {number}: " if len(rows) > 1 else ""
                    reason = "it was never asked, has expired, or gave way to newer ones"
                    raise Refusal(404, f"{prefix}there is no open question {shown(name)}: {reason}")
            if features is not None:
                text = text or COMPACT.encode(features)
            else:
                assert question is not None
                text, features = question.features, question.values
            found.texts.append(text)
            found.features.append(json.loads(text) if features is None else features)
            found.answers.append(answer)
            found.ids.append(name)
            found.predictions.append(question and question.prediction)
        return found

    def prepare(self, now: Now, pending: Pending) -> tuple[Now, Prepared]:
        """Make numbers of answers; the stream that is returned has places for their texts."""
        self._refuse_other(now, pending.features)
        members, encoded = dict(now.members), {}
        for label, member in now.members.items():
            # A member whose checkpoint is newer has learned the first of these before.
            behind = pending.features[max(member.position - now.position, 0) :]
            if behind:
                columns, x, instants, _ = member.numbers(behind)
                if columns is not member.columns:
                    members[label] = member._replace(columns=columns)
                encoded[label] = x, instants, member.keys(behind)
        return now._replace(members=members), Prepared(pending, encoded)

    def step(
        self, now: Now, prepared: Sequence[Prepared], asked: Sequence[Asked] = ()
    ) -> tuple[Now, Counted, Estimates | None]:
        """Learn answers, then predict; return the next stream and what the leader says.

        Args:
          now: the stream, with places for the texts of the answers.
          prepared: answers that :meth:`prepare` has made numbers of.
          asked: questions.
        """
        rows = _joined([p.pending for p in prepared])
        answers = np.array(rows.answers, np.float64)
        members, counted = dict(now.members), Counted([], [], rows.features, [])
        estimates = None
        for label, member in now.members.items():
            encoded = [p.encoded[label] for p in prepared if label in p.encoded]
            xs, keys = [x for x, *_ in encoded], [key for *_, of in encoded for key in of]
            learned = answers[len(answers) - sum(map(len, xs)) :]
            leads = label == now.leader and len(asked) > 0
            if leads:
                xs += [x for x, _ in asked]
                keys += [key for _, of in asked for key in of]
            if not xs:
                continue
            x = xs[0] if len(xs) == 1 else np.concatenate(xs)
            d = np.full(len(x), np.nan)
            d[: len(learned)] = learned
            members[label], found = member.run(x, d, keys)
            if leads:
                n = len(learned)
                estimates = found.after(n)
            if len(learned):
                times = [instants for _, instants, _ in encoded if instants is not None]
                block = member.block(learned, found)
                counted.blocks.append((label, block, np.concatenate(times) if times else None))
                if label == now.leader:
                    counted.keys.extend(keys[: len(learned)])
                    counted.answers.extend(answers_of(rows, block, found.flags))
        return Now(members, now.leader, now.position + len(answers)), counted, estimates

    @property
    def recent_features(self) -> list[Features]:
        """The features of rows that were learned lately, the last ones last."""
        return [features for block in self._recent for features in block]

    def count(self, counted: Counted) -> None:
        """Count what was learned, once it is durable."""
        self._recent.append(counted.features[-PROBED:])
        for label, block, instants in counted.blocks:
            self.accounts[label].add(block, instants)
        self.served.add(counted.answers)
        self.errors.add(counted.keys, counted.answers)

    def replay(self, log: Log) -> int:
        """Learn what the log has beyond the checkpoints; return how many answers that were."""
        first = min(member.position for member in self.now.members.values())
        self.now = self.now._replace(position=first)
        for rows in _blocks(_logged(log, self.name, first)):
            now, prepared = self.prepare(self.now, rows)
            self.now, counted, _ = self.step(now, [prepared])
            self.count(counted)
        return self.now.position - first


def with_columns(now: Now, columns: Columns) -> Now:
    """Return a stream whose members without columns take these."""
    members = {
        label: member if member.columns is not None else member.with_columns(columns)
        for label, member in now.members.items()
    }
    return now._replace(members=members)


def _joined(parts: Sequence[Pending]) -> Pending:
    """Return the answers of several requests as one."""
    if len(parts) == 1:
        return parts[0]
    return Pending(
        [features for p in parts for features in p.features],
        [answer for p in parts for answer in p.answers],
        [name for p in parts for name in p.ids],
        [prediction for p in parts for prediction in p.predictions],
        [text for p in parts for text in p.texts],
    )


def entry_of(now: Now, pending: Sequence[Pending]) -> Entry:
    """Return what the log keeps of answers that are learned from here on."""
    rows = [
        f"[{text},{answer!r},{_quoted(name)},{'null' if prediction is None else repr(prediction)}]"
        for p in pending
        for _, answer, name, prediction, text in zip(*p, strict=True)
    ]
    return Entry(now.position, len(rows), f"[{','.join(rows)}]")


def _quoted(name: str | None) -> str:
    return "null" if name is None else encode_basestring_ascii(name)


def _logged(log: Log, stream: str, first: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the log from the answer ``first`` on."""
    for entry in log.entries(stream, first):
        yield from json.loads(entry.rows)[max(first - entry.first, 0) :]


def _blocks(rows: Iterator[tuple[Any, ...]]) -> Iterator[Pending]:
    while block := [*islice(rows, REPLAYED)]:
        yield Pending(*map(list, zip(*block, strict=True)), texts=[])


def answers_of(rows: Pending, block: Block, flags: list[list[str]] | None) -> list[Answer]:
    """Return answers as the page shows them."""
    n = len(block.prediction)
    bounds = [[*map(finite, block.observed[name].tolist())] for name in ("low", "high")
              if block.observed] or [[None] * n] * 2  # fmt: skip
    behind = len(rows.answers) - n  # rows that the leader had learned before
    fields = rows.ids, rows.answers, rows.predictions
    numbers = range(block.start + 1, block.start + n + 1)
    shown_fields = (field[behind:] for field in fields)
    estimates = block.prediction.tolist()
    odd = repeat(()) if flags is None else flags
    columns = zip(numbers, *shown_fields, estimates, *bounds, odd, strict=False)
    return [*map(Answer._make, columns)]


def question_of(row: Row, estimate: float) -> Question:
    """Return the question that is kept for a row with an id."""
    assert row.id is not None
    text = row.text or COMPACT.encode(row.features)
    return Question(row.id, text, finite(estimate), row.features)
