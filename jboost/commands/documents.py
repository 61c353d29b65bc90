"""Writes what ``jboost run`` leaves behind to look at: the picture and the page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

from jboost import plots
from jboost.checkpoints.atomic import replacing
from jboost.commands import outcome
from jboost.commands.outcome import Outcome
from jboost.commands.terminal import DONE, FAILED, print_error
from jboost.core.extras import MissingExtra
from jboost.core.outline import as_html, outline
from jboost.reports import page, pictures
from jboost.reports.accounts import Learners
from jboost.reports.importance import Importance

LEGEND = (
    "λ: how much a learner is to learn from a sample; z: how much its estimate counts; share: its "
    "part in what the prediction has in common with the answers. Means of rows looked at now and "
    "then."
)
KEYS = (
    "The keys with the largest errors, and those with the smallest. A key has a model of its own."
)
IMPORTANCE = (
    "A column's part is what it adds to a prediction, compared with the usual value of the column. "
    "The parts and the base add up to the prediction; what past answers tell is in the base."
)


def write(
    done: Outcome, plot: Path | None, report: Path | None, *, keys: list[list[str]] | None = None
) -> int:
    """Write the picture and the page that were asked for, and return the exit status.

    ``keys`` are the rows of a table of keys: the name, how many rows were scored, and their error.
    """
    status = DONE
    for path, write_to in ((plot, _write_picture), (report, partial(_write_page, keys=keys))):
        try:
            if path is not None:
                write_to(done, path)
        except (MissingExtra, OSError, ValueError) as error:
            print_error(f"{path} could not be written: {getattr(error, 'strerror', None) or error}")
            status = FAILED
    return status


def _drawings(done: Outcome) -> dict[str, tuple[str, Callable[..., pictures.TwoAxes]]]:
    """Return what there is to draw: by heading, a description and the function that draws it."""
    text = "mean squared error over time, so far and of each span"
    curves, when = done.tally.curves(), done.tally.when
    draw: Callable[..., pictures.TwoAxes] = partial(pictures.error_over_time, curves, when=when)
    times_at = None if when is None else done.tally.times_at
    drawings = {"Over time": (text, draw)}
    if done.bands is not None:
        text = "the last predictions with their intervals, and the part of the answers inside"
        draw = partial(pictures.intervals_over_time, done.bands, when=times_at)
        drawings["Intervals"] = text, draw
    if done.learners is not None:
        shown = {"names": done.learner_names, "when": times_at}
        draw = partial(pictures.learners_of, done.learners, **shown)
        drawings["Learners"] = "what each learner did over time", draw
    if done.importance is not None:
        names = [column.name for column in done.columns.inputs]
        draw = partial(pictures.importance_over_time, done.importance, names, when=times_at)
        drawings["Columns"] = "how much each column moves the predictions", draw
    return drawings


def _write_picture(done: Outcome, path: Path) -> None:
    drawings = _drawings(done).values()
    figure, axes = plots.rows(len(drawings))
    for (_, draw), two_axes in zip(drawings, axes, strict=True):
        draw(axes=two_axes)
    figure.suptitle(done.title, fontsize="medium")
    plots.save(figure, path)


def _learners_table(learners: Learners, names: list[str] | None) -> str:
    """Return the table of the learners, without λ where every λ is 1."""
    table = learners.table
    head, shown = ["learner", "mean λ", "mean z", "share"], [1, 2, 3]
    legend = LEGEND
    if np.nanmin(table[:, 1]) == 1:
        del head[1], shown[0]
        legend = legend.partition("; ")[2]
    rows = [
        [names[int(row[0]) - 1] if names else f"{row[0]:.0f}", *map("{:.3f}".format, row[shown])]
        for row in table
    ]
    return page.text(legend) + page.table(head, rows)


def _importance_table(done: Outcome, importance: Importance) -> str:
    """Return the table of the columns, the most important first."""
    mean, shares = importance.mean, importance.shares
    rows = [
        [done.columns.inputs[i].name, f"{mean[i]:.6g}", f"{shares[i]:.1%}"]
        for i in importance.order
    ]
    return page.text(IMPORTANCE) + page.table(["column", "mean size of its part", "share"], rows)


def _write_page(done: Outcome, path: Path, *, keys: list[list[str]] | None) -> None:
    drawn = {}
    for heading, (description, draw) in _drawings(done).items():
        try:
            drawn[heading] = page.image(draw()[0].figure, description)
        except MissingExtra as error:
            drawn[heading] = page.text(f"No picture: {error}.")
    if done.bands is not None:
        drawn["Intervals"] = page.text(outcome.coverage_text(done.bands)) + drawn["Intervals"]
    if done.learners is not None:
        drawn["Learners"] += _learners_table(done.learners, done.learner_names)
    if done.importance is not None:
        drawn["Columns"] += _importance_table(done, done.importance)
    columns, unscored = done.columns, done.rows - done.tally.scored - done.keyless
    data = {
        "file": done.file,
        "target": columns.target,
        "numbers": ", ".join(c.name for c in columns.inputs if c.kind == "number"),
        **{c.name: str(c).removeprefix(c.name).strip(" ()") for c in columns.inputs
           if c.kind != "number"},
        "notes": ". ".join(columns.notes),
        "time": columns.time.name if columns.time else "",
        "rows": f"{done.rows:,}",
        "keys": f"{done.keys:,}" if done.keys is not None else "",
        "without a key": f"{done.keyless:,}" if done.keyless else "",
        "nothing learned from": f"{done.skipped:,}" if done.skipped else "",
        outcome.MISSING_TEXTS[done.missing][1]: f"{unscored:,}" if unscored else "",
        "could not be read": f"{done.bad:,}" if done.bad else "",
        "missing inputs": outcome.MISSING_TEXTS[done.missing][0],
    }  # fmt: skip
    data = {name: text for name, text in data.items() if text}  # what says nothing is left out
    said = ". ".join([outcome.summary(done), *outcome.advice(done)])
    sections = [
        ("Errors", page.table(outcome.HEAD, outcome.table(done)) + page.text(said)),
        *([("Keys", page.text(KEYS) + page.table(["key", "rows", "MSE"], keys))] if keys else ()),
        *drawn.items(),
        ("Data", page.table([], map(list, data.items()))),
        ("Model", page.table([], [["name", done.name]]) + as_html(outline(done.model))),
        ("Made with", page.text(f"jboost {version('jboost')}, jax {version('jax')}")),
    ]
    with replacing(path) as file:
        file.write(page.page(done.title, sections).encode())
