"""Pieces of the tables that the pages show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Record = dict[str, Any]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose first column is text and whose other columns are numbers."""
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many digits after the point; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def short(value: float | None) -> str:
    """A number to three digits; a dash for None."""
    return "–" if value is None else f"{value:.3g}"


def marked(text: str, ratio: float) -> str:
    """The text, bold where the ratio is below 1."""
    return f"**{text}**" if ratio < 1 else text


def run_line(record: Record, *names: str) -> str:
    """The line above a table: the named settings, the precision, the version of JAX, the time."""
    settings = record["settings"]
    shown = [f"{name} = {settings[name]}" for name in names if name in settings]
    quick = ["QUICK run, not the figures of record"] if record["quick"] else []
    how = f"{settings['dtype']}, jax {record['versions']['jax']}, {record['seconds']} s."
    return "; ".join([*quick, *([", ".join(shown)] if shown else []), how])
