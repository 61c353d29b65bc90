"""``jboost predict``: predictions of a kept run for new rows, without learning."""

import argparse
import dataclasses
from collections import deque
from collections.abc import Iterator

import numpy as np

from jboost.checkpoints import checkpoint
from jboost.checkpoints.checkpoint import Checkpoint
from jboost.commands import options, terminal
from jboost.commands.terminal import FAILED, CommandError, explaining, option
from jboost.files.columns import Columns
from jboost.files.encoding import Encoded
from jboost.files.predictions import Predictions
from jboost.files.sources import Source
from jboost.reports.accounts import Watch
from jboost.reports.tally import Tally
from jboost.running.stream import run_stream

ROWS = 4096  # of a block, at most

DESCRIPTION = """\
Predict the rows of a file from a run that was kept, a line of output for each
row of input. Nothing is learned, and the run stays as it is. The file needs the
columns of the run by name, in any order; the target may be absent.
"""
EPILOG = f"""\
Predictions are CSV, or JSON lines if OUT ends in .jsonl: row, the time and the
--id columns, target, prediction, and for a run with --intervals lower and upper.

{terminal.EXIT_STATUS}
examples:
  jboost predict trips.run tomorrow.csv
  jboost predict trips.run tomorrow.csv --id trip --predictions tomorrow.out.csv
"""


def add(commands: terminal.Subcommands) -> None:
    """Add the subcommand to the parser."""
    text = "predict rows from a kept run, without learning"
    parser = terminal.subcommand(commands, run, "predict", text, DESCRIPTION, EPILOG)
    parser.add_argument("run_file", metavar="MODEL.run", help="a file of jboost run --checkpoint")
    parser.add_argument("file", metavar="FILE", help=options.FILE)
    text = "where predictions are written (default: -, standard output)"
    option(parser, "--predictions", "OUT", text, terminal.new_output, default="-")
    options.add_text(parser.add_argument_group("the data"))


def run(args: argparse.Namespace) -> int:
    """Write the predictions."""
    with explaining(f"{args.run_file} cannot be read"), options.refusing(FAILED):
        content = checkpoint.read(args.run_file)
    if content.model.ahead:
        text = f"jboost forecast {args.run_file} prints its forecasts"
        raise CommandError(f"{args.run_file} is a run with --horizon; {text}", terminal.WRONG_USAGE)
    try:
        saved = content.extra["caller"]
        columns, missing = Columns.from_dict(saved["columns"]), str(saved["missing"])
        options.POLICIES[missing]
    except (KeyError, TypeError, ValueError):
        raise CommandError(f"{args.run_file} was not written by jboost run") from None
    args.target = None
    outputs = {"--predictions": args.predictions, "--checkpoint": args.run_file}
    with options.keeping_programs(), options.writing(args.file, outputs):
        # A missing input is no reason to stop where nothing is learned.
        policy = "skip" if missing == "raise" else missing
        source = options.source_of(args, columns, policy, content.position or 0)
        return _predict(args, source, content)


def _predict(args: argparse.Namespace, source: Source, content: Checkpoint) -> int:
    """Go through the file, and write a line for each row."""
    start, waiting = content.position or 0, deque[Encoded]()

    def blocks(_: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with options.reading(args.file):
            for x, d, labels in source.labelled(start):
                for row in range(0, len(d), ROWS):
                    rows = slice(row, row + ROWS)
                    waiting.append(Encoded(x[rows], d[rows], labels.cut(row, row + ROWS)))
                    yield x[rows], np.full_like(d[rows], np.nan)  # no row is learned

    watch = Watch.for_model(content.model, learners=False)
    where = "standard output" if args.predictions == "-" else args.predictions
    writing = explaining(f"the predictions could not be written to {where}")
    with writing, options.refusing(FAILED):
        out = Predictions(
            args.predictions,
            intervals=watch.intervals,
            labels=source.columns.labels,
            as_json=source.is_json,
        )
        stream = run_stream(
            content.model,
            blocks,
            content.key,
            content.state,
            watch if any(watch) else None,
            ahead=0 if source.live else 1,
        )
    tally, rows = Tally("predictions"), 0
    with out, stream:
        for block in stream:
            _, d, labels = waiting.popleft()
            rows += len(d)
            tally.add(dataclasses.replace(block, targets=d))
            bounds = [block.observed[name] for name in ("low", "high") if watch.intervals]
            with explaining(f"the predictions could not be written to {where}"):
                out.write(block.start, d, block.prediction, *bounds, labels=labels.columns)
    text = f"{rows:,} rows predicted, and none learned"
    if tally.scored:
        name = "predictions"
        text += f"; of the {tally.scored:,} with an answer the errors are MSE {tally.mse[name]:.6g}"
        text += f", RMSE {tally.mse[name] ** 0.5:.6g}, MAE {tally.mae[name]:.6g}"
    terminal.say(text)
    return terminal.DONE
