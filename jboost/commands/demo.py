"""``jboost demo``: the paper's eight algorithms on its chaotic stream."""

import argparse
import time
from pathlib import Path

from jboost import plots
from jboost.commands import options, terminal
from jboost.core.extras import MissingExtra
from jboost.core.progress import Progress
from jboost.paper import demo as paper

LONGEST = 10_000_000  # samples: about 1 GB

HELP = "the paper's eight algorithms on its chaotic stream: a table and a picture"
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


def add(commands: terminal.Subcommands) -> None:
    """Add the subcommand to the parser."""
    parser = terminal.subcommand(commands, run, "demo", HELP, DESCRIPTION, EPILOG)
    text = "where the picture goes (default: jboost-demo.png); .svg and .pdf work too"
    terminal.option(parser, "--out", "FILE.png", text, terminal.new_picture)
    text = "how many samples of the stream to use (default: 20000)"
    number = terminal.whole_number(2, LONGEST)
    terminal.option(parser, "--length", "T", text, number, default=20_000)


def run(args: argparse.Namespace) -> int:
    """Print the table and draw the picture."""
    out = args.out or Path("jboost-demo.png")
    with options.keeping_programs(), options.writing(None, {"--out": out}):
        return _run(args, out)


def _run(args: argparse.Namespace, out: Path) -> int:
    """Do what the command is to do, while its output is held."""
    start = time.perf_counter()
    print(f"Duffing map, {args.length:,} samples\n{paper.SETTINGS}\n", flush=True)
    with Progress("demo", unit="steps") as progress:
        results = paper.compare(args.length, progress=progress)
    print(paper.table(results), "", *paper.verdict(results), "", sep="\n", flush=True)
    try:
        with terminal.explaining(f"the picture could not be written to {out}"):
            plots.save(paper.picture(results), out)
    except MissingExtra as error:
        print(f"No picture: {error}.")
        return terminal.DONE if args.out is None else terminal.FAILED
    seconds = time.perf_counter() - start
    print(f"Picture: {out} ({seconds:.1f} s in all, compilation included)")
    return terminal.DONE
