"""``jboost demo``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from jboost.commands.terminal import (
    DONE,
    FAILED,
    CommandError,
    Progress,
    help_of,
    new_picture,
    whole,
)

LONGEST = 10_000_000  # samples: about 1 GB

DESCRIPTION = """\
Run the eight algorithms of the paper (SGD and NM alone, and each boosted by
weighted updates, data reuse and random updates) on its chaotic stream, with
its NSGD combiner and with an RLS combiner. Prints a table and draws the
accumulated squared error (ASE) over time.
"""

EPILOG = """\
The picture needs matplotlib: pip install "jboost[plot]". The table does not.

examples:
  jboost demo
  jboost demo --length 5000 --out ase.svg
"""


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    demo = commands.add_parser(
        "demo",
        help="the paper's eight algorithms on its chaotic stream: a table and a picture",
        **help_of(DESCRIPTION, EPILOG),
    )
    demo.add_argument(
        "--out",
        type=new_picture,
        metavar="FILE.png",
        help="where the picture goes (default: jboost-demo.png); .svg and .pdf work too",
    )
    demo.add_argument(
        "--length",
        type=whole(2, LONGEST),
        default=20_000,
        metavar="T",
        help="how many samples of the stream to use (default: 20000)",
    )
    demo.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    start = time.perf_counter()
    from jboost import plots
    from jboost.core import extras
    from jboost.paper import demo

    print(f"Duffing map, {args.length:,} samples\n{demo.SETTINGS}\n", flush=True)
    with Progress() as progress:
        results = demo.compare(args.length, progress=progress.say)
    print(demo.table(results), "", *demo.verdict(results), "", sep="\n", flush=True)
    out = args.out or Path("jboost-demo.png")
    try:
        plots.save(demo.picture(results), out)
    except extras.MissingExtra as error:
        print(f"No picture: {error}.")
        return DONE if args.out is None else FAILED
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"the picture could not be written to {out}: {reason}") from None
    seconds = time.perf_counter() - start
    print(f"Picture: {out} ({seconds:.1f} s in all, compilation included)")
    return DONE
