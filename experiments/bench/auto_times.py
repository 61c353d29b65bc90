"""How long does a sample take in `auto`, and the first result of a fresh process?

Every size runs over streams of several widths. Each measurement is a process of its own, on one
core: the first result of 2,000 rows without kept programs, then the median of a few runs over 8,192
rows, in which boosted trees grow often at first and seldom later. The first result of ``bnm_wu`` at
eight columns is the yardstick of the others. With ``--against`` another checkout of jboost takes
turns with this one, and the ratio of the medians is shown. All times are CPU time.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.shared import checkouts
from experiments.shared.experiment import command_line, parsed, plain, versions, write_json
from experiments.shared.markdown import table

SIZES = ("small", "medium", "large")
WIDTHS = (4, 8, 21, 54)
YARDSTICK = "bnm_wu", 8
FIRST = 2_000  # rows of the first result
RUNS = 3  # over all rows, in each process
MEASURE = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
import json, statistics, time
import jax, numpy as np
import jboost as jb
jax.config.update("jax_enable_compilation_cache", False)
name, (r, rows, first, runs) = sys.argv[1], map(int, sys.argv[2:])
rng = np.random.default_rng(0)
xs = rng.uniform(-1, 1, (rows, r)).astype(np.float32)
ds = (xs[:, 0] + xs[:, 1] * xs[:, 2] + 0.1 * rng.standard_normal(rows)).astype(np.float32)
boosted = jb.bnm_wu(m=20, target_mse=0.01, forgetting=0.999, ridge=0.01)
model = boosted if name == "bnm_wu" else jb.auto(name)
def seconds(rows):
    start = time.process_time()
    jax.block_until_ready(jb.run(model, xs[:rows], ds[:rows])[1].prediction)
    return time.process_time() - start
begin = seconds(first)
samples = [1e6 * seconds(rows) / rows for _ in range(runs)]
print(json.dumps({"first": begin, "us": statistics.median(samples)}))
"""


def measured(checkout: Path, name: str, r: int, rows: int) -> dict[str, float]:
    """The seconds of the first result and the microseconds of a sample, in a fresh process."""
    numbers = [str(number) for number in (r, rows, min(FIRST, rows), RUNS)]
    done = checkouts.python(checkout, "-c", MEASURE, name, *numbers)
    return json.loads(done.stdout.splitlines()[-1])


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    checkouts.add_against(parser)
    args = parsed(parser, argv, __file__)
    where = [checkouts.HERE, *([args.against] if args.against else [])]
    rows, rounds = (64, 1) if args.quick else (8_192, 3)
    cases = [(size, r) for size in SIZES for r in WIDTHS]
    cases = [YARDSTICK, *(cases[:1] if args.quick else cases)]
    results: list[dict[str, Any]] = []
    for name, r in cases:
        turns = [[measured(each, name, r, rows) for each in where] for _ in range(rounds)]
        medians = [
            {key: statistics.median(turn[i][key] for turn in turns) for key in ("us", "first")}
            for i in range(len(where))
        ]
        results.append({"model": name, "r": r, **medians[0], "against": medians[1:]})
        print(results[-1], file=sys.stderr, flush=True)
    yardstick, shown = results[0]["first"], []
    for found in results:
        others = found["against"]
        ratio = f"{found['us'] / others[0]['us']:.2f}" if others else "–"
        first = f"{found['first'] / others[0]['first']:.2f}" if others else "–"
        row = [found["model"], str(found["r"]), f"{found['us']:.2f}", ratio]
        shown.append([*row, f"{found['first']:.2f}", f"{found['first'] / yardstick:.1f}", first])
    head = ["model", "columns", "µs a sample", "over the other", "first result, s"]
    print(table([*head, "over bnm_wu's", "over the other"], shown))
    record = {"quick": args.quick, "rows": rows, "versions": versions(), "results": results}
    write_json(plain(record), args.out / "auto_times.json")


if __name__ == "__main__":
    main()
