"""What a run came to: the live line, the closing table, the picture and the page."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jboost import __version__
from jboost.commands.terminal import DONE, CommandError, say_error
from jboost.files.columns import Columns
from jboost.reports.tally import Tally


@dataclass
class Outcome:
    """A run as far as it has come."""

    file: str
    name: str
    model: Any
    columns: Columns
    missing: str
    rows: int = 0
    skipped: int = 0
    tally: Tally = field(init=False)
    _before: int = 0
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.tally = Tally(self.name)

    def begin(self, position: int) -> None:
        """Start the clock; the rows so far were learned by an earlier run."""
        self.rows = self._before = position
        self._began = time.perf_counter()

    @property
    def rate(self) -> float:
        """Rows a second."""
        return (self.rows - self._before) / max(time.perf_counter() - self._began, 1e-9)


def refuse_huge(model: Any, width: int) -> None:
    """A model that would not fit into memory is refused before anything is computed."""
    import jax

    from jboost.checkpoints.template import template

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
    return (
        f"{done.rows:,} rows, {done.rate:,.0f} rows/s, MSE {so_far:.4g}, "
        f"lately {done.tally.lately:.4g}"
    )


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


def summary(done: Outcome) -> str:
    """What was counted, in words."""
    unanswered = done.rows - done.tally.scored
    parts = [f"{done.rows:,} rows"]
    if done.skipped:
        parts.append(f"{done.skipped:,} of them nothing was learned from")
    if unanswered:
        parts.append(f"{unanswered:,} without an answer")
    return ", ".join(parts)


def show(done: Outcome, *, apart: bool) -> None:
    """Print the closing table; ``apart`` from predictions on standard output."""
    out = sys.stderr if apart else sys.stdout
    rows = table(done)
    first = max(len(row[0]) for row in rows)
    print(f"{summary(done)}; {done.rate:,.0f} rows/s\n", file=out)
    for row in (HEAD, *rows):
        print(f"{row[0]:<{first}}" + "".join(f"  {cell:>12}" for cell in row[1:]), file=out)
    print(f"\n{NOTE}", file=out, flush=True)


def write(done: Outcome, plot: Path | None, report: Path | None) -> int:
    """Write the picture and the page that were asked for; returns the exit status."""
    from jboost import extras

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


def _figure(done: Outcome) -> Any:
    from jboost.reports import pictures

    title = f"{done.name} on {_short(done)}"
    return pictures.error_over_time(done.tally.curves(), title=title)[0].figure


def _picture(done: Outcome, path: Path) -> None:
    from jboost.reports import plots

    plots.save(_figure(done), path)


def _page(done: Outcome, path: Path) -> None:
    import jax

    from jboost import extras
    from jboost.checkpoints.atomic import replacing
    from jboost.reports import page

    try:
        figure = page.image(_figure(done), "mean squared error over time, so far and of each span")
    except extras.MissingExtra as error:
        figure = page.text(f"No picture: {error}.")
    sections = [
        ("Errors", page.text(summary(done)) + page.table(HEAD, table(done)) + page.text(NOTE)),
        ("Over time", figure),
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
        "without an answer": f"{done.rows - done.tally.scored:,}",
        "missing inputs": policies[done.missing],
    }


def _short(done: Outcome) -> str:
    return "standard input" if done.file == "-" else Path(done.file).name
