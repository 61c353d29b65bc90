"""How ``jboost run`` goes through a stream: block by block, with the files that it writes."""

import argparse
import contextlib
import sys
from collections import deque
from collections.abc import Iterator

import jax
import numpy as np

from jboost.commands import options, outcome
from jboost.commands.lines import Lines
from jboost.commands.outcome import Outcome
from jboost.commands.terminal import FAILED, CommandError
from jboost.core.progress import Progress
from jboost.core.within import within
from jboost.engine import pieces
from jboost.files.encoding import Labels
from jboost.files.sources import Source
from jboost.reports.accounts import Watch
from jboost.running.stream import StreamRun, run_stream
from jboost.wrappers.flags import Flags

# Rows of the first block, and of the largest block of a slow model: first results come early, and
# all come steadily. A quick model has longer blocks: a call of its program costs more beside them.
FIRST_ROWS, MOST_ROWS = 256, 2048
CALLS = 16  # the block of a quick model takes about as long as so many calls by themselves


def learn(args: argparse.Namespace, source: Source, done: Outcome) -> None:
    """Go through the stream, write predictions, and keep the outcome up to date."""
    watch = watch_for(args, done)
    # Predictions on the same terminal would be written into the line.
    hidden = args.predictions == "-" and sys.stdout.isatty()
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(shown=False if hidden else None))
        progress.compiling()
        waiting: deque[Labels] = deque()  # of blocks that were read and are not handled yet
        stream = stack.enter_context(_stream(args, source, done, watch, waiting))
        # Another process may have written the file between our reading it and our claiming it.
        if stream.extra != done.saved:
            raise CommandError(f"{args.checkpoint} was written by another process; start again")
        done.begin(stream.position, watch)
        if args.checkpoint is not None:
            stream.extra |= done.as_dict() | {"predictions": None, "explanations": None}
            stream.extra["events_length"] = None
            with options.refusing(FAILED):
                stream.check(done.columns.width)
        lines = stack.enter_context(Lines(args, source, stream.position, done, watch))
        stream.warm_up()
        done.start_clock()
        for block in stream:
            labels = waiting.popleft()
            done.columns = source.columns  # with the texts that have come by now
            done.add(block, labels)
            lines.write(block, labels)
            if args.checkpoint is not None:
                stream.extra |= done.as_dict() | lines.lengths
            done.rows, done.skipped = stream.position, stream.skipped
            progress.say(outcome.live_line(done, source.total))


def watch_for(args: argparse.Namespace, done: Outcome) -> Watch:
    """Return what is to be observed for what was asked for."""
    shown, groups = bool(args.plot or args.report), done.columns.groups if args.explain else None
    flags = args.events is not None and within(done.model, Flags) is not None
    return Watch.for_model(done.model, learners=shown, groups=groups, flags=flags)


def _stream(
    args: argparse.Namespace, source: Source, done: Outcome, watch: Watch, waiting: deque[Labels]
) -> StreamRun:
    """Return the run over the source, which leaves the labels of each block in ``waiting``."""
    size = options.state_size(done.model, done.columns.width)
    most = max(MOST_ROWS, CALLS * pieces.samples_per_call(size))

    def blocks(position: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with options.reading(args.file):
            for x, d, labels in source.labelled(position):
                done.look_for_unused(position, x)
                row = 0
                while row < len(d):
                    # It depends on the row alone, so that a run that goes on has the same blocks.
                    n = min(max(position, FIRST_ROWS), most, len(d) - row)
                    waiting.append(labels.cut(row, row + n))
                    yield x[row : row + n], d[row : row + n]
                    row, position = row + n, position + n

    new_key = done.model.needs_key and (args.seed is not None or not done.saved)
    with options.refusing(FAILED):  # a checkpoint of another model, or of another key
        return run_stream(
            done.model,
            blocks,
            jax.random.key(args.seed or 0) if new_key else None,
            observe=watch if any(watch) else None,
            checkpoint=args.checkpoint,
            every=args.every or (1024 if source.live else 16),
            resume=args.resume,
            ahead=0 if source.live else 1,
        )
