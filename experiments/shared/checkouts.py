"""Another checkout of jboost, which takes turns with this one in fresh processes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]


def add_against(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the other checkout."""
    parser.add_argument(
        "--against",
        type=lambda name: Path(name).resolve(),
        metavar="DIR",
        help="another checkout of jboost",
    )


def python(
    checkout: Path, *arguments: str, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process with the jboost of a checkout."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, check=check, cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout), **variables},
    )  # fmt: skip


def commit(checkout: Path) -> str:
    """Return the short name of the commit that is checked out."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    done: Any = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()
