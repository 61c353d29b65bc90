"""The command line of the scripts, their progress bar, and the JSON and figures they write.

Every script has the same three options. ``--quick`` runs a small version. Results go to a folder
among the temporary files, or to the one that ``--out`` names. Only ``--record`` writes beside the
script, into its ``results`` folder, and then also fills the tables of the pages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

import jboost
from jboost import plots
from jboost.core import progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPORARY = Path(tempfile.gettempdir()) / "jboost-experiments"
Item = TypeVar("Item")
Result = TypeVar("Result")


def command_line(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every script has; the description is its first paragraph."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="run a small version")
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=TEMPORARY,
        help="the folder for the JSON and the figures (default: %(default)s)",
    )
    place.add_argument(
        "--record",
        action="store_true",
        help="write them beside the script instead, and fill the tables of the pages",
    )
    return parser


def parsed(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, script: str
) -> argparse.Namespace:
    """The arguments, with ``out`` as the folder that results go to; it exists afterwards.

    ``script`` is the ``__file__`` of the script, beside which ``--record`` writes.
    """
    args = parser.parse_args(argv)
    if args.record:
        if args.quick:
            parser.error("--record is for full runs: leave out --quick, or name a folder by --out")
        args.out = Path(script).resolve().parent / "results"
    args.out.mkdir(parents=True, exist_ok=True)
    return args


class Experiment:
    """One run of a script: its arguments, its clock, and the folder its results go to."""

    def __init__(
        self, script: str, description: str | None, argv: Sequence[str] | None, *, double: bool,
        options: Callable[[argparse.ArgumentParser], object] | None = None,
    ) -> None:  # fmt: skip
        """Read the command line; ``options`` adds those that only this script has."""
        parser = command_line(description)
        if options is not None:
            options(parser)
        parser.add_argument(
            "--length", type=_length, metavar="T", help="use at most T samples of every stream"
        )
        args = parsed(parser, argv, script)
        self.args = args
        self.name = Path(script).stem
        self.quick: bool = args.quick
        self.record: bool = args.record
        self.length: int | None = args.length
        self.out: Path = args.out
        self.start = time.perf_counter()
        self.dtype = "float64" if double else "float32"
        jax.config.update("jax_enable_x64", double)

    def size(self, full: int, quick: int) -> int:
        """``quick`` in a quick run, ``full`` otherwise: a number of trials, for example."""
        return quick if self.quick else full

    def samples(self, full: int, quick: int) -> int:
        """The length of a stream: as :meth:`size`, but no more than ``--length``."""
        return min(self.size(full, quick), self.length or full)

    def each(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        label: Callable[[Item], str] = str,
        *,
        workers: int = 2,
    ) -> list[Result]:
        """[work(item), …] with a progress bar, two at a time: each compiles on one core.

        Work that is timed needs ``workers=1``.
        """
        todo = list(items)
        bar = Progress(self.name, len(todo))

        def one(item: Item) -> Result:
            done = work(item)
            bar.add(1, label(item))
            return done

        with ThreadPoolExecutor(min(workers, os.cpu_count() or 1)) as pool:
            return list(pool.map(one, todo))

    def kept(self, work: Callable[[str], Any], settings: Any) -> Callable[[str], Any]:
        """``work`` on a named item, whose result is read back if an earlier run has computed it.

        So a long script that was cut goes on where it was, and its record has the seconds of all
        its runs. Results of other settings, of another version of JAX or of a quick run do not
        count.
        """
        origin = ["with seconds", settings, self.quick, self.length, self.dtype, versions()]
        digest = hashlib.sha256(json.dumps(plain(origin)).encode()).hexdigest()[:12]
        folder = TEMPORARY / f"{self.name}-{digest}"

        def once(item: str) -> Any:
            path = folder / f"{item}.json"
            if path.exists():
                found = read_json(path)
                self.start -= found["seconds"]
                return found["result"]
            folder.mkdir(parents=True, exist_ok=True)
            start = time.perf_counter()
            result = work(item)
            found = {"seconds": time.perf_counter() - start, "result": result}
            write_json(plain(found), path)
            return read_json(path)["result"]

        return once

    def write(self, settings: dict[str, Any], results: dict[str, Any]) -> None:
        """Write the results as ``<name>.json``, with all that is needed to repeat them."""
        record = {
            "experiment": self.name,
            "quick": self.quick,
            "settings": {"dtype": self.dtype, **settings},
            "versions": versions(),
            "seconds": round(time.perf_counter() - self.start),
            "results": results,
        }
        path = self.out / f"{self.name}.json"
        write_json(plain(record), path)
        print(f"{self.name}: {record['seconds']} s, results in {path}", flush=True)
        self.fill_pages()

    def fill_pages(self) -> None:
        """With ``--record``, put the new results into the tables of the pages."""
        if self.record:
            from experiments.shared import pages

            pages.fill()

    def save(self, figure: Figure, name: str | None = None) -> None:
        """Write a figure as PNG."""
        plots.save(figure, self.out / f"{name or self.name}.png", dpi=110)


class Progress(progress.Progress):
    """The library's display of progress, shown in a log too."""

    def __init__(self, name: str, total: int) -> None:
        super().__init__(name, total, shown=True, unit="steps")
        self.add(0)  # the first step may take long


def fresh_python(code: str, **environment: str) -> str:
    """The output of some code in a new process, with the same jboost and these experiments."""
    folders = [Path(jboost.__file__).parents[1], Path(__file__).resolve().parents[2]]
    path = os.pathsep.join(map(str, folders))
    command = [sys.executable, "-c", code]
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    return done.stdout


def versions() -> dict[str, str]:
    """The versions of Python, the backend and the packages that the results depend on."""
    packages = {name: version(name) for name in ("jboost", "jax", "jaxlib", "numpy")}
    return {"python": platform.python_version(), "backend": jax.default_backend(), **packages}


def plain(value: Any) -> Any:
    """The value as JSON can hold it: numbers to five digits, null where one is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, (np.bool_, np.integer)):
        return value.item()
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return float(f"{number:.5g}") if np.isfinite(number) else None
    return plain(np.asarray(value).tolist())


def write_json(record: dict[str, Any], path: Path) -> None:
    """Write a record through a temporary file: a run that is cut leaves the old file whole."""
    text = _compact(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False))
    part = path.with_suffix(".part")
    part.write_text(f"{text}\n", encoding="utf-8")
    part.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The record in a file, empty where there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _length(text: str) -> int:
    length = int(text)
    if length < 100:
        raise argparse.ArgumentTypeError(f"must be at least 100; got {text}")
    return length


def _compact(text: str) -> str:
    """JSON with each list of plain values on one line."""
    return re.sub(
        r"\[\n\s+([^\[\]{}]*?)\n\s*\]", lambda found: f"[{_LINES.sub(', ', found[1])}]", text
    )


_LINES = re.compile(r",\n\s+")
