"""``jboost inspect``: what a checkpoint holds."""

import argparse
import contextlib
import json
import math
from typing import Any

from jboost.checkpoints import archive, checkpoint
from jboost.commands.options import refusing
from jboost.commands.outcome import coverage_text
from jboost.commands.terminal import DONE, FAILED, CommandError, Subcommands, explaining, subcommand
from jboost.core import checks
from jboost.core.outline import outline
from jboost.files.columns import Columns, DataError
from jboost.reports.accounts import Bands

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


def add(commands: Subcommands) -> None:
    """Add the subcommand to the parser."""
    parser = subcommand(commands, run, "inspect", "what a checkpoint holds", DESCRIPTION, EPILOG)
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a file of --checkpoint or save")
    parser.add_argument("--json", action="store_true", help="all of it, as JSON")


def run(args: argparse.Namespace) -> int:
    """Print what the file holds."""
    with explaining(f"{args.checkpoint} cannot be read"), refusing(FAILED):
        header = checkpoint.inspect(args.checkpoint)
    try:
        if args.json:
            print(json.dumps(header, indent=2))
            return DONE
        texts = _texts(header) | {"model": _outline(args.checkpoint, header)}
    except (KeyError, TypeError, ValueError, RecursionError):
        raise CommandError(f"{args.checkpoint} holds what save does not write") from None
    for name, text in texts.items():
        for line in f"{name:<11} {text}".split("\n"):
            print(checks.printable(line))
    return DONE


def _texts(header: dict[str, Any]) -> dict[str, str]:
    """Return what the header of a checkpoint says, by what it is about."""
    arrays = header["arrays"]
    size = sum(math.prod(shape) * archive.DTYPES[dtype].itemsize for _, dtype, shape in arrays)
    return {
        "written by": f"jboost {header['library']}, jax {header['jax']}",
        "rows seen": "unknown" if header["position"] is None else f"{header['position']:,}",
        **_run_texts(header["extra"]),
        "inputs": f"{header['num_features']} columns, {header['dtype']}",
        "arrays": f"{len(arrays)}, {size:,} bytes",
    }


def _run_texts(extra: object) -> dict[str, str]:
    """Return what ``jboost run`` has kept beside the state, as far as it is there."""
    texts: dict[str, str] = {}
    match extra:
        case {"stream": {"scored": int(scored), "squared_error": str(error), "skipped": int(bad)}}:
            texts["skipped"] = f"{bad:,}"
            if scored:
                texts["MSE"] = f"{float(error) / scored:.6g}"
    match extra:
        case {"caller": {"bands": dict(bands)}}:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                text = coverage_text(Bands.from_dict(bands))
                texts["intervals"] = text.replace(" intervals:", ":")
    match extra:
        case {"caller": {"columns": saved, "name": str(name), "file": str(file)}}:
            with contextlib.suppress(DataError):
                columns = Columns.from_dict(saved)
                texts |= {"file": file, "called": name, "target": columns.target}
                texts["columns"] = ", ".join(map(str, columns.inputs))
                if columns.time is not None:
                    texts["time"] = columns.time.name
    return texts


def _outline(path: str, header: dict[str, Any]) -> str:
    """Return the outline of the model, from its description where its class is not known here."""
    try:
        return outline(checkpoint.read(path).model).replace("\n", "\n" + " " * 12)
    except (TypeError, ValueError):  # such as a CheckpointError
        return _model_text(header["model"], 12)


def _model_text(node: object, indent: int) -> str:
    """Return the description of a model, with one setting on each line."""
    start = f"\n{' ' * indent}"
    match node:
        case {"class": name, "fields": dict(fields)}:
            lines = (f"{key} = {_model_text(value, indent + 2)}" for key, value in fields.items())
            return "".join([str(name), *(start + line for line in lines)])
        case {"array": name}:
            return f"the array {name}"
        case {"opaque": text} | {"float": text}:
            return str(text)
        case [*items]:
            return "".join(f"{start}- {_model_text(item, indent + 2)}" for item in items) or "()"
    return repr(node)
