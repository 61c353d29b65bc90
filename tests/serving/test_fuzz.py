"""Requests made at random, by the description of the interface: no failure, no change of state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")
pytest.importorskip("schemathesis")
import schemathesis
from support.serving import features, over_http, service_of, stream

from experiments.bench.serve_faults import mangled
from jboost.serving import guard, web
from jboost.serving.guard import Rules

QUICK = settings(
    max_examples=25, deadline=None, database=None, derandomize=True,
    suppress_health_check=[*HealthCheck],
)  # fmt: skip


def test_requests_by_the_description_are_answered_as_it_says(tmp_path: Path) -> None:
    service = service_of(tmp_path)
    application = web.Web(service, Rules(hosts=guard.hosts_for("127.0.0.1")))
    with over_http(application) as client:
        client.post("/learn", json={"features": features(stream(1)[0][0]), "answer": 1.0})
        described = client.get("/openapi.json").json()
        schema = schemathesis.openapi.from_dict(described)
        schema.config.update(base_url=str(client.base_url))
        tried = 0
        for found in schema.get_all_operations():
            operation = found.ok()
            if operation.path == "/events":  # it has no end
                continue
            tried += 1
            responses = described["paths"][operation.path][operation.method.lower()]["responses"]

            @QUICK
            @given(case=operation.as_strategy())
            def ask(case: Any) -> None:
                before = service.streams["newton"].now
                response = case.call()
                assert response.status_code < 500, response.text
                assert str(response.status_code) in responses  # noqa: B023  (called at once)
                assert "Traceback" not in response.text
                if response.status_code >= 400:
                    assert service.streams["newton"].now is before
                    assert response.json()["error"]

            ask()
        assert tried == 12


def test_mangled_requests_change_nothing(tmp_path: Path) -> None:
    service = service_of(tmp_path)
    application = web.Web(service, Rules(hosts=guard.hosts_for("127.0.0.1")))
    with over_http(application) as client:
        client.post("/learn", json={"features": features(stream(1)[0][0]), "answer": 1.0})
        before = service.streams["newton"].now.members["newton"].state
        refused = 0
        for path, kind, body in mangled(400, seed=3):
            reply = client.post(path, content=body, headers={"Content-Type": kind})
            assert reply.status_code < 500, (body, reply.text)
            refused += reply.status_code >= 400
        assert refused == 400
        assert service.streams["newton"].now.members["newton"].state is before
        assert service.log.open("newton") == 0
