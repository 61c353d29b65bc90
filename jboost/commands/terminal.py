"""What the subcommands share: exit codes, the line of progress, and arguments checked early."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

DONE, FAILED, WRONG_USAGE, BAD_DATA, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 130, 141
EXIT_STATUS = """\
exit status:
  0 done, 1 something asked for could not be done, 2 wrong usage, 3 the data
  are bad, 130 interrupted, 141 the reader of the output left
"""
PICTURES = (".png", ".svg", ".pdf")


class CommandError(Exception):
    """A sentence for the user, and the exit status that goes with it."""

    def __init__(self, message: str, status: int = FAILED):
        super().__init__(message)
        self.status = status


class Progress:
    """What is going on, on standard error: one line that is rewritten on a terminal, else a log.

    Args:
      pause: seconds between lines, on a terminal and in a log; what comes sooner is left out.
    """

    def __init__(self, pause: tuple[float, float] = (0.0, 0.0)) -> None:
        self._rewrites = sys.stderr.isatty()
        self._pause = pause[0] if self._rewrites else pause[1]
        self._next = time.monotonic() + self._pause

    def __enter__(self) -> Progress:
        return self

    @property
    def due(self) -> bool:
        """Whether it is time for another line."""
        return time.monotonic() >= self._next

    def say(self, text: str) -> None:
        """Show how far things are."""
        if not self.due:
            return
        self._next = time.monotonic() + self._pause
        start, end = ("\r\x1b[K", "") if self._rewrites else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._rewrites:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def help_of(description: str, epilog: str) -> dict[str, Any]:
    """Help as it is written, with its examples."""
    formatter = argparse.RawDescriptionHelpFormatter
    return {"description": description, "epilog": epilog, "formatter_class": formatter}


def say_error(message: str) -> None:
    """One line on standard error."""
    print(f"jboost: error: {message}", file=sys.stderr)


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
    return _ending(text, PICTURES)


def new_page(text: str) -> Path:
    """The path of a page to write."""
    return _ending(text, (".html", ".htm"))


def new_output(text: str) -> Path | str:
    """The path of a file to write, or ``-``."""
    return text if text == "-" else new_file(text)


def whole(at_least: int, at_most: int | None = None) -> Any:
    """A whole number within bounds."""

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


def part(text: str) -> float:
    """A part of a whole: a number between 0 and 1."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1; got {text!r}")
    return number


def setting(text: str) -> tuple[str, str]:
    """``name=value``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE; got {text!r}")
    return name.strip(), value.strip()


def _ending(text: str, kinds: tuple[str, ...]) -> Path:
    if Path(text).suffix.lower() not in kinds:
        raise argparse.ArgumentTypeError(f"must end in one of {', '.join(kinds)}; got {text!r}")
    return new_file(text)
