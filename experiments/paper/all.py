"""Run every experiment of the paper and fill the tables of the pages from their JSON.

Without ``--record`` the pages stay as they are, and filled copies go to the folder of the results.
With ``--tables`` nothing is run: the tables come from the JSON that is there already.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from experiments.paper import (
    duffing,
    parameters,
    stationary,
    table1,
    table1_literal,
    text_claims,
    theory,
    tree_family,
    trees,
    weights,
)
from experiments.shared import pages
from experiments.shared.experiment import command_line, parsed

SCRIPTS = (
    *(stationary, duffing, weights, parameters, table1, table1_literal, theory),
    *(text_claims, trees, tree_family),
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument("--length", metavar="T", help="use at most T samples of every stream")
    parser.add_argument("--tables", action="store_true", help="run nothing, only fill the tables")
    args = parsed(parser, argv, __file__)
    start = time.perf_counter()
    if not args.tables:
        options = ["--record"] if args.record else ["--out", str(args.out)]
        options += ["--quick"] if args.quick else []
        options += ["--length", args.length] if args.length else []
        for script in SCRIPTS:
            script.main(options)
    if not args.quick:  # a quick run has too few sets for the pages
        pages.fill(None if args.record else args.out)
    print(f"all in {args.out}, after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
