"""The ``jboost`` command: its arguments, its errors as sentences, its exit status."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from jboost.commands import demo, inspect, models, run, sweep
from jboost.commands.terminal import (
    EXIT_STATUS,
    FAILED,
    INTERRUPTED,
    PIPE_CLOSED,
    WRONG_USAGE,
    CommandError,
    help_texts,
    print_error,
)
from jboost.core.extras import MissingExtra

EPILOG = f"""\
{EXIT_STATUS}
examples:
  jboost demo --out ase.png
  jboost run houses.csv --target price --report houses.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; ``argv`` are the words after ``jboost``."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without λ shows a question mark instead
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    parser = _parser()
    args = parser.parse_args(argv)
    args.argv = list(sys.argv[1:] if argv is None else argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return WRONG_USAGE
    try:
        status = args.run(args)
        sys.stdout.flush()  # here, where a failure is caught
        return status
    except CommandError as error:
        print_error(error)
        return error.status
    except MissingExtra as error:
        print_error(error)
        return FAILED
    except KeyboardInterrupt:
        print("\njboost: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        _discard_output()
        return PIPE_CLOSED
    except OSError as error:  # of standard output: the subcommands explain all others
        name = error.filename or "standard output"
        print_error(f"{name} could not be written: {error.strerror or error}")
        _discard_output()
        return FAILED


def _discard_output() -> None:
    """Send the rest of standard output nowhere: Python would fail again to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jboost", **help_texts("Boosted online regression in JAX.", EPILOG)
    )
    parser.add_argument("--version", action="version", version=f"jboost {version('jboost')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in (demo, run, sweep, models, inspect):
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
