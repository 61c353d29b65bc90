"""Options for the data and the model, which ``run`` and ``sweep`` share."""

import argparse
import csv
import dataclasses
import os
import stat
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import jax

from jboost import catalogue, limits
from jboost.checkpoints import atomic
from jboost.commands import terminal
from jboost.commands.terminal import (
    WRONG_USAGE,
    CommandError,
    explaining,
    name_and_value,
    option,
    whole_number,
)
from jboost.core import Learner
from jboost.engine import cache
from jboost.engine.start import size_at_start
from jboost.files import sources
from jboost.files.columns import Columns, DataError
from jboost.wrappers.flags import Flags

FILE = "CSV, JSON lines (also as .gz or .zst) or Parquet; - is standard input"
POLICIES = {
    "impute": "keep",
    "skip": "skip",
    "raise": "raise",
}  # by --missing, for sources.read


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what the columns of the file are."""
    parser.add_argument("file", metavar="FILE", help=FILE)
    option(parser, "--target", "COL", "the column to predict")
    data = parser.add_argument_group("the data")
    text = "leave columns out, by their names with commas between; repeatable"
    option(data, "--drop", "COL,…", text, column_names, **terminal.REPEATABLE)
    text = "columns of numbers that are codes; text columns are categories by themselves"
    option(data, "--category", "COL,…", text, column_names, **terminal.REPEATABLE)
    text = "the values of a text column that has an order"
    option(data, "--ordinal", "COL=LOW,…,HIGH", text, name_and_value, **terminal.REPEATABLE)
    text = "how many columns a category becomes (default: as many as the first rows have texts, "
    text += "and a few more)"
    option(data, "--buckets", "N", text, whole_number(2))
    text = "the column that says when a row was (default: the first column of dates)"
    option(data, "--time", "COL", text)
    text = "how dates are written, where that is not clear, such as '%%d/%%m/%%Y %%H:%%M'"
    option(data, "--date-format", "FORMAT", text)
    text = "the clock that tells day and week where times are in UTC, such as Europe/Berlin"
    option(data, "--time-zone", "ZONE", text)
    text = "missing inputs: fill in from the past (impute, the default), learn nothing from such a "
    text += "row (skip), or stop there (raise)"
    data.add_argument("--missing", choices=[*POLICIES], help=text)
    add_text(data)


def add_text(data: terminal.Options) -> None:
    """Add the options that say how a text file is written, and how its rows are labelled."""
    text = "columns that are carried to the predictions, and are no inputs; repeatable"
    option(data, "--id", "COL,…", text, column_names, dest="ids", **terminal.REPEATABLE)
    text = "a row that cannot be read: stop there (raise, the default), or say so and go on (skip)"
    data.add_argument("--bad-rows", choices=["raise", "skip"], default="raise", help=text)
    option(data, "--delimiter", "C", r"between fields (default: as line 1 has it); '\t' is a tab")
    option(data, "--decimal", "C", "before decimals (default: as the numbers have it)")
    option(data, "--encoding", "NAME", "of the text (default: utf-8)")
    text = "the first line has no names; call columns 1, 2, …"
    data.add_argument("--no-header", action="store_true", help=text)


def column_names(text: str) -> list[str]:
    """Return the names in a list with commas; a name that has a comma is quoted.

    >>> column_names('a,b,"c,d"')
    ['a', 'b', 'c,d']
    """
    return next(csv.reader([text]), [])


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the model."""
    model = parser.add_argument_group("the model")
    option(model, "--model", "NAME", "one of `jboost models` (default: auto)")
    text = "a setting of the model; repeatable"
    option(model, "--set", "NAME=VALUE", text, name_and_value, **terminal.REPEATABLE)
    option(model, "--seed", "N", "of random draws (default: 0)", whole_number(0, 2**32 - 1))


def known_model(name: str | None) -> str:
    """Return the name of a model in the catalogue, by default the catalogue's default."""
    with refusing():
        return catalogue.check_name(name or catalogue.DEFAULT)


