"""Requests whose head is known already: they are read, refused and answered as the first was."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")
from support.serving import TOKEN, over_http, service_of

from jboost.serving import exchange, web
from jboost.serving.guard import Rules

FEATURES = {"u": 1.0, "v": 2.0, "w": 3.0}


class Client:
    """A connection that sends bytes as they are."""

    def __init__(self, address: tuple[str, int]):
        self._socket = socket.create_connection(address, timeout=30)
        self._file = self._socket.makefile("rb")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._socket.sendall(piece)

    def reply(self) -> tuple[int, Any]:
        """Return the status and the body of the next reply."""
        status, length = int(self._file.readline().split()[1]), 0
        while (line := self._file.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return status, json.loads(self._file.read(length))

    def ask(self, *arguments: Any, **options: Any) -> tuple[int, Any]:
        self.send(request(*arguments, **options))
        return self.reply()

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def request(
    body: Any, path: str = "/predict", token: str = TOKEN, host: str = "localhost", **more: str
) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Host": host, "Authorization": f"Bearer {token}", "Content-Type": exchange.rows.JSON}
    headers |= more | {"Content-Length": str(len(content))}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + content


@contextmanager
def served(folder: Path, **rules: Any) -> Iterator[tuple[web.Web, Client]]:
    """Yield an application and a connection to it, once a first request has fixed the columns."""
    hosts = frozenset({"localhost"})
    application = web.Web(service_of(folder), Rules(token=TOKEN, hosts=hosts, **rules))
    with over_http(application) as http:
        client = Client((http.base_url.host, http.base_url.port))
        try:
            assert client.ask({"features": FEATURES})[0] == 200
            yield application, client
        finally:
            client.close()


def test_a_known_head_says_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as (application, client):
        rows = [{"id": f"row {i}", "features": FEATURES} for i in range(9)]
        first = client.ask(rows[0])
        answer = {"id": "row 0", "answer": 1.0}
        assert client.ask(answer, "/learn") == (200, {"learned": True})
        # From here on the head of a request is not read.
        monkeypatch.setattr(application.direct, "passage", lambda _: pytest.fail("it is read"))
        for row in rows[1:]:
            status, reply = client.ask(row)
            assert status == 200 and reply["id"] == row["id"] and first[1].keys() == reply.keys()
            answer["id"] = row["id"]
            assert client.ask(answer, "/learn") == (200, {"learned": True})
        unknown = client.ask({"id": "row 9", "answer": 1.0}, "/learn")
        assert unknown[0] == 404 and "no open question" in unknown[1]["error"]
        broken = json.dumps(answer).replace("}", "]").encode()
        assert client.ask(broken, "/learn")[0] == 400
        assert client.ask(answer, "/learn") == (200, {"learned": True})
    assert application.requests.statuses["learn", 200] == 10
    assert application.requests.statuses["learn", 404] == 1
    assert application.direct.rows.budget._left == exchange.Budget(web.LARGEST_BODY)._left


def test_what_differs_by_a_byte_is_looked_at(tmp_path: Path) -> None:
    row = {"features": FEATURES}
    with served(tmp_path) as (_, client):
        for _ in range(2):
            assert client.ask(row)[0] == 200
        for options, status in (
            ({"token": TOKEN[:-1] + "x"}, 401),
            ({"host": "localhose"}, 421),
            ({"path": "/predicts"}, 404),
            ({"path": "/learn"}, 422),
            ({"Content-Type": "application/xson"}, 415),
        ):
            for _ in range(2):
                assert client.ask(row, **options)[0] == status
        assert client.ask(row)[0] == 200


def test_requests_come_in_any_pieces(tmp_path: Path) -> None:
    rows = [{"id": str(i), "features": FEATURES} for i in range(4)]
    whole = [request(row) for row in rows]
    with served(tmp_path) as (_, client):
        for _ in range(2):
            assert client.ask(rows[0])[1]["id"] == "0"
            client.send(b"".join(whole))  # one after the other, without waiting
            assert [client.reply()[1]["id"] for _ in rows] == ["0", "1", "2", "3"]
            for cut in (5, len(whole[1]) - 70, len(whole[1]) - 1):
                client.send(whole[1][:cut])
                client.send(whole[1][cut:] + whole[2])
                assert [client.reply()[1]["id"] for _ in range(2)] == ["1", "2"]


def test_a_known_head_counts_for_the_rate(tmp_path: Path) -> None:
    with served(tmp_path, rate=0.001, burst=5.0) as (_, client):
        statuses = [client.ask({"features": FEATURES})[0] for _ in range(6)]
    assert statuses == [200] * 4 + [429] * 2


def test_few_heads_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jboost.serving.direct.MOST_HEADS", 3)
    with served(tmp_path) as (application, client):
        for i in range(10):
            assert client.ask({"id": "i" * (i + 1), "features": FEATURES})[0] == 200
            assert len(application.direct._heads) <= 3
        before = len(application.direct._heads)
        long = {"X-More": "x" * 4000}
        assert client.ask({"features": FEATURES}, **long)[0] == 200
        assert len(application.direct._heads) == before
