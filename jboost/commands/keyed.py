"""``jboost run --key``: a model for every key of a file, kept in a folder."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from jboost import catalogue, limits
from jboost.checkpoints import atomic
from jboost.checkpoints.archive import CheckpointError
from jboost.commands import keyed_report, options, outcome, terminal
from jboost.commands.terminal import FAILED, WRONG_USAGE, CommandError, explaining
from jboost.core import Learner, checks
from jboost.core.progress import Progress, duration, percent
from jboost.core.template import template
from jboost.files.columns import Columns
from jboost.files.encoding import Encoded
from jboost.files.predictions import Predictions
from jboost.files.sources import Source
from jboost.fleets.columns import names_of
from jboost.fleets.fleet import Fleet
from jboost.fleets.names import hashes
from jboost.fleets.shards import MANIFEST, read_manifest
from jboost.fleets.state import FleetState
from jboost.forecasts import Forecast
from jboost.reports.accounts import Watch
from jboost.reports.keys import KeyTally

EVERY = 16  # blocks between checkpoints
FORECAST = "forecast"  # the name of the forecaster without a learner
LONGEST_PERIOD = 400  # rows that seasons of a key are looked for in: a week of half hours


@dataclasses.dataclass
class KeyedRun:
    """What stays the same in a run; a checkpoint keeps it with the position."""

    key: str  # the column of the keys
    name: str  # of the model in the catalogue
    settings: dict[str, Any]  # of the model
    intervals: float | None
    seed: int
    missing: str  # what becomes of missing inputs, a value of ``--missing``
    columns: dict[str, Any]  # of the file, as JSON can hold them
    horizon: int | None = None  # how many rows of a key are forecast; None where none are
    left_out: int = 0  # rows without a key, or that could not be read
    predictions: int | None = None  # bytes of the file of predictions

    def model(self) -> Learner:
        """Return the model that each key has."""
        impute = self.missing == "impute"
        if self.horizon is None:
            model = catalogue.named(self.name, self.settings, impute=impute)
            return catalogue.resolve(model, intervals=self.intervals)
        learner = None
        if self.name != FORECAST:
            learner = catalogue.named(self.name, self.settings, impute=impute)
        longest = max(LONGEST_PERIOD, self.horizon)
        coverage = self.intervals or 0.9
        return Forecast(learner, self.horizon, coverage=coverage, longest=longest)


def run(args: argparse.Namespace) -> int:
    """Learn the file, print the table, and write what was asked for."""
    for name in ("plot", "report", "append", "known", "explain", "events"):
        if getattr(args, name):
            raise CommandError(f"--{name} does not go with --key", WRONG_USAGE)
    folder = None if args.checkpoint is None else str(args.checkpoint)
    manifest = None if folder is None else os.path.join(folder, MANIFEST)
    if manifest is not None and os.path.isfile(str(folder)):
        advice = "with --key the run is kept in a folder"
        raise CommandError(f"{folder} is a file; {advice}", WRONG_USAGE)
    if manifest is not None and os.path.exists(manifest) and not args.resume:
        advice = "pass --resume to go on from it, or another name"
        raise CommandError(f"{folder} holds a run already; {advice}", WRONG_USAGE)
    with contextlib.ExitStack() as held:
        held.enter_context(options.keeping_programs())
        outputs = {"--predictions": args.predictions, "--keys": args.keys}
        held.enter_context(options.writing(args.file, outputs))
        if folder is not None:
            with explaining(folder):
                os.makedirs(folder, exist_ok=True)
                held.enter_context(atomic.owning(folder))
        before = None
        if manifest is not None and os.path.exists(manifest):
            before = _read(folder)
        elif args.resume:
            terminal.say(f"there is no run in {folder} yet: it begins with the first row")
        return _run(args, folder, before)


def _read(folder: str | None) -> KeyedRun:
    """Return the run that a folder holds."""
    try:
        with options.refusing(FAILED):
            position = read_manifest(str(folder))[0]["position"]
        return KeyedRun(**position["run"])
    except (KeyError, TypeError, CheckpointError):
        raise CommandError(f"{folder} was not written by jboost run --key") from None


def _run(args: argparse.Namespace, folder: str | None, before: KeyedRun | None) -> int:
    if before is None:
        if args.key in (args.target, args.time):
            raise CommandError(f"--key is {args.key!r}, which has another role", WRONG_USAGE)
        args.ids = [*args.ids, [args.key]]  # the key labels the rows, and is no input
        missing, name, chosen = args.missing or "impute", FORECAST, {}
        if args.model is not None or args.horizon is None:
            name = options.known_model(args.model)
            chosen = options.settings(args, name)
        elif args.set:
            raise CommandError(
                "--set is for a --model, and the least squares have none", WRONG_USAGE
            )
        seed = args.seed or 0
        plan = KeyedRun(args.key, name, chosen, args.intervals, seed, missing, {}, args.horizon)
        source = options.source_of(args, None, missing)
        outcome.say_columns(source.columns)
    else:
        plan = before
        if args.key != plan.key:
            raise CommandError(f"the run to go on with has --key {plan.key}", WRONG_USAGE)
        if args.horizon not in (None, plan.horizon):
            before_it = f"--horizon {plan.horizon}" if plan.horizon else "no --horizon"
            raise CommandError(f"the run to go on with has {before_it}", WRONG_USAGE)
        with options.refusing(FAILED):
            columns = Columns.from_dict(plan.columns)
        source = options.source_of(args, columns, plan.missing)
    with options.refusing():
        model = plan.model()
    width = source.columns.width
    options.refuse_huge(model, width)
    key = jax.random.key(plan.seed) if model.needs_key else None
    fleet = Fleet(model, width, key=key, dtype="float32", bound=_bound(model, width), spill=folder)
    with options.refusing(FAILED):
        state = fleet.init() if before is None else fleet.load(str(folder))
    tally = KeyTally(plan.name, state.columns if before is not None and len(state) else None)
    position = 0 if before is None else int(state.position["row"])
    keyed = _Keyed(args, folder, source, plan, fleet, tally, state, position)
    try:
        keyed.learn()
    except KeyboardInterrupt:
        words = f"interrupted after {keyed.position:,} rows"
        advice = "the run was not kept; --checkpoint DIR would keep it"
        if folder is not None:
            advice = f"{folder} holds the first {keyed.saved:,}; go on with --resume"
        terminal.say(f"{words}; {advice}")
        return terminal.INTERRUPTED
    if not keyed.position:
        raise CommandError(f"{args.file} has no rows", terminal.BAD_DATA)
    keyed_report.show(keyed.summary(), args.keys, args.predictions)
    return terminal.DONE


def _bound(model: Learner, width: int) -> int | None:
    """Return how many states may lie in memory: those that take a third of it."""
    state = template(model, width, "float32")
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    try:
        memory = min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), limits.memory())
    except (AttributeError, OSError, ValueError):  # the system does not tell
        return None
    return max(1, min(int(memory / 3 / max(size, 1)), checks.LARGEST_WHOLE))


class _Keyed:
    """A run as far as it has come."""

    def __init__(
        self, args: argparse.Namespace, folder: str | None, source: Source, plan: KeyedRun,
        fleet: Fleet, tally: KeyTally, state: FleetState, position: int,
    ) -> None:  # fmt: skip
        self.args, self.folder, self.source, self.plan = args, folder, source, plan
        self.fleet, self.tally, self.state = fleet, tally, state
        self.position = self.saved = position
        self.watch = Watch.for_model(fleet.model, learners=False)  # none for forecasts

    def learn(self) -> None:
        """Go through the stream, write predictions, and keep the run."""
        blocks, first, began = 0, self.position, time.perf_counter()
        with contextlib.ExitStack() as stack:
            hidden = self.args.predictions == "-" and sys.stdout.isatty()
            progress = stack.enter_context(Progress(shown=False if hidden else None))
            progress.compiling()
            out = stack.enter_context(self._predictions())
            if self.folder is not None:
                self._save(out)
            try:
                for block in self._blocks():
                    self._handle(block, out)
                    blocks += 1
                    if self.folder is not None and blocks % (self.args.every or EVERY) == 0:
                        self._save(out)
                    rate = (self.position - first) / max(time.perf_counter() - began, 1e-9)
                    progress.say(self._line(rate))
            except (KeyboardInterrupt, CommandError):
                if self.folder is not None:
                    self._save(out)
                raise
            if self.folder is not None:
                self._save(out)

    def _line(self, rate: float) -> str:
        text = f"{self.position:,} rows, {len(self.state):,} keys, {rate:,.0f} rows/s"
        total = self.source.total
        if total and rate:
            left = duration(max(total - self.position, 0) / rate)
            text = f"{percent(self.position, total)}, {text}, about {left} left"
        return text

    def _blocks(self) -> Iterator[Encoded]:
        with options.reading(self.args.file):
            yield from self.source.labelled(self.position)

    def _handle(self, block: Encoded, out: Predictions | None) -> None:
        """Predict, learn, count and write the rows of a block."""
        column, n = block.labels.columns[self.plan.key], len(block.d)
        nulls = np.asarray(column.is_null())
        if nulls.any() and self.args.bad_rows != "skip":
            row = self.position + int(nulls.argmax()) + 1
            problem = f"row {row:,} of {self.args.file} has no {self.plan.key!r}"
            advice = "give it a key, or pass --bad-rows skip to leave such rows out"
            raise CommandError(f"{problem}; {advice}", terminal.BAD_DATA)
        rows = np.flatnonzero(~nulls)
        self.plan.left_out += n - len(rows)
        if len(rows):
            x, d = block.x[rows], block.d[rows]
            try:
                names = names_of(f"the column {self.plan.key!r}", column.filter(~nulls))
            except (TypeError, ValueError) as error:
                raise CommandError(f"{self.args.file}: {error}", terminal.BAD_DATA) from None
            observe = self.watch if any(self.watch) else None
            self.state, trace = self.fleet.run(self.state, names, x, d, observe=observe)
            prediction = np.asarray(trace.prediction)
            if trace.due is not None:  # what was forecast of a row at the row of its key before
                prediction = np.asarray(trace.due)[:, 0]
                d = np.where(np.isnan(prediction), np.nan, d)
            self.tally.add(self.state.directory.find(names, hashes(names)), d, prediction)
            if out is not None:
                self._write(out, block, rows, prediction, trace.observed)
        elif out is not None:
            self._write(out, block, rows, np.zeros(0, np.float32), None)
        self.position += n

    def _write(
        self, out: Predictions, block: Encoded, rows: np.ndarray, prediction: np.ndarray,
        observed: Any,
    ) -> None:  # fmt: skip
        """Write a line for each row; rows without a key have no prediction."""

        def whole(values: np.ndarray) -> np.ndarray:
            filled = np.full(len(block.d), np.nan, np.float32)
            filled[rows] = values
            return filled

        bounds = [observed[name] for name in ("low", "high")] if observed else []
        if self.watch.intervals and not bounds:
            bounds = [prediction, prediction]
        estimates = [whole(np.asarray(values)) for values in (prediction, *bounds)]
        with explaining(f"the predictions could not be written to {self.args.predictions}"):
            out.write(self.position, block.d, *estimates, labels=block.labels.columns)
            if self.folder is not None:
                out.sync()

    def _predictions(self) -> AbstractContextManager[Predictions | None]:
        if self.args.predictions is None or self.plan.horizon is not None:
            return contextlib.nullcontext()
        length, names = self.plan.predictions, self.source.columns.labels
        if self.args.predictions == "-":
            length = 1 if self.position else None  # the header was written before
        with options.refusing(FAILED), explaining(str(self.args.predictions)):
            return Predictions(
                self.args.predictions, length, self.position, intervals=self.watch.intervals,
                labels=names, as_json=self.source.is_json,
            )  # fmt: skip

    def _save(self, out: Predictions | None) -> None:
        """Keep the run: states, sums and the position, all of them or none."""
        self.plan.columns = self.source.columns.as_dict()
        self.plan.predictions = None if out is None else out.length
        position = {"row": self.position, "run": dataclasses.asdict(self.plan)}
        with explaining(f"the run could not be kept in {self.folder}"):
            columns = self.tally.columns
            self.fleet.save(str(self.folder), self.state, position=position, columns=columns)
        self.saved = self.position

    def summary(self) -> keyed_report.Summary:
        """Return what is to be shown of the run."""
        return keyed_report.Summary(
            self.fleet, self.state, self.tally, self.position, self.plan.left_out,
            self.plan.horizon is not None, self.plan.intervals is not None,
        )  # fmt: skip
