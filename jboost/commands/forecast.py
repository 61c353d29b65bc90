"""``jboost forecast``: the next H answers, from a kept run."""

import argparse

import numpy as np

from jboost.commands import horizons, options, terminal, waiting
from jboost.commands.horizon_report import Forecasting
from jboost.commands.terminal import BAD_DATA, CommandError, option
from jboost.files import ahead
from jboost.files.ahead import Timing
from jboost.files.encoding import Encoded
from jboost.files.predictions import times_as_text

DESCRIPTION = """\
Print the next H answers that a kept run of jboost run --horizon forecasts, a
line of CSV each: the horizon, the time it is for, the forecast, and its bounds.
FUTURE holds the columns that are known in advance, at the rows to come; without
it they count as at the last row. Nothing is learned: the run stays as it is.
"""
EPILOG = f"""\
{terminal.EXIT_STATUS}
examples:
  jboost forecast load.run
  jboost forecast load.run tomorrow.csv --predictions tomorrow.out.csv
"""


def add(commands: terminal.Subcommands) -> None:
    """Add the subcommand to the parser."""
    text = "print the next H answers of a kept run"
    parser = terminal.subcommand(commands, run, "forecast", text, DESCRIPTION, EPILOG)
    text = "a file of jboost run --horizon H --checkpoint"
    parser.add_argument("run_file", metavar="MODEL.run", help=text)
    parser.add_argument("file", metavar="FUTURE", nargs="?", help=options.FILE)
    text = "where forecasts are written (default: -, standard output)"
    option(parser, "--predictions", "OUT", text, terminal.new_output, default="-")
    options.add_text(parser.add_argument_group("the data"))


def run(args: argparse.Namespace) -> int:
    """Print the forecast."""
    done, content = horizons.read_run(args.run_file)
    model, state = done.model, content.state
    before = waiting.from_dict(content.extra["caller"].get("waiting"))
    timing, begins = Timing.of(done.columns), done.rows + (0 if before is None else len(before.d))
    args.target = None
    future = []
    if args.file is not None:
        if not done.known:
            text = "the run has no --known columns, so that no file tells more of the rows to come"
            raise CommandError(f"{text}; leave {args.file} out", terminal.WRONG_USAGE)
        source = options.source_of(args, done.columns, "impute", begins)
        with options.reading(args.file):
            future = [*source.labelled(begins)]
    if before is not None:
        rows = before, future, timing, done.rows, done.latest
        state, done.latest = waiting.caught_up(model, state, content.key, *rows)
    values = _known(args, done, future) if args.file is not None else None
    y = np.asarray(model.forecast(state, values))
    low, high = (np.asarray(end) for end in model.interval(state, values))
    columns = {"horizon": [str(h) for h in range(1, len(y) + 1)]}
    if timing is not None and done.latest is not None:
        latest = np.array([done.latest], "datetime64[us]")
        times = timing.ahead(latest, model.horizon)[0]
        columns["for"] = [text or "" for text in times_as_text(times)]
    columns["prediction"] = [str(value) for value in y]
    if done.intervals:
        columns |= {"lower": [*map(str, low)], "upper": [*map(str, high)]}
    lines = [",".join(columns), *map(",".join, zip(*columns.values(), strict=True))]
    text = "".join(f"{line}\n" for line in lines)
    with terminal.writing_to(args.predictions):
        if args.predictions == "-":
            print(text, end="")
        else:
            with open(args.predictions, "w", encoding="utf-8") as file:
                file.write(text)
    return terminal.DONE


def _known(args: argparse.Namespace, done: Forecasting, future: list[Encoded]) -> np.ndarray:
    """Return the known columns at the next H rows, (H, k), NaN where the file does not tell."""
    horizon, timing = done.model.horizon, Timing.of(done.columns)
    columns = ahead.columns_of(done.columns, done.known, args.file)
    values = np.full((horizon, len(columns)), np.nan)
    row = 0
    for x, _, labels in future:
        steps = np.arange(row, row + len(x))
        if timing is not None and done.latest is not None and labels.wall is not None:
            latest = np.array([done.latest], "datetime64[us]")
            steps = timing.slots(labels.wall) - timing.slots(latest) - 1
        there = (steps >= 0) & (steps < horizon)
        values[steps[there]] = x[there][:, columns]
        row += len(x)
    if np.isnan(values).all():
        text = f"{args.file} has none of the {horizon} rows after the last row of the run"
        raise CommandError(f"{text}: its times are others", BAD_DATA)
    return values
