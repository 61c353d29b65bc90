"""Several servers with keys behind one address: each key has its server, by a hash.

The front has the routes /predict and /learn of the servers. A row must have its key, an answer to
an open question too; the rows of a request that are of different servers go to all of these at
once. Each part of a request is carried out whole or not at all, but not the request. The guide is
serve.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import jboost as jb
from jboost import catalogue

MODEL = "newton"


class Front:
    """An ASGI application, ``app``, that hands rows on to the servers at some addresses.

    A request carries its token to all of them.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._parts = [httpx.AsyncClient(base_url=address, timeout=60) for address in addresses]
        routes = [Route(path, self._hand_on, methods=["POST"]) for path in ("/predict", "/learn")]
        self.app = Starlette(routes=routes, lifespan=self._lifespan)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for part in self._parts:
                await stack.enter_async_context(part)
            yield

    def part_of(self, key: object) -> int:
        """The number of the server of a key; it must not change while the folders are kept."""
        digest = hashlib.blake2b(str(key).encode(), digest_size=8).digest()
        return int.from_bytes(digest) % len(self._parts)

    async def _hand_on(self, request: Request) -> JSONResponse:
        """Send each row to its server; the replies come in the order of the rows."""
        try:
            body = await request.json()
        except ValueError:
            return JSONResponse({"error": "the body is no JSON"}, 400)
        rows = body if isinstance(body, list) else [body]
        if not all(isinstance(row, dict) and isinstance(row.get("key"), str | int) for row in rows):
            return JSONResponse({"error": "every row must have its key"}, 422)
        places: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(self.part_of(row["key"]), []).append(place)
        headers = {
            name: request.headers[name] for name in ("authorization",) if name in request.headers
        }
        posts = [
            self._parts[part].post(request.url.path, json=[rows[i] for i in of], headers=headers)
            for part, of in places.items()
        ]
        found: list[Any] = [None] * len(rows)
        for reply, of in zip(await asyncio.gather(*posts), places.values(), strict=True):
            if reply.status_code != 200:
                return JSONResponse(reply.json(), reply.status_code)
            for place, told in zip(of, reply.json(), strict=True):
                found[place] = told
        return JSONResponse(found if isinstance(body, list) else found[0])


@contextlib.contextmanager
def server(folder: str) -> Iterator[str]:
    """The address of a server with a model for each key, kept in a folder."""
    command = [sys.executable, "-m", "jboost", "serve", "--model", MODEL, "--target", "d"]
    options = ["--key", "sensor", "--state", folder, "--port", "0"]
    child = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        line = next(line for line in child.stderr if "serving" in line)
        yield line[line.index("http://") : line.index(", kept in")]
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(60)
        child.stderr.close()


@contextlib.contextmanager
def front(addresses: Sequence[str]) -> Iterator[str]:
    """The address of a front for servers."""
    listening = socket.create_server(("127.0.0.1", 0))
    serving = uvicorn.Server(uvicorn.Config(Front(addresses).app, log_level="error"))
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        serving.should_exit = True
        thread.join()
        listening.close()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=2000, help="how many answers")
    parser.add_argument("--keys", type=int, default=50, help="of so many sensors")
    parser.add_argument("--parts", type=int, default=2, help="how many servers")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    keys = [f"sensor {n}" for n in rng.integers(0, args.keys, args.rows)]
    xs = rng.normal(size=(args.rows, 2)).astype(np.float32)
    ds = (xs @ [2.0, -1.0] + 0.1 * rng.normal(size=args.rows)).astype(np.float32)

    def features(x: np.ndarray) -> dict[str, float]:
        return {"a": float(x[0]), "b": float(x[1])}

    probe = [{"key": key, "features": features(xs[0])} for key in dict.fromkeys(keys)]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        parts = [stack.enter_context(server(f"{folder}/{i}")) for i in range(args.parts)]
        client = stack.enter_context(
            httpx.Client(base_url=stack.enter_context(front(parts)), timeout=60)
        )
        for first in range(0, args.rows, 100):
            body = [
                {"key": keys[i], "features": features(xs[i]), "answer": float(ds[i])}
                for i in range(first, min(first + 100, args.rows))
            ]
            client.post("/learn", json=body).raise_for_status()
        question = {"id": 1, "key": keys[0], "features": features(xs[0])}
        client.post("/predict", json=question).raise_for_status()
        told = client.post("/predict", json=probe).raise_for_status().json()
        answer = {"id": 1, "key": keys[0], "answer": 3.0}
        assert client.post("/learn", json=answer).json() == {"learned": True}
        counts = [httpx.get(f"{part}/models").json()["models"][0]["answers"] for part in parts]
    fleet = jb.Fleet(catalogue.named(MODEL), 2)
    state = fleet.learn(fleet.init(), keys, xs, ds)
    expected = fleet.predict(state, [*dict.fromkeys(keys)], np.tile(xs[0], (len(probe), 1)))
    same = [row["prediction"] for row in told] == np.asarray(expected).tolist()
    print(f"{counts} answers in {args.parts} servers: "
          f"{'every bit as in one fleet' if same else 'the states DIFFER'}")  # fmt: skip


if __name__ == "__main__":
    main()
