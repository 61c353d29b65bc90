"""``jboost run``: learn a file or a pipe, predicting every row before its answer is seen."""

import argparse
import dataclasses
import os
import shlex

from jboost import catalogue
from jboost.checkpoints import checkpoint
from jboost.commands import (
    documents,
    events,
    horizons,
    keyed,
    learning,
    options,
    outcome,
    terminal,
)
from jboost.commands.outcome import Outcome
from jboost.commands.terminal import FAILED, WRONG_USAGE, CommandError, explaining, option
from jboost.core import Learner, checks
from jboost.core.within import within
from jboost.files.columns import Columns
from jboost.files.sources import Source
from jboost.reports.accounts import Bands, Learners
from jboost.reports.importance import Importance
from jboost.reports.tally import Tally
from jboost.wrappers.flags import Flags

DESCRIPTION = """\
Learn a file row by row: predict the target, see the answer, learn from it.
Standard output is one table: the errors of the model, then of the running mean,
the last value and, where rows have regular times, the value of a day, a week or
a year before. All else goes to standard error. Dates and times become cycles of
day, week and year, and elapsed time; text gets a column per value. A row whose
target is empty asks for a prediction. Memory stays constant whatever the size
of the file.
"""
EPILOG = f"""\
With --checkpoint the run can be interrupted at any time, and goes on with
--resume as if it had not been, to the last bit of state and predictions.
Standard input goes on where it is: with - and --resume the rows that come are
taken to be the next ones. A file of new rows goes on with --append. Predictions
are CSV, or JSON lines if OUT ends in .jsonl: row, the time and the --id
columns, target, prediction, and with --intervals lower and upper.

{terminal.EXIT_STATUS}
examples:
  jboost run houses.csv --target price
  jboost run houses.csv --target price --intervals 0.9 --report houses.html
  jboost run load.csv --target mw --time hour --horizon 24 --known holiday \\
      --intervals 0.9 --checkpoint load.run --report load.html
  jboost run trips.parquet --target seconds --drop id --category zone \\
      --model bnm_wu --set m=10 --checkpoint trips.run --report trips.html
  jboost run today.csv --checkpoint trips.run --append --predictions out.csv
  jboost run meters.parquet --target kw --key meter --checkpoint meters.d
  tail -f sensor.csv | jboost run - --target kw --bad-rows skip --predictions -
"""


def add(commands: terminal.Subcommands) -> None:
    """Add the subcommand to the parser."""
    text = "learn a file of CSV, JSON lines or Parquet, or a pipe, row by row"
    parser = terminal.subcommand(commands, run, "run", text, DESCRIPTION, EPILOG)
    options.add_data(parser)
    options.add_model(parser)
    text = "the column that names the stream of a row: each key has a model of its own"
    option(parser, "--key", "COL", text)
    text = "forecast the next H answers at every row, instead of the answer of the row"
    option(parser, "--horizon", "H", text, terminal.whole_number(1, 10_000))
    text = "with --horizon: columns whose values are known H rows in advance; repeatable"
    option(parser, "--known", "COL,…", text, options.column_names, **terminal.REPEATABLE)
    text = "also say between which bounds a part P of the answers lies, such as 0.9"
    option(parser, "--intervals", "P", text, terminal.fraction)
    keep = parser.add_argument_group("what is kept")
    text = "keep the run in this file; with --key, in this folder"
    option(keep, "--checkpoint", "PATH", text, terminal.new_run)
    keep.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    text = "go on from the checkpoint with a file of new rows"
    keep.add_argument("--append", action="store_true", help=text)
    text = "blocks between checkpoints: of some thousand rows of a file, or of the lines that came "
    text += "together (default: 16, and 1024 for standard input)"
    option(keep, "--every", "N", text, terminal.whole_number(1))
    option(keep, "--predictions", "OUT", "write predictions; - for a pipe", terminal.new_output)
    text = "write what each column adds to each prediction; takes longer"
    option(keep, "--explain", "OUT.csv", text, terminal.new_file)
    text = "write what to look at: answers outside, anomalies, changes, inputs that drift"
    option(keep, "--events", "OUT.jsonl", text, terminal.new_file)
    text = "with --key, write the errors of all keys as CSV, the largest first"
    option(keep, "--keys", "OUT", text, terminal.new_file)
    text = "the error over time, the intervals, and what the learners of a booster did"
    option(keep, "--plot", "OUT.png", text, terminal.new_picture)
    option(keep, "--report", "OUT.html", "a page with table, pictures and model", terminal.new_page)


def run(args: argparse.Namespace) -> int:
    """Learn the file, print the table, and write what was asked for."""
    given = "--append" if args.append else "--resume"
    args.resume = args.resume or args.append
    if args.resume and args.checkpoint is None:
        raise CommandError(f"{given} needs the --checkpoint to go on from", WRONG_USAGE)
    if args.key is not None:
        return keyed.run(args)
    if args.keys is not None:
        raise CommandError("--keys is for runs with --key", WRONG_USAGE)
    if args.checkpoint is not None and args.checkpoint.is_dir():
        advice = "a run without --key is kept in a file"
        raise CommandError(f"{args.checkpoint} is a folder; {advice}", WRONG_USAGE)
    if args.checkpoint is not None and args.checkpoint.exists() and not args.resume:
        advice = "pass --resume to go on from it, or another name"
        raise CommandError(f"{args.checkpoint} exists already; {advice}", WRONG_USAGE)
    if args.known and args.horizon is None and not args.resume:
        raise CommandError("--known is for forecasts: pass --horizon H too", WRONG_USAGE)
    names = ("checkpoint", "predictions", "explain", "events", "plot", "report")
    outputs = {f"--{name}": getattr(args, name) for name in names}
    with options.keeping_programs(), options.writing(args.file, outputs):
        if not _forecasts(args):
            return _run(args)
        if args.explain or args.events:
            raise CommandError("--explain and --events are not for forecasts", WRONG_USAGE)
        return horizons.run(args)


