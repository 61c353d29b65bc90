"""``jboost run --key``: a model for every key of a file, kept in a folder."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from functools import partial

import jax
import numpy as np
from numpy.typing import ArrayLike

from jboost import limits
from jboost.checkpoints import atomic
from jboost.commands import keyed_plan, keyed_report, learning, options, outcome, terminal
from jboost.commands.keyed_ahead import KeyedAhead
from jboost.commands.keyed_plan import Plan
from jboost.commands.lines import Lines
from jboost.commands.outcome import Outcome
from jboost.commands.terminal import FAILED, WRONG_USAGE, CommandError, explaining
from jboost.core import Learner, checks
from jboost.core.progress import Progress
from jboost.core.step import Trace, step
from jboost.core.template import template
from jboost.files import ahead
from jboost.files.encoding import Encoded
from jboost.files.sources import Source
from jboost.fleets.columns import names_of
from jboost.fleets.fleet import Fleet
from jboost.fleets.names import hashes
from jboost.fleets.shards import MANIFEST
from jboost.fleets.state import FleetState
from jboost.reports.accounts import Watch
from jboost.reports.keys import KeyTally
from jboost.running.blocks import Block

EVERY = 16  # blocks between checkpoints


def run(args: argparse.Namespace) -> int:
    """Learn the file, print the table, and write what was asked for."""
    folder = None if args.checkpoint is None else str(args.checkpoint)
    manifest = None if folder is None else os.path.join(folder, MANIFEST)
    if manifest is not None and os.path.isfile(str(folder)):
        advice = "with --key the run is kept in a folder"
        raise CommandError(f"{folder} is a file; {advice}", WRONG_USAGE)
    if manifest is not None and os.path.exists(manifest) and not args.resume:
        advice = "pass --resume to go on from it, or another name"
        raise CommandError(f"{folder} holds a run already; {advice}", WRONG_USAGE)
    names = ("predictions", "keys", "explain", "events", "plot", "report")
    with contextlib.ExitStack() as held:
        held.enter_context(options.keeping_programs())
        outputs = {f"--{name}": getattr(args, name) for name in names}
        held.enter_context(options.writing(args.file, outputs))
        if folder is not None:
            with explaining(folder):
                os.makedirs(folder, exist_ok=True)
                held.enter_context(atomic.owning(folder))
        before = None
        if manifest is not None and os.path.exists(manifest):
            before = str(folder)
        elif args.resume:
            terminal.say(f"there is no run in {folder} yet: it begins with the first row")
        return _run(args, folder, before)


def _run(args: argparse.Namespace, folder: str | None, before: str | None) -> int:
    """Do what the command is to do, while its outputs are held; ``before`` holds the run so far."""
    keyed = _begin(args, folder, before)
    done = keyed.done
    try:
        keyed.learn()
    except KeyboardInterrupt:
        words = f"interrupted after {done.rows:,} rows"
        advice = "the run was not kept; --checkpoint DIR would keep it"
        if folder is not None:
            advice = f"{folder} holds the first {keyed.saved:,}; go on with --resume"
        terminal.say(f"{words}; {advice}")
        return terminal.INTERRUPTED
    if not done.rows:
        raise CommandError(f"{args.file} has no rows", terminal.BAD_DATA)
    kept = keyed_report.Kept(keyed.fleet, keyed.state, keyed.tally, keyed.plan)
    return keyed_report.show(args, done, kept)


def _begin(args: argparse.Namespace, folder: str | None, before: str | None) -> _Keyed:
    """Return the run that is asked for, ready to go on."""
    if before is not None:
        plan, done, seen = keyed_plan.of_folder(args, before)
        options.say_renamed(args, done.file)
        if args.ids:
            args.ids = [*args.ids, [plan.key]]
        source = options.source_of(args, done.columns, done.missing, done.begins)
        done = dataclasses.replace(done, file=args.file)
    else:
        plan, seen = keyed_plan.of_options(args), 0
        args.ids = [*args.ids, [plan.key]]  # the key labels the rows, and is no input
        source = options.source_of(args, None, plan.missing)
        outcome.say_columns(source.columns)
        with options.reading(args.file):
            plan.known_numbers = ahead.columns_of(source.columns, plan.known, args.file)
        with options.refusing():
            model = plan.model()
        tally = KeyTally(plan.name)
        done = Outcome(args.file, plan.name, model, source.columns, plan.missing, tally, keys=0)
    if done.model.ahead and (args.explain or args.events):
        raise CommandError("--explain and --events are not for forecasts", WRONG_USAGE)
    if plan.known and (source.live or args.append):
        text = "--known with --key needs the whole file: the rows that follow have not come yet"
        raise CommandError(text, WRONG_USAGE)
    width = _width(source, plan)
    options.refuse_huge(done.model, width)
    key = jax.random.key(plan.seed) if done.model.needs_key else None
    bound = _bound(done.model, width)
    fleet = Fleet(done.model, width, key=key, dtype="float32", bound=bound, spill=folder)
    with options.refusing(FAILED):
        state = fleet.init() if before is None else fleet.load(before)
    return _Keyed(args, folder, source, plan, fleet, state, done, seen)


def _width(source: Source, plan: Plan) -> int:
    """Return how many inputs the models have."""
    return source.columns.width + len(plan.known_numbers) * (plan.horizon or 0)


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
        self, args: argparse.Namespace, folder: str | None, source: Source, plan: Plan,
        fleet: Fleet, state: FleetState, done: Outcome, seen: int,
    ) -> None:  # fmt: skip
        self.args, self.folder, self.source, self.plan = args, folder, source, plan
        self.fleet, self.state, self.done, self.saved = fleet, state, done, seen
        assert isinstance(done.tally, KeyTally)
        self.tally = done.tally
        if len(state):
            self.tally.columns = {name: np.array(a, float) for name, a in state.columns.items()}
        self.ahead: KeyedAhead | None = None  # with --known, once the rows are read
        self.watch = Watch() if done.model.ahead else learning.watch_for(args, done)
        done.keys = len(state)
        done.begin(seen, self.watch)

    def learn(self) -> None:
        """Go through the stream, write what was asked for, and keep the run."""
        blocks, done = 0, self.done
        with contextlib.ExitStack() as stack:
            hidden = self.args.predictions == "-" and sys.stdout.isatty()
            progress = stack.enter_context(Progress(shown=False if hidden else None))
            progress.compiling()
            lines = stack.enter_context(Lines(self.args, self.source, done.rows, done, self.watch))
            done.start_clock()
            if self.folder is not None:
                self._save(lines)
            try:
                for block in self._blocks():
                    self._handle(block, lines)
                    blocks += 1
                    if self.folder is not None and blocks % (self.args.every or EVERY) == 0:
                        self._save(lines)
                    progress.say(outcome.live_line(done, self.source.total))
            except (KeyboardInterrupt, CommandError):
                if self.folder is not None:
                    self._save(lines)
                raise
            if self.folder is not None:
                self._save(lines)

    def _blocks(self) -> Iterator[Encoded]:
        with options.reading(self.args.file):
            if self.plan.known:
                first = options.source_of(self.args, self.done.columns, self.done.missing)
                of_key = self.plan.key, self.plan.known_numbers, self.done.model.ahead
                self.ahead = KeyedAhead(first.labelled(0), *of_key)
            yield from self.source.labelled(self.done.rows)

    def _handle(self, rows: Encoded, lines: Lines) -> None:
        """Predict, learn, count and write the rows of a block."""
        done, (x, d, labels) = self.done, rows
        column = labels.columns[self.plan.key]
        nulls = np.asarray(column.is_null())
        if nulls.any() and self.args.bad_rows != "skip":
            row = done.rows - done.begins + int(nulls.argmax()) + 1
            problem = f"row {row:,} of {self.args.file} has no {self.plan.key!r}"
            advice = "give it a key, or pass --bad-rows skip to leave such rows out"
            raise CommandError(f"{problem}; {advice}", terminal.BAD_DATA)
        there, streams = np.flatnonzero(~nulls), np.full(len(d), -1)
        if not len(there):
            trace = self._nothing()
        else:
            try:
                names = names_of(f"the column {self.plan.key!r}", column.filter(~nulls))
            except (TypeError, ValueError) as error:
                raise CommandError(f"{self.args.file}: {error}", terminal.BAD_DATA) from None
            observe = self.watch if any(self.watch) else None
            seen = x if self.ahead is None else self.ahead.beside(x, done.rows)
            state, trace = self.fleet.run(self.state, names, seen[there], d[there], observe=observe)
            self.state = state
            streams[there] = state.directory.find(names, hashes(names))
        block = self._block(d, there, trace)
        done.columns = self.source.columns  # with the texts that have come by now
        done.look_for_unused(block.start, x)
        self.tally.add(block, streams, labels.instants)
        done.count(block, labels)
        lines.write(block, labels)
        done.rows, done.keys = done.rows + len(d), len(self.state)
        done.skipped += int(block.skipped[there].sum())
        done.keyless += len(d) - len(there)

    def _block(self, d: np.ndarray, rows: np.ndarray, trace: Trace) -> Block:
        """Return a block whose rows without a key have neither a target nor a prediction."""

        def whole(values: ArrayLike) -> np.ndarray:
            array = np.asarray(values)
            nothing = np.nan if np.issubdtype(array.dtype, np.inexact) else 0
            filled = np.full((len(d), *array.shape[1:]), nothing, array.dtype)
            filled[rows] = array
            return filled

        targets, prediction = whole(d[rows].astype(np.float32)), whole(trace.prediction)
        if trace.due is not None:  # what was forecast of a row at the row of its key before
            prediction = whole(trace.due)[:, 0]
            targets = np.where(np.isnan(prediction), np.float32(np.nan), targets)
        observed = jax.tree.map(whole, trace.observed)
        return Block(self.done.rows, targets, prediction, whole(trace.skipped), observed)

    def _nothing(self) -> Trace:
        """Return what a block without a key leaves behind."""
        model, width = self.done.model, _width(self.source, self.plan)
        state = template(model, width, "float32", self.fleet.key)
        x, d = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((width,), ()))
        observe = self.watch if any(self.watch) else None
        one = partial(step, observe=observe)
        shapes = jax.eval_shape(one, model, state, x, d, self.fleet.key)[1]
        return jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), shapes)

    def _save(self, lines: Lines) -> None:
        """Keep the run: states, sums and the position, all of them or none."""
        done, columns = self.done, self.tally.columns
        kept = done.as_dict() | {"keyless": done.keyless, "skipped": done.skipped}
        position = {"row": done.rows, "run": kept | dataclasses.asdict(self.plan) | lines.lengths}
        with explaining(f"the run could not be kept in {self.folder}"):
            self.fleet.save(str(self.folder), self.state, position=position, columns=columns)
        self.saved = done.rows
