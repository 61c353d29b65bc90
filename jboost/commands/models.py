"""``jboost models``: the models by name, with their settings."""

import argparse

from jboost import catalogue
from jboost.commands.options import known_model
from jboost.commands.terminal import DONE, Subcommands, subcommand

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


def add(commands: Subcommands) -> None:
    """Add the subcommand to the parser."""
    text = "the models by name, with their settings"
    parser = subcommand(commands, run, "models", text, DESCRIPTION, EPILOG)
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this model")


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    for name in [known_model(args.name)] if args.name else catalogue.CATALOGUE:
        entry = catalogue.CATALOGUE[name]
        print(f"{name}: {entry.summary}")
        for setting, parameter in entry.settings.items():
            value = f"{setting}={parameter.default}"
            print(f"  {value:<20} {parameter.allowed:<10} {parameter.meaning}")
    return DONE
