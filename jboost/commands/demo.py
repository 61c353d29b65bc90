"""``jboost demo``: the paper's eight algorithms on its chaotic stream."""

import argparse
import time
from pathlib import Path

from jboost import plots
from jboost.commands.terminal import (
    DONE,
    FAILED,
    Subcommands,
    explaining,
    help_texts,
    new_picture,
    whole_number,
)
from jboost.core.extras import MissingExtra
from jboost.core.progress import Progress
from jboost.paper import demo as paper

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


def add(commands: Subcommands) -> None:
    """Add the subcommand to the parser."""
    demo = commands.add_parser(
        "demo",
        help="the paper's eight algorithms on its chaotic stream: a table and a picture",
        **help_texts(DESCRIPTION, EPILOG),
    )
    demo.add_argument(
        "--out",
        type=new_picture,
        metavar="FILE.png",
        help="where the picture goes (default: jboost-demo.png); .svg and .pdf work too",
    )
    demo.add_argument(
        "--length",
        type=whole_number(2, LONGEST),
        default=20_000,
        metavar="T",
        help="how many samples of the stream to use (default: 20000)",
    )
    demo.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table and draw the picture."""
    start = time.perf_counter()
    print(f"Duffing map, {args.length:,} samples\n{paper.SETTINGS}\n", flush=True)
    with Progress(pauses=(0.0, 0.0)) as progress:
        results = paper.compare(args.length, progress=progress.say)
    print(paper.table(results), "", *paper.verdict(results), "", sep="\n", flush=True)
    out = args.out or Path("jboost-demo.png")
    try:
        with explaining(f"the picture could not be written to {out}"):
            plots.save(paper.picture(results), out)
    except MissingExtra as error:
        print(f"No picture: {error}.")
        return DONE if args.out is None else FAILED
    seconds = time.perf_counter() - start
    print(f"Picture: {out} ({seconds:.1f} s in all, compilation included)")
    return DONE
