"""What a run came to: the live line, the closing table, the picture and the page."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jboost import __version__
from jboost.commands.terminal import DONE, CommandError, say_error
from jboost.core.numerics import LARGEST
from jboost.files.columns import Columns
from jboost.reports.tally import Tally
from jboost.reports.watch import Bands, Learners, Watch


@dataclass
class Outcome:
    """A run as far as it has come; ``bands`` where it has intervals, ``learners`` if watched.

    ``unused`` are the columns of a run from the first row that had no usable number so far.
    """

    file: str
    name: str
    model: Any
    columns: Columns
    missing: str
    rows: int = 0
    skipped: int = 0
    tally: Tally = field(init=False)
    bands: Bands | None = None
    learners: Learners | None = None
    unused: list[int] = field(default_factory=list)
    _before: int = 0
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.tally = Tally(self.name)

    def look(self, start: int, x: Any) -> None:
        """See which columns of a block, from row ``start`` on, have usable numbers."""
        if start == 0:
            self.unused = [*range(x.shape[1])]
        if self.unused:
            some = (np.abs(x[:, self.unused]) < LARGEST).any(axis=0)
            self.unused = [i for i, used in zip(self.unused, some, strict=True) if not used]

    def begin(self, position: int, watched: Watch) -> None:
        """Start the clock; the rows so far were learned by an earlier run."""
        if watched.intervals:
            self.bands = self.bands or Bands(float(self.model.coverage))
        if not watched.learners:
            self.learners = None
        elif self.learners is None:
            self.learners = Learners(watched.learners, start=position)
        self.rows = self._before = position
        self._began = time.perf_counter()

    def add(self, targets: Any, block: Any) -> None:
        """Count a block, and what was observed of it."""
        self.tally.add(targets, block.prediction)
        if self.bands is not None:
            seen = block.observed
            self.bands.add(block.start, targets, block.prediction, seen["low"], seen["high"])
        if self.learners is not None:
            self.learners.add(targets, block.observed)

    @property
    def accounts(self) -> dict[str, Any]:
        """What has been counted, for a checkpoint."""
        kept = {"tally": self.tally, "bands": self.bands, "learners": self.learners}
        return {name: own and own.as_dict() for name, own in kept.items()}

    @property
    def rate(self) -> float:
        """Rows a second."""
        return (self.rows - self._before) / max(time.perf_counter() - self._began, 1e-9)


def bounds(block: Any) -> tuple[Any, ...]:
    """Those of the intervals, where there are some."""
    seen = block.observed or {}
    return (seen["low"], seen["high"]) if "low" in seen else ()


def refuse_huge(model: Any, width: int) -> None:
    """A model that would not fit into memory is refused before anything is computed."""
    import jax

    from jboost.core.template import template

    state = template(model, width, "float32")
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    memory = _memory()
    if (
        memory is not None and 3 * size > memory
    ):  # the state, the one after it, and what lies between
        raise CommandError(
            f"with {width:,} columns this model takes {3 * size / 1e9:,.0f} GB, and there are "
            f"{memory / 1e9:,.0f}; drop columns, or take a smaller model such as --model sgd"
        )


def _memory() -> int | None:
    """Bytes of memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def line(done: Outcome) -> str:
    """How far a run is."""
    so_far = done.tally.mse[done.name]
    said = (
        f"{done.rows:,} rows, {done.rate:,.0f} rows/s, MSE {so_far:.4g}, "
        f"lately {done.tally.lately:.4g}"
    )
    if done.bands is not None:
        said += f", inside {done.bands.covered:.1%}, lately {done.bands.lately:.1%}"
    return said


def table(done: Outcome) -> list[list[str]]:
    """Errors, beside those of the controls; the ratio is to the running mean's."""
    mse = done.tally.mse
    mean = mse["running mean"]
    rows = []
    for name, value in mse.items():
        ratio = value / mean if mean else math.nan
        rows.append([name, f"{value:.6g}", f"{math.sqrt(value):.6g}", f"{ratio:.3f}"])
    return rows


HEAD = ["", "MSE", "RMSE", "ratio"]
NOTE = "ratio: MSE over that of the running mean"
LEGEND = (
    "λ: how much a learner is to learn from a sample; z: how much its estimate counts; share: its "
    "part in what the prediction has in common with the answers. Means of rows looked at now and "
    "then."
)


def summary(done: Outcome) -> str:
    """What was counted, in words."""
    unanswered = done.rows - done.tally.scored
    parts = [f"{done.rows:,} rows"]
    if done.skipped:
        parts.append(f"{done.skipped:,} of them nothing was learned from")
    if unanswered:
        parts.append(f"{unanswered:,} {_unscored(done)}")
    if done.unused:
        names = ", ".join(repr(done.columns.names[i]) for i in done.unused)
        parts.append(f"no number that can be used (below 1e15) in {names:.200}")
    return ", ".join(parts)


def _unscored(done: Outcome) -> str:
    """What the rows lack that do not count."""
    return "without an answer" if done.missing != "skip" else "without an answer or an input"


