"""What ``jboost run --key`` leaves behind: tables, forecasts, the picture and the page."""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jboost.checkpoints import atomic
from jboost.commands import documents, outcome
from jboost.commands.keyed_plan import Plan
from jboost.commands.outcome import Outcome
from jboost.commands.terminal import explaining, say
from jboost.core import checks
from jboost.fleets.fleet import Fleet
from jboost.fleets.state import FleetState
from jboost.reports.keys import KeyTally

FORECAST_KEYS = 1024  # keys whose forecasts are computed together


class Kept(NamedTuple):
    """The models of a keyed run that is done, and the errors of each key."""

    fleet: Fleet
    state: FleetState
    tally: KeyTally
    plan: Plan


def show(args: argparse.Namespace, done: Outcome, kept: Kept) -> int:
    """Print the closing table, and write what was asked for; return the exit status.

    The keys with the largest and the smallest errors go to standard error.
    """
    names = [name if isinstance(name, str) else str(name) for name in kept.fleet.names(kept.state)]
    errors, counts = kept.tally.of_keys(), kept.tally.columns["scored"]
    ends = []
    for title, streams in zip(("largest", "smallest"), kept.tally.extremes(), strict=True):
        for stream in streams.tolist():
            name, count = checks.printable(names[stream])[:60], f"{int(counts[stream]):,}"
            say(f"{title} error: {name}: MSE {errors[stream]:.6g} over {count} rows")
            ends.append([name, count, f"{errors[stream]:.6g}"])
    if args.keys is not None:
        order = np.argsort(-np.nan_to_num(errors, nan=-1.0), kind="stable").tolist()
        rows = [(names[i], int(counts[i]), float(errors[i])) for i in order]
        _write(args.keys, ["key", "rows", "mse"], rows)
    if done.model.ahead and args.predictions is not None:
        bounds = ["lower", "upper"] if kept.plan.intervals is not None else []
        head = ["key", "horizon", "prediction", *bounds]
        _write(args.predictions, head, _forecasts(kept, names))
    outcome.show(done, on_stderr=args.predictions == "-")
    return documents.write(done, args.plot, args.report, keys=ends)


def _forecasts(kept: Kept, names: list[str]) -> Iterable[Sequence[object]]:
    """Yield a line for each key and horizon: what is forecast of the next rows of the key."""
    model: Any = kept.fleet.model
    every = kept.fleet.column(kept.state)
    for start in range(0, len(names), FORECAST_KEYS):
        states = kept.fleet.states(kept.state, every.take(slice(start, start + FORECAST_KEYS)))
        columns = [jax.vmap(model.forecast)(states)]
        if kept.plan.intervals is not None:
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
