"""Clients for the scripts about ``jboost serve``: quick ones, on the loopback address only.

They speak HTTP over plain sockets, since a full client would take longer than the server. All
requests of a run are bounded in number.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

HOST = "127.0.0.1"
R = 8
NAMES = [f"x{i}" for i in range(R)]


class Connection:
    """One connection that is kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection(HOST, port, limit=2**26))

    async def post(
        self, path: str, body: bytes, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send a body; the status and the body of the reply."""
        self._writer.write(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n"
            b"Content-Length: %d\r\n\r\n" % (path.encode(), kind.encode(), len(body)) + body
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        lower = head.lower()
        start = lower.index(b"content-length:") + 15
        length = int(lower[start : lower.index(b"\r\n", start)])
        return status, await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and answers of a linear law with noise, in float32."""
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(n, R))
    ds = xs @ np.linspace(-1, 2, R) + 0.5 * rng.normal(size=n)
    return xs.astype(np.float32), ds.astype(np.float32)


def question(name: str, x: np.ndarray) -> bytes:
    values = dict(zip(NAMES, x.tolist(), strict=True))
    return json.dumps({"id": name, "features": values}).encode()


def answer(name: str, d: float) -> bytes:
    return json.dumps({"id": name, "answer": float(d)}).encode()


def batch(xs: np.ndarray, ds: np.ndarray | None = None) -> bytes:
    """Rows to predict, or with answers to learn at once, as one body."""
    found: list[dict[str, Any]] = [
        {"features": dict(zip(NAMES, x, strict=True))} for x in xs.tolist()
    ]
    for row, d in zip(found, [] if ds is None else ds.tolist(), strict=False):
        row["answer"] = d
    return json.dumps(found).encode()


@contextmanager
def started(script: list[str], folder: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port and the process of a server that says on which address it serves."""
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        [sys.executable, *script, "--state", str(folder), "--port", "0"],
        env=env, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    try:
        line = ""
        for line in child.stderr:
            if "serving" in line:
                break
        if "serving" not in line:
            raise RuntimeError(f"the server did not start: {line}")
        yield int(line.partition(f"{HOST}:")[2].partition(",")[0]), child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.wait(60)
        child.stderr.close()


async def clients(
    port: int, count: int, work: Callable[[int, Connection], Awaitable[Any]]
) -> float:
    """Let so many clients work at once; the seconds that it took."""
    connections = [await Connection.to(port) for _ in range(count)]
    start = time.perf_counter()
    await asyncio.gather(*(work(i, each) for i, each in enumerate(connections)))
    took = time.perf_counter() - start
    for each in connections:
        each.close()
    return took
