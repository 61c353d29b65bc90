"""What all subcommands share: exit statuses, errors in one sentence, options checked early."""

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Options: TypeAlias = argparse._ActionsContainer  # a parser, or a group of its options
Reader = Callable[[str], Any]  # makes the value of an option from its text

DONE, FAILED, WRONG_USAGE, BAD_DATA, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 130, 141
EXIT_STATUS = """\
exit status:
  0 done, 1 something asked for could not be done, 2 wrong usage, 3 the data
  are bad, 130 interrupted, 141 the reader of the output left
"""
PICTURES = (".png", ".svg", ".pdf")
REPEATABLE: dict[str, Any] = {"action": "append", "default": []}  # of an option


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


def subcommand(
    commands: Subcommands, run: Callable[[argparse.Namespace], int], name: str, *texts: str
) -> argparse.ArgumentParser:
    """Add a subcommand; its texts are one line of help, a description and an epilog."""
    parser = commands.add_parser(name, help=texts[0], **help_texts(*texts[1:]))
    parser.set_defaults(run=run)
    return parser


def option(
    parser: Options, name: str, metavar: str, text: str, kind: Reader = str, **settings: Any
) -> None:
    """Add an option with a value, whose ``kind`` is a function that reads it."""
    parser.add_argument(name, metavar=metavar, help=text, type=kind, **settings)


def say(message: object) -> None:
    """Print one line on standard error, where that can be written."""
    with suppress(OSError):
        # A terminal may show a line of progress there.
        print("\r\x1b[K" * sys.stderr.isatty() + f"jboost: {message}", file=sys.stderr)


def print_error(message: object) -> None:
    """Say what went wrong."""
    say(f"error: {message}")


def new_file(text: str) -> Path:
    """Return a path that can be written, checked before the work and not after it."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file, but {text!r} is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {str(path.parent)!r} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"no permission to write {text!r}")
    return path


def new_run(text: str) -> Path:
    """Return the path of a file, or of a folder, in which a run can be kept."""
    if Path(text).is_dir() and os.access(text, os.W_OK):
        return Path(text)
    return new_file(text)


def new_picture(text: str, suffixes: tuple[str, ...] = PICTURES) -> Path:
    """Return the path of a picture to write."""
    if Path(text).suffix.lower() not in suffixes:
        raise argparse.ArgumentTypeError(f"must end in one of {', '.join(suffixes)}; got {text!r}")
    return new_file(text)


def new_page(text: str) -> Path:
    """Return the path of an HTML page to write."""
    return new_picture(text, (".html", ".htm"))


def new_output(text: str) -> Path | str:
    """Return the path of a file to write, or ``-`` for standard output."""
    return text if text == "-" else new_file(text)


def whole_number(at_least: int, at_most: float = math.inf) -> Callable[[str], int]:
    """Return a function that reads a whole number within these bounds."""

    def parse(text: str) -> int:
        with suppress(ValueError):
            if at_least <= int(text) <= at_most:
                return int(text)
        bounds = f"from {at_least}" + (f" to {at_most}" if at_most < math.inf else " on")
        raise argparse.ArgumentTypeError(f"must be a whole number {bounds}; got {text!r}")

    return parse


def fraction(text: str) -> float:
    """Return a number between 0 and 1."""
    with suppress(ValueError):
        if 0 < float(text) < 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a number between 0 and 1; got {text!r}")


def name_and_value(text: str) -> tuple[str, str]:
    """Return the two sides of ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE; got {text!r}")
    return name.strip(), value.strip()


def writing_to(path: os.PathLike[str] | str) -> AbstractContextManager[None]:
    """Explain an error of the system as one of writing predictions."""
    name = "standard output" if path == "-" else path
    return explaining(f"the predictions could not be written to {name}")


def notes_on(error: BaseException) -> list[str]:
    """Return what the run has noted on an error about its checkpoint."""
    return getattr(error, "__notes__", [])


def as_command_error(error: Exception, file: str) -> CommandError:
    """Return the sentence for an error that ended the run, with the notes on the error."""
    status, text = 1, str(error)
    if isinstance(error, MemoryError):
        text = f"{file}: {error}"
    first: BaseException | None = error
    if isinstance(error, OSError):  # of the checkpoint: others are explained where they are raised
        named = f"{error.filename}: " if error.filename else ""
        text = f"{named}{error.strerror or error}"
        # A full disk also keeps the checkpoint from being written: say what went wrong first.
        first = error.__context__
        while first is not None and not isinstance(first, CommandError):
            first = first.__context__
    if isinstance(first, CommandError):
        status, text = first.status, str(first)
    return CommandError("; ".join([text, *notes_on(error)]), status)
