"""Gradients of the error, tuning by them, and models that tune themselves: what holds.

Slopes are compared with finite differences, and their cost in time and memory is measured. ``tune``
is compared with a grid of step sizes on the chaotic stream. ``SelfTuning`` is compared with the
best fixed step in hindsight and with the step it starts from, ten times too small or too large.
Each requirement is printed with what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost as jb
from experiments.bench import tuning_gradients as slopes
from experiments.shared.experiment import Experiment, Progress
from experiments.shared.figures import dress, style
from jboost import plots
from jboost.sweeps.sweep import sweep
from jboost.tuning.tune import tune
from jboost.wrappers.selftuning import SelfTuning

STEPS = np.geomspace(1e-4, 2.0, 65)  # 17 % apart
OFF = (0.1, 10.0)
REQUIRED = ("duffing", "stationary", "kin8nm", "california", "compactiv")
INSIDE, AROUND, M = "BSGD-WU", "BSGD-WU, around", 20


def late(trace: Any, ds: Any) -> dict[str, Any]:
    """The error on the second half of a stream, as a metric of a sweep."""
    return {"late": jnp.mean(jnp.square(trace.prediction - ds)[ds.shape[0] // 2 :])}


def tuned(T: int) -> dict[str, Any]:
    """``tune`` from a step ten times off: on all rows, and on one half scored on the other."""
    stream = jb.streams.duffing(T)
    bar = Progress("tuning: tune", 4)
    out = {}
    makers = {"SGD": jb.SGD, "BSGD-WU": partial(jb.bsgd_wu, target_mse=0.25)}
    for name, make in makers.items():
        table = sweep(make, {"step_size": STEPS}, *stream, metric=late)
        best = table.best()["step_size"]
        for factor in OFF:
            start = make(step_size=factor * best)
            _, whole = tune(start, *stream, train=1.0, steps=49)
            _, half = tune(start, *stream, steps=49)
            out[f"{name}, {factor:g} × the step"] = {
                "grid": table["mse"].min(),
                "grid's step": best,
                "start": whole.value[0],
                "tuned": whole.value[whole.best[0]],
                "tuned step": whole.parameters["step_size"][whole.best[0]],
                "evaluations": len(whole.value),
                "ratio": whole.value[whole.best[0]] / table["mse"].min(),
                "held out": half.held_out[0],
                "held out, evaluations": len(half.value),
                "held out, ratio": half.held_out[0] / table["late"].min(),
                "path": whole.value,
            }
            bar.add(1, f"{name} from {factor:g} × the best step")
    return out


def streams(T: int, sets: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """The first T samples of the paper's two streams and of real sets, scaled."""
    yield "duffing", *jb.streams.duffing(T)
    yield "stationary", *jb.streams.stationary(jax.random.key(0), T)
    for name in sets:
        xs, ds = jb.datasets.load(name)
        yield name, *jb.datasets.paper_scaled(xs[:T], ds[:T], bias=True)


def ways(target: float) -> dict[str, tuple[Callable[..., Any], Callable[[float], Any]]]:
    """By name: a function that makes a model from a step, and one that makes it tune itself.

    A booster tunes a step in every learner, or one step for all around them.
    """
    booster = partial(jb.bsgd_wu, M, target_mse=target)
    return {
        "SGD": (jb.SGD, lambda step: SelfTuning(jb.SGD(step))),
        INSIDE: (booster, lambda step: jb.boost(SelfTuning(jb.SGD(step)), M, target_mse=target)),
        AROUND: (booster, lambda step: SelfTuning(booster(step_size=step))),
    }


def self_tuning(T: int, sets: Sequence[str]) -> dict[str, Any]:
    """Errors over that of the best fixed step, from steps ten times off: fixed, and self-tuning."""
    every = list(streams(T, sets))
    bar = Progress("tuning: SelfTuning", 3 * len(every))
    out: dict[str, Any] = {}
    for stream, xs, ds in every:
        xs, ds = jnp.asarray(xs), jnp.asarray(ds)
        target = float(sweep(jb.SGD, {"step_size": STEPS}, xs, ds)["mse"].min())
        row: dict[str, Any] = {"T": len(ds)}
        for name, (make, tuning) in ways(target).items():
            table = sweep(make, {"step_size": STEPS}, xs, ds)
            best, least = float(table.best()["step_size"]), float(table["mse"].min())
            row[name] = {"best step": best, "mse": least}
            for factor in OFF:
                fixed, tuned_model = make(step_size=factor * best), tuning(factor * best)
                row[name][f"{factor:g} ×"] = {
                    "fixed": float(jb.mse(fixed, xs, ds)) / least,
                    "self-tuning": float(jb.mse(tuned_model, xs, ds)) / least,
                }
            bar.add(1, f"{stream}, {name}")
        out[stream] = row
    return out


def watched(state: Any, info: Any) -> Any:
    """Observe the step size."""
    return info.step_size


