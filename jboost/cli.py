"""The ``jboost`` command. What a subcommand needs is imported when it runs."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jboost import __version__

DONE, FAILED, WRONG_USAGE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141
PICTURES = (".png", ".svg", ".pdf")
LONGEST = 10_000_000  # samples of the demo: about 1 GB

EPILOG = """\
exit status:
  0 done, 1 something asked for could not be done, 2 wrong usage,
  130 interrupted, 141 the reader of the output left

example:
  jboost demo --out ase.png
"""

DEMO = """\
Run the eight algorithms of the paper (SGD and NM alone, and each boosted by
weighted updates, data reuse and random updates) on its chaotic stream, with
its NSGD combiner and with an RLS combiner. Prints a table and draws the
accumulated squared error (ASE) over time.
"""

DEMO_EPILOG = """\
The picture needs matplotlib: pip install "jboost[plot]". The table does not.

examples:
  jboost demo
  jboost demo --length 5000 --out ase.svg
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without λ shows a question mark instead
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return WRONG_USAGE
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print("\njboost: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jboost",
        description="Boosted online regression in JAX.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jboost {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for add in (_add_demo,):
        add(commands)
    return parser


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="the paper's eight algorithms on its chaotic stream: a table and a picture",
        description=DEMO,
        epilog=DEMO_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument(
        "--out",
        type=_new_picture,
        metavar="FILE.png",
        help="where the picture goes (default: jboost-demo.png); .svg and .pdf work too",
    )
    demo.add_argument(
        "--length",
        type=_length,
        default=20_000,
        metavar="T",
        help="how many samples of the stream to use (default: 20000)",
    )
    demo.set_defaults(run=_demo)


def _demo(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    from jboost import demo, extras, plots

    print(f"Duffing map, {args.length:,} samples\n{demo.SETTINGS}\n", flush=True)
    with _Progress() as progress:
        results = demo.compare(args.length, progress=progress.say)
    print(demo.table(results), "", *demo.verdict(results), "", sep="\n", flush=True)
    out = args.out or Path("jboost-demo.png")
    try:
        plots.save(demo.picture(results), out)
    except extras.MissingExtra as error:
        print(f"No picture: {error}.")
        return DONE if args.out is None else FAILED
    except OSError as error:
        return _fail(f"the picture could not be written to {out}: {error.strerror or error}")
    seconds = time.perf_counter() - start
    print(f"Picture: {out} ({seconds:.1f} s in all, compilation included)")
    return DONE


def _fail(message: str) -> int:
    print(f"jboost: error: {message}", file=sys.stderr)
    return FAILED


class _Progress:
    """What is going on, on standard error: one line that is rewritten on a terminal, else a log."""

    def __init__(self) -> None:
        self._rewrites = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def say(self, text: str) -> None:
        start, end = ("\r\x1b[K", "") if self._rewrites else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._rewrites:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _length(text: str) -> int:
    try:
        length = int(text)
    except ValueError:
        length = 0
    if not 2 <= length <= LONGEST:
        wanted = f"must be a whole number from 2 to {LONGEST}"
        raise argparse.ArgumentTypeError(f"{wanted}; got {text!r}")
    return length


def _new_picture(text: str) -> Path:
    """A path that can be written, checked before the work and not after it."""
    path = Path(text)
    if path.suffix.lower() not in PICTURES:
        kinds = ", ".join(PICTURES)
        raise argparse.ArgumentTypeError(f"must end in one of {kinds}; got {text!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file, but {text!r} is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {str(path.parent)!r} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"no permission to write {text!r}")
    return path


if __name__ == "__main__":
    sys.exit(main())
