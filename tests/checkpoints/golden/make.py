"""Write the golden runs of this release's checkpoint format.

For every case below there are two files in ``formatN/``: ``NAME.run``, a checkpoint taken after
half of a stream, and ``NAME.csv``, the other half: inputs, targets, and the predictions of the run
that went on. tests/checkpoints/test_golden.py holds every later release to them. So they are
written once: a file that is there stays as it is. Run this again when the format gets a new number,
or a case is added here: ``python tests/checkpoints/golden/make.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jboost as jb
from jboost.checkpoints import archive

HERE = Path(__file__).parent
HALF, ROWS = 60, 100
CASES: dict[str, tuple[Any, Any]] = {
    "bnm_wu": (jb.bnm_wu(3, target_mse=0.1, forgetting=0.99, ridge=0.1), None),
    "bsgd_ru": (jb.bsgd_ru(4, target_mse=0.1, step_size=0.1), jax.random.key(7)),
    "pipeline": (
        jb.pipeline(
            jb.Impute(),
            jb.Scale(),
            jb.Bias(),
            jb.ScaleTarget(jb.boost(jb.Newton(0.99), 2, target_mse=0.2, mode=jb.DataReuse(3))),
        ),
        None,
    ),
    "nested": (
        jb.boost(
            [jb.bsgd_ru(2, target_mse=0.1, step_size=0.1), jb.NLMS(0.5), jb.Newton(0.98)],
            target_mse=0.1,
            combiner=jb.BOA(),
        ),
        jax.random.key(3, impl="rbg"),
    ),
    "auto": (jb.auto("small"), None),
}


def stream() -> tuple[np.ndarray, np.ndarray]:
    """Curved and noisy, with a gap of each kind in both halves."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 3)).astype(np.float32)
    d = x @ np.float32([1.0, -0.5, 0.2]) + 0.3 * x[:, 0] ** 2 + 0.1 * x[:, 1]
    x[[20, 70], [0, 1]] = np.nan
    d[[30, 80]] = np.nan
    return x, d.astype(np.float32)


def write(name: str, folder: Path) -> bool:
    """Whether a case was written; one that is there already is left alone."""
    kept, later = folder / f"{name}.run", folder / f"{name}.csv"
    if kept.exists() or later.exists():
        return False
    folder.mkdir(exist_ok=True)
    (model, key), (x, d) = CASES[name], stream()
    state, _ = jb.run(model, x[:HALF], d[:HALF], key)
    jb.save(kept, model, state, key, position=HALF, extra={"golden": name})
    _, trace = jb.run(model, x[HALF:], d[HALF:], key, state)
    table = np.column_stack([x[HALF:], d[HALF:], np.asarray(trace.prediction)])
    np.savetxt(later, table, "%.9g", ",", header="x1,x2,x3,d,prediction", comments="")
    return True


def main() -> int:
    folder = HERE / f"format{archive.FORMAT}"
    written = [name for name in CASES if write(name, folder)]
    print(f"{folder}: wrote {', '.join(written) or 'nothing, all cases are there'}")
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
