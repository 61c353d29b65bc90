"""``jboost run --horizon H``: forecast the next H answers at every row of a file or a pipe."""

import argparse
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import jax
import numpy as np

from jboost import catalogue
from jboost.checkpoints import checkpoint
from jboost.commands import horizon_report, options, terminal, waiting
from jboost.commands.horizon_report import Forecasting
from jboost.commands.outcome import say_columns
from jboost.commands.terminal import BAD_DATA, FAILED, WRONG_USAGE, CommandError, explaining, say
from jboost.core import checks
from jboost.core.progress import Progress
from jboost.files import ahead
from jboost.files.ahead import Timing
from jboost.files.columns import Columns
from jboost.files.encoding import Encoded, Labels
from jboost.files.lookahead import Lookahead
from jboost.files.predictions import Predictions
from jboost.files.sources import Source
from jboost.forecasts import Forecast
from jboost.reports.horizons import Horizons, observed
from jboost.running.blocks import Block
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
        done.file = args.file
        if args.append:
            before = waiting.from_dict(content.extra["caller"].get("waiting"))
            done.begins = done.rows + (0 if before is None else len(before.d))
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
        # The labels of blocks that were read and are not handled yet, and what waits behind them.
        behind: deque[tuple[Labels, Encoded | None]] = deque()
        shape = done.model.horizon, [number - 1 for number in done.model.known], timing
        look = Lookahead(*shape, done.rows)
        stream = stack.enter_context(_stream(args, source, done, look, behind, saved))
        if stream.extra != saved:
            raise CommandError(f"{args.checkpoint} was written by another process; start again")
        if args.checkpoint is not None:
            # So much may the rows that wait take.
            room = "0" * 16 * done.model.horizon * _width(done) if done.known else ""
            stream.extra |= done.as_dict() | {"predictions": None, "waiting": room}
            with options.refusing(FAILED):
                stream.check(_width(done))
        out = _output(args, source, done, timing, stream.position, saved)
        if out is not None:
            stack.enter_context(out)
        stream.warm_up()
        began, before, done.skipped = time.perf_counter(), stream.position, stream.skipped
        for block in stream:
            done.columns = source.columns
            labels, rows = behind.popleft()
            _count(args, done, block, labels, out)
            if args.checkpoint is not None:
                kept = {"predictions": None if out is None else out.length}
                stream.extra |= done.as_dict() | kept | {"waiting": waiting.as_dict(rows)}
            rate = (done.rows - before) / max(time.perf_counter() - began, 1e-9)
            mae = done.account.mae[done.name]
            progress.say(f"{done.rows:,} rows, {rate:,.0f} rows/s, MAE {mae:.4g}")
        # Of the last rows it is not known what comes after them. The kept run ends before them, so
        # that it can learn them again when more is known.
        if look.waiting is not None and len(look.waiting.d):
            rest = look.take(len(look.waiting.d))
            if args.checkpoint is not None and stream.position == 0:
                say(f"the run is not kept: no row is followed by {done.model.horizon} others")
            _, block = waiting.learned(done.model, stream.state, stream.key, rest, stream.position)
            _count(args, done, block, rest.labels, out)


def _count(
    args: argparse.Namespace, done: Forecasting, block: Block, labels: Labels,
    out: Predictions | None,
) -> None:  # fmt: skip
    """Count a block that was learned, and write its forecasts."""
    timing, wall, times = Timing.of(done.columns), labels.wall, None
    if timing is None or wall is None:
        done.account.add(block)
    else:
        done.account.add(block, timing.slots(wall))
        made_at = timing.latest(wall, block.scored & ~block.skipped, done.latest)
        times = timing.ahead(made_at, done.model.horizon)
        done.latest = None if np.isnat(made_at[-1]) else int(made_at[-1].astype(np.int64))
    if out is not None:
        _write_block(args, out, done, block, labels, times)
    done.rows += len(block.targets)
    done.skipped += int(block.skipped.sum())


def _stream(
    args: argparse.Namespace, source: Source, done: Forecasting, look: Lookahead,
    behind: deque[tuple[Labels, Encoded | None]], saved: dict[str, Any],
) -> StreamRun:  # fmt: skip
    model = done.model

    def blocks(position: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with options.reading(args.file):
            before = waiting.from_dict(saved.get("waiting"))
            rows = source.labelled(max(position, done.begins))
            rows = waiting.with_those_before(rows, before, done.begins - position)
            pieces = (piece for block in look(rows) for piece in block.pieces(BLOCK))
            # A live source has no known columns: its rows go on at once.
            marked = waiting.with_last(pieces) if model.known else zip(pieces, repeat(False))
            for (x, d, labels), is_last in marked:
                behind.append((labels, look.waiting if is_last else None))
                yield x, d

    new_key = model.needs_key and not saved
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
