"""The outcome of ``jboost run``: the live line, the closing table, the picture and the page."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from jboost import plots
from jboost.automatic import experts
from jboost.checkpoints.atomic import replacing
from jboost.commands.terminal import DONE, FAILED, print_error
from jboost.core import Learner
from jboost.core.extras import MissingExtra
from jboost.core.numerics import LARGEST
from jboost.core.progress import duration, percent
from jboost.files.columns import Columns
from jboost.reports import page, pictures
from jboost.reports.accounts import Bands, Learners, Tally, Watch
from jboost.running.blocks import Block

HEAD = ["", "MSE", "RMSE", "ratio"]
NOTE = "ratio: MSE over that of the running mean"
LEGEND = (
    "λ: how much a learner is to learn from a sample; z: how much its estimate counts; share: its "
    "part in what the prediction has in common with the answers. Means of rows looked at now and "
    "then."
)
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
    tally: Tally
    bands: Bands | None = None  # None if the model has no intervals
    learners: Learners | None = None  # None unless the learners are watched
    saved: dict[str, Any] = field(default_factory=dict)  # what the checkpoint held of all this
    rows: int = 0  # how many rows of the stream were learned and handled
    skipped: int = 0  # how many of them nothing was learned from
    unused: list[int] = field(default_factory=list)  # inputs without a usable number so far
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

    def add(self, block: Block) -> None:
        """Count a block in all accounts."""
        for account in (self.tally, self.bands, self.learners):
            if account is not None:
                account.add(block)

    def as_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        accounts = {"tally": self.tally, "bands": self.bands, "learners": self.learners}
        saved = {name: account and account.as_dict() for name, account in accounts.items()}
        saved |= {"missing": self.missing, "name": self.name, "file": self.file}
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
    text = f"{done.rows:,} rows, {done.rate:,.0f} rows/s"
    if total and done.rate:
        left = duration(max(total - done.rows, 0) / done.rate)
        text = f"{percent(done.rows, total)}, {text}, about {left} left"
    text += f", MSE {done.tally.mse[done.name]:.4g}, lately {done.tally.lately:.4g}"
    if done.bands is not None:
        text += f", inside {done.bands.covered:.1%}, lately {done.bands.lately:.1%}"
    return text


def show(done: Outcome, *, on_stderr: bool) -> None:
    """Print the closing table; on standard error where predictions go to standard output."""
    out = sys.stderr if on_stderr else sys.stdout
    rows = _table(done)
    first = max(len(row[0]) for row in rows)
    print(f"{_summary(done)}; {done.rate:,.0f} rows/s\n", file=out)
    for row in (HEAD, *rows):
        print(f"{row[0]:<{first}}" + "".join(f"  {cell:>12}" for cell in row[1:]), file=out)
    if done.bands is not None:
        print(f"\n{coverage_text(done.bands)}", file=out)
    print(f"\n{NOTE}", file=out, flush=True)


def write(done: Outcome, plot: Path | None, report: Path | None) -> int:
    """Write the picture and the page that were asked for, and return the exit status."""
    status = DONE
    for path, write_to in ((plot, _write_picture), (report, _write_page)):
        try:
            if path is not None:
                write_to(done, path)
        except (MissingExtra, OSError, ValueError) as error:
            print_error(f"{path} could not be written: {getattr(error, 'strerror', None) or error}")
            status = FAILED
    return status


def coverage_text(bands: Bands) -> str:
    """Return how many answers lay inside the intervals, in words."""
    if math.isnan(bands.covered):
        return f"{bands.coverage:.4g} intervals: no answer to measure them by"
    return (
        f"{bands.coverage:.4g} intervals: {bands.covered:.1%} of the answers inside, "
        f"{bands.lately:.1%} lately; mean width {bands.width:.6g}"
    )


def _table(done: Outcome) -> list[list[str]]:
    """Return the errors of the model and the controls, and their ratio to the running mean's."""
    mse = done.tally.mse
    mean = mse["running mean"] or math.nan
    return [
        [name, f"{value:.6g}", f"{math.sqrt(value):.6g}", f"{value / mean:.3f}"]
        for name, value in mse.items()
    ]


def _summary(done: Outcome) -> str:
    """Return how many rows there were, and of what use, in words."""
    text, unscored = f"{done.rows:,} rows", done.rows - done.tally.scored
    if done.skipped:
        text += f", {done.skipped:,} of them nothing was learned from"
    if unscored:
        text += f", {unscored:,} {MISSING_TEXTS[done.missing][1]}"
    if done.unused:
        names = ", ".join(repr(done.columns.names[i]) for i in done.unused)
        text += f", no number that can be used (below 1e15) in {names:.200}"
    return text


def _drawings(done: Outcome) -> dict[str, tuple[str, Callable[..., pictures.TwoAxes]]]:
    """Return what there is to draw: by heading, a description and the function that draws it."""
    text = "mean squared error over time, so far and of each span"
    draw: Callable[..., pictures.TwoAxes] = partial(pictures.error_over_time, done.tally.curves())
    drawings = {"Over time": (text, draw)}
    if done.bands is not None:
        text = "the last predictions with their intervals, and the part of the answers inside"
        drawings["Intervals"] = text, partial(pictures.intervals_over_time, done.bands)
    if done.learners is not None:
        draw = partial(pictures.learners_of, done.learners, names=done.learner_names)
        drawings["Learners"] = "what each learner did over time", draw
    return drawings


def _write_picture(done: Outcome, path: Path) -> None:
    drawings = _drawings(done).values()
    figure, axes = plots.rows(len(drawings))
    for (_, draw), two_axes in zip(drawings, axes, strict=True):
        draw(axes=two_axes)
    figure.suptitle(done.title, fontsize="medium")
    plots.save(figure, path)


def _write_page(done: Outcome, path: Path) -> None:
    drawn = {}
    for heading, (description, draw) in _drawings(done).items():
        try:
            drawn[heading] = page.image(draw()[0].figure, description)
        except MissingExtra as error:
            drawn[heading] = page.text(f"No picture: {error}.")
    if done.bands is not None:
        drawn["Intervals"] = page.text(coverage_text(done.bands)) + drawn["Intervals"]
    if done.learners is not None:
        names, head = done.learner_names, ["learner", "mean λ", "mean z", "share"]
        rows = [
            [names[int(number) - 1] if names else f"{number:.0f}", *map("{:.3f}".format, means)]
            for number, *means in done.learners.table
        ]
        drawn["Learners"] += page.text(LEGEND) + page.table(head, rows)
    data = {
        "file": done.file,
        "target": done.columns.target,
        "inputs": ", ".join(map(str, done.columns.inputs)),
        "rows": f"{done.rows:,}",
        "nothing learned from": f"{done.skipped:,}",
        MISSING_TEXTS[done.missing][1]: f"{done.rows - done.tally.scored:,}",
        "missing inputs": MISSING_TEXTS[done.missing][0],
    }
    sections = [
        ("Errors", page.text(_summary(done)) + page.table(HEAD, _table(done)) + page.text(NOTE)),
        *drawn.items(),
        ("Data", page.table([], map(list, data.items()))),
        ("Model", page.table([], [["name", done.name]]) + page.text(repr(done.model), "pre")),
        ("Made with", page.text(f"jboost {version('jboost')}, jax {version('jax')}")),
    ]
    with replacing(path) as file:
        file.write(page.page(done.title, sections).encode())
