"""The weights λ over time in BSGD-RU on the Duffing stream, and the work that they save.

The figure shows λ of learners 5, 10 and 20 as means over blocks of samples, and the mean λ of every
learner. The table has the updates that each mode makes and the time it takes, on the narrow Duffing
stream (r = 3) and on a wide generated one (r = 91).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost as jb
from experiments.paper.protocol import BOOSTED, DUFFING, Settings, boosted, single
from experiments.shared.errors import spread
from experiments.shared.experiment import Experiment
from experiments.shared.figures import dress, style
from jboost import plots
from jboost.core import Learner

SHOWN = (5, 10, 20)
BLOCKS = 100
WIDE = Settings(step_size=0.01, forgetting=0.9999, target_sgd=0.06, target_nm=0.06, ridge=1.0)


def recorded(state: Any, info: Any) -> tuple[Any, Any]:
    """Observe the weights and the errors of all learners."""
    del state
    return info.lam, info.e


def worked(state: Any, info: Any) -> Any:
    """Observe the number of updates made at a step; a single learner makes one."""
    del state
    return jnp.sum(info.updates) if "updates" in info else jnp.ones((), jnp.int32)


def shape_of_weights(lam: np.ndarray, e: np.ndarray, target: float) -> dict[str, Any]:
    """Block means of λ, how often they turn, how learners compare, and λ after hits and misses."""
    T = len(lam)
    blocks = np.array([part.mean(axis=0) for part in np.array_split(lam, min(BLOCKS, T))])
    last = {k: lam[:, k - 1] for k in SHOWN}
    turns = {
        k: int((np.diff(np.sign(np.diff(blocks[:, k - 1]))) != 0).sum()) for k in SHOWN
    }  # of at most BLOCKS − 2
    return {
        "t": [int(part[-1]) + 1 for part in np.array_split(np.arange(T), len(blocks))],
        "blocks": {k: blocks[:, k - 1] for k in SHOWN},
        "mean": lam.mean(axis=0),
        "turning_points": turns,
        "share_of_steps_5_at_least_10": float((last[5] >= last[10]).mean()),
        "share_of_steps_10_at_least_20": float((last[10] >= last[20]).mean()),
        "share_of_weights_within_0.01_of_0_or_1": float(((lam < 0.01) | (lam > 0.99)).mean()),
        "mean_where_before_missed": float(lam[:, 1:][missed(e, target)].mean()),
        "mean_where_before_met": float(lam[:, 1:][~missed(e, target)].mean()),
    }


def missed(e: np.ndarray, target: float) -> np.ndarray:
    """Whether most of the learners before learners 2 to m had e² > σ_m²: (T, m − 1)."""
    before = np.cumsum(e**2 > target, axis=1)[:, :-1]
    return before > np.arange(1, e.shape[1]) / 2


def wide_stream(T: int) -> tuple[jax.Array, jax.Array]:
    """91 columns in [−1, 1], as many as the widest set of Table 1; generated, not that set."""
    xs, ds = jb.datasets.paper_scaled(*jb.datasets.stand_in("ypmsd", T), bias=True)
    return jnp.asarray(xs), jnp.asarray(ds)


def clock(model: Learner, xs: jax.Array, ds: jax.Array, repeats: int) -> dict[str, float]:
    """Updates a step, and microseconds a step of the fastest of a few runs without compilation."""
    key = jax.random.key(2)
    _, trace = jb.run(model, xs, ds, key, observe=worked)
    best = np.inf
    jax.block_until_ready(jb.run(model, xs, ds, key)[1].prediction)
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(jb.run(model, xs, ds, key)[1].prediction)
        best = min(best, time.perf_counter() - start)
    updates = float(np.mean(np.asarray(trace.observed)))
    return {"updates": updates, "microseconds": 1e6 * best / len(ds)}


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=True)
    T, keys = experiment.samples(20_000, 4_000), experiment.size(5, 1)
    xs, ds = jb.streams.duffing(T)
    model = boosted("BSGD-RU", DUFFING, literal=True)
    run = jax.jit(jax.vmap(lambda key: jb.run(model, xs, ds, key, observe=recorded)[1].observed))
    lam, e = (np.asarray(a) for a in run(jax.random.split(jax.random.key(1), keys)))
    results: dict[str, Any] = shape_of_weights(lam[0], e[0], DUFFING.target_sgd)
    results["mean_over_keys"] = {k: spread(lam[:, :, k - 1].mean(axis=1)) for k in SHOWN}

    streams = {  # float32, as most runs are
        "Duffing, r = 3": (xs.astype(jnp.float32), ds.astype(jnp.float32)),
        "wide, r = 91": wide_stream(min(T, experiment.size(4_000, 400))),
    }
    names = ("SGD", *BOOSTED[:3], "NM", *BOOSTED[3:])
    if experiment.quick:
        names = ("NM", "BNM-WU", "BNM-RU")
    tasks = [(stream, name) for stream in streams for name in names]

    def timed(task: tuple[str, str]) -> dict[str, float]:
        stream, name = task
        settings = DUFFING if stream.startswith("Duffing") else WIDE
        make: Any = boosted if name in BOOSTED else single
        return clock(make(name, settings, literal=False), *streams[stream], experiment.size(5, 1))

    done = experiment.each(timed, tasks, ", ".join, workers=1)
    results["work"] = {stream: {} for stream in streams}
    for (stream, name), row in zip(tasks, done, strict=True):
        results["work"][stream][name] = row
    settings = {**DUFFING.record(), "T": T, "keys": keys, "wide": WIDE.record()}
    experiment.write(settings, results)
    experiment.save(figure(results))


def figure(results: dict[str, Any]) -> Any:
    """λ of three learners over time, and the mean λ of every learner."""
    fig, axes = plots.grid(1, 2, width=5.4, height=3.2)
    for i, k in enumerate(SHOWN):
        looks = style(i)
        axes[0, 0].plot(results["t"], results["blocks"][k], label=f"λ of learner {k}", **looks)
    axes[0, 0].set_ylim(0, 1.1)
    axes[0, 0].xaxis.set_major_formatter(lambda t, _: f"{t:,.0f}")
    title = "BSGD-RU on Duffing: weights over time"
    dress(
        axes[0, 0], title, "samples seen, t", "mean λ over T/100 samples", ncols=3, handlelength=2.5
    )
    m = len(results["mean"])
    axes[0, 1].bar(np.arange(1, m + 1), results["mean"], color="0.6", edgecolor="black")
    axes[0, 1].set_xticks([1, 5, 10, 15, 20])
    dress(axes[0, 1], "Mean weight of every learner", "learner, k", "mean λ over the whole run")
    return fig


if __name__ == "__main__":
    main()
