"""Options that say what the data are and which model learns them, for ``run`` and ``sweep``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jboost.commands.terminal import BAD_DATA, WRONG_USAGE, CommandError, setting, whole

POLICIES = {"impute": "keep", "skip": "skip", "raise": "raise"}


def add_data(parser: Any) -> None:
    """What the columns of the file are."""
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
        type=setting,
        metavar="COL=LOW,…,HIGH",
        help="the values of a text column that has an order",
    )
    data.add_argument(
        "--buckets",
        type=whole(2),
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


def add_model(parser: Any) -> None:
    """Which model."""
    model = parser.add_argument_group("the model")
    model.add_argument("--model", metavar="NAME", help="one of `jboost models` (default: auto)")
    model.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        metavar="NAME=VALUE",
        help="a setting of the model; repeatable",
    )
    model.add_argument(
        "--seed", type=whole(0, 2**32 - 1), metavar="N", help="of random draws (default: 0)"
    )


def model_of(args: argparse.Namespace) -> str:
    """The name of the model that is asked for."""
    from jboost import catalogue

    try:
        return catalogue.check_name(args.model or catalogue.DEFAULT)
    except ValueError as error:
        raise CommandError(str(error), WRONG_USAGE) from None


def settings(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """The settings of the model; ``--seed`` is one of them where the model has its own."""
    from jboost.catalogue import CATALOGUE

    own = args.seed is not None and "seed" in CATALOGUE[name].settings
    return ({"seed": args.seed} if own else {}) | dict(args.set)


def source_of(args: argparse.Namespace, columns: Any = None, missing: str | None = None) -> Any:
    """The stream that the options describe; ``columns`` and ``missing`` of a run to go on with."""
    from jboost.files import sources

    if columns is None and args.target is None:
        raise CommandError("--target is missing: which column is to be predicted?", WRONG_USAGE)
    if columns is not None and args.target not in (None, columns.target):
        kept = f"the run to go on with predicts {columns.target!r}"
        raise CommandError(f"{kept}, and --target is {args.target!r}", WRONG_USAGE)
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
    given = {name: value for name, value in text.items() if value is not None}
    policy = POLICIES[missing or args.missing or "impute"]
    with reading(args.file):
        return sources.read(args.file, **chosen, missing=policy, **given)


def refuse_own(file: str, *outputs: Any) -> None:
    """The file that is read must not be written to."""
    for path in outputs:
        if path and os.path.exists(path) and os.path.exists(file) and os.path.samefile(path, file):
            raise CommandError(f"{path} is the file to learn; write to another", WRONG_USAGE)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What is wrong with the data is one sentence, and an exit status of its own."""
    from jboost.files.columns import DataError

    try:
        yield
    except DataError as error:
        raise CommandError(str(error), BAD_DATA) from None
    except OSError as error:
        # The file to read is named in the error, or is the one whose name we know.
        named = error.filename if error.filename is not None else name
        raise CommandError(f"{named} cannot be read: {error.strerror or error}", BAD_DATA) from None
    except ValueError as error:
        raise CommandError(str(error), WRONG_USAGE) from None
