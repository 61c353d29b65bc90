"""Makes numbers of the features of single samples: text, dates and times beside numbers.

As in the command, a text gets a column of its own, which is 1 where the feature has that text, and
a time becomes the columns of :class:`jboost.Calendar`. Both are columns with names of their own.
"""

from __future__ import annotations

import datetime
from collections.abc import Container, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jboost.adapters.numbers import as_number
from jboost.files.choice import MOST_PLACES
from jboost.files.columns import bucket
from jboost.files.numerals import looks_like_a_number, reads_as_complex
from jboost.transforms import calendar

PLAIN = frozenset({float, int, bool})  # types that need no look
TIMES = (datetime.datetime, datetime.date, np.datetime64)


class Place(NamedTuple):
    """The name of a column that a feature became: of a text, or of a cycle of times."""

    feature: Hashable
    detail: str


class Kinds(NamedTuple):
    """What features hold that are not numbers, by their names."""

    texts: Mapping[Hashable, Mapping[str, int]] = {}
    times: Mapping[Hashable, int] = {}


def is_plain(x: Mapping[Hashable, Any]) -> bool:
    """Whether all values are numbers."""
    return PLAIN.issuperset(map(type, x.values()))


def expanded(
    kinds: Kinds, x: Mapping[Hashable, Any], numeric: Container[Hashable], *, learn: bool
) -> tuple[Kinds, dict[Hashable, Any]]:
    """Return the numbers of a sample by the names of their columns; None is a missing value.

    ``numeric`` has the names of features that are numbers. New texts get a number where the sample
    is to be learned; otherwise they have no column.
    """
    numbers: dict[Hashable, Any] = {}
    for name, value in x.items():
        if name in numeric:
            numbers[name] = value  # text is refused where numbers are made of it
        elif isinstance(value, str):
            kinds, text = _text(kinds, name, value, learn=learn)
            if text is not None:
                numbers[Place(name, text)] = 1.0
        elif isinstance(value, TIMES):
            kinds, columns = _time(kinds, name, value, learn=learn)
            numbers |= columns
        elif name in kinds.texts or name in kinds.times:
            if value is not None and value == value:  # NaN is missing, and so is NaT
                held = "text" if name in kinds.texts else "times"
                raise TypeError(f"{name!r:.60} held {held} before; got {value!r:.60}")
        elif value is not None:  # a feature that is missing now may be a text later
            numbers[name] = value
    return kinds, numbers


def _text(kinds: Kinds, name: Hashable, text: str, *, learn: bool) -> tuple[Kinds, str | None]:
    """Return the text whose column this text has, None where it has none."""
    numbers = kinds.texts.get(name, {})
    if text in numbers:
        return kinds, text
    if len(numbers) >= MOST_PLACES:  # it shares the column of another
        return kinds, [*numbers][bucket(str(name), text, MOST_PLACES)]
    if not learn or not text.strip():
        return kinds, None
    if looks_like_a_number(text) or reads_as_complex(text):
        as_number(name, text)  # which refuses it
    texts = {**kinds.texts, name: {**numbers, text: len(numbers)}}
    return kinds._replace(texts=texts), text


def _time(
    kinds: Kinds, name: Hashable, value: Any, *, learn: bool
) -> tuple[Kinds, dict[Hashable, Any]]:
    instant, wall = _instant(value), _instant(value, wall=True)
    if np.isnat(instant):
        return kinds, {}
    if name not in kinds.times and learn:
        kinds = kinds._replace(times={**kinds.times, name: int(instant.astype(np.int64))})
    origin = kinds.times.get(name, int(instant.astype(np.int64)))
    made = calendar.of_instants(calendar.CYCLES, wall[None], instant[None], origin)
    names = calendar.names(calendar.CYCLES)
    return kinds, {Place(name, n): float(v[0]) for n, v in zip(names, made, strict=True)}


def _instant(value: Any, *, wall: bool = False) -> np.ndarray:
    """Return a time as datetime64[us], in UTC, or as the clock on the ``wall`` shows it."""
    if value != value:  # NaT of pandas
        return np.asarray(np.datetime64("NaT", "us"))
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value if wall else value.astimezone(datetime.UTC)
        value = value.replace(tzinfo=None)
    return np.asarray(np.datetime64(value, "us"))
