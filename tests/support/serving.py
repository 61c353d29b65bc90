"""Servers for the tests: in this process, or as a process of their own that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jboost as jb
from jboost import catalogue
from jboost.serving import members
from jboost.serving.accounts import Account
from jboost.serving.log import Limits
from jboost.serving.rows import Row
from jboost.serving.service import Options, Service
from jboost.serving.writer import Job

NAMES = ("u", "v", "w")
TOKEN = "a-token-of-thirty-two-characters"


def stream(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three columns, and their answers, in float32."""
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(n, 3))
    ds = xs @ [1.0, -2.0, 0.5] + 3 + 0.3 * rng.normal(size=n)
    return xs.astype(np.float32), ds.astype(np.float32)


def features(x: np.ndarray) -> dict[str, float]:
    return dict(zip(NAMES, x.tolist(), strict=True))


def same_bits(state: Any, other: Any) -> bool:
    leaves, others = jax.tree.leaves(state), jax.tree.leaves(other)
    return len(leaves) == len(others) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(leaves, others, strict=True)
    )


def run_of(name: str, xs: Any, ds: Any, intervals: float | None = None) -> tuple[Any, Any]:
    """What ``jb.run`` gives for rows, with the model as the server makes it."""
    model = catalogue.resolve(catalogue.named(name), intervals=intervals)
    key = jax.random.key(0) if model.needs_key else None
    xs, ds = np.asarray(xs, np.float32), np.asarray(ds, np.float32)
    return jb.run(model, xs, ds, key=key)


def service_of(
    folder: Path, model: str = "newton", intervals: float | None = 0.9, key: str | None = None
) -> Service:
    """A service with one model that learns from nothing."""
    service = Service(folder, Options(Limits()), lambda _: None)
    asked = {"name": model, "settings": {}, "seed": None, "intervals": intervals, "key": key}
    member = members.anew(**asked)
    service.add(model, "y", member, Account(model, member.coverage), {"anew": asked})
    return service


class Local:
    """A service in this process, whose requests are handled one by one."""

    def __init__(self, folder: Path, model: str = "newton", **options: Any):
        self.messages: list[str] = []
        intervals, key = options.pop("intervals", None), options.pop("key", None)
        limits, start = Limits(**options.pop("limits", {})), options.pop("start", None)
        self.service = Service(folder, Options(limits, **options), self.messages.append)
        if start is not None:
            self.service.add(*start)
        if not self.service.streams:
            asked = {"name": model, "settings": {}, "seed": None, "intervals": intervals}
            member = members.anew(**asked | {"key": key})
            account = Account(model, member.coverage)
            self.service.add(model, "y", member, account, {"anew": asked | {"key": key}})
        self.stream = next(iter(self.service.streams.values()))
        self._done: queue.SimpleQueue[list[Job]] = queue.SimpleQueue()
        self.service.start(self._done.put)

    def do(self, rows: list[Row], learn: bool) -> list[dict[str, Any]]:
        job = Job(self.stream, rows, learn, lambda _: None)
        assert self.service.writer is not None
        self.service.writer.submit([job])
        assert job in self._done.get(timeout=60)
        if job.refusal is not None:
            raise job.refusal
        assert job.reply is not None
        return job.reply

    def ask(self, name: str | None, values: dict[str, Any]) -> dict[str, Any]:
        return self.do([Row(values, name)], learn=False)[0]

    def answer(self, name: str | None, answer: float, values: Any = None) -> dict[str, Any]:
        return self.do([Row(values, name, answer)], learn=True)[0]

    @property
    def state(self) -> Any:
        return self.stream.now.leading.state

    def crash(self) -> None:
        """End the threads without a checkpoint, as if the process had been killed."""
        self.service._stopping.set()
        self.service._keeper.join()
        assert self.service.writer is not None
        self.service.writer.stop()
        self.service._held.close()

    def stop(self) -> None:
        self.service.stop()


class Process:
    """``jboost serve`` as a process of its own."""

    def __init__(self, folder: Path, *arguments: str, port: int = 0, **environment: str):
        command = [sys.executable, "-m", "jboost", "serve", "--state", str(folder)]
        root = str(Path(jb.__file__).parents[1])
        env = os.environ | {"PYTHONPATH": root, "PYTHONUNBUFFERED": "1"} | environment
        self.child = subprocess.Popen(
            [*command, "--port", str(port), *arguments], env=env, text=True, stderr=subprocess.PIPE
        )
        self.lines: list[str] = []
        self.address = ""
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.lines.append(line)
            if "serving" in line:
                self.address = line.partition(" on ")[2].partition(",")[0]
                break
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        self.lines += self.child.stderr

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()
        self._end()

    def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        status = self.child.wait(timeout=60)
        self._end()
        return status

    def _end(self) -> None:
        self._reader.join()
        assert self.child.stderr is not None
        self.child.stderr.close()


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[Process]:
    """A process that serves within the block."""
    process = Process(folder, *arguments, **environment)
    try:
        assert process.address, process.lines
        yield process
    finally:
        if process.child.poll() is None:
            process.kill()


def logged(folder: Path) -> list[tuple[dict[str, Any], float, str | None]]:
    """The features, answers and ids in the log, in their order; the server must not run."""
    with contextlib.closing(sqlite3.connect(folder / "log.sqlite")) as db:
        entries = db.execute("SELECT rows FROM log ORDER BY number").fetchall()
    return [(f, d, name) for (rows,) in entries for f, d, name, _ in json.loads(rows)]


@contextlib.contextmanager
def over_http(application: Any, **options: Any) -> Iterator[Any]:
    """A client of an application that is served on the loopback address within the block."""
    import httpx

    from jboost.serving import server

    serving_it = server.server_of(application)
    with server.bind("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=serving_it.run, kwargs={"sockets": [listening]})
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.start()
        try:
            with httpx.Client(base_url=address, timeout=60, **options) as client:
                yield client
        finally:
            application.stopping.set()
            serving_it.should_exit = True
            thread.join()
