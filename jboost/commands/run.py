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
    part,
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
taken to be the next ones. Predictions are CSV: row,target,prediction, and with
--intervals lower,upper.

{EXIT_STATUS}
examples:
  jboost run houses.csv --target price
  jboost run houses.csv --target price --intervals 0.9 --report houses.html
  jboost run trips.parquet --target seconds --drop id --category zone \\
      --model bnm_wu --set m=10 --checkpoint trips.run --report trips.html
  tail -f sensor.csv | jboost run - --target kw --predictions -
"""


class _Kept(NamedTuple):
    """What a checkpoint says of the run to go on with."""

    own: dict[str, Any]
    model: Any
    columns: Any
    missing: str
    name: str
    tally: Any
    bands: Any
    learners: Any
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
    run_.add_argument(
        "--intervals",
        type=part,
        metavar="P",
        help="also say between which bounds a part P of the answers lies, such as 0.9",
    )
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
    keep.add_argument(
        "--plot",
        type=new_picture,
        metavar="OUT.png",
        help="the error over time, the intervals, and what the learners of a booster did",
    )
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
    options.refuse_own(args.file, args.checkpoint, args.predictions, args.plot, args.report)
    kept = _kept(args) if args.resume else None
    missing = kept.missing if kept else args.missing or "impute"
    name, model = _named(args, kept, missing)
    source = options.source_of(args, kept.columns if kept else None, missing)
    outcome.refuse_huge(model, len(source.columns.names))
    done = outcome.Outcome(args.file, name, model, source.columns, missing)
    try:
        _learn(args, source, kept, done)
    except KeyboardInterrupt as error:
        if done.rows:
            outcome.show(done, apart=args.predictions == "-")
        again = shlex.join(["jboost", *(word for word in args.argv if word != "--resume")])
        kept_or_not = "the run was not kept; --checkpoint PATH would keep it"
        advice = f"go on with: {again} --resume" if args.checkpoint else kept_or_not
        advice = "; ".join([f"interrupted after {done.rows:,} rows", *_notes(error), advice])
        print(f"jboost: {advice}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError as error:
        for note in _notes(error):
            print(f"jboost: the reader of the output left; {note}", file=sys.stderr)
        raise
    except CommandError as error:
        raise _with_notes(error, error) from None
    except MemoryError as error:
        raise _with_notes(CommandError(f"{args.file}: {error}"), error) from None
    except OSError as error:  # of the checkpoint: all others have been made sentences
        raise _with_notes(_cause(error), error) from None
    if not done.rows:
        raise CommandError(f"{args.file} has no rows", BAD_DATA)
    outcome.show(done, apart=args.predictions == "-")
    return outcome.write(done, args.plot, args.report)


def _kept(args: argparse.Namespace) -> _Kept | None:
    """What the checkpoint holds, where there is one."""
    from jboost import catalogue
    from jboost.checkpoints import checkpoint
    from jboost.core import checks
    from jboost.files.columns import Columns
    from jboost.reports.tally import Tally
    from jboost.reports.watch import Bands, Learners

    if not os.path.exists(args.checkpoint):
        text = f"there is no {args.checkpoint} yet: the run begins with the first row"
        print(f"jboost: {text}", file=sys.stderr)
        return None
    try:
        found = checkpoint.read(args.checkpoint)
        own = found.extra["own"]
        return _Kept(
            own,
            found.model,
            Columns.from_dict(own["columns"]),
            checks.choice("missing", own["missing"], (*options.POLICIES,)),
            catalogue.check_name(own["name"]),
            Tally.from_dict(own["tally"]),
            Bands.from_dict(own["bands"]) if own.get("bands") else None,
            Learners.from_dict(own["learners"]) if own.get("learners") else None,
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

    before = kept.bands.coverage if kept and kept.bands else None
    if kept is not None and args.intervals not in (None, before):
        had = f"intervals of {before:g}" if before else "no intervals"
        what = f"the run to go on with has {had}, and --intervals is {args.intervals:g}"
        raise CommandError(what, WRONG_USAGE)
    if kept is not None and args.model is None and not args.set:
        return kept.name, kept.model
    name, part = options.model_of(args), before or args.intervals
    try:
        model = catalogue.named(name, options.settings(args, name), impute=missing == "impute")
        return name, catalogue.resolve(model, intervals=part)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error), WRONG_USAGE) from None


def _learn(
    args: argparse.Namespace, source: Any, kept: _Kept | None, done: outcome.Outcome
) -> None:
    """Go through the stream, and keep the outcome up to date."""
    from jboost.reports.watch import Watch

    answers: collections.deque[Any] = collections.deque()
    if kept is not None:
        done.tally, done.bands, done.learners = kept.tally, kept.bands, kept.learners
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress((0.2, 10.0)))
        watched = Watch.for_model(done.model, learners=bool(args.plot or args.report))
        stream = stack.enter_context(_stream(args, source, answers, kept, done, watched))
        if stream.extra != (kept.own if kept else {}):  # between our reading it and our claim
            raise CommandError(f"{args.checkpoint} was written by another process; start again")
        out = stack.enter_context(_predictions(args, kept, stream.position, watched.intervals))
        stream.extra |= {"columns": done.columns.as_dict(), "missing": done.missing}
        stream.extra |= {"name": done.name, "file": args.file}
        done.begin(stream.position, watched)
        for block in stream:
            targets = answers.popleft()
            done.add(targets, block)
            if out is not None:
                with _writing(out.path):
                    out.write(block.start, targets, block.prediction, *outcome.bounds(block))
                    if args.checkpoint is not None:
                        out.sync()
            if args.checkpoint is not None:
                stream.extra |= done.accounts
                stream.extra["predictions"] = out.length if out is not None else None
            done.rows, done.skipped = stream.position, stream.skipped
            if progress.due:
                progress.say(outcome.line(done))


def _stream(
    args: argparse.Namespace,
    source: Any,
    answers: Any,
    kept: _Kept | None,
    done: outcome.Outcome,
    watch: Any,
) -> Any:
    """The run over the source; the answers of its blocks are put aside for whoever counts them."""
    import jax

    from jboost.checkpoints.checkpoint import CheckpointError
    from jboost.running.stream import run_stream

    def blocks(position: int) -> Iterator[Any]:
        with options.reading(args.file):
            for x, d in source(position):
                if len(d):
                    done.look(position, x)
                    answers.append(d)
                    yield x, d
                    position += len(d)

    model, given = done.model, args.seed is not None or kept is None
    key = jax.random.key(args.seed or 0) if model.needs_key and given else None
    every = args.every or (1024 if source.live else 16)
    keeps: Any = {"checkpoint": args.checkpoint, "every": every, "resume": args.resume}
    try:
        ahead = 0 if source.live else 1
        observe = watch if any(watch) else None
        return run_stream(model, blocks, key, observe=observe, ahead=ahead, **keeps)
    except (CheckpointError, ValueError) as error:
        raise CommandError(str(error)) from None


def _predictions(args: argparse.Namespace, kept: _Kept | None, position: int, bounded: bool) -> Any:
    """Where predictions go; what was written after the checkpoint will be made again."""
    from jboost.files.predictions import Predictions

    if args.predictions is None:
        return contextlib.nullcontext()
    length = kept.predictions if kept else None
    if args.predictions == "-":
        length = 1 if position else None  # the first line is there
    try:
        with _writing(args.predictions):
            return Predictions(args.predictions, length, position, intervals=bounded)
    except ValueError as error:
        raise CommandError(str(error)) from None


@contextlib.contextmanager
def _writing(path: Any) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "standard output" if path == "-" else path
        reason = error.strerror or error
        raise CommandError(f"the predictions could not be written to {where}: {reason}") from None


def _notes(error: BaseException) -> list[str]:
    """What the run says of its checkpoint after a failure."""
    return getattr(error, "__notes__", [])


def _with_notes(said: CommandError, error: BaseException) -> CommandError:
    return CommandError("; ".join([str(said), *_notes(error)]), said.status)


def _cause(error: OSError) -> CommandError:
    """What went wrong first: a full disk also keeps the checkpoint from being written."""
    before = error.__context__
    while before is not None and not isinstance(before, CommandError):
        before = before.__context__
    named = f"{error.filename}: " if error.filename else ""
    return before or CommandError(f"{named}{error.strerror or error}")