def settings(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the settings of the model; ``--seed`` is one of them where the model has a seed."""
    seeded = args.seed is not None and "seed" in catalogue.CATALOGUE[name].settings
    return ({"seed": args.seed} if seeded else {}) | dict(args.set)


def joined(lists: list[list[str]]) -> list[str]:
    """Return the names that an option was given, each time it was given."""
    return [name for names in lists for name in names]


def source_of(
    args: argparse.Namespace,
    columns: Columns | None = None,
    missing: str | None = None,
    start: int = 0,
) -> sources.Source:
    """Return the stream that the options describe.

    ``columns`` and ``missing`` are those of the run to go on with, where there is one, and
    ``start`` is the number of the file's first row in that run.
    """
    if columns is None and args.target is None:
        raise CommandError("--target is missing: which column is to be predicted?", WRONG_USAGE)
    if columns is not None and args.target not in (None, columns.target):
        before = f"the run to go on with predicts {columns.target!r}"
        raise CommandError(f"{before}, and --target is {args.target!r}", WRONG_USAGE)
    names = ("delimiter", "decimal", "encoding")
    if columns is None:
        names += ("target", "buckets", "time", "date_format", "time_zone")
    chosen = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    ids = joined(args.ids)
    if columns is None:
        ordinal = {name: values.split(",") for name, values in args.ordinal}
        left_out, coded = joined(args.drop), joined(args.category)
        chosen |= {"drop": left_out, "category": coded, "ordinal": ordinal, "ids": ids}
    elif ids:
        columns = dataclasses.replace(columns, ids=tuple(ids))
    if args.no_header:
        chosen["header"] = False
    bad_rows = terminal.say if args.bad_rows == "skip" else "raise"
    policy = {"missing": POLICIES[missing or args.missing or "impute"], "bad_rows": bad_rows}
    with reading(args.file):
        return sources.read(args.file, columns=columns, start=start, **policy, **chosen)


def model_of(
    name: str, settings: Mapping[str, Any], missing: str, *, intervals: float | None, flagged: bool
) -> Learner:
    """Return a model of the catalogue with the intervals and the flags that are asked for.

    ``missing`` is what becomes of missing inputs, a value of ``--missing``.
    """
    model = catalogue.named(name, settings, impute=missing == "impute")
    return catalogue.resolve(Flags(model) if flagged else model, intervals=intervals)


def say_renamed(args: argparse.Namespace, before: str) -> None:
    """Say so where a run goes on with a file of another name; ``before`` is the file so far."""
    renamed = os.path.basename(before) != os.path.basename(args.file)
    if renamed and not args.append and "-" not in (before, args.file):
        taken = f"{args.file} is taken to have the same rows, of which those learned are left out"
        terminal.say(f"the run so far was on {before}; {taken}. A file of new rows needs --append")


@contextmanager
def keeping_programs(*, clear: bool = False) -> Iterator[Path | None]:
    """Keep compiled programs between processes; the value is their folder, None if there is none.

    What goes wrong with them is said in one line, and programs are compiled again.
    """
    shown, said = warnings.showwarning, []

    def show(message: Warning | str, *args: Any, **options: Any) -> None:
        text = str(message)
        what, of_jax, reason = text.partition(" persistent compilation cache entry for ")
        if not of_jax and "compiled programs are not kept" not in text:
            return shown(message, *args, **options)
        if what == "Error reading":
            text = f"kept programs are damaged, and compiled again: {reason}"
            cache.cache(clear=True)  # JAX would not write over a file
        elif of_jax:
            text = f"compiled programs are not kept: {reason}"
        if not said:
            terminal.say(text)
        said.append(text)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield cache.cache(clear=clear)


@contextmanager
def writing(file: str | None, outputs: Mapping[str, Path | str | None]) -> Iterator[None]:
    """Hold the files that a command writes; a file with two uses is refused, before any work.

    ``file`` is the file that is read, ``outputs`` are the files that are written, by their options.
    A run holds its checkpoint itself.
    """
    paths: dict[str, Path | str | int | None] = {"to learn": 0 if file == "-" else file}
    paths |= {"of standard output": 1, "of standard error": 2}
    paths |= {f"of {option}": None if path == "-" else path for option, path in outputs.items()}
    uses: dict[object, str] = {}
    for use, path in paths.items():
        identity = None if path is None else _identity(path)
        if identity is None or (path == 2 and identity == _identity(1)):
            continue
        if identity in uses:
            shown = file if isinstance(path, int) else path
            problem = f"{shown} is the file {uses[identity]} and the file {use}"
            raise CommandError(f"{problem}; write to different files", WRONG_USAGE)
        uses[identity] = use
    with ExitStack() as held:
        for option, path in outputs.items():
            if path is None or path == "-" or option == "--checkpoint" or not _identity(path):
                continue
            # Where no lock can be beside the file, the file itself may still be writable.
            if os.access(os.path.dirname(os.path.realpath(path)), os.W_OK):
                with explaining(str(path)):
                    held.enter_context(atomic.owning(path))
        yield


def _identity(path: Path | str | int) -> tuple[object, ...] | None:
    """What all names of a file have in common, also before it exists; None for a device."""
    with suppress(OSError):
        if isinstance(path, int) or os.path.exists(path):
            found = os.stat(path)
            return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
        folder, name = os.path.split(os.path.realpath(path))
        found = os.stat(folder)
        ignores_case = sys.platform in ("darwin", "win32")
        return found.st_dev, found.st_ino, name.casefold() if ignores_case else name
    return None


def state_size(model: Learner, width: int) -> int:
    """Return how many bytes the state of a model of ``width`` inputs takes."""
    return size_at_start(model, width, "float32", jax.random.key(0) if model.needs_key else None)


def refuse_huge(model: Learner, width: int) -> None:
    """Raise an error if a model of ``width`` inputs would not fit into memory."""
    with refusing(terminal.FAILED):  # a state that no machine should hold
        size = state_size(model, width)
    try:
        memory = min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), limits.memory())
    except (AttributeError, OSError, ValueError):  # the system does not tell
        return
    if 3 * size > memory:  # the state, the state after it, and what lies between
        raise CommandError(
            f"with {width:,} columns this model takes {3 * size / 1e9:,.0f} GB, and there are "
            f"{memory / 1e9:,.1f}; drop columns, or take a smaller model such as --model sgd"
        )


@contextmanager
def refusing(status: int = WRONG_USAGE) -> Iterator[None]:
    """Turn what the library says of an argument or a file into an error of the command."""
    try:
        yield
    except (TypeError, ValueError) as error:
        is_data = isinstance(error, DataError)
        raise CommandError(str(error), terminal.BAD_DATA if is_data else status) from None


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn what is wrong with the data into one sentence, with the exit status for bad data."""
    try:
        with refusing():
            yield
    except OSError as error:
        name = error.filename if error.filename is not None else file
        text = f"{name} cannot be read: {error.strerror or error}"
        raise CommandError(text, terminal.BAD_DATA) from None
