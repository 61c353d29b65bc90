"""``jboost run``: learn a file or a pipe, predicting every row before its answer is seen."""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from jboost.commands import options, outcome
from jboost.commands.terminal import (
    BAD_DATA,
    EXIT_STATUS,
    INTERRUPTED,
    WRONG_USAGE,
    CommandError,
    Progress,
    help_of,
    new_file,
    new_output,
    new_page,
    new_picture,
    whole,
)

DESCRIPTION = """\
Learn a file row by row: predict the target, see the answer, learn from it.
Prints how far it is (rows, rows a second, mean squared error so far and
lately) and, at the end, the errors beside those of the running mean and of the
last value. Memory stays constant whatever the size of the file.
"""

EPILOG = f"""\
With --checkpoint the run can be interrupted at any time, and goes on with
--resume as if it had not been, to the last bit of state and predictions.
Standard input goes on where it is: with - and --resume the rows that come are
taken to be the next ones. Predictions are CSV: row,target,prediction.

{EXIT_STATUS}
examples:
  jboost run houses.csv --target price
  jboost run trips.parquet --target seconds --drop id --category zone \\
      --model bnm_wu --set m=10 --checkpoint trips.run --report trips.html
  tail -f sensor.csv | jboost run - --target kw --predictions -
"""


class _Kept(NamedTuple):
    """What a checkpoint says of the run to go on with."""

    model: Any
    columns: Any
    missing: str
    name: str
    tally: Any
    predictions: int | None


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    run_ = commands.add_parser(
        "run",
        help="learn a CSV or Parquet file, or a pipe, row by row",
        **help_of(DESCRIPTION, EPILOG),
    )
    options.add_data(run_)
    options.add_model(run_)
    keep = run_.add_argument_group("what is kept")
    keep.add_argument(
        "--checkpoint", type=new_file, metavar="PATH", help="keep the run in this file"
    )
    keep.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    keep.add_argument(
        "--every",
        type=whole(1),
        metavar="N",
        help="blocks between checkpoints: of a few megabytes of a file, or of the lines that came "
        "together (default: 16, and 1024 for standard input)",
    )
    keep.add_argument(
        "--predictions", type=new_output, metavar="OUT", help="write predictions; - for a pipe"
    )
    keep.add_argument("--plot", type=new_picture, metavar="OUT.png", help="the error over time")
    keep.add_argument(
        "--report", type=new_page, metavar="OUT.html", help="a page with all there is to say"
    )
    run_.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    if args.resume and args.checkpoint is None:
        raise CommandError("--resume needs the --checkpoint to go on from", WRONG_USAGE)
    if args.checkpoint is not None and args.checkpoint.exists() and not args.resume:
        advice = "pass --resume to go on from it, or another name"
        raise CommandError(f"{args.checkpoint} exists already; {advice}", WRONG_USAGE)
    outputs = (args.checkpoint, args.predictions, args.plot, args.report)
    same = next((path for path in outputs if path and _is(path, args.file)), None)
    if same is not None:
        raise CommandError(f"{same} is the file to learn; write to another", WRONG_USAGE)
    kept = _kept(args) if args.resume else None
    missing = kept.missing if kept else args.missing or "impute"
    name, model = _named(args, kept, missing)
    source = options.source_of(args, kept.columns if kept else None, missing)
    outcome.refuse_huge(model, len(source.columns.names))
    done = outcome.Outcome(args.file, name, model, source.columns, missing)
    try:
        _learn(args, source, kept, done)
    except KeyboardInterrupt:
        outcome.show(done, apart=args.predictions == "-")
        again = shlex.join(["jboost", *(word for word in args.argv if word != "--resume")])
        kept_or_not = "the run was not kept; --checkpoint PATH would keep it"
        advice = f"go on with: {again} --resume" if args.checkpoint else kept_or_not
        print(f"jboost: interrupted after {done.rows:,} rows; {advice}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:  # of the checkpoint: all others have been made sentences
        raise _cause(error) from None
    if not done.rows:
        raise CommandError(f"{args.file} has no rows", BAD_DATA)
    outcome.show(done, apart=args.predictions == "-")
    return outcome.write(done, args.plot, args.report)


def _is(path: Any, file: str) -> bool:
    """Whether two names are of one file."""
    return os.path.exists(path) and os.path.exists(file) and os.path.samefile(path, file)


def _kept(args: argparse.Namespace) -> _Kept | None:
    """What the checkpoint holds, where there is one."""
    from jboost import catalogue, checks
    from jboost.checkpoints import checkpoint
    from jboost.files.columns import Columns
    from jboost.reports.tally import Tally

    if not os.path.exists(args.checkpoint):
        return None
    try:
        found = checkpoint.read(args.checkpoint)
        own = found.extra["own"]
        return _Kept(
            found.model,
            Columns.from_dict(own["columns"]),
            checks.choice("missing", own["missing"], (*options.POLICIES,)),
            catalogue.known(own["name"]),
            Tally.from_dict(own["tally"]),
            None if own["predictions"] is None else int(own["predictions"]),
        )
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"{args.checkpoint} cannot be read: {reason}") from None
    except checkpoint.CheckpointError as error:
        raise CommandError(str(error)) from None
    except (KeyError, TypeError, ValueError, OverflowError):
        raise CommandError(f"{args.checkpoint} was not written by jboost run") from None


