"""Reads and checks the rows of a request: JSON, JSON lines or Arrow."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from jboost.core import checks, extras
from jboost.core.numerics import LARGEST
from jboost.serving.refusal import Refusal, bad

Features = dict[str, Any]  # numbers, texts, truth values or None, by the names of columns

JSON, LINES = "application/json", "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
KINDS = (JSON, LINES, ARROW)
MOST_ROWS = 10_000  # of a request
LONGEST_ID, LONGEST_NAME, LONGEST_TEXT = 200, 200, 1000  # characters
ASKED = ("id", "time", "features")
ANSWERED = (*ASKED, "answer")
# The fields of a row, by whether it has an answer, and whether a key.
ALLOWED = {
    (learn, keyed): dict.fromkeys((*(ANSWERED if learn else ASKED), *(("key",) if keyed else ())))
    for learn in (False, True)
    for keyed in (False, True)
}
PLAIN = frozenset({float, int, bool, type(None)})


LONGEST_COPIED = 4096  # characters of features that are kept as they came, spaces and all


class _UnusableError(Exception):
    """What Python would read, and no two programs alike; the message is a sentence."""


def _refuse_constant(constant: str) -> NoReturn:
    raise _UnusableError(f"{constant} is no number of JSON; send null where a value is missing")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        odd = next(name for name in fields if names.count(name) > 1)
        raise _UnusableError(f"{shown(odd)} is given twice in one object; send it once")
    return fields


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
SPACES = " \t\n\r"  # of JSON
STRICT = json.JSONDecoder(object_pairs_hook=_refuse_repeated, parse_constant=_refuse_constant)


class Row(NamedTuple):
    """One row of a request."""

    features: Features | None  # None for an answer to an open question
    id: str | None = None
    answer: float = math.nan  # NaN for a question
    text: str | None = None  # the features as JSON, where the body has them at hand


class Body(NamedTuple):
    """The rows of a request, and how they came."""

    rows: list[Row]
    kind: str  # one of KINDS
    single: bool  # whether the request was one JSON object


def read(
    content: bytes, kind: str, *, learn: bool, time: str, target: str, key: str | None = None
) -> Body:
    """Return the rows of a body.

    Args:
      content: the bytes of the body.
      kind: its media type, one of ``KINDS``.
      learn: whether each row has an answer.
      time: the name of the column that the field "time" stands for.
      target: the name of the column that an Arrow table has the answers in.
      key: the name of the column that the field "key" stands for; None where there are no keys.
    """
    if kind == ARROW:
        objects = _arrow_objects(content, target if learn else None)
    elif kind == LINES:
        lines = (line for line in content.split(b"\n") if line.strip())
        objects = [loads(line, f"line {i}: ") for i, line in enumerate(lines, 1)]
    else:
        objects = loads(content)
        if not isinstance(objects, list):
            row = _row(objects, learn, time, key, "")
            if row.features == objects.get("features"):  # nothing was added to them
                row = Row(row.features, row.id, row.answer, _text_of_features(content))
            return Body([row], kind, single=True)
    if not objects:
        raise bad("the request has no rows; send at least one")
    if len(objects) > MOST_ROWS:
        raise Refusal(413, f"a request may have {MOST_ROWS:,} rows; got {len(objects):,}")
    rows = [_row(fields, learn, time, key, f"row {i}: ") for i, fields in enumerate(objects, 1)]
    return Body(rows, kind, single=False)


def _text_of_features(content: bytes) -> str | None:
    """Return the features of a row as its body has them; None where that takes more than a look."""
    # Neither a text nor a name holds a brace, so these are of the row and of its features.
    if content.count(b"{") != 2 or content.count(b"}") != 2:
        return None
    text = content[content.rindex(b"{") : content.index(b"}") + 1]
    return text.decode() if len(text) <= LONGEST_COPIED else None


def loads(content: bytes, prefix: str = "") -> Any:
    """Return what JSON says; what Python would read beyond JSON is refused.

    So is a name that an object has twice: which of the two values counts, JSON leaves open.
    """
    try:
        text = content.decode()
        found = _decoded(text)
        # A colon follows each name. If there are more, texts hold some, or a name stands twice.
        return found if text.count(":") == _names(found) else STRICT.decode(text)
    except _UnusableError as error:
        raise bad(f"{prefix}{error}") from None
    except RecursionError:
        raise Refusal(400, f"{prefix}the JSON is nested too deeply") from None
    except ValueError as error:  # of JSON, or of UTF-8
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        raise Refusal(400, f"{prefix}the body is no JSON: {checks.printable(reason)}") from None


def _decoded(text: str) -> Any:
    """Return ``DECODER.decode(text)``, which looks for spaces before and behind for long."""
    if text[:1] in ("{", "["):
        found, end = DECODER.raw_decode(text)
        if not text[end:].strip(SPACES):
            return found
    return DECODER.decode(text)


def _names(found: Any) -> int:
    """Return how many names there are in a row, or in a list of rows, and in their features."""
    count = 0
    for row in found if isinstance(found, list) else (found,):
        if isinstance(row, dict):
            features = row.get("features")
            count += len(row) + (len(features) if isinstance(features, dict) else 0)
    return count


def _row(fields: object, learn: bool, time: str, key: str | None, prefix: str) -> Row:
    """Return one row; ``prefix`` says in a sentence which one is wrong."""
    if not isinstance(fields, dict):
        raise bad(f"{prefix}a row must be a JSON object; got {shown(fields)}")
    allowed = ALLOWED[learn, key is not None]
    if not allowed.keys() >= fields.keys():
        if "key" in fields:
            raise bad(f"{prefix}this server keeps no model for each key; leave out 'key'")
        odd = next(name for name in fields if name not in allowed)
        raise bad(f"{prefix}{shown(odd)} is unknown here; a row has {', '.join(allowed)}")
    row_id, features = fields.get("id"), fields.get("features")
    if row_id is not None:
        row_id = _id(row_id, prefix)
    if features is None and not (learn and row_id is not None and "time" not in fields):
        expected = "an id, or features" if learn else "features"
        raise bad(f"{prefix}a row must have {expected}")
    if features is not None:
        features = _features(features, prefix)
        if fields.get("time") is not None:
            if time in features:
                raise bad(f"{prefix}the time is given twice, as 'time' and as {shown(time)}")
            features = features | {time: _value(time, fields["time"], prefix)}
        if key is not None:
            features = features | {key: _key(fields, features, key, prefix)}
    return Row(features, row_id, _answer(fields, prefix) if learn else math.nan)


def _key(fields: Mapping[str, Any], features: Features, key: str, prefix: str) -> str:
    """Return the key of a row, which may stand among its features."""
    if ("key" in fields) == (key in features):
        how = "twice" if key in features else "not at all"
        raise bad(f"{prefix}the key must be given once, as 'key' or {shown(key)}; it is {how}")
    return _id(fields.get("key", features.get(key)), prefix, "a key")


def _id(value: object, prefix: str, what: str = "an id") -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return str(value)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID or not value.isprintable():
        expected = f"a text of 1 to {LONGEST_ID} printable characters, or a whole number"
        raise bad(f"{prefix}{what} must be {expected}; got {shown(value)}")
    return value


def _answer(fields: Mapping[str, Any], prefix: str) -> float:
    value = fields.get("answer")
    is_flag = isinstance(value, bool)
    if isinstance(value, (int, float)) and not is_flag and abs(value) < LARGEST:
        return float(value)
    raise bad(f"{prefix}answer must be a number below {LARGEST:g} in size; got {shown(value)}")


def _features(features: object, prefix: str) -> Features:
    if not isinstance(features, dict):
        raise bad(
            f"{prefix}features must be a JSON object of values by column; got {shown(features)}"
        )
    if PLAIN.issuperset(map(type, features.values())):
        return features
    return {name: _value(name, value, prefix) for name, value in features.items()}


def _value(name: str, value: object, prefix: str) -> Any:
    if type(value) in PLAIN:
        return value
    if not isinstance(value, str):
        expected = "a number, a text, true, false or null"
        raise bad(f"{prefix}the value of {shown(name)} must be {expected}; got {shown(value)}")
    if len(value) > LONGEST_TEXT:
        raise bad(f"{prefix}the text of {shown(name)} has more than {LONGEST_TEXT:,} characters")
    if not is_text(value):
        raise bad(f"{prefix}the text of {shown(name)} is no Unicode text")
    return value


def is_text(value: str) -> bool:
    """Return whether a text can be stored: JSON can hold halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """Return a value as a sentence can show it: short, and in printable characters."""
    return checks.printable(reprlib.repr(value))[:80]


