"""Hypergradients: against finite differences, their time beside a run, their memory over T."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost as jb
from experiments.shared.experiment import Progress, fresh_python
from jboost import engine
from jboost.boosting.booster import Boosted
from jboost.settings import leaves
from jboost.tuning.hypergradient import hypergradient

# By default the cap on P is 1/ridge, where P starts: there the error has a kink in both of them.
NEWTON = jb.Newton(0.99, ridge=0.1, max_variance=30.0)
SGD = jb.SGD(0.1)
NSGD = jb.NSGD(0.01, epsilon=0.02)


def weighted(learner: Any, m: int | None = 3, **more: Any) -> Boosted:
    return jb.boost(learner, m, **{"target_mse": 0.2, "dependence": 0.7, **more})


# Every learner and every combiner under weighted updates, every form of the chain, and boosters of
# several and of boosters.
MODELS = {
    **{
        f"{name}, {combiner}": weighted(learner, combiner=last)
        for name, learner in (("BSGD", SGD), ("BNM", NEWTON))
        for combiner, last in {
            "Newton": jb.Newton(0.999, ridge=1.0, max_variance=100.0),
            "NSGD": NSGD,
            "Uniform": jb.Uniform(),
            "EWA": jb.EWA(rate=0.1, forgetting=0.999),
            "BOA": jb.BOA(forgetting=0.999),
            "MLPoly": jb.MLPoly(forgetting=0.999),
        }.items()
    },
    "SGD, a step each": weighted(jb.SGD(np.array([0.05, 0.1, 0.02]))),
    "NLMS": weighted(jb.NLMS(0.2, epsilon=0.05)),
    "ForwardNewton": weighted(jb.ForwardNewton(0.99, 0.1, 30.0)),
    "Newton, by weight": weighted(jb.Newton(0.99, 0.1, max_variance=30.0, forget_by_weight=True)),
    "Newton, covariance": weighted(jb.Newton(0.99, 0.1, max_variance=30.0, storage="covariance")),
    "Algorithm 1": weighted(SGD, dependence=None, guarantee=0.1),
    "inner scan": weighted(SGD, chain="scan"),
    "literal BSGD": weighted(jb.SGD(0.05, guard=False), combiner=NSGD, literal=True),
    "literal BNM": weighted(jb.Newton(0.99, 0.1, None), combiner=NSGD, literal=True),
    "a list": weighted([SGD, jb.SGD(0.05), NEWTON, jb.NLMS(0.2, 0.05)], None),
    "boosters": weighted(weighted(SGD, 2), 2),
}


def finite_differences(model: Any, xs: Any, ds: Any) -> dict[str, dict[str, float]]:
    """For each float: its slope, and the relative distance to the nearest of four differences.

    Kinks (where λ = 1 begins or ends) spoil wide differences, and rounding spoils narrow ones.
    """
    known = leaves.paths(model)
    value, grads = hypergradient(model, xs, ds, wrt=known)
    base = [np.asarray(leaf, float) for leaf in leaves.take(model, known.values())]
    flat = np.concatenate([leaf.ravel() for leaf in base])
    ends = np.cumsum([leaf.size for leaf in base])[:-1]
    names = [
        f"{name}[{i}]" if leaf.ndim else name
        for name, leaf in zip(known, base, strict=True)
        for i in range(leaf.size)
    ]

    def error(flat: Any) -> Any:
        parts = [a.reshape(b.shape) for a, b in zip(jnp.split(flat, ends), base, strict=True)]
        return jb.mse(leaves.put(model, known.values(), parts), xs, ds)

    room = [1 - v if n.endswith("forgetting") else v for n, v in zip(names, flat, strict=True)]
    h = np.geomspace(1e-3, 1e-6, 4)[:, None, None] * np.diag(room)
    points = jnp.asarray((flat + np.stack([h, -h])).reshape(-1, flat.size))
    errors = jax.jit(lambda at: jax.lax.map(error, at, batch_size=16))(points)
    up, down = np.asarray(errors).reshape(2, len(h), -1)
    slopes = np.concatenate([np.ravel(grads[name]) for name in known])
    gaps = np.abs((up - down) / (2 * h.sum(axis=2)) - slopes)
    # The differences themselves are known to about 1e-16 of the error over their width.
    off = np.min(gaps / (np.abs(slopes) + 1e-9 * float(value)), axis=0)
    return {n: {"slope": s, "off": o} for n, s, o in zip(names, slopes, off, strict=True)}


def gradients(T: int, names: Any) -> dict[str, Any]:
    """Every float of every model, over T samples of the chaotic stream, in float64."""
    bar = Progress("tuning: finite differences", len(names))
    found = {}
    with jax.enable_x64(True):
        xs, ds = (jnp.asarray(np.asarray(a, float)) for a in jb.streams.duffing(T))
        for name in names:
            found[name] = finite_differences(MODELS[name], xs, ds)
            bar.add(1, name)
    return found


def clocked(call: Callable[[], Any]) -> np.ndarray:
    """Seconds by the clock and of processor time."""
    start, begun = time.perf_counter(), time.process_time()
    jax.block_until_ready(call())
    return np.array([time.perf_counter() - start, time.process_time() - begun])


def cost(T: int, rounds: int) -> dict[str, Any]:
    """Microseconds a sample of forward mode in one float, and of the plain-form run."""
    xs, ds = (jnp.asarray(a) for a in jb.streams.duffing(T))
    own: Any = {"target_mse": 0.25}
    models = {
        "SGD": (jb.SGD(0.05), "step_size"),
        "BSGD-WU": (jb.bsgd_wu(20, step_size=0.05, **own), "step_size"),
        "BNM-WU": (jb.bnm_wu(20, forgetting=0.999, ridge=0.01, **own), "learner.forgetting"),
    }
    out: dict[str, Any] = {"T": T}
    for name, (model, wrt) in models.items():

        def run(model: Any = model) -> Any:
            return jb.run(model, xs, ds)

        def forward(model: Any = model, wrt: str = wrt) -> Any:
            return hypergradient(model, xs, ds, wrt=wrt, method="forward")

        ways = {"plain run": ("plain", run), "run": ("auto", run), "forward": ("auto", forward)}
        best = {way: np.full(2, np.inf) for way in ways}
        for number in range(rounds + 1):
            for way, (form, call) in ways.items():
                engine.use(form)
                spent = clocked(call)
                if number:  # the first compiles
                    best[way] = np.minimum(best[way], spent)
        engine.use("auto")
        row: dict[str, Any] = {way: 1e6 * spent[0] / T for way, spent in best.items()}
        row["ratio"], row["ratio of cpu"] = best["forward"] / best["plain run"]
        out[name] = row
    return out


def temporary(method: str, T: int) -> int:
    """Bytes that the compiled program needs beside its arguments and results."""
    model = jb.bsgd_wu(5, target_mse=0.25, step_size=np.full(5, 0.1))
    program = jax.jit(lambda xs, ds: hypergradient(model, xs, ds, method=method))
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((T, 3), (T,))]
    analysis = program.lower(*shapes).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def peak(T: int) -> None:
    """Print by how many MB forward mode over T samples raises the peak memory of this process."""
    xs, ds = (jnp.asarray(a) for a in jb.streams.duffing(T))
    model = jb.bsgd_wu(5, target_mse=0.25, step_size=0.1)
    hypergradient(model, xs[:1000], ds[:1000], method="forward")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    jax.block_until_ready(hypergradient(model, xs, ds, method="forward"))
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)


def memory(lengths: tuple[int, int]) -> dict[str, Any]:
    """The memory of the programs, and of a fresh process, at a short and a long T."""
    found: dict[str, Any] = {"T": lengths}
    for method in ("forward", "reverse"):
        found[f"{method}, bytes"] = [temporary(method, T) for T in lengths]
    found["forward, peak grows by MB"] = []
    for T in lengths:
        code = f"from experiments.bench import tuning_gradients; tuning_gradients.peak({T})"
        found["forward, peak grows by MB"].append(float(fresh_python(code)))
    return found