def _forecasts(args: argparse.Namespace) -> bool:
    """Whether the run, or the run to go on with, forecasts."""
    if args.resume and os.path.exists(args.checkpoint):
        with explaining(f"{args.checkpoint} cannot be read"), options.refusing(FAILED):
            saved = checkpoint.read(args.checkpoint).extra.get("caller", {})
        before = saved.get("horizon") if isinstance(saved, dict) else None
        if args.horizon not in (None, before):
            text = f"forecasts {before} rows ahead" if before else "does not forecast"
            problem = f"the run to go on with {text}, and --horizon is {args.horizon}"
            raise CommandError(problem, WRONG_USAGE)
        return before is not None
    return args.horizon is not None


def _run(args: argparse.Namespace) -> int:
    """Do what the command is to do, while its outputs are held."""
    done, source = _outcome(args, _read_checkpoint(args) if args.resume else None)
    options.refuse_huge(done.model, done.columns.width)
    try:
        learning.learn(args, source, done)
    except KeyboardInterrupt as error:
        if done.rows:
            outcome.show(done, on_stderr=args.predictions == "-")
        words = (word for word in args.argv if word not in ("--resume", "--append"))
        command = shlex.join(["jboost", *words])
        lost = "the run was not kept; --checkpoint PATH would keep it"
        advice = f"go on with: {command} --resume" if args.checkpoint else lost
        text = "; ".join(
            [f"interrupted after {done.rows:,} rows", *terminal.notes_on(error), advice]
        )
        terminal.say(text)
        return terminal.INTERRUPTED
    except BrokenPipeError as error:
        for note in terminal.notes_on(error):
            terminal.say(f"the reader of the output left; {note}")
        raise
    except (CommandError, MemoryError, OSError) as error:
        raise terminal.as_command_error(error, args.file) from None
    if not done.rows:
        raise CommandError(f"{args.file} has no rows", terminal.BAD_DATA)
    outcome.show(done, on_stderr=args.predictions == "-")
    return documents.write(done, args.plot, args.report)


def _read_checkpoint(args: argparse.Namespace) -> Outcome | None:
    """Return the run that the checkpoint holds, where there is one."""
    if not os.path.exists(args.checkpoint):
        terminal.say(f"there is no {args.checkpoint} yet: the run begins with the first row")
        return None
    try:
        with explaining(f"{args.checkpoint} cannot be read"), options.refusing(FAILED):
            content = checkpoint.read(args.checkpoint)
        saved = content.extra["caller"]
        checks.whole("predictions", saved["predictions"] or 0, at_least=0)
        seen = checks.whole("position", content.position, at_least=0)
        begins = checks.whole("begins", saved.get("begins", 0), at_least=0, at_most=seen)
        return Outcome(
            args.file,
            catalogue.check_name(saved["name"]),
            content.model,
            Columns.from_dict(saved["columns"]),
            checks.choice("missing", saved["missing"], (*options.POLICIES,)),
            Tally.from_dict(saved["tally"]),
            Bands.from_dict(saved["bands"]) if saved["bands"] else None,
            Learners.from_dict(saved["learners"]) if saved["learners"] else None,
            Importance.from_dict(saved["importance"]) if saved.get("importance") else None,
            saved,
            begins=seen if args.append else begins,
            bad=checks.whole("bad", saved.get("bad", 0), at_least=0),
            events={n: int(c) for n, c in saved.get("events", {}).items() if n in events.NAMES},
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise CommandError(f"{args.checkpoint} was not written by jboost run") from None


def _outcome(args: argparse.Namespace, done: Outcome | None) -> tuple[Outcome, Source]:
    """Return the run that is asked for, and its source; ``done`` is what it did before."""
    if done is None:
        missing = args.missing or "impute"
        name, model = _model(args, missing, args.intervals, args.events is not None)
        source = options.source_of(args, None, missing)
        columns = source.columns
        outcome.say_columns(columns)
        tally = Tally(name, columns.step)
        return Outcome(args.file, name, model, columns, missing, tally), source
    options.say_renamed(args, str(done.saved.get("file", args.file)))
    coverage = done.bands.coverage if done.bands else None
    if args.intervals not in (None, coverage):
        before = f"intervals of {coverage:g}" if coverage else "no intervals"
        text = f"the run to go on with has {before}, and --intervals is {args.intervals:g}"
        raise CommandError(text, WRONG_USAGE)
    if args.model is not None or args.set:
        flagged = within(done.model, Flags) is not None
        name, model = _model(args, done.missing, coverage, flagged)
        done = dataclasses.replace(done, name=name, model=model)
    source = options.source_of(args, done.columns, done.missing, done.begins)
    return dataclasses.replace(done, columns=source.columns), source


def _model(
    args: argparse.Namespace, missing: str, intervals: float | None, flagged: bool
) -> tuple[str, Learner]:
    """Return the name of the model that is asked for, and the model."""
    name = options.known_model(args.model)
    asked = name, options.settings(args, name), missing
    with options.refusing():
        return name, options.model_of(*asked, intervals=intervals, flagged=flagged)