def _named(args: argparse.Namespace, kept: _Kept | None, missing: str) -> tuple[str, Any]:
    """The model that is asked for, and what to call it."""
    from jboost import catalogue

    if kept is not None and args.model is None and not args.set:
        return kept.name, kept.model
    name = options.model_of(args)
    try:
        return name, catalogue.named(name, options.settings(args, name), impute=missing == "impute")
    except (TypeError, ValueError) as error:
        raise CommandError(str(error), WRONG_USAGE) from None


def _learn(
    args: argparse.Namespace, source: Any, kept: _Kept | None, done: outcome.Outcome
) -> None:
    """Go through the stream, and keep the outcome up to date."""
    answers: collections.deque[Any] = collections.deque()
    if kept is not None:
        done.tally = kept.tally
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress((0.2, 10.0)))
        stream = stack.enter_context(_stream(args, source, answers, kept, done.model))
        out = stack.enter_context(_predictions(args, kept, stream.position))
        stream.extra |= {"columns": done.columns.as_dict(), "missing": done.missing}
        stream.extra |= {"name": done.name, "file": args.file}
        done.begin(stream.position)
        for block in stream:
            targets = answers.popleft()
            done.tally.add(targets, block.prediction)
            if out is not None:
                with _writing(out.path):
                    out.write(block.start, targets, block.prediction)
                    if args.checkpoint is not None:
                        out.sync()
            if args.checkpoint is not None:
                stream.extra["tally"] = done.tally.as_dict()
                stream.extra["predictions"] = out.length if out is not None else None
            done.rows, done.skipped = stream.position, stream.skipped
            if progress.due:
                progress.say(outcome.line(done))


def _stream(
    args: argparse.Namespace, source: Any, answers: Any, kept: _Kept | None, model: Any
) -> Any:
    """The run over the source; the answers of its blocks are put aside for whoever counts them."""
    import jax

    from jboost.checkpoints.checkpoint import CheckpointError
    from jboost.driver import run_stream

    def blocks(position: int) -> Iterator[Any]:
        with options.reading(args.file):
            for x, d in source(position):
                if len(d):
                    answers.append(d)
                    yield x, d

    given = args.seed is not None or kept is None
    key = jax.random.key(args.seed or 0) if model.needs_key and given else None
    every = args.every or (1024 if source.live else 16)
    keeps: Any = {"checkpoint": args.checkpoint, "every": every, "resume": args.resume}
    try:
        return run_stream(model, blocks, key, ahead=0 if source.live else 1, **keeps)
    except (CheckpointError, ValueError) as error:
        raise CommandError(str(error)) from None


def _predictions(args: argparse.Namespace, kept: _Kept | None, position: int) -> Any:
    """Where predictions go; what was written after the checkpoint will be made again."""
    from jboost.files.predictions import HEADER, Predictions

    if args.predictions is None:
        return contextlib.nullcontext()
    length = kept.predictions if kept else None
    if args.predictions == "-":
        length = len(HEADER) if position else None
    try:
        with _writing(args.predictions):
            return Predictions(args.predictions, length)
    except ValueError as error:
        raise CommandError(str(error)) from None


@contextlib.contextmanager
def _writing(path: Any) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"the predictions could not be written to {path}: {reason}") from None


def _cause(error: OSError) -> CommandError:
    """What went wrong first: a full disk also keeps the checkpoint from being written."""
    before = error.__context__
    while before is not None and not isinstance(before, CommandError):
        before = before.__context__
    named = f"{error.filename}: " if error.filename else ""
    return before or CommandError(f"{named}{error.strerror or error}")
