"""What all subcommands share: exit statuses, errors in one sentence, arguments checked early."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

DONE, FAILED, WRONG_USAGE, BAD_DATA, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 130, 141
EXIT_STATUS = """\
exit status:
  0 done, 1 something asked for could not be done, 2 wrong usage, 3 the data
  are bad, 130 interrupted, 141 the reader of the output left
"""
PICTURES = (".png", ".svg", ".pdf")


class CommandError(Exception):
    """A sentence for the user, and the exit status of the command."""

    def __init__(self, message: str, status: int = FAILED):
        super().__init__(message)
        self.status = status


@contextmanager
def explaining(what_failed: str) -> Iterator[None]:
    """Turn an error of the system into the sentence "what failed: the system's reason"."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{what_failed}: {error.strerror or error}") from None


def help_texts(description: str, epilog: str) -> dict[str, Any]:
    """Arguments of a parser that prints both texts line by line as they are written."""
    formatter = argparse.RawDescriptionHelpFormatter
    return {"description": description, "epilog": epilog, "formatter_class": formatter}


def print_error(message: object) -> None:
    """Print one line on standard error."""
    print(f"jboost: error: {message}", file=sys.stderr)


# Types of arguments, for argparse. ---------------------------------------------------------------


def new_file(text: str) -> Path:
    """A path that can be written, checked before the work and not after it."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file, but {text!r} is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {str(path.parent)!r} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"no permission to write {text!r}")
    return path


def new_picture(text: str) -> Path:
    """The path of a picture to write."""
    return _with_suffix(text, PICTURES)


def new_page(text: str) -> Path:
    """The path of an HTML page to write."""
    return _with_suffix(text, (".html", ".htm"))


def new_output(text: str) -> Path | str:
    """The path of a file to write, or ``-`` for standard output."""
    return text if text == "-" else new_file(text)


def whole_number(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    """A function that reads a whole number within these bounds."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least or (at_most is not None and number > at_most):
            bounds = f"from {at_least}" + (f" to {at_most}" if at_most is not None else " on")
            raise argparse.ArgumentTypeError(f"must be a whole number {bounds}; got {text!r}")
        return number

    return parse


def fraction(text: str) -> float:
    """A number between 0 and 1."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1; got {text!r}")
    return number


def name_and_value(text: str) -> tuple[str, str]:
    """The two sides of ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE; got {text!r}")
    return name.strip(), value.strip()


def _with_suffix(text: str, suffixes: tuple[str, ...]) -> Path:
    if Path(text).suffix.lower() not in suffixes:
        raise argparse.ArgumentTypeError(f"must end in one of {', '.join(suffixes)}; got {text!r}")
    return new_file(text)
