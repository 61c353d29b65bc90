"""What ``jboost run --horizon H`` leaves behind: its account, table, picture and page."""

import math
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from jboost import plots
from jboost.checkpoints.atomic import replacing
from jboost.commands import terminal
from jboost.commands.terminal import FAILED, say
from jboost.core.extras import MissingExtra
from jboost.core.outline import outline
from jboost.files.columns import Columns
from jboost.forecasts import Forecast
from jboost.reports import page
from jboost.reports.horizons import LAST, Horizons

HEAD = ["", "MSE", "RMSE", "MAE", "MAE, 1 ahead", "MAE, last", "ratio to last value"]


@dataclass
class Forecasting:
    """A run that forecasts, as far as it has come."""

    file: str
    name: str  # of the learner in the catalogue, or "forecast" for least squares
    model: Forecast
    columns: Columns  # of the file
    known: list[str]  # the columns that are known in advance
    missing: str  # a value of ``--missing``
    intervals: bool  # whether bounds are written
    account: Horizons
    latest: int | None = None  # the time of the latest row, in microseconds since 1970
    rows: int = 0
    skipped: int = 0
    begins: int = 0  # how many rows came before the first of this file

    @property
    def title(self) -> str:
        """The model and the file, in a few words."""
        file = "standard input" if self.file == "-" else Path(self.file).name
        return f"{self.name}, {self.model.horizon} rows ahead, on {file}"

    def as_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "horizon": self.model.horizon,
            "known": self.known,
            "name": self.name,
            "columns": self.columns.as_dict(),
            "missing": self.missing,
            "intervals": self.intervals,
            "account": self.account.as_dict(),
            "latest": self.latest,
            "file": self.file,
            "begins": self.begins,
        }


def _table(done: Forecasting) -> list[list[str]]:
    """Return the errors of the model and of the naive forecasts."""
    account = done.account
    mse, mae, by_horizon = account.mse, account.mae, account.mae_by_horizon
    last = mae[LAST] or math.nan
    return [
        [name, *map("{:.6g}".format, (mse[name], math.sqrt(mse[name]), mae[name])),
         *map("{:.6g}".format, by_horizon[name][[0, -1]]), f"{mae[name] / last:.3f}"]
        for name in account.names
    ]  # fmt: skip


def _sentences(done: Forecasting) -> list[str]:
    account = done.account
    text = f"{done.rows:,} rows, {int(account.answers.sum()):,} pairs of a forecast and its answer"
    if done.skipped:
        text += f", nothing was learned from {done.skipped:,} rows"
    if account.left_out:
        text += f", {account.left_out:,} rows were left out, as their time is not later than before"
    if account.gaps:
        text += f", {account.gaps:,} steps had no row"
    sentences = [text]
    if done.intervals and account.bounded.any():
        low, high = np.nanmin(account.coverage), np.nanmax(account.coverage)
        wish = f"{done.model.coverage:.4g} intervals"
        sentences.append(f"{wish}: {low:.1%} to {high:.1%} of the answers inside, by horizon")
    best = min(account.mae, key=lambda name: account.mae[name])
    if best != done.name and account.mae[best] < account.mae[done.name]:
        figures = f"MAE {account.mae[best]:.6g} against {account.mae[done.name]:.6g}"
        sentences.append(f"{best} did better than {done.name}: {figures}")
    return sentences


def show(done: Forecasting, *, on_stderr: bool) -> None:
    """Print the closing table, and all else on standard error."""
    for sentence in _sentences(done):
        say(sentence)
    sys.stderr.flush()
    rows = _table(done)
    first = max(len(row[0]) for row in rows)
    for row in (HEAD, *rows):
        cells = "".join(f"  {cell:>13}" for cell in row[1:])
        print(f"{row[0]:<{first}}{cells}", file=sys.stderr if on_stderr else sys.stdout, flush=True)


def write(done: Forecasting, plot: Path | None, report: Path | None) -> int:
    """Write the picture and the page that were asked for, and return the exit status."""
    status = terminal.DONE
    for path, write_to in ((plot, _write_picture), (report, _write_page)):
        try:
            if path is not None:
                write_to(done, path)
        except (MissingExtra, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            terminal.print_error(f"{path} could not be written: {reason}")
            status = FAILED
    return status


def _figure(done: Forecasting) -> Any:
    figure, axes = plots.grid(1, 2)
    model, last, *others = done.account.mae_by_horizon.items()
    plots.error_by_horizon(dict([last, model, *others]), ax=axes[0, 0])
    y, low, high = done.account.last
    plots.fan(y, low, high, past=done.account.recent, ax=axes[0, 1])
    figure.suptitle(done.title, fontsize="medium")
    return figure


def _write_picture(done: Forecasting, path: Path) -> None:
    plots.save(_figure(done), path)


def _write_page(done: Forecasting, path: Path) -> None:
    try:
        drawn = page.image(_figure(done), "error by horizon, and the latest forecast")
    except MissingExtra as error:
        drawn = page.text(f"No picture: {error}.")
    data = [["file", done.file], ["target", done.columns.target], ["rows", f"{done.rows:,}"]]
    data += [["known in advance", ", ".join(done.known)]] if done.known else []
    data += [["time", done.columns.time.name]] if done.columns.time else []
    by_horizon = [
        [str(h + 1), *(f"{mae[h]:.6g}" for mae in done.account.mae_by_horizon.values())]
        for h in range(done.model.horizon)
    ]
    errors = page.table(HEAD, _table(done)) + page.text(". ".join(_sentences(done)))
    sections = [
        ("Errors", errors),
        ("By horizon", drawn + page.table(["horizon", *done.account.names], by_horizon)),
        ("Data", page.table([], data)),
        ("Model", page.text(outline(done.model), "pre")),
        ("Made with", page.text(f"jboost {version('jboost')}, jax {version('jax')}")),
    ]
    with replacing(path) as file:
        file.write(page.page(done.title, sections).encode())
