"""The description of the server's interface, as OpenAPI and as a page to read."""

from __future__ import annotations

import html
from importlib.metadata import version
from typing import Any

from jboost.core import extras
from jboost.reports import page as pages
from jboost.serving.rows import ARROW, JSON, LINES, LONGEST_ID

VALUE = {"type": ["number", "string", "boolean", "null"]}
ID = {
    "oneOf": [{"type": "string", "minLength": 1, "maxLength": LONGEST_ID}, {"type": "integer"}],
    "description": "names the question; its features are kept until the answer comes",
}
KEY = ID | {"description": "names the stream of the row, where there is a model for each key"}
TIME = {
    "type": ["string", "number"],
    "description": "when it was; the same as the feature of the time column",
}
FEATURES = {
    "type": "object",
    "additionalProperties": VALUE,
    "description": "values by column; null, or left out, where one is missing",
}
ESTIMATE = {"type": ["number", "null"]}
INTERVAL = {"type": "array", "items": ESTIMATE, "minItems": 2, "maxItems": 2}
ANSWER = {"type": "number", "description": "what the target turned out to be"}
SCHEMAS: dict[str, Any] = {
    "Question": {
        "type": "object",
        "properties": {"id": ID, "key": KEY, "time": TIME, "features": FEATURES},
        "required": ["features"],
        "additionalProperties": False,
    },
    "Answer": {
        "type": "object",
        "properties": {"id": ID, "key": KEY, "time": TIME, "features": FEATURES, "answer": ANSWER},
        "required": ["answer"],
        "additionalProperties": False,
        "description": "the id of an open question, or features to learn from at once",
    },
    "Prediction": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "prediction": ESTIMATE,
            "interval": INTERVAL,
            "horizons": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"prediction": ESTIMATE, "interval": INTERVAL},
                    "required": ["prediction"],
                },
                "description": "of a forecaster: the next rows, the nearest first",
            },
        },
        "required": ["prediction"],
    },
    "Learned": {
        "type": "object",
        "properties": {"learned": {"const": True}},
        "required": ["learned"],
    },
    "Error": {
        "type": "object",
        "properties": {"error": {"type": "string"}},
        "required": ["error"],
    },
}
REFUSALS = {
    "400": "the body cannot be read",
    "401": "a token is needed",
    "404": "there is no such model, or no such question",
    "408": "the body came too slowly",
    "413": "the body or the batch is too large",
    "415": "the media type is none of those that are read",
    "421": "the server is not called so",
    "422": "a value is none that can be used; nothing was changed",
    "429": "too many requests at once",
    "507": "the disk is full; nothing was changed",
}
SUMMARIES = {
    "/predict": "Predict the target of one row or of many; keep those that have an id.",
    "/learn": "Learn answers. The reply comes once they are durable; an id is learned once.",
    "/promote": "Let a shadow predict from now on; the model before becomes a shadow.",
    "/drop": "Let a shadow learn no more; its last checkpoint stays in the folder.",
    "/models": "List the models: rows learned, errors, controls.",
    "/healthz": "Say whether the server is alive.",
    "/readyz": "Say whether the server is warm and can write its log.",
    "/metrics": "Give the figures that Prometheus reads.",
    "/events": "Send the figures of the page, about once a second, as server-sent events.",
}
NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(name: str, *, lines: bool = True) -> dict[str, Any]:
    row = _reference(name)
    many = {"type": "array", "items": row, "minItems": 1}
    content: dict[str, Any] = {JSON: {"schema": {"oneOf": [row, many]}}}
    if lines:
        content[LINES] = {"schema": {"type": "string"}}
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return content


def _responses(good: dict[str, Any], *statuses: str) -> dict[str, Any]:
    error = {JSON: {"schema": _reference("Error")}}
    refused = {s: {"description": REFUSALS[s], "content": error} for s in statuses or REFUSALS}
    return {"200": good} | refused


