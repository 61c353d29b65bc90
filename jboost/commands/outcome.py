"""The outcome of ``jboost run``: what it has counted, the live line and the closing table."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jboost import catalogue
from jboost.automatic import experts
from jboost.commands.terminal import say
from jboost.core import Learner
from jboost.core.numerics import LARGEST
from jboost.core.progress import duration, percent
from jboost.files.columns import NUMERIC, Columns
from jboost.files.encoding import Labels
from jboost.reports.accounts import Bands, Learners, Watch
from jboost.reports.importance import Importance
from jboost.reports.keys import KeyTally
from jboost.reports.tally import Tally
from jboost.running.blocks import Block

HEAD = ["", "MSE", "RMSE", "MAE", "ratio to mean"]  # the last: MSE over the running mean's
MISSING_TEXTS = {  # by --missing: what becomes of missing inputs, and which rows count no error
    "impute": ("filled in from the past", "without an answer"),
    "skip": ("rows with missing inputs are not learned", "without an answer or an input"),
    "raise": ("none are allowed", "without an answer"),
}


@dataclass
class Outcome:
    """A run as far as it has come."""

    file: str  # the file of the data, as the user named it; ``-`` is standard input
    name: str  # the name of the model in the catalogue
    model: Learner
    columns: Columns  # of the file
    missing: str  # what becomes of missing inputs, a value of ``--missing``
    tally: Tally | KeyTally
    bands: Bands | None = None  # None if the model has no intervals
    learners: Learners | None = None  # None unless the learners are watched
    importance: Importance | None = None  # None unless predictions are explained
    saved: dict[str, Any] = field(default_factory=dict)  # what the checkpoint held of all this
    rows: int = 0  # how many rows of the stream were learned and handled
    skipped: int = 0  # how many of them nothing was learned from
    unused: list[int] = field(default_factory=list)  # inputs without a usable number so far
    begins: int = 0  # how many rows of the stream came before the first of this file
    bad: int = 0  # how many rows could not be read
    events: dict[str, int] = field(default_factory=dict)  # how many there were, by name
    keys: int | None = None  # how many keys there are; None in a run without keys
    keyless: int = 0  # how many rows of a keyed run had no key
    _rows_before: int = 0  # learned by an earlier run
    _began: float = 0.0

    def begin(self, position: int, watch: Watch) -> None:
        """Begin after ``position`` rows that an earlier run has learned."""
        if watch.intervals:
            self.bands = self.bands or Bands(float(self.model.coverage))  # type: ignore[attr-defined]
        if not watch.learners:
            self.learners = None  # what an earlier run has counted would lack the rows of this run
        elif self.learners is None:
            self.learners = Learners(watch.learners, start=position)
        if watch.explained is None:
            self.importance = None  # for the same reason
        elif self.importance is None:
            self.importance = Importance(len(self.columns.inputs), start=position)
        self.rows = self._rows_before = position

    def start_clock(self) -> None:
        """Count the time from now on, when the program is compiled."""
        self._began = time.perf_counter()

    def look_for_unused(self, start: int, x: np.ndarray) -> None:
        """Strike from ``unused`` the inputs that have a usable number in x, from row ``start``."""
        if start == 0:
            self.unused = [*range(x.shape[1])]
        if self.unused:
            used = (np.abs(x[:, self.unused]) < LARGEST).any(axis=0)
            self.unused = np.array(self.unused)[~used].tolist()

    def add(self, block: Block, labels: Labels) -> None:
        """Count a block of a run without keys in all accounts."""
        assert isinstance(self.tally, Tally)
        in_order = not self.tally.back
        self.tally.add(block, labels.instants)
        if in_order and self.tally.back:
            rows = f"within the rows {block.start + 1:,} to {block.start + len(block.targets):,}"
            say(f"rows are not in the order of time, first {rows}: the past may know the future")
        self.count(block, labels)

    def count(self, block: Block, labels: Labels) -> None:
        """Count a block in all accounts but that of the errors."""
        if self.bands is not None:
            self.bands.add(block, labels.instants)
        if self.learners is not None:
            self.learners.add(block)
        if self.importance is not None:
            self.importance.add(block)
        self.bad += int(labels.bad.sum())

    def as_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        accounts = {"tally": self.tally, "bands": self.bands, "learners": self.learners}
        accounts["importance"] = self.importance
        saved = {name: account and account.as_dict() for name, account in accounts.items()}
        saved |= {"missing": self.missing, "name": self.name, "file": self.file}
        saved |= {"begins": self.begins, "bad": self.bad, "events": dict(self.events)}
        return saved | {"columns": self.columns.as_dict()}

    @property
    def rate(self) -> float:
        """Rows a second, without the time in which the program was compiled."""
        return (self.rows - self._rows_before) / max(time.perf_counter() - self._began, 1e-9)

    @property
    def learner_names(self) -> list[str] | None:
        """What the learners are called, where they are of different kinds."""
        return [*experts()] if self.name == "auto" else None

    @property
    def title(self) -> str:
        """The model and the file, in a few words."""
        return f"{self.name} on {'standard input' if self.file == '-' else Path(self.file).name}"


def live_line(done: Outcome, total: float | None) -> str:
    """Return how far a run is; ``total`` is the number of all rows, where it is known."""
    keys = "" if done.keys is None else f" of {done.keys:,} keys"
    text = f"{done.rows:,} rows{keys}, {done.rate:,.0f} rows/s"
    if total and done.rate:
        left = duration(max(total - done.rows, 0) / done.rate)
        text = f"{percent(done.rows, total)}, {text}, about {left} left"
    text += f", MSE {done.tally.mse[done.name]:.4g}, lately {done.tally.lately:.4g}"
    if done.bands is not None:
        text += f", inside {done.bands.covered:.1%}, lately {done.bands.lately:.1%}"
    return text


def say_columns(columns: Columns) -> None:
    """Say what became of columns that are not numbers, and what a user should know of them."""
    told = [column for column in columns.inputs if column.kind not in NUMERIC]
    for column in told:
        say(column)
    for note in columns.notes:
        say(note)
    if told:
        say(f"{len(columns.inputs):,} columns become {columns.width:,} inputs")


def show(done: Outcome, *, on_stderr: bool) -> None:
    """Print the closing table, and all else on standard error.

    Where predictions go to standard output, the table goes to standard error too.
    """
    say(f"{summary(done)}; {done.rate:,.0f} rows/s")
    if done.bands is not None:
        say(coverage_text(done.bands))
    if done.importance is not None:
        say(importance_text(done.importance, done.columns))
    if done.events:
        counts = [f"{count:,} {name}" for name, count in done.events.items() if count]
        say(f"events: {', '.join(counts) or 'none'}")
    for sentence in advice(done):
        say(sentence)
    print_table(table(done), on_stderr=on_stderr)


def print_table(rows: list[list[str]], *, on_stderr: bool) -> None:
    """Print the errors of a model and of controls."""
    first = max(len(row[0]) for row in rows)
    sys.stderr.flush()
    for row in (HEAD, *rows):
        line = f"{row[0]:<{first}}" + "".join(f"  {cell:>13}" for cell in row[1:])
        print(line, file=sys.stderr if on_stderr else sys.stdout, flush=True)


def advice(done: Outcome) -> list[str]:
    """Say which control did better than the model, and what to try."""
    mse = done.tally.mse
    best = min(mse, key=lambda name: mse[name])
    if math.isnan(mse[best]) or best == done.name or mse[best] == mse[done.name]:
        return []
    tries = [] if done.name == catalogue.DEFAULT else [f"--model {catalogue.DEFAULT}"]
    if done.columns.time is None:
        tries.append("--time COL if a column says when a row was")
    tries.append("--drop for columns that tell nothing, --category for numbers that are codes")
    beaten = f"{best} did better than {done.name}: MSE {mse[best]:.6g} against {mse[done.name]:.6g}"
    return [f"{beaten}. Try {'; '.join(tries)}"]


def coverage_text(bands: Bands) -> str:
    """Return how many answers lay inside the intervals, in words."""
    if math.isnan(bands.covered):
        return f"{bands.coverage:.4g} intervals: no answer to measure them by"
    return (
        f"{bands.coverage:.4g} intervals: {bands.covered:.1%} of the answers inside, "
        f"{bands.lately:.1%} lately; mean width {bands.width:.6g}"
    )


def importance_text(importance: Importance, columns: Columns) -> str:
    """Return which columns move the predictions most, in words."""
    shares, shown = importance.shares, importance.order[:5]
    parts = [f"{columns.inputs[i].name!r} {shares[i]:.0%}" for i in shown if shares[i] > 0]
    return f"what moves the predictions: {', '.join(parts) or 'no column does'}"


def table(done: Outcome) -> list[list[str]]:
    """Return the errors of the model and the controls, and their ratio to the running mean's."""
    mse, mae = done.tally.mse, done.tally.mae
    mean = mse["running mean"] or math.nan
    return [
        [name, *map("{:.6g}".format, (value, math.sqrt(value), mae[name])), f"{value / mean:.3f}"]
        for name, value in mse.items()
    ]


def summary(done: Outcome) -> str:
    """Return how many rows there were, and of what use, in words."""
    text, unscored = f"{done.rows:,} rows", done.rows - done.tally.scored - done.keyless
    if done.keys is not None:
        text += f" of {done.keys:,} keys"
    if done.keyless:
        text += f", {done.keyless:,} without a key"
    if done.skipped:
        text += f", {done.skipped:,} of them nothing was learned from"
    if unscored:
        text += f", {unscored:,} {MISSING_TEXTS[done.missing][1]}"
    if done.bad:
        text += f", {done.bad:,} could not be read"
    if isinstance(done.tally, Tally) and done.tally.back:
        text += f", {done.tally.back:,} after a row of a later time"
    if done.unused:
        names = ", ".join(repr(done.columns.names[i]) for i in done.unused)
        text += f", no number that can be used (below 1e15) in {names:.200}"
    return text
