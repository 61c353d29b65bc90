"""How many rows of a file are read a second, by format and by what the columns hold?

Each file has eight columns and a target: numbers alone, seven numbers and a time, eight times, or
six numbers and two columns of text. A row is read when its numbers are in the arrays that a model
gets; no model runs. The rates are rows per second of CPU time, the best of a few passes, at least
half a second of them. With ``--against`` another checkout of jboost reads the same files in turn,
and the ratio of the rates is shown; what it cannot read is left out.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.shared import checkouts
from experiments.shared.experiment import command_line, parsed, plain, versions, write_json
from experiments.shared.markdown import table

FORMATS = ("csv", "csv.gz", "jsonl", "parquet")
KINDS = {"numbers": (0, 0), "a time": (1, 0), "eight times": (8, 0), "text": (0, 2)}
START = np.datetime64("2024-01-01T00:00:00", "s")
READ = """
import json, sys, time
from jboost.files.sources import read
best, passes, began = float("inf"), 0, time.process_time()
while passes < int(sys.argv[2]) or time.process_time() - began < 0.5:
    start = time.process_time()
    rows = sum(len(d) for _, d in read(sys.argv[1], target="y"))
    best, passes = min(best, time.process_time() - start), passes + 1
print(rows / best)
"""


def columns(kind: str, rows: int) -> dict[str, Any]:
    """The columns of a file by name, the target last."""
    rng = np.random.default_rng(0)
    times, texts = KINDS[kind]
    found: dict[str, Any] = {
        f"t{i}": START + np.arange(rows).astype("timedelta64[s]") * 600 + i for i in range(times)
    }
    found |= {f"s{i}": rng.choice(["red", "green", "blue"], rows) for i in range(texts)}
    found |= {f"x{i}": rng.normal(size=rows) for i in range(8 - times - texts)}
    return {**found, "y": rng.normal(size=rows)}


def write(path: Path, kind: str, rows: int) -> None:
    """Write the file of one format and kind."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as parquet

    content = pa.table(columns(kind, rows))
    if path.suffix == ".parquet":
        parquet.write_table(content, path)
    elif path.suffix == ".jsonl":
        lines = (json.dumps(row, default=str) for row in content.to_pylist())
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
            arrow_csv.write_csv(content, file)


def rate(path: Path, checkout: Path, passes: int) -> float:
    """Rows per second of CPU time, as the jboost of a checkout reads them; 0 if it cannot."""
    done = checkouts.python(checkout, "-c", READ, str(path), str(passes), check=False)
    return float(done.stdout) if done.returncode == 0 else 0.0


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    checkouts.add_against(parser)
    args = parsed(parser, argv, __file__)
    rows, passes = (4_000, 1) if args.quick else (50_000, 3)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for ending in FORMATS:
            for kind in KINDS:
                path = Path(folder, f"rows.{ending}")
                write(path, kind, rows)
                ours = other = 0.0
                for _ in range(2):
                    ours = max(ours, rate(path, checkouts.HERE, passes))
                    other = max(other, rate(path, args.against, passes)) if args.against else 0.0
                results.append({"format": ending, "kind": kind, "rate": ours, "against": other})
                print(ending, kind, ours, other, file=sys.stderr, flush=True)
    shown, numbers = [], {r["format"]: r["rate"] for r in results if r["kind"] == "numbers"}
    for r in results:
        ratio = f"{r['rate'] / r['against']:.2f}" if r["against"] else "–"
        share = f"{r['rate'] / numbers[r['format']]:.2f}"
        shown.append([r["format"], r["kind"], f"{r['rate']:,.0f}", share, ratio])
    head = ["format", "columns", "rows a second of CPU time", "over numbers", "over the other"]
    print(table(head, shown))
    record = {"quick": args.quick, "rows": rows, "versions": versions(), "results": results}
    write_json(plain(record), args.out / "reading.json")


if __name__ == "__main__":
    main()