def _arrow_objects(content: bytes, target: str | None) -> list[dict[str, Any]]:
    """Return the rows of an Arrow stream as a JSON body would have them.

    The column "id" has ids, the column of the target, or "answer", has answers; all other columns
    are features.
    """
    pa, ipc = extras.need("pyarrow", "io"), extras.need("pyarrow.ipc", "io")
    try:
        table = ipc.open_stream(content).read_all()
        table.validate(full=True)
        if table.num_rows > MOST_ROWS:
            raise Refusal(413, f"a request may have {MOST_ROWS:,} rows; got {table.num_rows:,}")
        names = table.column_names
        if len({*names}) < len(names):
            raise bad("the Arrow table has two columns of one name")
        for i, field in enumerate(table.schema):
            if pa.types.is_temporal(field.type):  # JSON has no times: they come as ISO texts
                table = table.set_column(i, field.name, table.column(i).cast(pa.string()))
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, UnicodeError, ValueError) as error:
        reason = checks.printable(str(error).partition("\n")[0])[:200]
        raise Refusal(400, f"the body is no Arrow stream: {reason}") from None
    objects = []
    for features in rows:
        fields: dict[str, Any] = {"features": features}
        if "id" in features:
            fields["id"] = features.pop("id")
        if target is not None:
            fields["answer"] = features.pop(target if target in features else "answer", None)
            if not features:
                del fields["features"]
        objects.append(fields)
    return objects
