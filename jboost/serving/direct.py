"""The short way of a request with few rows: from its connection to the writer, and back.

Most requests are small. A task, a future and the messages of ASGI for each of them would take
longer than all that is done with its rows. So a connection hands the rows to the writer itself,
and the reply goes straight back to it. Whatever is unusual goes by ASGI, to the same end.

The requests of a client have heads that differ in the length of the body alone. So the heads of
requests that were taken are remembered, byte for byte, and are not read again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from jboost.serving import exchange
from jboost.serving.exchange import Rows
from jboost.serving.guard import HEADERS, Guard, header, refused
from jboost.serving.refusal import Refusal
from jboost.serving.rows import Body
from jboost.serving.streams import Stream
from jboost.serving.writer import Job

LARGEST = 2**15  # bytes of a body; uvicorn would pause a connection that has sent twice as much
END = b"\r\n\r\n"  # of a head
LONGEST_HEAD, MOST_HEADS = 2048, 1024  # bytes of a head that is remembered, and how many are
LINES = {status: b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}

log = logging.getLogger("jboost.serving")


class Connection(Protocol):
    """What is used here of a connection of uvicorn, at the end of the head of a request."""

    url: bytes
    client: tuple[str, int] | None
    scope: Any
    parser: Any
    pipeline: Any
    transport: asyncio.Transport
    server_state: Any
    expect_100_continue: bool

    def on_response_complete(self) -> None:
        """Go on with the next request."""


class Head(NamedTuple):
    """What the head of a request says that was taken."""

    stream: Stream
    learn: bool  # whether rows are answers
    size: int  # bytes of the body
    kind: str  # its media type


class Direct:
    """Takes the requests that can go directly; it has the rules of the two applications."""

    def __init__(self, rows: Rows, guard: Guard):
        self.rows, self.guard = rows, guard
        self._dated: tuple[object, bytes] = None, b""
        self._heads: dict[bytes, Head] = {}

    def head(self, default: list[tuple[bytes, bytes]]) -> bytes:
        """Return the head of a reply with JSON up to its length; ``default`` has the date."""
        if self._dated[0] is not default:
            headers = (*default, (b"content-type", b"application/json"), *HEADERS)
            self._dated = default, LINES[HTTPStatus.OK] + _lines(headers) + b"content-length: "
        return self._dated[1]

    def passage(self, connection: Connection) -> Passage | None:
        """Return the passage of a request whose head has come; None if it must go by ASGI."""
        parser, scope = connection.parser, connection.scope
        scope["path"] = connection.url.decode("latin-1")
        route = self.rows.route(scope["path"])
        size = header(scope, b"content-length")
        if (
            route is None
            or route[0] is None
            or parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or parser.should_upgrade()
            or connection.expect_100_continue
            or connection.pipeline
            or not size.isdigit()
            or len(size) > 6
            or int(size) > min(LARGEST, self.rows.budget.largest_body)
        ):
            return None
        try:
            self.guard.check(scope)
            self.rows.budget.take(int(size))
        except Refusal:  # it is refused there
            return None
        return Passage(self, connection, route[0], int(size), learn=route[1])

    def at_once(self, connection: Connection, data: bytes) -> Passage | None:
        """Return the passage of a whole request with a known head; None where data is not one."""
        end = data.find(END) + len(END)
        head = self._heads.get(data[:end])
        if head is None or len(data) != end + head.size or not self.guard.admits(connection.client):
            return None
        try:
            self.rows.budget.take(head.size)
        except Refusal:  # it is refused on the other way
            return None
        passage = Passage(self, connection, head.stream, head.size, learn=head.learn)
        passage.kind, passage.body, passage.more_body = head.kind, data[end:], False
        return passage

    def remember(self, data: bytes, passage: Passage) -> None:
        """Remember the head of data that was found to be one request, and nothing else."""
        head, end = passage.head, data.find(END) + len(END)
        if head is None or end > LONGEST_HEAD or len(data) != end + head.size:
            return
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        self._heads[data[:end]] = head


class Passage:
    """A request on the short way.

    It stands where uvicorn has the cycle of a request, and has the attributes that a connection
    looks at. The event that uvicorn sets when something has happened is the passage itself.
    """

    def __init__(
        self, direct: Direct, connection: Connection, stream: Stream, size: int, *, learn: bool
    ):
        self._direct, self._connection, self._stream = direct, connection, stream
        self._size, self._learn, self._start = size, learn, time.perf_counter()
        self._timer: asyncio.TimerHandle | None = None
        self._body: Body | None = None  # once it has come and was read
        self.kind: str | None = None  # the media type of the body, once it is known
        # As a connection of uvicorn sets and reads them.
        self.body: bytearray | bytes = bytearray()
        self.more_body, self.message_event = True, self
        self.disconnected, self.response_complete, self.keep_alive = False, False, True

    @property
    def head(self) -> Head | None:
        """What the head of the request says; None if the body has not come, or is of no kind."""
        if self.more_body or self.kind is None:
            return None
        return Head(self._stream, self._learn, self._size, self.kind)

    def set(self) -> None:
        """Look at what has happened: a piece of the body has come, or the client has gone."""
        if self.response_complete or self._body is not None:
            return
        if self.disconnected:
            self._end(400)
        elif not self.more_body:
            self._begin()

    def wait_for_the_rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wait for the rest of the body, if there is one."""
        if self.more_body and self._timer is None and not self.response_complete:
            self._timer = loop.call_later(exchange.SLOWEST_BODY, self._give_up)

    def _give_up(self) -> None:
        if self.more_body and not self.response_complete:
            self.keep_alive = False  # what still comes would be read as a request
            seconds = f"{exchange.SLOWEST_BODY:g}"
            self._refuse(Refusal(408, f"the body did not come within {seconds} seconds"))

    def _begin(self) -> None:
        """Read the rows, and hand them to the writer."""
        try:
            self.kind = self.kind or exchange.kind_of(self._connection.scope)
            content = bytes(self.body)
            self._body = exchange.read(content, self.kind, self._stream, learn=self._learn)
            self._direct.rows.submit(Job(self._stream, self._body.rows, self._learn, self._reply))
        except Refusal as refusal:
            self._refuse(refusal)
        except Exception:
            self._fail()

    def _reply(self, job: Job) -> None:
        """Send what has become of the rows."""
        assert self._body is not None
        try:
            kind, body = exchange.written(self._body, job)
        except Refusal as refusal:
            self._refuse(refusal)
        except Exception:
            self._fail()
        else:
            default = self._connection.server_state.default_headers
            if kind == b"application/json" and self.keep_alive:
                head = self._direct.head(default) + b"%d\r\n\r\n" % len(body)
            else:
                length = (b"content-length", b"%d" % len(body))
                head = self._head(200, [*default, (b"content-type", kind), length])
            self._send(200, head + body)

    def _fail(self) -> None:
        log.exception("a request failed")
        self._refuse(Refusal(500, "the server failed; its log says why"))

    def _refuse(self, refusal: Refusal) -> None:
        headers, body = refused(refusal)
        default = self._connection.server_state.default_headers
        self._send(refusal.status, self._head(refusal.status, [*default, *headers]) + body)

    def _head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        closing = () if self.keep_alive else ((b"connection", b"close"),)
        return LINES[HTTPStatus(status)] + _lines((*headers, *HEADERS, *closing)) + b"\r\n"

    def _send(self, status: int, reply: bytes) -> None:
        connection = self._connection
        if not connection.transport.is_closing():
            connection.transport.write(reply)
        self._end(status)
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()

    def _end(self, status: int) -> None:
        """Count the request, and give back its room."""
        self.response_complete = True
        if self._timer is not None:
            self._timer.cancel()
        self._direct.rows.budget.give_back(self._size)
        taken = time.perf_counter() - self._start
        self._direct.guard.requests.add("learn" if self._learn else "predict", status, taken)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%s: %s\r\n" % header for header in headers)
