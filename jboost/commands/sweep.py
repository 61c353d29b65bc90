"""``jboost sweep``: a model at every point of a grid, on one file."""

import argparse
import csv
import io
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jboost import catalogue, plots
from jboost.checkpoints.atomic import replacing
from jboost.commands import options, terminal
from jboost.commands.terminal import CommandError, option
from jboost.core import Learner
from jboost.core.progress import Progress, percent
from jboost.files.sources import Numbers
from jboost.sweeps.results import Table
from jboost.sweeps.sweep import sweep

DESCRIPTION = """\
Run a model at every point of a grid of settings over one file, each point as
`jboost run` would, all of them at once. Prints the mean squared errors and the
best point. The file must fit into memory.
"""
EPILOG = """\
examples:
  jboost sweep houses.csv --target price --model bnm_wu \\
      --grid forgetting=0.99,0.999 --grid target_mse=0.01,0.1 --plot map.png
  jboost sweep houses.csv --target price --model bsgd_ru --keys 10 \\
      --grid step_size=0.001,0.01
"""


def add(commands: terminal.Subcommands) -> None:
    """Add the subcommand to the parser."""
    text = "a model at every point of a grid, on a file"
    parser = terminal.subcommand(commands, run, "sweep", text, DESCRIPTION, EPILOG)
    options.add_data(parser)
    options.add_model(parser)
    text = "values of a setting; with several of these, all combinations"
    values = {"action": "append", "required": True}
    option(parser, "--grid", "NAME=V1,V2,…", text, terminal.name_and_value, **values)
    text = "how often a model that draws at random is run at each point (default: 1)"
    option(parser, "--keys", "N", text, terminal.whole_number(1), default=1)
    option(parser, "--table", "OUT.csv", "write all results", terminal.new_file)
    option(parser, "--plot", "OUT.png", "lines or a heat map", terminal.new_picture)


def run(args: argparse.Namespace) -> int:
    """Print the errors and the best point."""
    outputs = {"--table": args.table, "--plot": args.plot}
    with options.keeping_programs(), options.writing(args.file, outputs):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    """Do what the command is to do, while its outputs are held."""
    name = options.known_model(args.model)
    fixed = options.settings(args, name)
    source = options.source_of(args)
    blocks, rows = list[Numbers](), 0
    with options.reading(args.file), Progress() as progress:
        for block in source:
            blocks.append(block)
            rows += len(block[1])
            part = f", {percent(rows, source.total)}" if source.total else ""
            progress.say(f"reading {args.file}{part}, {rows:,} rows")
    xs, ds = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    if not np.isfinite(ds).any():
        raise CommandError(f"{args.file} has no row with an answer", terminal.BAD_DATA)
    grid = {setting: values.split(",") for setting, values in args.grid}
    keys = jax.random.split(jax.random.key(args.seed or 0), args.keys)

    def make(**point: Any) -> Learner:
        return catalogue.named(name, fixed | point, impute=args.missing in (None, "impute"))

    with options.refusing():
        draws = make(**{setting: values[0] for setting, values in grid.items()}).needs_key
        table = sweep(make, grid, xs, ds, keys if draws else None)
    print(f"{len(ds):,} rows of {args.file}\n\n{table}\n")
    best = " ".join(f"--set {setting}={value}" for setting, value in table.best().items())
    print(f"best: {best} (MSE {np.nanmin(table.mean()):.6g})")
    with terminal.explaining(f"{args.table} could not be written"):
        if args.table is not None:
            _write_table(table, args.table)
    with terminal.explaining(f"{args.plot} could not be written"):
        if args.plot is not None:
            plots.save(table.plot().figure, args.plot)
    return terminal.DONE


def _write_table(table: Table, path: Path) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
    if path.exists() and not path.is_file():  # a pipe or a terminal
        path.write_text(text.getvalue())
        return
    with replacing(path) as file:
        file.write(text.getvalue().encode())
