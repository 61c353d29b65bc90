"""``jboost sweep``: a model at every point of a grid, on one file."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from jboost.commands import options
from jboost.commands.terminal import (
    BAD_DATA,
    DONE,
    WRONG_USAGE,
    CommandError,
    help_of,
    new_file,
    new_picture,
    setting,
    whole,
)

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


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    sweep = commands.add_parser(
        "sweep", help="a model at every point of a grid, on a file", **help_of(DESCRIPTION, EPILOG)
    )
    options.add_data(sweep)
    options.add_model(sweep)
    sweep.add_argument(
        "--grid",
        action="append",
        required=True,
        type=setting,
        metavar="NAME=V1,V2,…",
        help="values of a setting; with several of these, all combinations",
    )
    sweep.add_argument(
        "--keys",
        type=whole(1),
        default=1,
        metavar="N",
        help="how often a model that draws at random is run at each point (default: 1)",
    )
    sweep.add_argument("--table", type=new_file, metavar="OUT.csv", help="write all results")
    sweep.add_argument("--plot", type=new_picture, metavar="OUT.png", help="lines or a heat map")
    sweep.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    import jax
    import numpy as np

    from jboost import catalogue
    from jboost.sweeps.sweep import sweep

    options.refuse_own(args.file, args.table, args.plot)
    name = options.model_of(args)
    fixed = options.settings(args, name)
    source = options.source_of(args)
    with options.reading(args.file):
        blocks = list(source)
    xs, ds = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    if not np.isfinite(ds).any():
        raise CommandError(f"{args.file} has no row with an answer", BAD_DATA)
    impute = (args.missing or "impute") == "impute"
    grid = {name: values.split(",") for name, values in args.grid}
    keys = jax.random.split(jax.random.key(args.seed or 0), args.keys)

    def make(**point: Any) -> Any:
        return catalogue.named(name, fixed | point, impute=impute)

    try:
        drawn = make(**{setting: values[0] for setting, values in grid.items()}).needs_key
        table = sweep(make, grid, xs, ds, keys if drawn else None)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error), WRONG_USAGE) from None
    print(f"{len(ds):,} rows of {args.file}\n\n{table}\n")
    words = " ".join(f"--set {name}={value}" for name, value in table.best().items())
    print(f"best: {words} (MSE {np.nanmin(table.mean()):.6g})")
    for path, write in ((args.table, _write_table), (args.plot, _write_picture)):
        try:
            if path is not None:
                write(table, path)
        except OSError as error:
            reason = error.strerror or error
            raise CommandError(f"{path} could not be written: {reason}") from None
    return DONE


def _write_table(table: Any, path: Path) -> None:
    from jboost.checkpoints.atomic import replacing

    if path.exists() and not path.is_file():  # a pipe or a terminal
        path.write_text(_csv(table))
        return
    with replacing(path) as file:
        file.write(_csv(table).encode())


def _write_picture(table: Any, path: Path) -> None:
    from jboost import plots

    plots.save(table.plot().figure, path)


def _csv(table: Any) -> str:
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
    return text.getvalue()
