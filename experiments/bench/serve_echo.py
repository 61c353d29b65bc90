"""A server that does no more than commit the bodies of requests to SQLite, and send them back.

It has the transport, the settings and the group commit of ``jboost serve``, and nothing else:
what ``serve_load.py`` compares with.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import socket
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn


class Writer(threading.Thread):
    """Commits all bodies that wait as one transaction, then tells their senders."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self.loop = asyncio.get_running_loop()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, body TEXT)")

    def run(self) -> None:
        while True:
            items = [self.queue.get()]
            while not self.queue.empty():
                items.append(self.queue.get())
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO log (body) VALUES (?)", [(b,) for b, _ in items])
            self._db.execute("COMMIT")
            self.loop.call_soon_threadsafe(self._tell, [future for _, future in items])

    def _tell(self, futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    args.state.mkdir(parents=True)
    writers: list[Writer] = []

    async def echo(_scope: Any, receive: Any, send: Any) -> None:
        if not writers:
            writers.append(Writer(args.state / "log.sqlite"))
            writers[0].start()
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        future = asyncio.get_running_loop().create_future()
        writers[0].queue.put((body, future))
        await future
        length = b"%d" % len(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", args.port))
    listening.listen(1024)
    print(
        f"serving on http://127.0.0.1:{listening.getsockname()[1]}, ", file=sys.stderr, flush=True
    )
    config = uvicorn.Config(
        echo, http="httptools", ws="none", lifespan="off", log_level="error", access_log=False
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
