"""What a user waits for: the CPU time of the first result in a fresh process.

This module runs in that process, after ``import jax``, and imports nothing that a user would not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import jboost as jb

COMPILED = "/jax/core/compile/backend_compile_duration"
ROWS, SECOND = 2_000, 1_500  # two lengths of a stream


def compilations() -> Callable[[], int]:
    """A counter of the programs that XLA compiles from now on."""
    heard: list[float] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILED:
            heard.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return lambda: len(heard)


def show(start: float, name: str, r: int, folder: str | None) -> None:
    """Run a model twice, on two lengths, and print three numbers.

    They are the CPU seconds of the first run, the CPU seconds since ``start``, the process time
    when JAX was imported, and the number of programs that the second length compiled. Compiled
    programs are kept in ``folder``, or nowhere.
    """
    if folder is None:
        jax.config.update("jax_enable_compilation_cache", False)
    else:
        jb.cache(folder)
    rng = np.random.default_rng(0)
    xs = rng.uniform(-1, 1, (ROWS, r)).astype(np.float32)
    ds = (xs[:, 0] + 0.1 * rng.standard_normal(ROWS)).astype(np.float32)
    boosted = jb.bnm_wu(m=20, target_mse=0.01, forgetting=0.999, ridge=0.01)
    model = jb.auto() if name == "auto" else boosted
    before = time.process_time()
    jax.block_until_ready(jb.run(model, xs, ds))
    after = time.process_time()
    count = compilations()
    jax.block_until_ready(jb.run(model, xs[:SECOND], ds[:SECOND]))
    print(after - before, after - start, count())
