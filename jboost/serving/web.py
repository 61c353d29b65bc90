"""The routes of the server; :mod:`.exchange` has the two that rows come by."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from typing import Any

from jboost.core import extras
from jboost.serving import figures, metrics, openapi, rows
from jboost.serving.direct import Direct
from jboost.serving.exchange import Rows, body_of
from jboost.serving.guard import Guard, Rules
from jboost.serving.metrics import Requests
from jboost.serving.refusal import Refusal, bad
from jboost.serving.service import Service
from jboost.serving.streams import Stream
from jboost.serving.writer import Job

extras.need("starlette", "serve")
from starlette.applications import Starlette  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import HTMLResponse, Response, StreamingResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402

LARGEST_BODY = 8 * 2**20  # bytes
MOST_WATCHING = 100  # clients of /events
TICK = 1.0  # seconds between two events
ROWS = ("/predict", "/learn", "/models/{name}/predict", "/models/{name}/learn")
TEXTS = {"page.css": "text/css", "page.js": "text/javascript"}

Handler = Callable[[Request], Awaitable[Response]]


class Web:
    """The application: ``app`` is what a server of ASGI runs, ``direct`` the way around it.

    Args:
      service: what it serves. It is started and stopped with the application.
      rules: who may come.
      largest_body: bytes that a request may have.
    """

    def __init__(self, service: Service, rules: Rules, largest_body: int = LARGEST_BODY):
        self._service = service
        self.requests = Requests()
        self._watcher = figures.Watcher(service, self.requests)
        self._watching = 0
        self.stopping = asyncio.Event()
        self._news: dict[str, tuple[float, bytes]] = {}
        page = resources.files("jboost.serving") / "page"
        self._texts = {name: (page / name).read_bytes() for name in ("index.html", *TEXTS)}
        routes = [
            self._route("/", "page", self._page),
            *(self._route(f"/{name}", "page", self._page) for name in TEXTS),
            self._route("/docs", "docs", self._docs),
            self._route("/openapi.json", "openapi", self._openapi),
            self._route("/healthz", "healthz", self._healthz),
            self._route("/readyz", "readyz", self._readyz),
            self._route("/metrics", "metrics", self._metrics),
            self._route("/events", "events", self._events),
            self._route("/models", "models", self._models),
            self._route("/models/{name}", "models", self._model),
            self._route("/models/{name}/keys", "keys", self._keys),
            self._route("/models/{name}/promote", "promote", self._promote, "POST"),
            self._route("/models/{name}/drop", "drop", self._drop, "POST"),
            # What comes here of these is of another method, or of an unknown name.
            *(self._route(path, "other", self._model, "POST") for path in ROWS),
        ]
        handlers: Any = {Refusal: _refused, HTTPException: _http_error, Exception: _failed}
        inner = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)
        self._rows = Rows(service, inner, largest_body)
        self.app = Guard(self._rows, rules, self.requests)
        self.direct = Direct(self._rows, self.app)

    def _route(self, path: str, name: str, handler: Handler, method: str = "GET") -> Route:
        async def handle(request: Request) -> Response:
            request.scope["jboost.route"] = name
            return await handler(request)

        return Route(path, handle, methods=[method], name=f"{name} {path}")

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def done(jobs: list[Job]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(self._rows.tell, jobs)

        self._service.start(done)
        try:
            yield
        finally:
            await asyncio.to_thread(self._service.stop)

    def _stream(self, request: Request) -> Stream:
        streams, name = self._service.streams, request.path_params["name"]
        if name not in streams:
            raise Refusal(404, f"there is no model {rows.shown(name)}; GET /models lists them")
        return streams[name]

    async def _promote(self, request: Request) -> Response:
        stream, label = await self._shadow(request)
        leader = await self._ask(lambda: self._service.promote(stream, label))
        return _json({"leader": leader})

    async def _drop(self, request: Request) -> Response:
        stream, label = await self._shadow(request)
        dropped = await self._ask(lambda: self._service.drop(stream, label))
        return _json({"dropped": dropped})

    async def _shadow(self, request: Request) -> tuple[Stream, str | None]:
        """Return the stream of a request, and the label of the shadow that its body names."""
        stream = self._stream(request)
        content = await body_of(request.scope, request.receive, self._rows.budget)
        label = None
        if content.strip():
            if "json" not in request.headers.get("content-type", ""):
                raise Refusal(415, f"send the body as {rows.JSON}, and say so")
            fields = rows.loads(content)
            if not isinstance(fields, dict) or {*fields} - {"shadow"}:
                raise bad('the body must be {"shadow": LABEL}, or be left out')
            label = fields.get("shadow")
            if label is not None and not isinstance(label, str):
                raise bad(f"shadow must be the label of a shadow; got {rows.shown(label)}")
        return stream, label

    # -- what can be looked at

    async def _ask(self, work: Callable[[], Any]) -> Any:
        """Compute something in the writer's thread, where nothing changes meanwhile."""
        return await asyncio.wrap_future(self._service.ask(work))

    async def _models(self, _request: Request) -> Response:
        service = self._service

        def listed() -> list[dict[str, Any]]:
            return [figures.described(service, stream) for stream in service.streams.values()]

        return _json({"models": await self._ask(listed)})

    async def _model(self, request: Request) -> Response:
        stream = self._stream(request)
        return _json(await self._ask(lambda: figures.described(self._service, stream)))

    async def _keys(self, request: Request) -> Response:
        stream, text = self._stream(request), request.query_params.get("search", "")[:200]
        if stream.key is None:
            raise Refusal(404, f"{stream.name} keeps no model for each key")
        return _json(await self._ask(lambda: stream.errors.search(text)))

    async def _metrics(self, _request: Request) -> Response:
        gauges = await self._ask(lambda: figures.gauges(self._service))
        return Response(metrics.text(self.requests, gauges), media_type="text/plain; version=0.0.4")

    async def _healthz(self, _request: Request) -> Response:
        writer = self._service.writer
        alive = writer is not None and writer.is_alive()
        return _json({"alive": alive}, 200 if alive else 503)

    async def _readyz(self, _request: Request) -> Response:
        writer = self._service.writer
        health = writer.health if writer is not None else None
        ready = health is not None and health.ready and not health.trouble
        reason = health.trouble if health is not None and health.trouble else "it is warming up"
        return _json({"ready": True} if ready else {"ready": False, "error": reason},
                     200 if ready else 503)  # fmt: skip

    async def _events(self, request: Request) -> Response:
        first = next(iter(self._service.streams))
        request.path_params["name"] = request.query_params.get("model", first)
        stream = self._stream(request)
        if self._watching >= MOST_WATCHING:
            raise Refusal(429, f"{MOST_WATCHING} clients watch already; close one")

        async def news() -> AsyncIterator[bytes]:
            self._watching += 1
            try:
                while not self.stopping.is_set():
                    yield await self._event(stream)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.stopping.wait(), TICK)
            finally:
                self._watching -= 1

        return StreamingResponse(news(), media_type="text/event-stream")

    async def _event(self, stream: Stream) -> bytes:
        """Return the figures of a stream; all who watch it get the same."""
        now = asyncio.get_running_loop().time()
        then, event = self._news.get(stream.name, (0.0, b""))
        if now - then >= TICK / 2:
            found = await self._ask(lambda: self._watcher.page(stream))
            event = b"data: " + json.dumps(found).encode() + b"\n\n"
            self._news[stream.name] = now, event
        return event

    async def _page(self, request: Request) -> Response:
        name = request.url.path.lstrip("/") or "index.html"
        return Response(self._texts[name], media_type=TEXTS.get(name, "text/html"))

    async def _docs(self, _request: Request) -> Response:
        return HTMLResponse(openapi.page())

    async def _openapi(self, _request: Request) -> Response:
        return _json(openapi.document())


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type=rows.JSON)


async def _refused(_request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    response = _json({"error": str(refusal)}, refusal.status)
    if refusal.status in (429, 503, 507):
        response.headers["retry-after"] = "1"
    return response


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "there is nothing here; see /docs", 405: "use another method; see /docs"}
    sentence = sentences.get(error.status_code, error.detail)
    response = _json({"error": sentence}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _failed(_request: Request, _error: Exception) -> Response:
    return _json({"error": "the server failed; its log says why"}, 500)
