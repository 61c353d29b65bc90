"""``jboost cache``: the compiled programs that are kept."""

import argparse
import os

from jboost.commands import options
from jboost.commands.terminal import DONE, FAILED, Subcommands, subcommand
from jboost.engine import cache

DESCRIPTION = f"""\
Say which folder compiled programs are kept in, and how many they are. A later
run, sweep or demo then need not compile them again. The folder is bounded:
programs that were not used for longest are removed. The environment variable
{cache.VARIABLE} names another folder, or says {cache.OFF}, which switches it off.
"""
EPILOG = """\
examples:
  jboost cache
  jboost cache --clear
"""


def add(commands: Subcommands) -> None:
    """Add the subcommand to the parser."""
    text = "the compiled programs that are kept between runs"
    parser = subcommand(commands, run, "cache", text, DESCRIPTION, EPILOG)
    parser.add_argument("--clear", action="store_true", help="remove all of them")


def run(args: argparse.Namespace) -> int:
    """Print what the folder holds, after it was cleared if that is asked for."""
    with options.keeping_programs(clear=args.clear) as folder:
        pass
    if folder is None:
        if off := os.environ.get(cache.VARIABLE) == cache.OFF:
            print(f"compiled programs are not kept: {cache.VARIABLE} is {cache.OFF}")
        return DONE if off else FAILED  # why there is none is said already
    sizes = [size for _, size, _ in cache.programs(folder)]
    print(f"{len(sizes):,} compiled programs, {sum(sizes) / 1e6:,.1f} MB, in {folder}")
    return DONE
