"""The file of events that ``jboost run --events`` writes, a line of JSON for each.

    {"row": 812, "event": "outside", "target": 9.5, "prediction": 3.1, "lower": 2.0, "upper": 4.2}
    {"row": 812, "event": "anomaly", "target": 9.5, "prediction": 3.1, "p_value": 0.001}
    {"row": 830, "event": "change"}
    {"row": 915, "event": "drift", "column": "temperature"}

``row`` counts from 1, as in the file of predictions; the time and the ids of the row follow it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from jboost.commands.outcome import Outcome
from jboost.commands.terminal import WRONG_USAGE, CommandError, explaining
from jboost.core.within import within
from jboost.files.encoding import Labels
from jboost.running.blocks import Block
from jboost.wrappers.flags import Flags

NAMES = ("outside", "anomaly", "change", "drift")
COLUMNS = ("p_value", "outside", "anomaly", "change", "drifted")  # the last is how many inputs


class Events(contextlib.AbstractContextManager["Events"]):
    """An open file of events; ``length`` bytes of it are of rows that a checkpoint counts."""

    def __init__(self, path: os.PathLike[str], length: int, done: Outcome):
        self.path, self.length = path, length
        self._done = done
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  (closed by __exit__)
        self._file.truncate(length)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, block: Block, labels: Labels) -> None:
        """Write the events of a block, durably."""
        lines = "".join(json.dumps(event) + "\n" for event in self._events(block, labels)).encode()
        with _writing(self.path):
            self._file.write(lines)
            os.fsync(self._file.fileno())
        self.length += len(lines)

    def _events(self, block: Block, labels: Labels) -> Iterator[dict[str, Any]]:
        """Yield the events of a block, row by row, and count them."""
        found = block.observed
        outside = _outside(block)
        groups = np.array(self._done.columns.groups)
        count = len(self._done.columns.inputs)
        drifted = np.stack([found["drifted"][:, groups == i].any(axis=1) for i in range(count)], 1)
        masks = (outside, found["anomaly"], found["change"], drifted.any(axis=1))
        for row in np.flatnonzero(np.any(masks, axis=0)).tolist():
            about = {"row": block.start + row + 1}
            about |= {name: str(values[row]) for name, values in labels.columns.items()}
            numbers = {"target": float(block.targets[row])}
            numbers["prediction"] = float(block.prediction[row])
            if outside[row]:
                low, high = (float(found[name][row]) for name in ("low", "high"))
                bounds = {"lower": low, "upper": high}
                yield self._counted(about | {"event": "outside"} | numbers | bounds)
            if masks[1][row]:
                p = float(found["p_value"][row])
                yield self._counted(about | {"event": "anomaly"} | numbers | {"p_value": p})
            if masks[2][row]:
                yield self._counted(about | {"event": "change"})
            for i in np.flatnonzero(drifted[row]).tolist():
                name = self._done.columns.inputs[i].name
                yield self._counted(about | {"event": "drift", "column": name})

    def _counted(self, event: dict[str, Any]) -> dict[str, Any]:
        events = self._done.events
        events[event["event"]] = events.get(event["event"], 0) + 1
        return event


def open_file(
    args: argparse.Namespace, position: int, done: Outcome
) -> AbstractContextManager[Events | None]:
    """Open the file of events, cut off after those of rows that the checkpoint holds."""
    if args.events is None:
        return contextlib.nullcontext()
    if within(done.model, Flags) is None:
        problem = "the run to go on with was begun without --events"
        raise CommandError(f"{problem}; begin a new one to have them", WRONG_USAGE)
    length = done.saved.get("events_length")
    if position and length is None and os.path.exists(args.events):
        problem = f"{args.events} exists, and the run to go on with has not written it"
        raise CommandError(f"{problem}; name a new file", WRONG_USAGE)
    if not os.path.exists(args.events):
        length = 0
    with _writing(args.events):
        return Events(args.events, length or 0, done)


def columns(block: Block) -> list[np.ndarray]:
    """Return the flags of a block as :data:`COLUMNS` of the predictions."""
    found = block.observed
    flags = [_outside(block), found["anomaly"], found["change"]]
    drifted = found["drifted"].sum(axis=1).astype(np.int64)
    return [found["p_value"], *(flag.astype(np.int64) for flag in flags), drifted]


def _outside(block: Block) -> np.ndarray:
    """Return which answers lie outside their intervals; none where there are no intervals."""
    if "low" not in block.observed:
        return np.zeros(len(block.targets), bool)
    low, high = block.observed["low"], block.observed["high"]
    return block.scored & ((block.targets < low) | (block.targets > high))


def _writing(path: os.PathLike[str] | str) -> AbstractContextManager[None]:
    return explaining(f"the events could not be written to {path}")
