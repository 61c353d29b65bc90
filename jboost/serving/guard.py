"""What stands before every request: who may come, how often, and what every reply carries."""

from __future__ import annotations

import hmac
import ipaddress
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

from jboost.serving.metrics import Requests
from jboost.serving.refusal import Refusal

Message = MutableMapping[str, Any]  # of ASGI, as Scope is
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

# What holds nothing that a token guards.
OPEN = ("/", "/page.js", "/page.css", "/docs", "/openapi.json", "/healthz", "/readyz")
MOST_CLIENTS = 10_000  # addresses whose rate is remembered
HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
OF_PAGES = (  # whatever a browser shows
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; "
     b"connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
     b"frame-ancestors 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)  # fmt: skip


class Rules(NamedTuple):
    """Who may come."""

    token: str | None = None  # demanded of every request that sees or changes data
    hosts: frozenset[str] | None = None  # names that the server is called by; None for any
    rate: float = 10_000.0  # requests a second from one address
    burst: float = 20_000.0  # and so many at once


class Buckets:
    """How many requests each address has left; the least recently seen are forgotten."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic):
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Return whether an address may come once more."""
        now = self._clock()
        left, then = self._left.pop(address, (self._burst, now))
        left = min(left + (now - then) * self._rate, self._burst)
        self._left[address] = max(left - 1, 0), now
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        return left >= 1


class Guard:
    """An ASGI application around another: it refuses, times and counts requests."""

    def __init__(self, inner: Application, rules: Rules, requests: Requests):
        self._inner, self._rules, self.requests = inner, rules, requests
        self._buckets = Buckets(rules.rate, rules.burst)
        self._token = None if rules.token is None else rules.token.encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = HEADERS if scope["method"] == "POST" else (*HEADERS, *OF_PAGES)
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        try:
            self.check(scope)
        except Refusal as refusal:
            await refuse(refusal, reply)
        else:
            await self._inner(scope, receive, reply)
        finally:
            route = scope.get("jboost.route", "other")
            self.requests.add(route, status, time.perf_counter() - start)

    def admits(self, client: tuple[str, int] | None) -> bool:
        """Return whether a client may come once more, and count that it came."""
        return self._buckets.take(client[0] if client else "")

    def check(self, scope: Message) -> None:
        """Refuse a request by its first lines alone."""
        if not self.admits(scope.get("client")):
            raise Refusal(429, f"more than {self._rules.rate:,.0f} requests a second; wait")
        # A page of another site could reach a loopback address under a name of its own.
        hosts = self._rules.hosts
        if hosts is not None and host_of(header(scope, b"host").decode("latin-1")) not in hosts:
            raise Refusal(421, "this server is not called so; use the name it was started by")
        if self._token is not None and scope["path"] not in OPEN:
            scheme, _, token = header(scope, b"authorization").partition(b" ")
            fits = hmac.compare_digest(token.strip(), self._token)
            if scheme.lower() != b"bearer" or not fits:
                raise Refusal(401, "a token is needed: send the header Authorization: Bearer TOKEN")


def header(scope: Message, name: bytes) -> bytes:
    """Return a header of a request; empty where there is none."""
    for key, value in scope["headers"]:
        if key == name:
            return value
    return b""


async def refuse(refusal: Refusal, send: Send) -> None:
    """Send the sentence of a refusal."""
    headers, body = refused(refusal)
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def refused(refusal: Refusal) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body that tell a client of a refusal."""
    body = json.dumps({"error": str(refusal)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status in (429, 503, 507):
        headers.append((b"retry-after", b"1"))
    return headers, body


def host_of(header: str) -> str:
    """Return the name in a Host header, without the port.

    >>> host_of("localhost:8000"), host_of("[::1]:8000"), host_of("[::1]")
    ('localhost', '::1', '::1')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if ":" in header else header.lower()


def is_loopback(host: str) -> bool:
    """Return whether only processes of this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_for(host: str, more: Iterable[str] = ()) -> frozenset[str] | None:
    """Return the names that a server on a host may be called by; None for any."""
    if not is_loopback(host):
        return None  # a token guards it
    return frozenset({"localhost", "127.0.0.1", "::1", host.lower(), *more})
