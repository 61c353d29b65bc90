"""The ``jboost`` command: its arguments, its errors as sentences, its exit status."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from jboost.commands import (
    cache,
    demo,
    forecast,
    inspect,
    models,
    predict,
    run,
    serve,
    sweep,
    terminal,
)  # fmt: skip
from jboost.core.extras import MissingExtra
from jboost.engine import plan

EPILOG = f"""\
{terminal.EXIT_STATUS}
examples:
  jboost demo --out ase.png
  jboost run houses.csv --target price --report houses.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; ``argv`` are the words after ``jboost``."""
    _open_what_is_closed()
    if sys.stdout is None:
        advice = "results go there: redirect it to a file, or to /dev/null"
        terminal.print_error(f"standard output is closed, and {advice}")
        return terminal.FAILED
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without λ shows a question mark instead
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    parser = _parser()
    args = parser.parse_args(argv)
    args.argv = list(sys.argv[1:] if argv is None else argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return terminal.WRONG_USAGE
    try:
        plan.check()
    except ValueError as error:  # of the environment
        terminal.print_error(error)
        return terminal.WRONG_USAGE
    try:
        status = args.run(args)
        sys.stdout.flush()  # here, where a failure is caught
        return status
    except (terminal.CommandError, MissingExtra) as error:
        terminal.print_error(error)
        return error.status if isinstance(error, terminal.CommandError) else terminal.FAILED
    except KeyboardInterrupt:
        print("\njboost: interrupted", file=sys.stderr)
        return terminal.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        _discard_output()
        return terminal.PIPE_CLOSED
    except (MemoryError, RuntimeError) as error:
        words = ("RESOURCE_EXHAUSTED", "can't start new thread")  # of JAX, and of Python
        if not isinstance(error, MemoryError) and not any(word in str(error) for word in words):
            raise
        terminal.print_error(f"there is not enough memory: {str(error) or 'none is left'}")
        return terminal.FAILED
    except OSError as error:  # of standard output: the subcommands explain all others
        name = error.filename or "standard output"
        terminal.print_error(f"{name} could not be written: {error.strerror or error}")
        _discard_output()
        return terminal.FAILED


def _open_what_is_closed() -> None:
    """Open standard streams that are closed: the next file would get the number of one of them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  (open until the process ends)


def _discard_output() -> None:
    """Send the rest of standard output nowhere: Python would fail again to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jboost", **terminal.help_texts("Boosted online regression in JAX.", EPILOG)
    )
    parser.add_argument("--version", action="version", version=f"jboost {version('jboost')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in (demo, run, predict, forecast, serve, sweep, models, inspect, cache):
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
