"""``jboost models``."""

from __future__ import annotations

import argparse
from typing import Any

from jboost.commands.terminal import DONE, WRONG_USAGE, CommandError, help_of

DESCRIPTION = """\
List the models that --model takes, with their settings, the range of each and
its default. A model sees inputs and target standardised by the past, missing
inputs filled in, and a bias, so that the defaults suit a file of any units.
"""

EPILOG = """\
examples:
  jboost models
  jboost models bnm_wu
"""


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    models = commands.add_parser(
        "models", help="the models by name, with their settings", **help_of(DESCRIPTION, EPILOG)
    )
    models.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    models.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    from jboost import catalogue

    try:
        names = [catalogue.check_name(args.name)] if args.name else [*catalogue.CATALOGUE]
    except ValueError as error:
        raise CommandError(str(error), WRONG_USAGE) from None
    for name in names:
        entry = catalogue.CATALOGUE[name]
        print(f"{name}: {entry.summary}")
        for setting, own in entry.settings.items():
            value = f"{setting}={own.default}"
            print(f"  {value:<20} {own.allowed:<10} {own.meaning}")
    return DONE
