"""``jboost run --horizon H``: forecast the next H answers at every row of a file or a pipe."""

import argparse
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jboost import catalogue
from jboost.checkpoints import checkpoint
from jboost.commands import horizon_report, options, terminal
from jboost.commands.horizon_report import Forecasting
from jboost.commands.outcome import say_columns
from jboost.commands.terminal import BAD_DATA, FAILED, WRONG_USAGE, CommandError, explaining, say
from jboost.core import checks
from jboost.core.progress import Progress
from jboost.files import ahead
from jboost.files.ahead import Timing
from jboost.files.columns import Columns
from jboost.files.encoding import Labels
from jboost.files.predictions import Predictions
from jboost.files.sources import Source
from jboost.forecasts import Forecast
from jboost.reports.horizons import Horizons, observed
from jboost.running.stream import StreamRun, run_stream
from jboost.transforms.calendar import ELAPSED, Calendar

BLOCK = 1024  # rows that are run together, at most


def run(args: argparse.Namespace) -> int:
    """Forecast the file, print the table, and write what was asked for."""
    done, source, saved = _begin(args)
    options.refuse_huge(done.model, _width(done))
    try:
        _learn(args, source, done, saved)
    except KeyboardInterrupt as error:
        lost = "the run was not kept; --checkpoint PATH would keep it"
        advice = "go on with the same command and --resume" if args.checkpoint else lost
        parts = [f"interrupted after {done.rows:,} rows", *terminal.notes_on(error), advice]
        say("; ".join(parts))
        return terminal.INTERRUPTED
    except BrokenPipeError:
        raise
    except (CommandError, MemoryError, OSError) as error:
        raise terminal.as_command_error(error, args.file) from None
    if not done.rows:
        raise CommandError(f"{args.file} has no rows", BAD_DATA)
    horizon_report.show(done, on_stderr=args.predictions == "-")
    return horizon_report.write(done, args.plot, args.report)


def read_run(path: os.PathLike[str] | str) -> tuple[Forecasting, checkpoint.Checkpoint]:
    """Return the run that a checkpoint holds."""
    with explaining(f"{path} cannot be read"), options.refusing(FAILED):
        content = checkpoint.read(path)
    saved = content.extra.get("caller", {})
    if not isinstance(content.model, Forecast) or "horizon" not in saved:
        advice = "jboost run --horizon H --checkpoint PATH makes one"
        raise CommandError(f"{path} is no run that forecasts; {advice}", WRONG_USAGE)
    try:
        done = Forecasting(
            file=str(saved["file"]),
            name=str(saved["name"]),
            model=content.model,
            columns=Columns.from_dict(saved["columns"]),
            known=[str(name) for name in saved["known"]],
            missing=checks.choice("missing", saved["missing"], (*options.POLICIES,)),
            intervals=checks.flag("intervals", saved["intervals"]),
            account=Horizons.from_dict(saved["account"]),
            latest=None if saved["latest"] is None else int(saved["latest"]),
            rows=checks.whole("position", content.position, at_least=0),
            begins=checks.whole("begins", saved["begins"], at_least=0),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise CommandError(f"{path} was not written by jboost run") from None
    return done, content


def _begin(args: argparse.Namespace) -> tuple[Forecasting, Source, dict[str, Any]]:
    """Return the run that is asked for, its source, and what the checkpoint held of it."""
    if args.resume and os.path.exists(args.checkpoint):
        done, content = read_run(args.checkpoint)
        asked = options.joined(args.known)
        if (asked and asked != done.known) or args.model is not None or args.set:
            text = "--known, --model and --set are those of the run to go on with: leave them out"
            raise CommandError(text, WRONG_USAGE)
        done.file, done.begins = args.file, done.rows if args.append else done.begins
        source = options.source_of(args, done.columns, done.missing, done.begins)
        return done, source, content.extra["caller"]
    missing = args.missing or "impute"
    source = options.source_of(args, None, missing)
    columns, in_advance = source.columns, options.joined(args.known)
    say_columns(columns)
    if in_advance and source.live:
        text = "--known needs a file: the rows that follow have not come yet on standard input"
        raise CommandError(text, WRONG_USAGE)
    with options.reading(args.file):
        numbers = ahead.columns_of(columns, in_advance, args.file)
    timing = Timing.of(columns)
    if timing is None:
        found = "rows show no regular step" if columns.time else "there is no column of times"
        say(f"{found}: a horizon counts rows, and seasons are looked for in the answers")
    name = "forecast" if args.model is None else options.known_model(args.model)
    with options.refusing():
        learner = None
        if args.model is not None:
            learner = catalogue.named(name, options.settings(args, name))
        elif args.set:
            raise ValueError("--set is for a --model, and the least squares have none")
        clock = Calendar(0, cycles=(ELAPSED,))  # a count of the rows
        if timing is not None:
            clock = Calendar(0, timing.unit, timing.origin)
        model = Forecast(
            learner,
            args.horizon,
            known=tuple(1 + number for number in numbers),  # behind the time
            calendar=clock,
            step=timing.step if timing else 1.0,
            coverage=args.intervals or 0.9,
        )
    account = Horizons(name, args.horizon, columns.step)
    intervals = args.intervals is not None
    return (
        Forecasting(args.file, name, model, columns, in_advance, missing, intervals, account),
        source,
        {},
    )


def _width(done: Forecasting) -> int:
    return 1 + done.columns.width + len(done.model.known) * done.model.horizon


def _learn(
    args: argparse.Namespace, source: Source, done: Forecasting, saved: dict[str, Any]
) -> None:
    """Go through the stream, write forecasts, and keep the run up to date."""
    timing = Timing.of(done.columns)
    hidden = args.predictions == "-" and sys.stdout.isatty()
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(shown=False if hidden else None))
        progress.compiling()
        waiting: deque[Labels] = deque()  # of blocks that were read and are not handled yet
        stream = stack.enter_context(_stream(args, source, done, timing, waiting, bool(saved)))
        if stream.extra != saved:
            raise CommandError(f"{args.checkpoint} was written by another process; start again")
        if args.checkpoint is not None:
            stream.extra |= done.as_dict() | {"predictions": None}
            with options.refusing(FAILED):
                stream.check(_width(done))
        out = _output(args, source, done, timing, stream.position, saved)
        if out is not None:
            stack.enter_context(out)
        stream.warm_up()
        began, before = time.perf_counter(), stream.position
        for block in stream:
            labels = waiting.popleft()
            done.columns = source.columns
            wall = labels.wall
            slots = None if timing is None or wall is None else timing.slots(wall)
            done.account.add(block, slots)
            times = None
            if timing is not None and wall is not None:
                learned = block.scored & ~block.skipped
                made_at = timing.latest(wall, learned, done.latest)
                times = timing.ahead(made_at, done.model.horizon)
                done.latest = None if np.isnat(made_at[-1]) else int(made_at[-1].astype(np.int64))
            if out is not None:
                _write_block(args, out, done, block, labels, times)
            done.rows, done.skipped = stream.position, stream.skipped
            if args.checkpoint is not None:
                length = None if out is None else out.length
                stream.extra |= done.as_dict() | {"predictions": length}
            rate = (done.rows - before) / max(time.perf_counter() - began, 1e-9)
            mae = done.account.mae[done.name]
            progress.say(f"{done.rows:,} rows, {rate:,.0f} rows/s, MAE {mae:.4g}")


