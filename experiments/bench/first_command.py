"""What does the first ``jboost run`` cost, cold and warm, beside another checkout of jboost?

Each run is a process of its own, with the default model on 400 rows of six columns of numbers and
three of text. Their texts have as many values as fill the 16 columns that any version gives them,
so that all versions have 54 inputs. "Cold" has an empty folder of programs, and "warm" that of the
cold run. With ``--against`` another checkout takes turns. Times are CPU seconds of the process in
all, Python's start included, the median of a few rounds.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.shared import checkouts
from experiments.shared.experiment import Experiment
from experiments.shared.markdown import Record, table

ROWS, NUMBERS, TEXTS = 400, 6, 3
VALUES = 13  # of a text: three columns more are kept free for values that come later
LIMITS = {"cold": 1 / 3, "warm": 1 / 6}  # over the other checkout


def write(path: Path) -> None:
    """Write the file of the run."""
    rng = np.random.default_rng(0)
    numbers = rng.uniform(-1, 1, (ROWS, NUMBERS))
    texts = rng.integers(0, VALUES, (ROWS, TEXTS))
    head = [*(f"x{i}" for i in range(NUMBERS)), *(f"word{i}" for i in range(TEXTS)), "y"]
    lines = [",".join(head)]
    for x, words in zip(numbers, texts, strict=True):
        answer = x.sum() + words[0] / VALUES
        lines.append(",".join([*map(str, x), *(f"value {w}" for w in words), str(answer)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def seconds(checkout: Path, file: Path, programs: Path) -> float:
    """CPU seconds of one ``jboost run``, which keeps its programs in a folder."""
    before = _of_children()
    command = ("-m", "jboost", "run", str(file), "--target", "y")
    checkouts.python(checkout, *command, JBOOST_CACHE=str(programs), MPLBACKEND="Agg")
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(where: Sequence[Path], rounds: int) -> list[dict[str, float]]:
    """The median seconds of each checkout, "cold" and "warm", in turns."""
    times: list[dict[str, list[float]]] = [{name: [] for name in LIMITS} for _ in where]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.csv")
        write(file)
        for turn in range(rounds):
            for number, checkout in enumerate(where):
                programs = Path(folder, f"programs {turn} {number}")
                for name in LIMITS:
                    times[number][name].append(seconds(checkout, file, programs))
    return [{name: statistics.median(each) for name, each in found.items()} for found in times]


def shown(record: Record) -> str:
    """The times of the checkouts, and the ratios with their limits."""
    found = record["results"]
    rows = [[name, *(f"{times[column]:.1f}" for column in LIMITS)] for name, times in found.items()]
    if len(found) == 2:
        ours, other = found.values()
        ratios = {name: ours[name] / other[name] for name in LIMITS}
        rows.append(["ratio", *(f"{ratio:.3f}" for ratio in ratios.values())])
        rows.append(["at most", *(f"{limit:.3f}" for limit in LIMITS.values())])
        met = ("ok" if ratios[name] <= limit else "NOT MET" for name, limit in LIMITS.items())
        rows.append(["", *met])
    return table(["", "cold, CPU s", "warm, CPU s"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False, options=checkouts.add_against)
    other: Path | None = experiment.args.against
    if experiment.record and other is None:
        sys.exit("--record needs --against DIR: the table has both checkouts")
    where = {"this version": checkouts.HERE}
    if other is not None:
        where[f"commit {checkouts.commit(other)}"] = other
    rounds = experiment.size(3, 1)
    found = measured([*where.values()], rounds)
    record = dict(zip(where, found, strict=True))
    print(shown({"results": record}))
    experiment.write({"rows": ROWS, "rounds": rounds, "cores": os.cpu_count()}, record)


if __name__ == "__main__":
    main()
