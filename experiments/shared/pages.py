"""Fills the tables of the pages from the JSON of the scripts.

A table stands between ``<!-- begin: name -->`` and ``<!-- end -->``. Nothing between the markers
is written by hand, so that a page and its record cannot differ.
"""

from __future__ import annotations

import re
from pathlib import Path

from experiments.shared.experiment import read_json
from experiments.shared.markdown import Record

EXPERIMENTS = Path(__file__).resolve().parents[1]
ROOT = EXPERIMENTS.parent
RESULTS = (EXPERIMENTS / "paper" / "results", EXPERIMENTS / "bench" / "results")
PAGES = (
    ROOT / "README.md",
    EXPERIMENTS / "paper" / "README.md",
    EXPERIMENTS / "paper" / "REPORT.md",
    EXPERIMENTS / "bench" / "accuracy.md",
    EXPERIMENTS / "bench" / "forecast.md",
    EXPERIMENTS / "bench" / "parts.md",
    EXPERIMENTS / "bench" / "speed.md",
    EXPERIMENTS / "bench" / "trust.md",
    EXPERIMENTS / "guides" / "filters.md",
    EXPERIMENTS / "guides" / "knowing.md",
    EXPERIMENTS / "guides" / "fleet_deployment.md",
    EXPERIMENTS / "guides" / "prediction.md",
    EXPERIMENTS / "guides" / "serve.md",
    EXPERIMENTS / "guides" / "tuning.md",
)
BLOCK = re.compile(r"(<!-- begin: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def load(name: str, folder: Path | None = None) -> Record:
    """The JSON of a script: from the folder where it is there, otherwise the one of record."""
    for place in (*([folder] if folder else []), *RESULTS):
        if (place / f"{name}.json").exists():
            return read_json(place / f"{name}.json")
    raise FileNotFoundError(f"no {name}.json in {', '.join(map(str, RESULTS))}")


def blocks(folder: Path | None = None) -> dict[str, str]:
    """Every table of the pages by the name in its marker."""
    from experiments.bench import tables as bench
    from experiments.paper import tables as paper

    def record(name: str) -> Record:
        return load(name, folder)

    return paper.blocks(record) | bench.blocks(record)


def filled(text: str, tables: dict[str, str]) -> str:
    """The text with every table replaced; a name without a table is a KeyError."""
    return BLOCK.sub(lambda found: f"{found[1]}{tables[found[2]]}\n{found[3]}", text)


def fill(folder: Path | None = None) -> None:
    """Fill the pages from the record; with a folder, write filled copies there instead."""
    tables = blocks(folder)
    for page in PAGES:
        copy = f"{page.parent.name}-{page.name}" if page.parent != ROOT else page.name
        target = folder / copy if folder else page
        target.write_text(filled(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
        print(f"filled {target}")