def held(bands: Bands) -> str:
    """What the intervals came to, in words."""
    if math.isnan(bands.covered):
        return f"{bands.coverage:.4g} intervals: no answer to measure them by"
    return (
        f"{bands.coverage:.4g} intervals: {bands.covered:.1%} of the answers inside, "
        f"{bands.lately:.1%} lately; mean width {bands.width:.6g}"
    )


def show(done: Outcome, *, apart: bool) -> None:
    """Print the closing table; ``apart`` from predictions on standard output."""
    out = sys.stderr if apart else sys.stdout
    rows = table(done)
    first = max(len(row[0]) for row in rows)
    print(f"{summary(done)}; {done.rate:,.0f} rows/s\n", file=out)
    for row in (HEAD, *rows):
        print(f"{row[0]:<{first}}" + "".join(f"  {cell:>12}" for cell in row[1:]), file=out)
    if done.bands is not None:
        print(f"\n{held(done.bands)}", file=out)
    print(f"\n{NOTE}", file=out, flush=True)


def write(done: Outcome, plot: Path | None, report: Path | None) -> int:
    """Write the picture and the page that were asked for; returns the exit status."""
    from jboost.core import extras

    status = DONE
    for path, what in ((plot, _picture), (report, _page)):
        if path is None:
            continue
        try:
            what(done, path)
        except extras.MissingExtra as error:
            status = _not_written(path, error)
        except OSError as error:
            status = _not_written(path, error.strerror or error)
        except ValueError as error:
            status = _not_written(path, error)
    return status


def _not_written(path: Path, reason: object) -> int:
    error = CommandError(f"{path} could not be written: {reason}")
    say_error(str(error))
    return error.status


def _drawings(done: Outcome) -> dict[str, tuple[str, Any]]:
    """What there is to draw: a heading each, what it shows, and the function that does it."""
    from jboost.reports import pictures

    def errors(**on: Any) -> Any:
        return pictures.error_over_time(done.tally.curves(), **on)

    def bands(**on: Any) -> Any:
        return pictures.intervals_over_time(done.bands, **on)  # type: ignore[arg-type]

    def learners(**on: Any) -> Any:
        return pictures.learners_of(done.learners, names=_names(done), **on)  # type: ignore[arg-type]

    shown = {"Over time": ("mean squared error over time, so far and of each span", errors)}
    if done.bands is not None:
        shown["Intervals"] = ("the last predictions in their band, and the part inside", bands)
    if done.learners is not None:
        shown["Learners"] = ("what each learner did over time", learners)
    return shown


def _by_learner(learners: Learners, done: Outcome) -> tuple[list[str], list[list[str]]]:
    """A table of what each did."""
    names = _names(done)
    rows = [
        [names[int(number) - 1] if names else f"{number:.0f}", *(f"{value:.3f}" for value in own)]
        for number, *own in learners.table
    ]
    return ["learner", "mean λ", "mean z", "share"], rows


def _names(done: Outcome) -> list[str] | None:
    """What the learners are called, where they differ."""
    from jboost.automatic import experts

    return [*experts()] if done.name == "auto" else None


def _picture(done: Outcome, path: Path) -> None:
    from jboost import plots

    figure, pairs = plots.rows(len(_drawings(done)))
    for (_, draw), pair in zip(_drawings(done).values(), pairs, strict=True):
        draw(axes=pair)
    figure.suptitle(f"{done.name} on {_short(done)}", fontsize="medium")
    plots.save(figure, path)


def _page(done: Outcome, path: Path) -> None:
    import jax

    from jboost.checkpoints.atomic import replacing
    from jboost.core import extras
    from jboost.reports import page

    drawn = {}
    for name, (shows, draw) in _drawings(done).items():
        try:
            drawn[name] = page.image(draw()[0].figure, shows)
        except extras.MissingExtra as error:
            drawn[name] = page.text(f"No picture: {error}.")
    if done.bands is not None:
        drawn["Intervals"] = page.text(held(done.bands)) + drawn["Intervals"]
    if done.learners is not None:
        drawn["Learners"] += page.text(LEGEND) + page.table(*_by_learner(done.learners, done))
    sections = [
        ("Errors", page.text(summary(done)) + page.table(HEAD, table(done)) + page.text(NOTE)),
        *drawn.items(),
        ("Data", page.pairs(_data(done))),
        ("Model", page.pairs({"name": done.name}) + page.preformatted(repr(done.model))),
        ("Made with", page.text(f"jboost {__version__}, jax {jax.__version__}")),
    ]
    text = page.page(f"{done.name} on {_short(done)}", sections)
    with replacing(path) as file:
        file.write(text.encode())


def _data(done: Outcome) -> dict[str, Any]:
    policies = {
        "impute": "filled in from the past",
        "skip": "rows with some are not learned",
        "raise": "none are allowed",
    }
    return {
        "file": done.file,
        "target": done.columns.target,
        "inputs": ", ".join(map(str, done.columns.inputs)),
        "rows": f"{done.rows:,}",
        "nothing learned from": f"{done.skipped:,}",
        _unscored(done): f"{done.rows - done.tally.scored:,}",
        "missing inputs": policies[done.missing],
    }


def _short(done: Outcome) -> str:
    return "standard input" if done.file == "-" else Path(done.file).name
