"""Decides from the first rows of a table what its columns hold, and what they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jboost.core import checks
from jboost.files import columns as table_columns
from jboost.files import time_formats, times
from jboost.files.columns import BUCKETS, Column, Columns, DataError, RawBlock, text_codes
from jboost.files.numerals import PARTS, looks_like_a_number, reads_as_complex, reads_as_number
from jboost.files.reader import Reader, advice, cure, kind_of, likely_kind, unread

if TYPE_CHECKING:
    import pyarrow as pa

FEWEST_ROWS = 20  # with fewer, the number of different texts tells nothing of those to come
MOST_PLACES = 64  # for the texts of a column, unless a user asks for more
UNLIKE = 50, 0.5  # texts of which so many, and more than so many of all, differ name single rows

_LIKE_A_DATE = re.compile(r"(?<![^\W_])\d{1,4}[-/:. ].*(?<![^\W_])\d{1,4}(?![^\W_])")


class Wishes(NamedTuple):
    """What a user said about the columns; the arguments are :func:`jboost.files.sources.read`'s."""

    drop: Collection[str] = ()
    category: Collection[str] = ()
    ordinal: Mapping[str, Sequence[str]] = {}
    buckets: int | None = None
    time: str | None = None
    date_format: str | None = None
    time_zone: str = ""
    ids: Collection[str] = ()


def choose_columns(reader: Reader, target: str, wishes: Wishes) -> Columns:
    """Decide from the reader's sample."""
    if wishes.buckets is not None:
        checks.whole("buckets", wishes.buckets, at_least=2)
    for name, values in wishes.ordinal.items():
        if len(values) < 2 or len(set(values)) < len(values):
            expected = "at least two different values, the lowest first"
            raise ValueError(f"ordinal[{name!r}] must be {expected}; got {tuple(values)!r}")
    sample, label = reader.sample(), reader.label
    names = sample.table.schema.names
    asked = (target, *wishes.drop, *wishes.category, *wishes.ordinal, *wishes.ids)
    asked += () if wishes.time is None else (wishes.time,)
    table_columns.refuse_unknown(asked, names, label)
    _check_target(target, sample, reader)
    inputs, notes, time = [], [*reader.notes], None
    without = {target, *wishes.drop, *wishes.ids}
    for name in names:
        if name in without and name != wishes.time:
            continue
        held = sample.table.column(name).type
        if likely_kind(held) is None and name != wishes.time and name not in wishes.category:
            left_out = f"{name} holds {unread(held)}, and is left out"
            notes.append("; ".join(filter(None, (left_out, cure(held)))))
            continue
        column = _column(name, sample, reader, wishes)
        if name == wishes.time:
            time = column
        if column is None:
            notes.append(_unlike(name, sample))
        elif name not in without:
            inputs.append(column)
    forms = {column.format for column in (*inputs, time) if column is not None}
    if wishes.date_format is not None and wishes.date_format not in forms:
        problem = f"{label}: no column holds dates like {wishes.date_format!r}"
        raise DataError(problem, "correct --date-format, or leave it out")
    inputs = time_formats.joined(inputs, sample.table)
    if time is not None:
        time = next((c for c in inputs if time.name in c.parts), time)
    found = [c for c in inputs if c.kind == "time" and c.cycles != ("day",)]
    if time is None and found:
        time = found[0]
        if len(found) > 1:
            shown = ", ".join(column.name for column in found)
            notes.append(f"{shown} hold times; {time.name} labels the rows, or what --time names")
    if not inputs:
        problem = f"{label} has no column besides the target {target!r} to predict it from"
        raise DataError("; ".join([problem, *notes]))
    step = 0
    if time is not None:
        step = time_formats.step_between(times.read(sample.table, time).instants)
    return Columns(target, tuple(inputs), time, step, tuple(wishes.ids), notes=tuple(notes))


def describe(name: str, values: pa.ChunkedArray, label: str, buckets: int | None = None) -> Column:
    """Return what a column of a table in memory holds, from its values."""
    kind = kind_of(name, values.type, label)
    if kind == "category":
        if _share(values, reads_as_complex) > 0.5:
            raise DataError(f"{label}: the column {name!r} holds complex numbers; {PARTS}")
        return Column(name, kind, buckets or _places(values))
    time = time_formats.recognise(name, values, None, "", True, label) if kind == "time" else None
    return time or Column(name, kind)


def _column(name: str, sample: RawBlock, reader: Reader, wishes: Wishes) -> Column | None:
    """Return what a column holds; None for texts that name single rows."""
    values, label = sample.table.column(name), reader.label
    if name in wishes.category:
        kind_of(name, values.type, label)  # which refuses what cannot be text
        return Column(name, "category", wishes.buckets or _places(values))
    if name in wishes.ordinal:
        return Column(name, "ordinal", values=tuple(wishes.ordinal[name]))
    asked = name == wishes.time
    form = wishes.date_format
    time = time_formats.recognise(name, values, form, wishes.time_zone, asked, label)
    if time is None and form is not None:  # it is the format of another column
        time = time_formats.recognise(name, values, None, wishes.time_zone, asked, label)
    if time is not None:
        return time
    kind = kind_of(name, values.type, label)
    if kind != "category":
        return Column(name, kind)
    if reader.tolerant:
        for likely, test in (("number", _number_test(reader)), ("boolean", _is_boolean)):
            if _share(values, test) > 0.5:
                return Column(name, likely)
    elif _all_numbers(values, reader):
        return Column(name, "number")
    _refuse_numbers(name, sample, reader.decimal, advice(False))
    if _names_rows(values):
        return None
    return Column(name, kind, wishes.buckets or _places(values))


