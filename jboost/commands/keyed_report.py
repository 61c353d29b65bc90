"""What ``jboost run --key`` leaves behind: the table, the keys by error, and their forecasts."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jboost.checkpoints import atomic
from jboost.commands import outcome
from jboost.commands.terminal import explaining, say
from jboost.core import checks
from jboost.fleets.fleet import Fleet
from jboost.fleets.state import FleetState
from jboost.reports.keys import KeyTally

FORECAST_KEYS = 1024  # keys whose forecasts are computed together


class Summary(NamedTuple):
    """A keyed run that is done."""

    fleet: Fleet
    state: FleetState
    tally: KeyTally
    rows: int
    left_out: int  # rows without a key, or that could not be read
    forecasts: bool  # whether the models forecast
    intervals: bool  # whether bounds are asked for


def show(
    done: Summary, keys: os.PathLike[str] | None, predictions: os.PathLike[str] | str | None
) -> None:
    """Print the closing table; write the errors of all keys, and forecasts, where asked for.

    The keys with the largest and the smallest errors go to standard error.
    """
    left = f", {done.left_out:,} without a key" if done.left_out else ""
    say(f"{done.rows:,} rows of {len(done.state):,} keys{left}")
    names = [name if isinstance(name, str) else str(name) for name in done.fleet.names(done.state)]
    errors, counts = done.tally.errors(), done.tally.columns["scored"]
    for title, streams in zip(("largest", "smallest"), done.tally.extremes(), strict=True):
        for stream in streams.tolist():
            detail = f"MSE {errors[stream]:.6g} over {int(counts[stream]):,} rows"
            say(f"{title} error: {checks.printable(names[stream])[:60]}: {detail}")
    if keys is not None:
        order = np.argsort(-np.nan_to_num(errors, nan=-1.0), kind="stable").tolist()
        rows = [(names[i], int(counts[i]), float(errors[i])) for i in order]
        _write(keys, ["key", "rows", "mse"], rows)
    if done.forecasts and predictions is not None:
        bounds = ["lower", "upper"] if done.intervals else []
        _write(predictions, ["key", "horizon", "prediction", *bounds], _forecasts(done, names))
    outcome.print_table(done.tally.table(), on_stderr=predictions == "-")


def _forecasts(done: Summary, names: list[str]) -> Iterable[Sequence[object]]:
    """Yield a line for each key and horizon: what is forecast of the next rows of the key."""
    model: Any = done.fleet.model
    every = done.fleet.names(done.state)
    for start in range(0, len(names), FORECAST_KEYS):
        states = done.fleet.states(done.state, every[start : start + FORECAST_KEYS])
        columns = [jax.vmap(model.forecast)(states)]
        if done.intervals:
            columns += jax.vmap(model.interval)(states)
        numbers = np.stack([np.asarray(column) for column in columns], axis=-1)
        for name, rows in zip(names[start : start + FORECAST_KEYS], numbers, strict=True):
            for h, row in enumerate(rows, 1):
                yield (name, h, *map(str, row))


class _Lines:
    """What ``csv.writer`` writes to: a list of lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.write = self.lines.append


def _write(path: os.PathLike[str] | str, head: list[str], rows: Iterable[Sequence[object]]) -> None:
    """Write CSV to a file, whole or not at all, or to standard output."""
    out = _Lines()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    text = "".join(out.lines)
    with explaining(f"{path} could not be written"):
        if path == "-":
            sys.stdout.write(text)
            return
        with atomic.replacing(path) as file:
            file.write(text.encode("utf-8", "surrogatepass"))