def steps_over_time(T: int) -> dict[str, Any]:
    """The step of a self-tuning SGD on the chaotic stream, from three starts."""
    stream = jb.streams.duffing(T)
    times = np.unique(np.geomspace(1, T, 120).astype(int)) - 1
    out: dict[str, Any] = {"t": times + 1}
    for start in (0.003, 0.03, 0.3):
        steps = jb.run(SelfTuning(jb.SGD(start)), *stream, observe=watched)[1].observed
        out[f"from {start:g}"] = np.asarray(steps)[times]
    return out


def judged(name: str, found: dict[str, Any]) -> tuple[str, str, bool]:
    """One form of self-tuning on some streams: the worst start, and where it falls short."""
    good, short = [], []
    for stream, row in found.items():
        starts = [row[name][f"{factor:g} ×"] for factor in OFF]
        worst = 100 * (max(one["self-tuning"] for one in starts) - 1)
        if any(one["self-tuning"] >= one["fixed"] for one in starts):
            short.append(f"{stream} {worst:+.1f} %, not below its start")
        elif worst >= 5:
            short.append(f"{stream} {worst:+.1f} %")
        else:
            good.append(worst)
    wanted = f"SelfTuning, {name}: below its start, within 5 % of the best step on "
    most = [f"at most {max(good):+.1f} % on {len(good)} of {len(found)}"] if good else []
    return wanted + ", ".join(found), "; ".join(most + short), not short


def verdicts(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Each requirement, what was measured, and whether it holds."""
    off = [one["off"] for row in found["gradients"].values() for one in row.values()]
    ratios = [row["ratio"] for row in found["cost"].values() if isinstance(row, dict)]
    needs, grows = (found["memory"][k] for k in ("forward, bytes", "forward, peak grows by MB"))
    tries = found["tune"].values()
    rows = [
        (
            "slopes match finite differences to 1e-4",
            f"at most {max(off):.1e}, {len(off)} floats of {len(found['gradients'])} models",
            max(off) < 1e-4,
        ),
        (
            "forward mode in one float costs at most 3 plain-form runs",
            f"at most {max(ratios):.2f}",
            max(ratios) <= 3,
        ),
        (
            "forward mode's memory does not grow with T ({} and {})".format(*found["memory"]["T"]),
            "program {} and {} bytes, process {:.1f} and {:.1f} MB more".format(*needs, *grows),
            needs[1] <= needs[0],
        ),
        (
            "tune from a step 10 × off is within 1 % of the best of a grid",
            f"at most {100 * (max(one['ratio'] for one in tries) - 1):.2f} % above; held out "
            f"{100 * (max(one['held out, ratio'] for one in tries) - 1):.2f} %",
            max(max(one["ratio"], one["held out, ratio"]) for one in tries) < 1.01,
        ),
        (
            "… in under 50 evaluations",
            f"at most {max(max(o['evaluations'], o['held out, evaluations']) for o in tries)}",
            max(max(o["evaluations"], o["held out, evaluations"]) for o in tries) < 50,
        ),
    ]
    required = [stream for stream in found["self-tuning"] if stream in REQUIRED]
    others = [stream for stream in found["self-tuning"] if stream not in REQUIRED]
    for name in ("SGD", INSIDE, AROUND):
        for where in (required, others):
            if where:
                rows.append(
                    judged(name, {stream: found["self-tuning"][stream] for stream in where})
                )
    return [{"wanted": wanted, "got": got, "holds": bool(holds)} for wanted, got, holds in rows]


def figure(found: dict[str, Any]) -> Any:
    """The errors that ``tune`` met, and the steps of the self-tuning model."""
    fig, axes = plots.grid(1, 2)
    left, right = axes[0]
    for k, (name, row) in enumerate(found["tune"].items()):
        left.plot(
            np.arange(1, len(row["path"]) + 1), row["path"] / row["grid"], label=name, **style(k)
        )
    left.set_yscale("log")
    dress(left, "tune, Duffing", "evaluation", "MSE / best of the grid")
    times, *paths = found["steps"].items()
    for k, (name, steps) in enumerate(paths):
        right.plot(times[1], steps, label=name, **style(k))
    right.set(xscale="log", yscale="log")
    dress(right, "SelfTuning(SGD), Duffing", "samples seen, t", "step size")
    return fig


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    size, samples = experiment.size, experiment.samples
    names = ["BSGD, NSGD"] if experiment.quick else list(slopes.MODELS)
    sets = () if experiment.quick else jb.datasets.available()
    T = samples(20_000, 1_000)
    found: dict[str, Any] = {
        "gradients": slopes.gradients(samples(10_000, 200), names),
        "cost": slopes.cost(T, size(15, 2)),
        "memory": slopes.memory((10_000, size(1_000_000, 20_000))),
        "tune": tuned(T),
        "self-tuning": self_tuning(T, sets),
        "steps": steps_over_time(T),
    }
    found["verdicts"] = verdicts(found)
    for row in found["verdicts"]:
        print(f"{'holds' if row['holds'] else 'FAILS'}  {row['wanted']}: {row['got']}")
    experiment.write({"T": T, "steps": STEPS}, found)
    experiment.save(figure(found))


if __name__ == "__main__":
    main()