def _check_target(target: str, sample: RawBlock, reader: Reader) -> None:
    """Refuse a target that holds no numbers."""
    values = sample.table.column(target)
    kind = likely_kind(values.type)
    if kind == "category":
        few = len(values) - values.null_count < FEWEST_ROWS  # as a live feed begins
        likely = _share(values, _number_test(reader)) > 0.5
        if (reader.tolerant and (few or likely)) or _all_numbers(values, reader):
            return
        _refuse_numbers(target, sample, reader.decimal, advice(True))
    if kind != "number":
        called = {"boolean": "true and false", "category": "text", "time": "times"}
        holds = unread(values.type) if kind is None else called[kind]
        problem = f"the target {target!r} must hold numbers, and holds {holds}"
        raise DataError(f"{reader.label}: {problem}", cure(values.type) if kind is None else "")


def _places(values: pa.ChunkedArray) -> int:
    """Return how many places to reserve for the texts of a column."""
    if len(values) - values.null_count < FEWEST_ROWS:
        return BUCKETS
    different = _different(values)
    return min(different + max(different // 4, 2), MOST_PLACES)


def _different(values: pa.ChunkedArray) -> int:
    return len(np.setdiff1d(text_codes(values)[0], [-1]))


def _names_rows(values: pa.ChunkedArray) -> bool:
    """Whether nearly each row has another text, as identifiers and remarks do."""
    least, share = UNLIKE
    there = len(values) - values.null_count
    return there > least and _different(values) > max(least, share * there)


def _unlike(name: str, sample: RawBlock) -> str:
    values = sample.table.column(name)
    counts = f"{_different(values):,} different texts in {len(values):,} rows"
    advised = f"pass --category {name} to learn from it, or --drop {name}"
    first = next((text for text in values.to_pylist() if text is not None), "")
    if _LIKE_A_DATE.search(first):
        advised += f"; if {first!r:.40} is a time, pass --time {name} and --date-format"
    return f"{name} has {counts}, like an identifier, and is left out; {advised}"


def _share(values: pa.ChunkedArray, test: Callable[[str], bool]) -> float:
    """Return the share of the texts that pass a test, 0 where there is no text."""
    codes, texts = text_codes(values)
    passes = np.array([text is not None and test(text) for text in texts], bool)
    there = codes[codes >= 0]
    return float(passes[there].mean()) if len(there) else 0.0


def _all_numbers(values: pa.ChunkedArray, reader: Reader) -> bool:
    """Whether all texts are numbers, which JSON may quote and readers of text then parse."""
    return reader.decimal is not None and _share(values, _number_test(reader)) == 1


def _number_test(reader: Reader) -> Callable[[str], bool]:
    return lambda text: reads_as_number(text, reader.decimal or ".")


def _is_boolean(text: str) -> bool:
    return text.lower() in ("true", "false")


def _refuse_numbers(name: str, sample: RawBlock, decimal: str | None, advised: str) -> None:
    """Refuse a column of text that are mostly numbers, or would be if they were written plainly."""
    codes, texts = text_codes(sample.table.column(name))
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    parts = [c for c, text in enumerate(texts) if text is not None and reads_as_complex(text)]
    present = [(code, text) for code, text in enumerate(texts) if text is not None]
    odd = [code for code, text in present if not reads_as_number(text, decimal or ".")]
    other, sign = {".": (",", "a comma"), ",": (".", "a point")}.get(decimal or "", ("", ""))
    swapped = [c for c, text in present if other and other in text and reads_as_number(text, other)]
    unplain = [c for c, text in present if decimal and looks_like_a_number(text)]
    if 2 * counts[parts].sum() > counts.sum():
        problem = f"in the column {name!r} is a complex number; {PARTS}, or {advised}"
        odd = parts
    elif 0 < 2 * counts[odd].sum() < counts.sum():
        problem = f"is not a number, but most of the column {name!r} are; {advised}"
    elif 2 * counts[swapped].sum() > counts.sum():
        would_be = f"in the column {name!r} would be a number if {sign} stood before decimals"
        odd, problem = swapped, f"{would_be}; pass --decimal '{other}', or {advised}"
    elif 2 * counts[unplain].sum() > counts.sum():
        problem = f"in the column {name!r} looks like a number, but is not written as one"
        odd, problem = [*{*odd} & {*unplain}], f"{problem}; {advised}"
    else:
        return
    row = int(np.flatnonzero(np.isin(codes, odd))[0])
    raise DataError(f"{sample.place_of(row)}: {texts[codes[row]]!r:.60} {problem}")
