"""The tests in other environments: oldest and newest libraries, each extra, JAX's switches.

Without ``--quick`` a new virtual environment is made for each row: the oldest supported versions
(.ci/oldest.txt, with Python 3.11), and CI's versions (.ci/constraints.txt) with no extra, with each
extra alone and with all. In the last environment the core tests then run under each of JAX's
switches. A table says what passed; the exit status is 1 where a test failed.

With ``--quick`` only the switches are tried, in the current environment, on a few tests.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("chex", "hypothesis", "pytest", "pytest-xdist")
# The golden files are among them; named besides, they would be all that pytest 8.4 runs.
CORE = ("-m", "core and not slow", "tests")
FITTING = {
    "plot": ("tests/reports/test_plots.py",),
    "io": (
        "tests/files/test_files.py",
        "tests/files/test_sources.py",
        "tests/running/test_faults.py",
    ),
    "sklearn": ("tests/adapters/test_adapter_sklearn.py",),
    "river": ("tests/adapters/test_adapter_river.py",),
}
LEARNERS = "tests/learners/test_learners.py"
HANDFUL = ("tests/test_public.py", LEARNERS, "tests/checkpoints/test_golden.py")


class Switch(NamedTuple):
    """A setting of JAX, and the tests that cannot run under it, each with the reason."""

    variable: str
    value: str
    ruled_out: Mapping[str, str] = MappingProxyType({})


WANTED = "it lets a learner without the cap overflow, to show what the cap is for"
SWITCHES = {
    "x64": Switch("JAX_ENABLE_X64", "1"),
    "bfloat16 products": Switch("JAX_DEFAULT_MATMUL_PRECISION", "bfloat16"),
    "NaN is an error": Switch(
        "JAX_DEBUG_NANS", "1", {f"{LEARNERS}::test_silence_does_not_wind_up": WANTED}
    ),
    "internal checks": Switch("JAX_ENABLE_CHECKS", "1"),
    "no jit": Switch("JAX_DISABLE_JIT", "1"),
}
# Without jit every step of a run is taken by Python: short runs only.
SHORT = (
    f"{LEARNERS}::test_sgd_by_hand",
    f"{LEARNERS}::test_nlms_by_hand",
    f"{LEARNERS}::test_learning_a_sample_brings_its_estimate_closer",
    f"{LEARNERS}::test_forgetting_by_weight_keeps_what_unimportant_samples_do_not_replace",
    "tests/checkpoints/test_golden.py",
)


class Row(NamedTuple):
    """An environment, and how many tests passed, failed and were skipped there."""

    where: str
    passed: int
    failed: int
    skipped: int
    ruled_out: int
    seconds: float

    @property
    def verdict(self) -> str:
        return "pass" if self.passed and not self.failed else "FAIL"


def pytest(
    python: Path, where: str, tests: Sequence[str], switch: Switch | None = None, few: bool = False
) -> Row:
    """Run tests and count the outcomes; failures are printed."""
    ruled_out = switch.ruled_out if switch else {}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *tests]
    command += [word for test in ruled_out for word in ("--deselect", test)]
    command += ["-n0"] if few else []
    settings = {switch.variable: switch.value} if switch else {}
    start = time.perf_counter()
    print(f"{where}: {' '.join(tests)}", flush=True)
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True
    )
    seconds = time.perf_counter() - start
    last = done.stdout.strip().rpartition("\n")[2]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last)}
    broken = counts.get("failed", 0) + counts.get("errors", 0) + counts.get("error", 0)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
        broken = broken or 1  # it did not even begin
    return Row(
        where, counts.get("passed", 0), broken, counts.get("skipped", 0), len(ruled_out), seconds
    )


def environment(folder: Path, constraints: str, wanted: Sequence[str]) -> Path:
    """Make a new virtual environment with these packages; returns its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "-qq", "-c", f".ci/{constraints}", *wanted]
    subprocess.run(command, cwd=ROOT, check=True)
    return python


def matrix(folder: Path, only: str | None) -> list[Row]:
    """Test every environment, each made in the same folder, so that only one takes disk space."""
    rows = []
    oldest = sys.version_info[:2] == (3, 11)
    if oldest and only in (None, "oldest"):
        python = environment(folder, "oldest.txt", [".[test-core]"])
        rows.append(pytest(python, "oldest", CORE))
    elif not oldest:
        print("oldest: left out, since it has wheels for Python 3.11 only", flush=True)
    if only in (None, "none"):
        python = environment(folder, "constraints.txt", [".", *TOOLS])
        rows.append(pytest(python, "newest, no extra", CORE))
    for extra, tests in FITTING.items():
        if only in (None, extra):
            python = environment(folder, "constraints.txt", [f".[{extra}]", *TOOLS])
            rows.append(pytest(python, f"newest, {extra}", ("tests/test_public.py", *tests)))
    if only in (None, "all"):
        python = environment(folder, "constraints.txt", [".[all]", *TOOLS])
        every = [test for tests in FITTING.values() for test in tests]
        rows.append(pytest(python, "newest, all extras", ("tests/test_public.py", *every)))
        for name, switch in SWITCHES.items():
            tests = SHORT if name == "no jit" else CORE
            rows.append(pytest(python, f"newest, {name}", tests, switch))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the matrix and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="the switches, here, on a few tests")
    parser.add_argument(
        "--only",
        choices=["oldest", "none", *FITTING, "all"],
        help="one environment; the switches are tried in that of all extras",
    )
    args = parser.parse_args(argv)
    if args.quick:
        rows = [
            pytest(
                Path(sys.executable), name, SHORT if name == "no jit" else HANDFUL, switch, few=True
            )
            for name, switch in SWITCHES.items()
        ]
    else:
        with tempfile.TemporaryDirectory() as folder:
            rows = matrix(Path(folder, "environment"), args.only)
    print("\n| where | verdict | passed | failed | skipped | ruled out | seconds |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for row in rows:
        where, *counts, seconds = row
        cells = [where, row.verdict, *map(str, counts), f"{seconds:.0f}"]
        print(f"| {' | '.join(cells)} |")
    for name, switch in SWITCHES.items():
        for test, reason in switch.ruled_out.items():
            print(f"\nruled out under {name}: {test}: {reason}")
    return int(any(row.verdict != "pass" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
