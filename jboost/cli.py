"""The ``jboost`` command. What a subcommand needs is imported when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from jboost import __version__
from jboost.commands import demo, inspect, models, run, sweep
from jboost.commands.terminal import (
    EXIT_STATUS,
    FAILED,
    INTERRUPTED,
    PIPE_CLOSED,
    WRONG_USAGE,
    CommandError,
    help_of,
    say_error,
)

EPILOG = f"""\
{EXIT_STATUS}
examples:
  jboost demo --out ase.png
  jboost run houses.csv --target price --report houses.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    from jboost.core.extras import MissingExtra

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
        sys.stdout.flush()  # here, where it may fail
        return status
    except CommandError as error:
        say_error(str(error))
        return error.status
    except MissingExtra as error:
        say_error(str(error))
        return FAILED
    except KeyboardInterrupt:
        print("\njboost: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        _write_no_more()
        return PIPE_CLOSED
    except OSError as error:  # all others have been made sentences
        where = error.filename or "standard output"
        say_error(f"{where} could not be written: {error.strerror or error}")
        _write_no_more()
        return FAILED


def _write_no_more() -> None:
    """What is left for standard output would fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jboost", **help_of("Boosted online regression in JAX.", EPILOG)
    )
    parser.add_argument("--version", action="version", version=f"jboost {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in (demo, run, sweep, models, inspect):
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
