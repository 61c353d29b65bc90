"""Runs the application: binds, bounds connections, and ends in order when it is asked to."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from jboost.core import extras
from jboost.serving.direct import Direct, Passage
from jboost.serving.web import Web

uvicorn = extras.need("uvicorn", "serve")
extras.need("httptools", "serve")
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: E402

try:
    import resource
except ImportError:  # the system is not POSIX: it has no such limits
    resource = None

SILENCE = 10.0  # seconds in which the head of a request must have come
STUCK = 30.0  # seconds for which a client may leave a full buffer unread
KEEP_ALIVE = 30  # seconds between two requests
PATIENCE = 15  # seconds that requests get to end after SIGTERM
MOST_CONNECTIONS, SPARE_FILES = 4096, 128
SWITCH = 0.0005  # seconds after which the writer and the event loop let each other compute
GARBAGE = 20_000  # new objects after which cycles among them are looked for
BACKLOG = 1024  # connections that wait to be taken


class Protocol(HttpToolsProtocol):
    """A connection that is closed if its client says nothing, or does not read.

    When there are too many, the one that has been silent for longest gives way to a new one.
    Requests that :class:`Direct` can take go that way, all others by ASGI.
    """

    direct: ClassVar[Direct]
    most: ClassVar[int] = MOST_CONNECTIONS
    connections: ClassVar[int] = 0
    # Those whose request has not come, and since when; the oldest come first.
    silent: ClassVar[dict[Protocol, float]] = {}
    # Those that wait for another request after one that went directly, likewise.
    idle: ClassVar[dict[Protocol, float]] = {}
    _stuck: asyncio.TimerHandle | None = None
    _between = True  # whether all that has come were whole requests
    _begun = 0  # requests that have begun

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        Protocol.connections += 1
        self._await_head()
        if Protocol.connections > Protocol.most:
            next(iter(Protocol.silent)).transport.abort()  # there is one: this

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        Protocol.connections -= 1
        Protocol.idle.pop(self, None)
        self._head_came()
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of the head."""
        self._between, self._begun = False, self._begun + 1
        Protocol.idle.pop(self, None)
        self._await_head()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Note that a request has come as a whole."""
        self._between = True
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Stop waiting, and choose how the request goes."""
        self._head_came()
        passage = self.direct.passage(self) if self._is_free() else None
        if passage is None:
            super().on_headers_complete()
        else:
            self.cycle: Any = passage

    def data_received(self, data: bytes) -> None:
        """Read what has come; begin to wait for the rest of a body."""
        between, begun = self._between, self._begun
        passage = self.direct.at_once(self, data) if between and self._is_free() else None
        if passage is not None:
            Protocol.idle.pop(self, None)
            self._head_came()
            self._unset_keepalive_if_required()
            self.cycle = passage
            passage.set()
            return
        super().data_received(data)
        if isinstance(self.cycle, Passage):
            self.cycle.wait_for_the_rest(self.loop)
            if between and self._between and self._begun == begun + 1:
                self.direct.remember(data, self.cycle)

    def _is_free(self) -> bool:
        """Return whether no request is under way, and the client reads its replies."""
        done = self.cycle is None or self.cycle.response_complete
        return done and not self.flow.write_paused

    def on_response_complete(self) -> None:
        """Begin to wait for another request, without a timer if there was none."""
        if not isinstance(self.cycle, Passage) or self.pipeline:
            super().on_response_complete()
        elif not self.transport.is_closing():
            self.server_state.total_requests += 1
            Protocol.idle[self] = self.loop.time()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        self._stuck = self.loop.call_later(STUCK, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Stop waiting."""
        if self._stuck is not None:
            self._stuck.cancel()
        super().resume_writing()

    def _await_head(self) -> None:
        Protocol.silent.setdefault(self, self.loop.time())

    def _head_came(self) -> None:
        Protocol.silent.pop(self, None)

    @staticmethod
    def sweep(now: float) -> None:
        """Close the connections that have been silent for too long."""
        for waiting, longest in ((Protocol.silent, SILENCE), (Protocol.idle, KEEP_ALIVE)):
            for connection, since in [*waiting.items()]:
                if now - since < longest:
                    break
                connection.transport.abort()


class Server(uvicorn.Server):
    """A server that tells the application when it is to end."""

    def __init__(self, config: Any, on_exit: Callable[[], None]):
        super().__init__(config)
        self._on_exit = on_exit

    async def on_tick(self, counter: int) -> bool:
        """Look at the connections, about ten times a second."""
        Protocol.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Note that the process was asked to end."""
        self._on_exit()
        super().handle_exit(sig, frame)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By the protocol asyncio knows that it can send at once what it has: without it, 40 ms late.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)  # so that nobody who comes early is turned away
    except BaseException:
        listening.close()
        raise
    return listening


def server_of(web: Web) -> Server:
    """Return the server of an application; ``run(sockets=…)`` makes it serve."""
    Protocol.most = _most_connections()

    class Connection(Protocol):
        direct = web.direct

    config = uvicorn.Config(
        web.app,
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=PATIENCE,
        backlog=BACKLOG,
    )
    return Server(config, web.stopping.set)


def run(web: Web, listening: socket.socket, announce: Callable[[], None]) -> bool:
    """Serve until SIGTERM or SIGINT; then requests end.

    ``announce`` is called once the signals are heeded. Returns whether the server could start.
    """
    server = server_of(web)

    def end(*_: object) -> None:
        server.should_exit = True

    # Until the server has handlers of its own, and when it raises the signals again at its end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    announce()
    sys.setswitchinterval(SWITCH)
    # JAX holds so many objects that to look for cycles among them takes longer than a round.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    server.run(sockets=[listening])
    return server.started


def _most_connections() -> int:
    """Return how many connections may be open, by the files that the process may open."""
    if resource is None:
        return MOST_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = MOST_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(soft - SPARE_FILES, 16)
    return MOST_CONNECTIONS
