"""A folder with the log, the checkpoints and the streams of a server, and the threads on it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from jboost.checkpoints import atomic
from jboost.files.columns import Columns
from jboost.serving import keyed, keys, members
from jboost.serving.accounts import Account, Served
from jboost.serving.changes import Changes
from jboost.serving.keys import KeyErrors
from jboost.serving.log import Limits, Log
from jboost.serving.members import Member
from jboost.serving.refusal import Refusal
from jboost.serving.rows import shown
from jboost.serving.streams import Now, Stream, with_columns
from jboost.serving.writer import Job, Writer

EVERY_ROWS, EVERY_SECONDS = 10_000, 60.0  # between two checkpoints of a stream
MOST_FEATURES = 256  # columns that the first request may fix
PATIENCE = 30.0  # seconds until a checkpoint that failed is tried again

Origin = dict[str, Any]  # where a member comes from: the arguments of ``anew``, or a run's digest
T = TypeVar("T")


class Options(NamedTuple):
    """What a user may set."""

    limits: Limits = Limits()
    most_features: int = MOST_FEATURES
    every: int = EVERY_ROWS  # answers between two checkpoints
    most_keys: int = keys.MOST  # of a model for each key


class Service:
    """The streams of a folder. It is made, given its models, started and stopped.

    Args:
      folder: where everything is kept; it is made if it is absent.
      options: what a user may set.
      say: takes a sentence for the one who runs the server.
    """

    def __init__(self, folder: Path, options: Options, say: Callable[[str], None]):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.streams: dict[str, Stream] = {}
        self.options, self._folder, self._say = options, folder, say
        self._held = contextlib.ExitStack()
        self._held.enter_context(atomic.owning(folder / "server"))
        self.log = Log(folder / "log.sqlite", options.limits)
        self._held.callback(self.log.close)
        self._origins: dict[str, dict[str, Origin]] = {}
        self._kept: dict[str, int] = {}  # answers of each stream that all its checkpoints hold
        self._tried = time.monotonic()
        self._stopping = threading.Event()
        self.writer: Writer | None = None
        self._keeper = threading.Thread(target=self._keep_always, name="jboost-keeper", daemon=True)
        self._load()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- the models

    def _load(self) -> None:
        """Read the streams that the folder holds, and learn what their checkpoints lack."""
        saved = json.loads(str(self.log.get("streams") or "{}"))
        for name, described in saved.items():
            columns, errors = self._columns(name), dict[str, tuple[int, float]]()
            loaded = {
                label: self._member(name, label, origin, columns, errors)
                for label, origin in described["members"].items()
            }
            self._origins[name] = {**described.get("dropped", {}), **described["members"]}
            accounts = {label: account for label, (_, account, _) in loaded.items()}
            now = Now({label: found[0] for label, found in loaded.items()}, described["leader"], 0)
            if columns is not None:
                now = with_columns(now, columns)
            stream = self.streams[name] = Stream(name, described["target"], now, accounts)
            stream.errors = KeyErrors(errors, self.options.most_keys)
            stream.tolerated = frozenset(described.get("tolerated", ()))
            served = loaded[now.leader][2].get("served")
            stream.served = Served.from_dict(served) if served else Served()
            self._kept[name] = min(member.position for member in now.members.values())
            if now.leading.columns is not None and (rows := stream.replay(self.log)):
                self._say(f"{name}: {rows:,} answers since the last checkpoint were learned again")

    def _columns(self, name: str) -> Columns | None:
        """Return the columns that the first request of a stream has fixed."""
        text = self.log.get(f"columns of {name}")
        return None if text is None else Columns.from_dict(json.loads(str(text)))

    def _member(
        self,
        stream: str,
        label: str,
        origin: Origin,
        columns: Columns | None,
        errors: dict[str, tuple[int, float]],
    ) -> tuple[Member, Account, Any]:
        """Return a member as its checkpoint has it, or anew; fill in the errors of its keys."""
        path = self._path(stream, label)
        if path.exists():
            return members.from_run(path)
        member = members.anew(**origin["anew"])
        folder = path.with_suffix(".fleet")
        if columns is not None and folder.exists():
            member, account, more, sums = keyed.from_fleet(folder, member, columns)
            errors.update(sums)
            return member, account, more
        return member, Account(label, member.coverage), {}

    def _path(self, stream: str, label: str) -> Path:
        return self._folder / f"{stream}.{label}.run"

    def add(
        self, name: str, target: str, member: Member, account: Account, origin: Origin,
        errors: keyed.Sums | None = None,
    ) -> None:  # fmt: skip
        """Begin a stream with one model, which is called as the stream is.

        ``errors`` are those of its keys, where it comes from a run that has some.
        """
        self._refuse_shared(name, name)
        now = Now({name: member}, name, member.position)
        stream = Stream(name, target, now, {name: account})
        stream.errors = KeyErrors({**errors} if errors else None, self.options.most_keys)
        if member.fleet is not None and member.columns is not None:
            with self.log.transaction():
                stream.put_columns(member.columns, self.log)
        self._origins[name] = {name: origin}
        self._begin(stream, name)

    def add_shadow(self, name: str, label: str, run: Path, origin: Origin) -> None:
        """Put a kept run beside the models of a stream."""
        self._refuse_shared(name, label)
        stream = self.streams[name]
        member, account, _ = members.from_run(run)
        member = member._replace(position=stream.now.position)
        now = stream.now._replace(members={**stream.now.members, label: member})
        both = stream.accounts | {label: account}
        stream = Stream(name, stream.target, now, both)
        stream.served, stream.tolerated = self.streams[name].served, self.streams[name].tolerated
        self._origins[name] |= {label: origin}
        self._begin(stream, label)

    def _refuse_shared(self, name: str, label: str) -> None:
        """Refuse a new member whose checkpoint would lie where that of another stream lies."""
        path = self._path(name, label)
        for other, origins in self._origins.items():
            if other != name and path in (self._path(other, of) for of in origins):
                raise ValueError(f"{other} keeps a model in {path.name} already; rename a file")

    def _begin(self, stream: Stream, label: str) -> None:
        """Keep a stream that has a new member."""
        self.streams[stream.name] = stream
        self._kept.setdefault(stream.name, 0)
        if stream.now.members[label].columns is not None:  # it comes from a run
            self._keep(stream, *self._snapshot(stream)[1:])
        self._describe(stream.now, stream.name)

    def _describe(self, now: Now, name: str) -> None:
        """Note the streams, their members and their leaders in the log, those of one as of now."""
        described = {}
        for stream in self.streams.values():
            of = now if stream.name == name else stream.now
            origins = self._origins[stream.name]
            described[stream.name] = {
                "target": stream.target,
                "leader": of.leader,
                "members": {label: origins[label] for label in of.members},
                "dropped": {label: origins[label] for label in origins if label not in of.members},
                "tolerated": sorted(stream.tolerated),
            }
        with self.log.transaction():
            self.log.put("streams", json.dumps(described))

    def origin(self, stream: str, label: str) -> Origin | None:
        """Return where a member comes from, or came from; None if there was no such member."""
        return self._origins.get(stream, {}).get(label)

    # -- the threads

    def start(self, done: Callable[[list[Job]], None]) -> Writer:
        """Start the threads; ``done`` is as :class:`Writer` has it."""
        Changes().add(0, np.zeros(1))  # compiles the detector, for which the writer would wait
        self.writer = Writer(self.log, done, self.options.most_features, lambda: self._kept)
        self.writer.start()
        self._keeper.start()
        return self.writer

    def stop(self) -> None:
        """Do what was handed over, write checkpoints and close the folder."""
        self._stopping.set()
        if self._keeper.ident is not None:
            self._keeper.join()
        if self.writer is not None:
            self.writer.stop()
            for stream in self.streams.values():
                if self._kept[stream.name] < stream.now.position:
                    self._keep(*self._snapshot(stream))
            with contextlib.suppress(sqlite3.Error):
                self.log.tidy(self._kept)
        self._held.close()

    def ask(self, work: Callable[[], T]) -> Future[T]:
        """Have something computed in the writer's thread, where nothing changes meanwhile."""
        future: Future[T] = Future()

        def compute() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        assert self.writer is not None
        self.writer.call(compute)
        return future

    def promote(self, stream: Stream, label: str | None) -> str:
        """Let a shadow predict from now on; in the writer's thread. Return its label."""
        label = _shadow(stream, label, "promote")
        self._change(stream, stream.now._replace(leader=label))
        return label

    def drop(self, stream: Stream, label: str | None) -> str:
        """Let a shadow learn no more; in the writer's thread. Return its label.

        The same command does not add it again. No request fails by it: the columns that only the
        shadow had are still taken, and not looked at.
        """
        label = _shadow(stream, label, "drop")
        members = dict(stream.now.members)
        columns = members.pop(label).columns
        stream.tolerated |= {*columns.kinds} if columns is not None else set()
        self._change(stream, stream.now._replace(members=members))
        del stream.accounts[label]
        return label

    def _change(self, stream: Stream, after: Now) -> None:
        """Let a stream go on otherwise, durably."""
        try:
            self._describe(after, stream.name)
        except sqlite3.Error as error:
            raise Refusal(507, f"nothing was changed: {error}") from None
        stream.now = after

    # -- checkpoints

    def unkept(self, name: str) -> int:
        """Return how many answers of a stream are in the log and not yet in all checkpoints."""
        return self.streams[name].now.position - self._kept[name]

    def _keep_always(self) -> None:
        """Write checkpoints now and then."""
        while not self._stopping.wait(0.5):
            waited = time.monotonic() - self._tried
            for stream in [*self.streams.values()]:
                rows = stream.now.position - self._kept[stream.name]
                if rows >= self.options.every or (rows and waited > EVERY_SECONDS):
                    self._tried = time.monotonic()
                    if not self._keep_one(stream):
                        self._stopping.wait(PATIENCE)

    def _keep_one(self, stream: Stream) -> bool:
        """Write the checkpoints of a stream beside the work; return whether that succeeded."""
        if stream.key is None:
            return self._keep(*self.ask(lambda: self._snapshot(stream)).result())
        # The states of a fleet share their memory: they are written where they are learned.
        return self.ask(lambda: self._keep(*self._snapshot(stream))).result()

    def _snapshot(self, stream: Stream) -> tuple[Stream, Now, dict[str, Any], dict[str, Any]]:
        """Return what a checkpoint is to hold; nothing of it changes later."""
        accounts = {label: account.as_dict() for label, account in stream.accounts.items()}
        return stream, stream.now, accounts, {"served": stream.served.as_dict()}

    def _keep(
        self, stream: Stream, now: Now, accounts: dict[str, Any], more: dict[str, Any]
    ) -> bool:
        """Write a checkpoint of each member of a stream; return whether that succeeded."""
        for label, member in now.members.items():
            if member.columns is None:  # nothing has come yet
                continue
            try:
                path = self._path(stream.name, label)
                if member.fleet is None:
                    members.save(path, member, accounts[label], more)
                else:
                    path, sums = path.with_suffix(".fleet"), stream.errors.sums
                    keyed.save_fleet(path, member, accounts[label], more, sums)
            except OSError as error:
                self._say(f"{stream.name}: {error.strerror or error}; the log keeps what is new")
                return False
        self._kept[stream.name] = now.position
        return True


def _shadow(stream: Stream, label: str | None, what: str) -> str:
    """Return the label of the shadow that a request means; without one, of the only shadow."""
    shadows = [name for name in stream.now.members if name != stream.now.leader]
    if label is None and len(shadows) == 1:
        return shadows[0]
    if label is None or label not in shadows:
        there = ", ".join(map(shown, shadows)) or "there is none; start with --shadow MODEL.run"
        raise Refusal(409, f"name the shadow to {what}: {there}")
    return label
