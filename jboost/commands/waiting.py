"""Rows of a kept run that wait for what is known of the rows after them (``--known``)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jboost.core import Key, State, extras
from jboost.files.ahead import Timing
from jboost.files.encoding import Encoded, Labels
from jboost.files.lookahead import Lookahead, joined
from jboost.files.predictions import as_text as label_text
from jboost.forecasts import Forecast
from jboost.reports.horizons import observed
from jboost.reports.spans import as_text, from_text
from jboost.running.blocks import Block
from jboost.running.run import run


def as_dict(rows: Encoded | None) -> dict[str, Any] | None:
    """Return rows as they were read, as JSON can hold them; None for none."""
    if rows is None or not len(rows.d):
        return None
    labels = rows.labels
    times = {"instants": labels.instants, "wall": labels.wall}
    return {
        "x": as_text(rows.x),
        "d": as_text(rows.d),
        "bad": labels.bad.tolist(),
        "labels": {name: label_text(a).to_pylist() for name, a in labels.columns.items()},
        **{name: None if a is None else a.astype(np.int64).tolist() for name, a in times.items()},
    }


def from_dict(saved: Mapping[str, Any] | None) -> Encoded | None:
    """Return the rows that :func:`as_dict` described."""
    if saved is None:
        return None
    pa, dtype = extras.need("pyarrow", "io"), np.dtype(jnp.result_type(float))
    d = from_text(saved["d"]).astype(dtype)
    times = (
        None if saved[name] is None else np.array(saved[name], np.int64).view("datetime64[us]")
        for name in ("instants", "wall")
    )  # fmt: skip
    instants, wall = times
    columns = {name: pa.chunked_array([pa.array(a)]) for name, a in saved["labels"].items()}
    labels = Labels(columns, instants, np.array(saved["bad"], bool), wall)
    return Encoded(from_text(saved["x"]).reshape(len(d), -1).astype(dtype), d, labels)


def with_those_before(
    rows: Iterator[Encoded], before: Encoded | None, count: int
) -> Iterator[Encoded]:
    """Yield the first ``count`` of the rows that waited, which come before the others."""
    if before is not None and count > 0:
        yield before.cut(0, count)
    yield from rows


def with_last(pieces: Iterable[Encoded]) -> Iterator[tuple[Encoded, bool]]:
    """Yield pieces, and whether each is the last one."""
    held = None
    for piece in pieces:
        if held is not None:
            yield held, False
        held = piece
    if held is not None:
        yield held, True


def learned(
    model: Forecast, state: State, key: Key, rows: Encoded, start: int
) -> tuple[State, Block]:
    """Return the state after rows that a :class:`Lookahead` made, and their account."""
    state, trace = run(model, rows.x, rows.d, key, state, observed)
    host = {name: np.asarray(a) for name, a in trace.observed.items()}
    prediction, skipped, due = map(np.asarray, (trace.prediction, trace.skipped, trace.due))
    return state, Block(start, rows.d, prediction, skipped, host, due)


def caught_up(
    model: Forecast, state: State, key: Key, rows: Encoded, after: Sequence[Encoded],
    timing: Timing | None, start: int, latest: int | None,
) -> tuple[State, int | None]:  # fmt: skip
    """Return the state after the rows that wait, and the time of the latest one.

    ``after`` are rows that follow them, of which the known columns are read.
    """
    look = Lookahead(model.horizon, [number - 1 for number in model.known], timing, start)
    look.waiting = functools.reduce(joined, after, rows)
    state, block = learned(model, state, key, look.take(len(rows.d)), start)
    if timing is not None and rows.labels.wall is not None:
        at = timing.latest(rows.labels.wall, block.scored & ~block.skipped, latest)[-1]
        latest = None if np.isnat(at) else int(at.astype(np.int64))
    return state, latest
