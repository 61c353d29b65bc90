"""Run every experiment and write the tables of the pages here from the JSON they leave.

With ``--tables`` nothing is run: the tables are made from the JSON that is there. Where ``--quick``
or another folder is asked for, the pages stay as they are and filled ones go to that folder.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path

import baselines
import combiners
import common
import duffing
import nonlinear
import parameters
import stationary
import table1
import tables
import theory
import weights

SCRIPTS = {
    "stationary": stationary,
    "duffing": duffing,
    "weights": weights,
    "parameters": parameters,
    "table1": table1,
    "theory": theory,
    "combiners": combiners,
    "baselines": baselines,
    "nonlinear": nonlinear,
}
PAGES = (
    common.HERE / "README.md",
    common.HERE / "parts.md",
    common.HERE / "prediction.md",
    common.HERE / "tuning.md",
    common.HERE / "trust.md",
    common.HERE.parent / "README.md",
)
BLOCK = re.compile(r"(<!-- begin: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, blocks: dict[str, str]) -> str:
    """The text with every marked block replaced; a name that is not known is an error."""
    return BLOCK.sub(lambda found: f"{found[1]}{blocks[found[2]]}\n{found[3]}", text)


def records(folder: Path) -> dict[str, dict[str, object]]:
    """The JSON of every experiment."""
    return {name: common.load(name, folder) for name in SCRIPTS}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small version, about 3 minutes")
    parser.add_argument("--out", type=Path, metavar="DIR", help=common.OUT)
    parser.add_argument("--length", type=int, metavar="T", help="samples of every stream, at most")
    parser.add_argument("--tables", action="store_true", help="only write the tables")
    args = parser.parse_args(argv)
    start = time.perf_counter()
    out = common.folder(args.out, args.quick)
    if not args.tables:
        given = ["--quick"] * args.quick + ["--out", str(out)]
        given += ["--length", str(args.length)] if args.length else []
        for script in SCRIPTS.values():
            script.main(given)
    blocks = tables.blocks(records(out))
    here = not args.quick and out.resolve() == common.RESULTS.resolve()
    for page in PAGES:
        target = page if here else out / f"{page.parent.name}-{page.name}"
        target.write_text(filled(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")
        print(f"{target}, after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