def _stream(
    args: argparse.Namespace, source: Source, done: Forecasting, timing: Timing | None,
    waiting: deque[Labels], goes_on: bool,
) -> StreamRun:  # fmt: skip
    model = done.model
    columns = [number - 1 for number in model.known]

    def blocks(position: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with options.reading(args.file):
            rows = source.labelled(position)
            for x, d, labels in ahead.with_rows_ahead(
                rows, model.horizon, columns, timing, position
            ):
                for row in range(0, len(d), BLOCK):
                    waiting.append(labels.cut(row, row + BLOCK))
                    yield x[row : row + BLOCK], d[row : row + BLOCK]

    new_key = model.needs_key and not goes_on
    with options.refusing(FAILED):
        return run_stream(
            model,
            blocks,
            jax.random.key(args.seed or 0) if new_key else None,
            observe=observed,
            checkpoint=args.checkpoint,
            every=args.every or (1024 if source.live else 16),
            resume=args.resume,
            ahead=0 if source.live else 1,
        )


def _output(
    args: argparse.Namespace, source: Source, done: Forecasting, timing: Timing | None,
    position: int, saved: dict[str, Any],
) -> Predictions | None:  # fmt: skip
    """Open the file of forecasts, cut off after the rows that the checkpoint holds."""
    if args.predictions is None:
        return None
    length, rows = saved.get("predictions"), position
    if args.predictions == "-":
        length = 1 if position else None
    elif args.append and not os.path.exists(args.predictions):
        length, rows = None, 0
    shape = {"intervals": done.intervals, "labels": done.columns.labels, "ahead": True}
    shape |= {"as_json": source.is_json, "timed": timing is not None}
    with terminal.writing_to(args.predictions), options.refusing(FAILED):
        return Predictions(args.predictions, length, rows, **shape)


def _write_block(
    args: argparse.Namespace, out: Predictions, done: Forecasting, block: Any, labels: Labels,
    times: np.ndarray | None,
) -> None:  # fmt: skip
    h = block.observed["half_width"]
    bounds = (block.prediction - h, block.prediction + h) if done.intervals else ()
    with terminal.writing_to(args.predictions):
        estimates = block.prediction, *bounds
        out.write_ahead(block.start, *estimates, labels=labels.columns, times=times)
        if args.checkpoint is not None:
            out.sync()
