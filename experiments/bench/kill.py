"""A run over a file, killed at random moments and resumed, compared with an uninterrupted run.

``jboost run FILE --checkpoint … --predictions … --resume`` is started and killed with SIGKILL at a
random moment: after one or two more blocks were written, and a random part of the time that a block
takes. It is started and killed again until it was killed often enough; then it may finish. Its
predictions and final state must be those of the uninterrupted run, bit for bit. With ``--keys N``
the rows belong to N keys, and each key has a model of its own, kept in a folder of shards.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.shared.experiment import Experiment
from jboost import catalogue
from jboost.checkpoints import archive, checkpoint
from jboost.fleets import shards

LONGEST = 0.5  # seconds after a block was written: about what the next one takes
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def write(path: Path, rows: int, keys: int) -> None:
    """A stream with gaps, a column of text, and answers that never came."""
    rng = np.random.default_rng(1)
    if keys:
        x = rng.normal(size=(rows, 3)).round(4)
        key, law = rng.integers(0, keys, rows), rng.normal(size=(keys, 2))
        y = (np.sum(law[key] * x[:, :2], axis=1) + 0.1 * x[:, 2]).round(4)
        with path.open("w") as file:
            file.write("key,a,b,y\n")
            for k, (a, b, _), answer in zip(key.tolist(), x.tolist(), y.tolist(), strict=True):
                file.write(f"sensor {k},{a},{b},{answer}\n")
        return
    with path.open("w") as file:
        file.write("a,b,colour,c,y\n")
        for a, b, c, noise in rng.normal(size=(rows, 4)).round(4).tolist():
            gap = "" if abs(c) > 2.5 else c
            colour = ("red", "green", "blue")[int(abs(b) * 10) % 3]
            y = "" if abs(noise) > 3 else round(3 * a - 2 * b + 0.5 * c + 0.1 * noise, 4)
            file.write(f"{100 + a},{b},{colour},{gap},{y}\n")


def command(folder: Path, name: str, args: argparse.Namespace) -> list[str]:
    kept = ["--checkpoint", f"{folder}/{name}.run", "--predictions", f"{folder}/{name}.csv"]
    data = [f"{folder}/data.csv", "--target", "y", "--model", args.model]
    data += ["--key", "key"] if args.keys else []
    return [sys.executable, "-m", "jboost.cli", "run", *data, *kept, "--every", "1", "--resume"]


def same(folder: Path) -> bool:
    """Whether both runs left the same bytes of predictions, and the same bits of state."""
    predictions = [(folder / f"{name}.csv").read_bytes() for name in ("whole", "killed")]
    states = [numbers(folder / f"{name}.run") for name in ("whole", "killed")]
    equal = [np.array_equal(*pair, equal_nan=True) for pair in zip(*states, strict=True)]
    return predictions[0] == predictions[1] and all(equal)


def numbers(run: Path) -> list[Any]:
    """All arrays of a run that was kept."""
    if not run.is_dir():
        return jax.tree.leaves(checkpoint.load(run)[1])
    files = shards.read_manifest(str(run))[0]["files"]
    return [array for name, _ in files for array in archive.read(run / name)[1].values()]


def rows_kept(run: Path) -> int:
    """How many rows a run that was kept has learned; 0 where there is none."""
    if run.is_dir():
        kept = (run / shards.MANIFEST).exists()
        return shards.read_manifest(str(run))[0]["position"]["row"] if kept else 0
    return checkpoint.inspect(run)["position"] if run.exists() else 0


def wait(process: subprocess.Popen[Any], path: Path, blocks: int) -> None:
    """Until a process has written so many blocks to a file, or has ended."""
    size = path.stat().st_size if path.exists() else 0
    while blocks and process.poll() is None:
        time.sleep(0.002)
        before, size = size, path.stat().st_size if path.exists() else 0
        blocks -= size > before


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, metavar="N", help="default: 20")
    parser.add_argument("--rows", type=int, metavar="N", help="of the file; default: 1.5 million")
    parser.add_argument(
        "--model",
        default="bsgd_ru",
        choices=catalogue.CATALOGUE,
        metavar="NAME",
        help="default: bsgd_ru, which draws",
    )
    parser.add_argument("--keys", type=int, default=0, metavar="N", help="how many; default: none")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the moments")


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False, options=options)
    args = experiment.args
    experiment.name = "kill_keys" if args.keys else "kill"
    wanted = args.kills or experiment.size(20, 2)
    total = args.rows or experiment.size(1_500_000, 400_000)
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "data.csv", total, args.keys)
        start = time.perf_counter()
        subprocess.run(command(folder, "whole", args), check=True, capture_output=True)
        alone = time.perf_counter() - start
        print(f"left alone: {total:,} rows in {alone:.0f} s", flush=True)
        kills = finished = moved = seen = 0
        while kills < wanted:
            process = subprocess.Popen(command(folder, "killed", args), **QUIET)
            wait(process, folder / "killed.csv", rng.randint(1, 2))
            time.sleep(rng.uniform(0.0, LONGEST))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            process.wait()
            run = folder / "killed.run"
            before, seen = seen, rows_kept(run)
            moved += seen != before
            if seen == total:  # done before it was killed often enough: once more from the start
                assert same(folder), "the run that was killed and resumed differs"
                finished += 1
                shutil.rmtree(run) if run.is_dir() else run.unlink()
                seen = 0
            print(f"killed {kills} times; {seen:,} rows are safe", flush=True)
        subprocess.run(command(folder, "killed", args), check=True, capture_output=True)
        assert same(folder), "the run that was killed and resumed differs"
        print(
            f"{kills} kills, {moved} times with more rows learned than before; {finished + 1} runs "
            "to the end: every bit is the same"
        )
    settings = {"rows": total, "keys": args.keys, "model": args.model, "seed": args.seed}
    results = {"kills": kills, "with_more_rows_than_before": moved, "runs": finished + 1}
    experiment.write(settings, results)


if __name__ == "__main__":
    main()
