"""A small CSV file for tests of the command."""

from pathlib import Path

import numpy as np


def write_table(path: str) -> None:
    """Write forty rows of a column a and a target y."""
    numbers = np.random.default_rng(0).normal(size=(40, 2)).round(3).tolist()
    Path(path).write_text("a,y\n" + "".join(f"{a},{y}\n" for a, y in numbers))