def document() -> dict[str, Any]:
    """Return the description as OpenAPI has it."""
    paths: dict[str, Any] = {}
    for prefix, parameters in (("", []), ("/models/{name}", [NAME])):
        for path, asked, reply in (("/predict", "Question", "Prediction"),
                                   ("/learn", "Answer", "Learned")):  # fmt: skip
            body = {"required": True, "content": _content(asked)}
            good = {"description": "one reply for each row", "content": _content(reply)}
            operation = {"summary": SUMMARIES[path], "requestBody": body}
            operation["responses"] = _responses(good)
            paths[prefix + path] = {"post": operation, "parameters": parameters}
    any_json = {JSON: {"schema": {"type": "object"}}}
    label = {"type": "object", "properties": {"shadow": {"type": "string"}},
             "additionalProperties": False}  # fmt: skip
    for path in ("/promote", "/drop"):
        change = {
            "summary": SUMMARIES[path],
            "requestBody": {"required": False, "content": {JSON: {"schema": label}}},
            "responses": _responses({"description": "the label of the model", "content": any_json})
            | {"409": {"description": "it has no such shadow", "content": any_json}},
        }
        paths["/models/{name}" + path] = {"post": change, "parameters": [NAME]}
    texts = {"/metrics": "text/plain", "/events": "text/event-stream"}
    for path in ("/models", "/healthz", "/readyz", "/metrics", "/events"):
        kind = texts.get(path, JSON)
        content = {kind: {"schema": {"type": "object" if kind == JSON else "string"}}}
        responses = _responses({"description": "as asked", "content": content},
                               "401", "404", "421", "429")  # fmt: skip
        if path.endswith("z"):
            responses["503"] = {"description": "it is not", "content": any_json}
        paths[path] = {"get": {"summary": SUMMARIES[path], "responses": responses}}
    model = _responses({"description": "as asked", "content": any_json}, "401", "404", "421", "429")
    summary = "Say how one model does."
    paths["/models/{name}"] = {"get": {"summary": summary, "responses": model},
                               "parameters": [NAME]}  # fmt: skip
    search = {"name": "search", "in": "query", "schema": {"type": "string"}}
    summary = "List the keys with the largest errors, of those whose names contain a text."
    paths["/models/{name}/keys"] = {"get": {"summary": summary, "responses": model},
                                    "parameters": [NAME, search]}  # fmt: skip
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "jboost serve", "version": version("jboost")},
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"token": bearer}},
        "security": [{}, {"token": []}],
    }


EXAMPLES = {
    "/predict": '{"id": "trip-7", "features": {"distance": 3.2, "rain": false, "zone": "north"}}',
    "/learn": '{"id": "trip-7", "answer": 512}',
    "/promote": '{"shadow": "new"}',
    "/drop": '{"shadow": "new"}',
}


def page() -> str:
    """Return the description as a page that needs nothing else."""
    sections = []
    for path, item in document()["paths"].items():
        method = "post" if "post" in item else "get"
        operation = item[method]
        text = f"<p>{html.escape(operation['summary'])}</p>"
        if example := EXAMPLES.get("/" + path.rpartition("/")[2]):
            text += pages.text(example, "pre")
        if "requestBody" in operation:
            kinds = ", ".join(operation["requestBody"]["content"])
            text += f"<p>Body: {html.escape(kinds)}</p>"
        replies = [[s, r["description"]] for s, r in operation["responses"].items()]
        sections.append((f"{method.upper()} {path}", text + pages.table([], replies)))
    page_text = pages.page("jboost serve: the interface", sections)
    style = page_text[page_text.index("<style>") : page_text.index("</style>") + len("</style>")]
    return page_text.replace(style, '<link rel="stylesheet" href="/page.css">')


def arrow_of(replies: list[dict[str, Any]]) -> bytes:
    """Return predictions as an Arrow stream, with ids, bounds and horizons where there are any."""
    pa, ipc = extras.need("pyarrow", "io"), extras.need("pyarrow.ipc", "io")
    columns = {"prediction": pa.array([r["prediction"] for r in replies], pa.float64())}
    if any("id" in reply for reply in replies):
        columns["id"] = pa.array([reply.get("id") for reply in replies], pa.string())
    if "interval" in replies[0]:
        for i, name in enumerate(("lower", "upper")):
            columns[name] = pa.array([reply["interval"][i] for reply in replies], pa.float64())
    if "horizons" in replies[0]:
        columns["horizons"] = pa.array([reply["horizons"] for reply in replies])
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
