"""The file of explanations that ``jboost run --explain`` writes, a line for each row.

    row,target,prediction,base,part_size,part_town
    1,250000,231000,200000,25000,6000

The prediction is the base plus all parts, up to rounding.
"""

import argparse
import contextlib
import os
from contextlib import AbstractContextManager

from jboost.commands import options
from jboost.commands.outcome import Outcome
from jboost.commands.terminal import FAILED, WRONG_USAGE, CommandError, explaining
from jboost.files.encoding import Labels
from jboost.files.predictions import Predictions
from jboost.files.sources import Source
from jboost.running.blocks import Block


def open_file(
    args: argparse.Namespace, source: Source, position: int, done: Outcome
) -> AbstractContextManager[Predictions | None]:
    """Open the file of explanations, cut off after the rows that the checkpoint holds."""
    if args.explain is None:
        return contextlib.nullcontext()
    length, rows = done.saved.get("explanations"), position
    if position and length is None:
        if os.path.exists(args.explain) and not args.append:
            problem = (
                f"the run to go on with has written no explanations, and {args.explain} exists"
            )
            raise CommandError(f"{problem}; name a new file", WRONG_USAGE)
        rows = 0
    elif args.append and not os.path.exists(args.explain):
        length, rows = None, 0  # a file for the new rows alone
    more = ["base", *(f"part_{column.name}" for column in done.columns.inputs)]
    shape = {"labels": done.columns.labels, "as_json": source.is_json}
    with _writing(args.explain), options.refusing(FAILED):
        return Predictions(args.explain, length, rows, more=more, **shape)


def write(file: Predictions, block: Block, labels: Labels) -> None:
    """Write the explanations of a block, durably."""
    numbers = (block.targets, block.prediction, block.observed["base"])
    with _writing(file.path):
        parts = block.observed["parts"].T.copy()
        file.write(block.start, *numbers, *parts, labels=labels.columns)
        file.sync()


def _writing(path: os.PathLike[str] | str) -> AbstractContextManager[None]:
    return explaining(f"the explanations could not be written to {path}")
