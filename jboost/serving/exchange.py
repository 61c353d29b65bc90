"""The two routes that rows come by, ``/predict`` and ``/learn``: most requests are for them.

They are plain ASGI, in front of all other routes: a router would take as long as they do. Requests
with a small body go by :mod:`.direct`, which uses what is here.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from json.encoder import encode_basestring_ascii
from typing import Any

from jboost.serving import openapi, rows, writer
from jboost.serving.guard import Application, Message, Receive, Send, header, refuse
from jboost.serving.refusal import Refusal
from jboost.serving.rows import Body
from jboost.serving.service import Service
from jboost.serving.streams import Stream
from jboost.serving.writer import MOST_JOBS, MOST_ROWS, Job

SLOWEST_BODY = 30.0  # seconds in which a body must have come
MOST_BYTES = 2**27  # of the bodies of all requests at once
LARGE = 2**17  # bytes; a larger body is read beside the event loop
MOST_WAITING = 2000  # requests that may wait for the writer
SYNONYMS = {"application/jsonl": rows.LINES, "application/json-lines": rows.LINES}
MEDIA_TYPES = {kind.encode(): kind for kind in rows.KINDS}
ESTIMATED = {"id", "prediction"}  # the fields of a reply without an interval
LEARNED = json.dumps(writer.LEARNED).encode()
SEVERAL = "several models are served here: use /models/NAME/predict and /models/NAME/learn"

log = logging.getLogger("jboost.serving")


class Rows:
    """An ASGI application that answers requests with rows, and leaves others to ``inner``."""

    def __init__(self, service: Service, inner: Application, largest_body: int):
        self._service, self._inner, self.budget = service, inner, Budget(largest_body)
        # By the path: the stream, None where it is not told, and whether rows are answers.
        self._paths: dict[str, tuple[Stream | None, bool]] = {}
        # Jobs for the writer's next round; what the writer has now, and whether more are under way.
        self._waiting: deque[Job] = deque()
        self._at_work, self._called = 0, False

    def route(self, path: str) -> tuple[Stream | None, bool] | None:
        """Return the stream of a path and whether its rows are answers; None for other paths."""
        if not self._paths:
            streams = [*self._service.streams.values()]
            only = streams[0] if len(streams) == 1 else None
            for name, learn in (("predict", False), ("learn", True)):
                self._paths[f"/{name}"] = only, learn
                for stream in streams:
                    self._paths[f"/models/{stream.name}/{name}"] = stream, learn
        return self._paths.get(path)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        route = self.route(scope["path"]) if scope["type"] == "http" else None
        if route is None or scope["method"] != "POST":
            await self._inner(scope, receive, send)
            return
        stream, learn = route
        scope["jboost.route"] = "learn" if learn else "predict"
        try:
            if stream is None:
                raise Refusal(404, SEVERAL)
            kind = kind_of(scope)
            content = await body_of(scope, receive, self.budget)
            kind, reply = await self._answer(content, kind, stream, learn=learn)
        except Refusal as refusal:
            await refuse(refusal, send)
        except Exception:
            log.exception("a request failed")
            await refuse(Refusal(500, "the server failed; its log says why"), send)
        else:
            headers = [(b"content-type", kind), (b"content-length", b"%d" % len(reply))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": reply})

    async def _answer(
        self, content: bytes, kind: str, stream: Stream, *, learn: bool
    ) -> tuple[bytes, bytes]:
        """Return the media type and the bytes of the reply to a body."""
        self.budget.take(len(content))
        try:
            if len(content) > LARGE:
                body = await asyncio.to_thread(read, content, kind, stream, learn=learn)
            else:
                body = read(content, kind, stream, learn=learn)
            future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
            self.submit(Job(stream, body.rows, learn, lambda job: _tell(future, job)))
            return written(body, await future)
        finally:
            self.budget.give_back(len(content))

    def submit(self, job: Job) -> None:
        """Let the writer handle a request, with all others that come until it is free."""
        if self._at_work + len(self._waiting) >= MOST_WAITING:
            raise Refusal(429, f"{MOST_WAITING:,} requests wait already; try again")
        self._waiting.append(job)
        if not self._at_work:
            self._soon()

    def tell(self, jobs: list[Job]) -> None:
        """Tell those who wait for jobs that these are done."""
        for job in jobs:
            job.tell(job)
        self._at_work -= len(jobs)
        if not self._at_work and self._waiting:
            self._soon()

    def _soon(self) -> None:
        """Begin to collect a round: a round of many takes hardly longer than one of few."""
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._collect, 0)

    def _collect(self, before: int) -> None:
        """Hand over what waits, once a turn of the event loop has brought nothing new.

        The clients that were just told may ask again meanwhile.
        """
        if before < len(self._waiting) < MOST_JOBS:
            asyncio.get_running_loop().call_soon(self._collect, len(self._waiting))
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        jobs, count = list[Job](), 0
        while self._waiting and len(jobs) < MOST_JOBS and count < MOST_ROWS:
            jobs.append(self._waiting.popleft())
            count += len(jobs[-1].rows)
        self._called, self._at_work = False, len(jobs)
        assert self._service.writer is not None
        self._service.writer.submit(jobs)


def _tell(future: asyncio.Future[Job], job: Job) -> None:
    if not future.done():
        future.set_result(job)


def kind_of(scope: Message) -> str:
    """Return the media type of the body of a request."""
    found = header(scope, b"content-type")
    kind = MEDIA_TYPES.get(found)  # as most clients write it
    if kind is None:
        kind = found.partition(b";")[0].strip().lower().decode("latin-1")
        kind = SYNONYMS.get(kind, kind)
    if kind not in rows.KINDS:
        raise Refusal(415, f"send the body as {', '.join(rows.KINDS)}, and say so")
    return kind


class Budget:
    """How many bytes of bodies may be held at once, by all requests together."""

    def __init__(self, largest_body: int):
        self.largest_body, self._left = largest_body, max(MOST_BYTES, largest_body)

    def take(self, size: int) -> None:
        """Refuse a body for which there is no room; otherwise its room must be given back."""
        if size > self._left:
            raise Refusal(429, "too much is being sent at once; try again")
        self._left -= size

    def give_back(self, size: int) -> None:
        """End the use of room that was taken."""
        self._left += size


async def body_of(scope: Message, receive: Receive, budget: Budget) -> bytes:
    """Return the body of a request, unless it is too long or too slow."""
    too_long = f"a body may have {budget.largest_body:,} bytes; send smaller batches"
    announced = header(scope, b"content-length")
    if announced.isdigit() and int(announced[:20]) > budget.largest_body:
        raise Refusal(413, too_long)
    body, taken = bytearray(), 0
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "the client left")
                body += message.get("body", b"")
                if len(body) > budget.largest_body:
                    raise Refusal(413, too_long)
                budget.take(len(body) - taken)
                taken = len(body)
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {SLOWEST_BODY:g} seconds") from None
    finally:
        budget.give_back(taken)


def read(content: bytes, kind: str, stream: Stream, *, learn: bool) -> Body:
    """Return the rows of a body for a stream."""
    names = {"time": stream.time, "target": stream.target, "key": stream.key}
    return rows.read(content, kind, learn=learn, **names)


def written(body: Body, job: Job) -> tuple[bytes, bytes]:
    """Return the media type and the bytes of the reply to a job that is done."""
    if job.refusal is not None:
        raise job.refusal
    replies = job.reply or []
    if body.kind == rows.ARROW and not job.learn:
        return rows.ARROW.encode(), openapi.arrow_of(replies)
    if body.kind == rows.LINES:
        text = "".join(f"{json.dumps(reply)}\n" for reply in replies)
        return rows.LINES.encode(), text.encode()
    if body.single and job.learn:
        return b"application/json", LEARNED
    text = _text_of(replies[0]) if body.single else json.dumps(replies)
    return b"application/json", text.encode()


def _text_of(reply: dict[str, Any]) -> str:
    """Return ``json.dumps(reply)``; of the most frequent kind in a quarter of its time."""
    if reply.keys() != ESTIMATED:
        return json.dumps(reply)
    name, prediction = encode_basestring_ascii(reply["id"]), reply["prediction"]
    return f'{{"id": {name}, "prediction": {"null" if prediction is None else repr(prediction)}}}'
