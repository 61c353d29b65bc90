"""``jboost inspect``."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from typing import Any

from jboost.commands.terminal import DONE, CommandError, help_of

DESCRIPTION = """\
Show what a checkpoint holds: the model and its settings, how many rows it has
seen and how well it did, the columns it learned from, and the arrays of its
state. The file is checked, and nothing in it is executed.
"""

EPILOG = """\
examples:
  jboost inspect trips.run
  jboost inspect trips.run --json
"""


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    inspect = commands.add_parser(
        "inspect", help="what a checkpoint holds", **help_of(DESCRIPTION, EPILOG)
    )
    inspect.add_argument("checkpoint", metavar="CHECKPOINT", help="a file of --checkpoint or save")
    inspect.add_argument("--json", action="store_true", help="all of it, as JSON")
    inspect.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    from jboost.checkpoints import checkpoint
    from jboost.core import checks

    try:
        found = checkpoint.inspect(args.checkpoint)
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"{args.checkpoint} cannot be read: {reason}") from None
    except checkpoint.CheckpointError as error:
        raise CommandError(str(error)) from None
    if args.json:
        print(json.dumps(found, indent=2))
        return DONE
    try:
        text = _text(found)
    except (KeyError, TypeError, ValueError, RecursionError):
        raise CommandError(f"{args.checkpoint} holds what save does not write") from None
    for line in text.split("\n"):
        print(checks.printable(line))
    return DONE


def _text(found: dict[str, Any]) -> str:
    size = sum(math.prod(shape) * _bytes(dtype) for _, dtype, shape in found["arrays"])
    rows = "unknown" if found["position"] is None else f"{found['position']:,}"
    lines = [
        f"written by  jboost {found['library']}, jax {found['jax']}",
        f"rows seen   {rows}",
        *(f"{name:<11} {value}" for name, value in _of_a_run(found["extra"]).items()),
        f"inputs      {found['num_features']} columns, {found['dtype']}",
        f"arrays      {len(found['arrays'])}, {size:,} bytes",
        f"model       {_model(found['model'], 12)}",
    ]
    return "\n".join(lines)


def _of_a_run(extra: Any) -> dict[str, str]:
    """What ``jboost run`` has kept beside the state, as far as it is there."""
    from jboost.commands.outcome import held
    from jboost.files.columns import Columns, DataError
    from jboost.reports.watch import Bands

    shown: dict[str, str] = {}
    match extra:
        case {"stream": {"scored": int(scored), "squared_error": str(error), "skipped": int(bad)}}:
            shown["skipped"] = f"{bad:,}"
            if scored:
                shown["MSE"] = f"{float(error) / scored:.6g}"
    match extra:
        case {"own": {"bands": dict(kept)}}:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                shown["intervals"] = held(Bands.from_dict(kept)).replace(" intervals:", ":")
    match extra:
        case {"own": {"columns": kept, "name": str(name), "file": str(file)}}:
            try:
                columns = Columns.from_dict(kept)
            except DataError:
                return shown
            shown |= {"file": file, "called": name, "target": columns.target}
            shown["columns"] = ", ".join(map(str, columns.inputs))
    return shown


def _model(node: Any, indent: int) -> str:
    """A description of a model, a setting a line."""
    match node:
        case {"class": name, "fields": dict(fields)}:
            inside = "".join(
                f"\n{' ' * indent}{key} = {_model(value, indent + 2)}"
                for key, value in fields.items()
            )
            return f"{name}{inside}"
        case {"array": name}:
            return f"the array {name}"
        case {"opaque": what}:
            return str(what)
        case {"float": text}:
            return str(text)
        case [*parts]:
            inside = "".join(f"\n{' ' * indent}- {_model(part, indent + 2)}" for part in parts)
            return inside or "()"
    return repr(node)


def _bytes(dtype: str) -> int:
    from jboost.checkpoints.archive import DTYPES

    return DTYPES[dtype].itemsize
