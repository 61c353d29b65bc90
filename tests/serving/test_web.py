"""The routes: single rows, batches, lines and Arrow; who may come; what a bad request gets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")
import pyarrow as pa
from support.serving import TOKEN, features, over_http, run_of, same_bits, service_of, stream

from jboost.serving import exchange, guard, openapi, rows, web
from jboost.serving.guard import Rules
from jboost.serving.metrics import Requests
from jboost.serving.refusal import Refusal
from jboost.serving.service import Service


@pytest.fixture(scope="module")
def served(tmp_path_factory: Any) -> Iterator[tuple[Service, Any]]:
    service = service_of(tmp_path_factory.mktemp("served"))
    application = web.Web(service, Rules(hosts=guard.hosts_for("127.0.0.1")), 100_000)
    with over_http(application) as client:
        xs, _ = stream(1)
        assert client.post("/predict", json={"features": features(xs[0])}).status_code == 200
        yield service, client


@pytest.fixture
def client(served: tuple[Service, Any]) -> Any:
    return served[1]


def error_of(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    (sentence,) = response.json().values()
    assert 10 < len(sentence) < 400 and "Traceback" not in sentence
    return sentence


def test_rows_come_in_every_form_and_give_the_bits_of_a_run(
    served: tuple[Service, Any],
) -> None:
    service, client = served
    xs, ds = stream(80)
    asked = [{"id": f"r{i}", "features": features(x)} for i, x in enumerate(xs)]
    answers = [{"id": f"r{i}", "answer": float(d)} for i, d in enumerate(ds)]
    first = client.post("/predict", json=asked[0]).json()
    assert first["id"] == "r0" and "prediction" in first and len(first["interval"]) == 2
    assert client.post("/learn", json=answers[0]).json() == {"learned": True}
    assert len(client.post("/models/newton/predict", json=asked[1:20]).json()) == 19
    assert client.post("/learn", json=answers[1:20]).json() == [{"learned": True}] * 19
    lines = {"Content-Type": rows.LINES}
    body = "".join(json.dumps(row) + "\n" for row in asked[20:40])
    reply = client.post("/predict", content=body, headers=lines)
    assert reply.headers["content-type"].startswith(rows.LINES)
    assert [json.loads(line)["id"] for line in reply.text.splitlines()][::19] == ["r20", "r39"]
    body = "".join(json.dumps(row) + "\n" for row in answers[20:40])
    assert client.post("/learn", content=body, headers=lines).text.count('"learned": true') == 20
    table = {"id": [f"r{i}" for i in range(40, 60)]}
    table |= {name: xs[40:60, i] for i, name in enumerate("uvw")}
    found = pa.ipc.open_stream(client.post("/predict", **arrow(table)).content).read_all()
    assert found.column_names == ["prediction", "id", "lower", "upper"] and len(found) == 20
    reply = client.post("/learn", **arrow({"id": table["id"], "answer": ds[40:60]}))
    assert reply.json() == [{"learned": True}] * 20
    at_once = {name: xs[60:, i] for i, name in enumerate("uvw")} | {"y": ds[60:]}
    assert client.post("/learn", **arrow(at_once)).status_code == 200
    state, trace = run_of("newton", xs, ds, 0.9)
    assert same_bits(service.streams["newton"].now.leading.state, state)
    (model,) = client.get("/models").json()["models"]
    assert model == client.get("/models/newton").json()
    assert model["name"] == "newton" and model["rows"] == 80 and model["columns"] == [*"uvw"]
    error = np.square(np.float64(trace.prediction) - ds).mean()
    assert model["errors"]["mse"] == pytest.approx(error)
    assert {*model["controls"]} == {"running mean", "last value"}
    assert 0.5 < model["intervals"]["inside"] <= 1 and model["open_questions"] == 0


def arrow(columns: Any) -> dict[str, Any]:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"content": sink.getvalue().to_pybytes(), "headers": {"Content-Type": rows.ARROW}}


GOOD = {"u": 1.0, "v": 2.0, "w": 3.0}
BAD = [
    ("/predict", b"{", 400, "the body is no JSON"),
    ("/predict", b"\xff\xfe", 400, "no JSON"),
    ("/predict", b"[" * 100_000, 400, "nested too deeply"),
    ("/predict", b"[]", 422, "no rows"),
    ("/predict", b"3", 422, "must be a JSON object; got 3"),
    ("/predict", b'{"features": {"u": NaN}}', 422, "NaN is no number of JSON"),
    ("/predict", b'{"features": {"u": 1e999}}', 200, ""),
    ("/predict", b'{"features": {"u": 1, "v": 2, "u": 3}}', 422, "'u' is given twice"),
    ("/predict", b'[{"features": {}}, {"features": {"u": 1}, "features": {}}]', 422, "given twice"),
    ("/learn", b'{"id": "a:b", "answer": 1, "answer": 2}', 422, "'answer' is given twice"),
    ("/learn", b'{"features": {"u": Infinity}, "answer": 1}', 422, "Infinity is no number"),
    ("/learn", b'{"features": {"u": 1}, "answer": -1e999}', 422, "answer must be a number"),
    ("/predict", b'{"features": {"u": ' + b"9" * 5000 + b"}}", 400, "no JSON"),
    ("/predict", {}, 422, "must have features"),
    ("/predict", {"features": 3}, 422, "features must be a JSON object"),
    ("/predict", {"features": {"u": [1]}}, 422, r"the value of 'u' must be"),
    ("/predict", {"features": {"u": "1"}}, 422, "'u' must be a number"),
    ("/predict", {"features": {"u": "\ud800"}}, 422, "no Unicode text"),
    ("/predict", {"features": {"u": "x" * 2000}}, 422, "more than 1,000 characters"),
    ("/predict", {"features": {"U": 1}}, 422, "did you mean 'u'"),
    ("/predict", {"features": {"\ud800\n": 1}}, 422, "no column"),
    ("/predict", {"features": GOOD, "id": ""}, 422, "an id must be"),
    ("/predict", {"features": GOOD, "id": "x" * 201}, 422, "an id must be"),
    ("/predict", {"features": GOOD, "id": "a\0b"}, 422, "an id must be"),
    ("/predict", {"features": GOOD, "id": True}, 422, "an id must be"),
    ("/predict", {"features": GOOD, "id": "\ud800"}, 422, "an id must be"),
    ("/predict", {"features": GOOD, "time": "noon"}, 422, "no column 'time'"),
    ("/predict", {"features": GOOD, "key": "a"}, 422, "leave out 'key'"),
    ("/predict", {"features": GOOD, "answer": 1}, 422, "'answer' is unknown here"),
    ("/predict", [{"features": GOOD}, {"features": {"u": {}}}], 422, "row 2: the value"),
    ("/learn", {"features": GOOD}, 422, "answer must be a number"),
    ("/learn", {"features": GOOD, "answer": None}, 422, "answer must be a number"),
    ("/learn", {"features": GOOD, "answer": "3"}, 422, "answer must be a number"),
    ("/learn", {"features": GOOD, "answer": True}, 422, "answer must be a number"),
    ("/learn", {"features": GOOD, "answer": 1e16}, 422, "answer must be a number below 1e"),
    ("/learn", {"features": GOOD, "answer": 10**400}, 422, "answer must be a number"),
    ("/learn", {"answer": 1.0}, 422, "must have an id, or features"),
    ("/learn", {"id": "unknown", "answer": 1.0}, 404, "no open question 'unknown'"),
    ("/models/other/predict", {"features": GOOD}, 404, "no model 'other'"),
    ("/models/newton/promote", {"shadow": "x"}, 409, "there is none"),
    ("/models/newton/promote", {"shadow": 3}, 422, "shadow must be"),
    ("/models/newton/promote", {"other": 3}, 422, "the body must be"),
    ("/models/newton/drop", {"shadow": "newton"}, 409, "name the shadow to drop: there is none"),
    ("/models/newton/drop", b"{}{}", 400, "no JSON"),
    ("/predict", b" " * 100_001, 413, "a body may have 100,000 bytes"),
]


@pytest.mark.parametrize(("path", "body", "status", "words"), BAD, ids=range(len(BAD)))
def test_a_bad_request_gets_a_sentence_and_changes_nothing(
    served: tuple[Service, Any], path: str, body: Any, status: int, words: str
) -> None:
    service, client = served
    before = service.streams["newton"].now
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = client.post(path, content=content, headers={"Content-Type": "application/json"})
    if words:
        assert words in error_of(reply, status)
    assert reply.status_code == status
    assert service.streams["newton"].now is before and service.log.open("newton") == 0


@pytest.mark.parametrize(
    "content", [b"", b"ARROW", b"\xff\xff\xff\xff\0\0\0\0", arrow({"u": ["text"]})["content"]]
)
def test_bad_arrow_is_refused(client: Any, content: bytes) -> None:
    reply = client.post("/learn", content=content, headers={"Content-Type": rows.ARROW})
    assert reply.status_code in (400, 422), reply.text
    assert error_of(reply, reply.status_code)


def test_other_media_types_and_methods_are_refused(client: Any) -> None:
    assert "application/json" in error_of(client.post("/predict", data={"a": "b"}), 415)
    assert "another method" in error_of(client.get("/predict"), 405)
    assert "nothing here" in error_of(client.get("/../etc/passwd"), 404)
    assert "nothing here" in error_of(client.get("/page/index.html"), 404)
    many = [{"features": GOOD}] * (rows.MOST_ROWS + 1)
    large = {"Content-Type": "application/x-ndjson"}
    assert client.post("/predict", content=json.dumps(many), headers=large).status_code == 413


def test_health_metrics_and_descriptions(client: Any) -> None:
    assert client.get("/healthz").json() == {"alive": True}
    assert client.get("/readyz").json() == {"ready": True}
    text = client.get("/metrics").text
    assert 'jboost_requests_total{route="predict",status="200"}' in text
    assert 'jboost_mse{model="newton",of="model"}' in text and 'le="+Inf"' in text
    for line in text.splitlines():
        assert line.startswith("# TYPE") or float(line.rpartition(" ")[2]) is not None
    document = client.get("/openapi.json").json()
    assert document == json.loads(json.dumps(openapi.document()))
    page = client.get("/docs").text
    assert all(path in page for path in document["paths"])
    for path in ("/", "/page.js", "/page.css", "/docs"):
        reply = client.get(path)
        assert reply.status_code == 200
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "//" not in reply.text.replace("http://www.w3.org/2000/svg", "").replace("// ", "")


def test_another_name_of_the_host_is_refused(client: Any) -> None:
    for host in ("evil.example", "", "localhost.evil.example:8000"):
        assert error_of(client.get("/models", headers={"Host": host}), 421)
    for host in ("localhost:1", "127.0.0.1:8000", "[::1]:8000"):
        assert client.get("/models", headers={"Host": host}).status_code == 200


def test_a_token_guards_everything_but_the_empty_page(tmp_path: Path) -> None:
    application = web.Web(service_of(tmp_path), Rules(token=TOKEN))
    with over_http(application) as client:
        for path in ("/models", "/metrics", "/events", "/models/newton", "/nothing"):
            assert "a token is needed" in error_of(client.get(path), 401)
        for token in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"):
            reply = client.post("/learn", headers={"Authorization": token}, json={})
            assert error_of(reply, 401) and reply.headers["www-authenticate"] == "Bearer"
        allowed = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get("/models", headers=allowed).status_code == 200
        for path in ("/", "/page.js", "/page.css", "/docs", "/healthz", "/readyz"):
            assert client.get(path).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(client: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(exchange, "SLOWEST_BODY", 0.2)
    for sent in (b"", b'{"features"'):
        with socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
            head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
            slow.sendall(head + b"Content-Type: application/json\r\n\r\n" + sent)
            assert b" 408 " in slow.recv(4096)


ROW = json.dumps({"features": GOOD, "answer": 1.0}).encode()
HEAD = b"POST /learn HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("lengths", "body"),
    [
        (b"Content-Length: 9\r\n", ROW),  # too small: the rest is no request
        (b"Content-Length: 999\r\n", ROW),  # too large, and then the client leaves
        (b"Content-Length: -1\r\n", ROW),
        (b"Content-Length: 1e1\r\n", ROW),
        (b"Content-Length: 9\r\nContent-Length: %d\r\n" % len(ROW), ROW),
        (
            b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n",
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(ROW), ROW),
        ),
        (b"Transfer-Encoding: chunked\r\n", b"fffffffffffffffff\r\n" + ROW),
        (b"Transfer-Encoding: chunked\r\n", b"zz\r\n" + ROW),
        (b"Transfer-Encoding: identity\r\n", ROW),
    ],
    ids=range(9),
)
def test_a_body_that_lies_about_its_length_changes_nothing(
    served: tuple[Service, Any], lengths: bytes, body: bytes
) -> None:
    service, client = served
    before, replies = service.streams["newton"].now, b""
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=30) as connection:
        connection.sendall(HEAD + lengths + b"\r\n" + body)
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65536):
            replies += piece
    assert b" 200 " not in replies and b" 50" not in replies and b"Traceback" not in replies
    assert replies == b"" or replies.startswith(b"HTTP/1.1 4")
    assert client.get("/healthz").status_code == 200
    assert service.streams["newton"].now is before


def test_the_bodies_of_all_requests_are_bounded() -> None:
    budget = exchange.Budget(100)
    budget.take(exchange.MOST_BYTES)
    with pytest.raises(Refusal, match="too much is being sent at once"):
        budget.take(1)
    budget.give_back(exchange.MOST_BYTES)
    budget.take(1)


def test_the_field_time_is_the_column_of_times(tmp_path: Path) -> None:
    application = web.Web(service_of(tmp_path), Rules())
    with over_http(application) as client:
        row = {"time": "2024-05-06T07:08:09", "features": {"u": 1.0}}
        assert client.post("/predict", json=row).status_code == 200
        assert client.get("/models/newton").json()["columns"] == ["u", "time"]
        assert client.post("/learn", json=row | {"answer": 1}).json() == {"learned": True}
        twice = row | {"features": {"u": 1.0, "time": "2024-05-06"}}
        assert "given twice" in error_of(client.post("/predict", json=twice), 422)
        late = row | {"time": "late"}
        assert "is no time like iso" in error_of(client.post("/predict", json=late), 422)


def test_a_rate_is_kept_for_each_address() -> None:
    now = 0.0
    buckets = guard.Buckets(2.0, 3.0, lambda: now)
    assert [buckets.take("a") for _ in range(5)] == [True, True, True, False, False]
    assert buckets.take("b")
    now = 1.0
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    for i in range(guard.MOST_CLIENTS + 10):
        buckets.take(str(i))
    assert len(buckets._left) == guard.MOST_CLIENTS


def test_too_many_requests_get_429(tmp_path: Path) -> None:
    application = web.Web(service_of(tmp_path), Rules(rate=1.0, burst=3.0))
    with over_http(application) as client:
        replies = [client.get("/healthz") for _ in range(8)]
    assert replies[0].status_code == 200
    assert error_of(replies[-1], 429) and replies[-1].headers["retry-after"] == "1"


def test_times_are_counted_in_constant_memory() -> None:
    requests = Requests()
    for i in range(5000):
        requests.add("predict", 200, 0.001 * (1 + i % 100))
        requests.add(f"route {i}", 404, 1.0)
    assert len(requests.times) == 64 and len(requests.recent["predict"]) == 2000
    found = requests.quantiles("predict")
    assert found["p50"] == pytest.approx(0.0505) and found["p99"] == pytest.approx(0.09901)
    assert requests.quantiles("nothing") == {}


def test_json_is_written_and_read_as_python_does() -> None:
    replies = [{"id": name, "prediction": y} for name in ("a", '"\\', "é\u2028", "\x7f")
               for y in (1.5, -0.0, 1e-300, 1e22, None)]  # fmt: skip
    replies += [{"prediction": 1.0}, {"id": "a", "prediction": 1.0, "interval": [0.5, None]}]
    for reply in replies:
        job: Any = SimpleNamespace(refusal=None, reply=[reply], learn=False)
        _, text = exchange.written(rows.Body([], rows.JSON, single=True), job)
        assert text.decode() == json.dumps(reply)
    for text in ('{"a": [1, {}]}', "[]", "1", '"a"', "null"):
        for before, behind in (("", ""), (" ", ""), ("", "\r\n"), ("\t", " \n")):
            assert rows.loads(f"{before}{text}{behind}".encode()) == json.loads(text)
        for wrong in (f"{text},", f"{text}\u00a0", f"\u00a0{text}", f"{text}{text}]", ""):
            with pytest.raises(Refusal, match="the body is no JSON"):
                rows.loads(wrong.encode())
