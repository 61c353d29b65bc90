"""Options for the data and the model, which ``run`` and ``sweep`` share."""

import argparse
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from jboost import catalogue
from jboost.checkpoints.checkpoint import CheckpointError
from jboost.commands.terminal import (
    BAD_DATA,
    WRONG_USAGE,
    CommandError,
    explaining,
    name_and_value,
    whole_number,
)
from jboost.core import Learner
from jboost.core.template import template
from jboost.files import sources
from jboost.files.columns import Columns, DataError

POLICIES = {"impute": "keep", "skip": "skip", "raise": "raise"}  # --missing, as sources.read has it


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what the columns of the file are."""
    parser.add_argument("file", metavar="FILE", help="CSV or Parquet; - is standard input")
    parser.add_argument("--target", metavar="COL", help="the column to predict")
    data = parser.add_argument_group("the data")
    data.add_argument(
        "--drop", action="append", default=[], metavar="COL", help="leave a column out; repeatable"
    )
    data.add_argument(
        "--category",
        action="append",
        default=[],
        metavar="COL",
        help="a column of numbers that are codes; text columns are categories by themselves",
    )
    data.add_argument(
        "--ordinal",
        action="append",
        default=[],
        type=name_and_value,
        metavar="COL=LOW,…,HIGH",
        help="the values of a text column that has an order",
    )
    data.add_argument(
        "--buckets",
        type=whole_number(2),
        metavar="N",
        help="how many columns a category is hashed to (default: 16)",
    )
    data.add_argument(
        "--missing",
        choices=[*POLICIES],
        help="missing inputs: fill in from the past (impute, the default), learn nothing from "
        "such a row (skip), or stop there (raise)",
    )
    data.add_argument("--delimiter", metavar="C", help="between fields (default: a comma)")
    data.add_argument("--decimal", metavar="C", help="before decimals (default: a point)")
    data.add_argument("--encoding", metavar="NAME", help="of the text (default: utf-8)")
    data.add_argument(
        "--no-header", action="store_true", help="the first line has no names; call columns 1, 2, …"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the model."""
    model = parser.add_argument_group("the model")
    model.add_argument("--model", metavar="NAME", help="one of `jboost models` (default: auto)")
    model.add_argument(
        "--set",
        action="append",
        default=[],
        type=name_and_value,
        metavar="NAME=VALUE",
        help="a setting of the model; repeatable",
    )
    model.add_argument(
        "--seed", type=whole_number(0, 2**32 - 1), metavar="N", help="of random draws (default: 0)"
    )


def known_model(name: str | None) -> str:
    """The name of a model in the catalogue, by default the catalogue's default."""
    with refusing():
        return catalogue.check_name(name or catalogue.DEFAULT)


def settings(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """The settings of the model; ``--seed`` is one of them where the model has a seed."""
    seeded = args.seed is not None and "seed" in catalogue.CATALOGUE[name].settings
    return ({"seed": args.seed} if seeded else {}) | dict(args.set)


def source_of(
    args: argparse.Namespace, columns: Columns | None = None, missing: str | None = None
) -> sources.Source:
    """The stream that the options describe.

    ``columns`` and ``missing`` are those of the run to go on with, where there is one.
    """
    if columns is None and args.target is None:
        raise CommandError("--target is missing: which column is to be predicted?", WRONG_USAGE)
    if columns is not None and args.target not in (None, columns.target):
        before = f"the run to go on with predicts {columns.target!r}"
        raise CommandError(f"{before}, and --target is {args.target!r}", WRONG_USAGE)
    chosen: dict[str, Any] = {"columns": columns}
    if columns is None:
        chosen = {
            "target": args.target,
            "drop": args.drop,
            "category": args.category,
            "ordinal": {name: values.split(",") for name, values in args.ordinal},
        }
        chosen |= {"buckets": args.buckets} if args.buckets else {}
    text = {
        "delimiter": args.delimiter,
        "decimal": args.decimal,
        "encoding": args.encoding,
        "header": False if args.no_header else None,
    }
    text = {name: value for name, value in text.items() if value is not None}
    policy = POLICIES[missing or args.missing or "impute"]
    with reading(args.file):
        return sources.read(args.file, **chosen, missing=policy, **text)


def refuse_input_as_output(file: str, *outputs: Path | str | None) -> None:
    """Raise an error if the file that is read would be written to."""
    for path in outputs:
        if path and os.path.exists(path) and os.path.exists(file) and os.path.samefile(path, file):
            raise CommandError(f"{path} is the file to learn; write to another", WRONG_USAGE)


def refuse_huge(model: Learner, width: int) -> None:
    """Raise an error if a model of ``width`` inputs would not fit into memory."""
    state = template(model, width, "float32")
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # the system does not tell
        return
    if 3 * size > memory:  # the state, the state after it, and what lies between
        raise CommandError(
            f"with {width:,} columns this model takes {3 * size / 1e9:,.0f} GB, and there are "
            f"{memory / 1e9:,.0f}; drop columns, or take a smaller model such as --model sgd"
        )


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what the library says of a wrong argument into wrong usage of the command."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise CommandError(str(error), WRONG_USAGE) from None


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn what is wrong with the data into one sentence, with the exit status for bad data."""
    try:
        yield
    except DataError as error:
        raise CommandError(str(error), BAD_DATA) from None
    except OSError as error:
        name = error.filename if error.filename is not None else file
        raise CommandError(f"{name} cannot be read: {error.strerror or error}", BAD_DATA) from None
    except ValueError as error:
        raise CommandError(str(error), WRONG_USAGE) from None


@contextmanager
def reading_checkpoint(path: Path | str) -> Iterator[None]:
    """Turn what is wrong with a checkpoint into one sentence."""
    try:
        with explaining(f"{path} cannot be read"):
            yield
    except CheckpointError as error:
        raise CommandError(str(error)) from None
