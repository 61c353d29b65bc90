"""The files that ``jboost run`` writes line by line: predictions, explanations and events."""

from __future__ import annotations

import argparse
import contextlib
import os
from contextlib import AbstractContextManager

from jboost.commands import events, explanations, options, terminal
from jboost.commands.outcome import Outcome
from jboost.commands.terminal import FAILED
from jboost.files.encoding import Labels
from jboost.files.predictions import Predictions
from jboost.files.sources import Source
from jboost.reports.accounts import Watch
from jboost.running.blocks import Block


class Lines(contextlib.AbstractContextManager["Lines"]):
    """The open files of a run, cut off after the rows that its checkpoint holds.

    ``done.saved`` has the ``lengths`` of the files then.
    """

    def __init__(
        self, args: argparse.Namespace, source: Source, position: int, done: Outcome, watch: Watch
    ):
        self._args, self._watch = args, watch
        with contextlib.ExitStack() as stack:
            self._predictions = stack.enter_context(
                _predictions(args, source, position, done, watch)
            )
            explained = explanations.open_file(args, source, position, done)
            self._explanations = stack.enter_context(explained)
            self._events = stack.enter_context(events.open_file(args, position, done))
            self._stack = stack.pop_all()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, block: Block, labels: Labels) -> None:
        """Write what was asked for of the rows of a block, durably if the run is kept."""
        if self._predictions is not None:
            bounds = [block.observed[name] for name in ("low", "high") if self._watch.intervals]
            more = events.columns(block) if self._watch.flags else ()
            estimates = (block.targets, block.prediction, *bounds, *more)
            with terminal.writing_to(self._args.predictions):
                self._predictions.write(block.start, *estimates, labels=labels.columns)
                if self._args.checkpoint is not None:
                    self._predictions.sync()
        if self._explanations is not None:
            explanations.write(self._explanations, block, labels)
        if self._events is not None:
            self._events.write(block, labels)

    @property
    def lengths(self) -> dict[str, int | None]:
        """How many bytes were written to each file, by the name that a checkpoint has for it."""
        files = {
            "predictions": self._predictions,
            "explanations": self._explanations,
            "events_length": self._events,
        }
        return {name: file and file.length for name, file in files.items()}


def _predictions(
    args: argparse.Namespace, source: Source, position: int, done: Outcome, watch: Watch
) -> AbstractContextManager[Predictions | None]:
    """Open the file of predictions, cut off after the rows that the checkpoint holds."""
    if args.predictions is None or done.model.ahead:
        return contextlib.nullcontext()
    length, rows = done.saved.get("predictions"), position
    if args.predictions == "-":
        length = 1 if position else None  # anything but None: the header was written before
    elif args.append and not os.path.exists(args.predictions):
        length, rows = None, 0  # a file for the new rows alone
    names = done.columns.labels
    with terminal.writing_to(args.predictions), options.refusing(FAILED):
        return Predictions(
            args.predictions,
            length,
            rows,
            intervals=watch.intervals,
            more=events.COLUMNS if watch.flags else (),
            labels=names,
            as_json=source.is_json,
        )
