"""Parts of a step and of a call, timed by themselves: what keeps jboost from the best C.

:func:`pairs` runs in a fresh process, because JAX reads only once in which thread to compute.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jboost as jb
from experiments.shared.experiment import fresh_python
from jboost.adapters import compute_in_calling_thread
from jboost.adapters.feed import Feed
from jboost.core import Learner
from jboost.engine.kernel import one_kernel, outermost

COPIES = 24  # twenty learners and four idle ones, side by side
SAMPLES, R = 3_000, 8
SETTLED = 100  # samples after which no call may wait for the compiler


def microseconds(call: Callable[[], Any], steps: int, repeats: int) -> float:
    """The mean CPU time of a call, for each of its steps.

    The time of all calls is taken at once: the system books that of another thread by ticks, so
    that a single call may seem to take none.
    """
    call()
    start = time.process_time()
    for _ in range(repeats):
        call()
    return 1e6 * (time.process_time() - start) / (repeats * steps)


def storages(r: int, repeats: int) -> dict[str, float]:
    """Microseconds a step of least squares on P alone: the whole matrix, or one triangle of it.

    The triangle is a vector of r(r + 1)/2 entries for each copy. XLA has no triangular loops: the
    entries are found by tables of their rows and columns.
    """
    rng = np.random.default_rng(0)
    xs = jnp.asarray(rng.uniform(-1, 1, (SAMPLES, r)), jnp.float32)
    rows, columns = np.tril_indices(r)
    entries = np.zeros((r, r), np.int32)
    entries[rows, columns] = entries[columns, rows] = np.arange(len(rows))
    eye = np.repeat(100 * np.eye(r, dtype=np.float32)[..., None], COPIES, axis=-1)

    def take(array: Array, indices: np.ndarray) -> Array:
        return array.at[indices].get(mode="promise_in_bounds")

    def gain(k: Array, x: Array) -> Array:
        return 1 / (0.999 + jnp.sum(k * x[:, None], axis=0))

    def whole(P: Array, x: Array) -> tuple[Array, Array]:
        k = jnp.sum(P * x[:, None, None], axis=0)
        return (P - gain(k, x) * (k[:, None] * k[None, :])) / 0.999, k[0, 0]

    def triangle(P: Array, x: Array) -> tuple[Array, Array]:
        k = jnp.sum(take(P, entries) * x[:, None, None], axis=0)
        return (P - gain(k, x) * (take(k, rows) * take(k, columns))) / 0.999, k[0, 0]

    def timed(step: Callable[..., Any], P: np.ndarray) -> float:
        def loop(P: Array, xs: Array) -> Any:
            return jax.lax.scan(step, P, xs)

        program = outermost(lambda *operands: one_kernel(loop, *operands), kernel=True)
        start = jnp.asarray(P)
        return microseconds(lambda: jax.block_until_ready(program(start, xs)), SAMPLES, repeats)

    return {"whole": timed(whole, eye), "triangle": timed(triangle, eye[rows, columns])}


def single_calls() -> dict[str, dict[str, float]]:
    """CPU µs of a sample in a run and in single calls, by model and by thread; see `pairs`.

    Nothing where river is not installed.
    """
    found = {}
    if find_spec("river") is None:
        return found
    for where in ("another thread", "the calling thread"):
        code = f"from experiments.bench import speed_parts; speed_parts.pairs({where!r})"
        costs = json.loads(fresh_python(code))
        found |= {f"{name}, in {where}": cost for name, cost in costs.items()}
    return found


def pairs(where: str) -> None:
    """Print what single calls of the adapter for river cost; see `_pair`."""
    if where == "the calling thread":
        compute_in_calling_thread()
    rng = np.random.default_rng(0)
    xs = rng.uniform(-1, 1, (SAMPLES, R)).astype(np.float32)
    ds = (xs.sum(axis=1) + 0.1 * rng.standard_normal(SAMPLES)).astype(np.float32)
    models = {
        "SGD": jb.SGD(0.1),
        "Newton": jb.Newton(0.999),
        "bsgd_wu": jb.bsgd_wu(20, target_mse=0.1, step_size=0.03),
        "bnm_wu": jb.bnm_wu(20, target_mse=0.1, forgetting=0.999, ridge=0.01),
        "small auto": jb.auto("small"),
        "auto": jb.auto(),
    }
    print(json.dumps({name: _pair(model, xs, ds) for name, model in models.items()}))


def _pair(model: Learner, xs: np.ndarray, ds: np.ndarray) -> dict[str, float]:
    """CPU µs of a step in a run, of a pair of calls and of a call of no rows.

    "longest" is the longest pair after the first ones, divided by the median.
    """
    from jboost.adapters.river import OnlineRegressor

    inputs, targets = jnp.asarray(xs), jnp.asarray(ds)

    def run() -> Any:
        return jax.block_until_ready(jb.run(model, inputs, targets))

    regressor, spent = OnlineRegressor(model), []
    for x, d in zip(xs.tolist(), ds.tolist(), strict=True):
        row = dict(enumerate(x))
        start = time.process_time()
        regressor.predict_one(row)
        regressor.learn_one(row, d)
        spent.append(time.process_time() - start)
    settled = np.array(spent[SETTLED:])
    median = float(np.median(settled))
    return {
        "step": microseconds(run, SAMPLES, 5),
        "pair": 1e6 * median,
        "call of no rows": microseconds(Feed(model, R).warm_up, 1, 200),
        "longest": float(settled.max()) / median,
    }
