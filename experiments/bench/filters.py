"""Echo cancellation, line enhancement and channel equalisation: jboost's filters beside padasip's.

Both libraries run the same filters with the same settings over the same signals, jboost in float32
and padasip in float64. A figure is in decibels over the second half of the signal:

* echo: the echo return loss enhancement (ERLE), the power of the echo over that of what is left of
  it, without the noise. Coloured noise goes through a room of 64 taps; noise is added at −30 dB.
* line: the power of two sinusoids over that of the error of their estimate from the past 32 samples
  of sinusoids and noise of the same power (the noise that is predicted is not counted).
* channel: the power of the symbols ±1 over the mean squared error of the estimate of the symbol
  seven samples ago, from 11 samples that a channel has smeared; and of one that distorts them too.

padasip starts at zero, as jboost does. µs are the times of a sample, compilation left out.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jboost as jb
from experiments.shared.experiment import Experiment


class Task(NamedTuple):
    """Inputs, targets, and the clean signal that an estimate is judged by."""

    xs: np.ndarray
    ds: np.ndarray
    clean: np.ndarray


def taps(signal: np.ndarray, count: int, delay: int = 0) -> np.ndarray:
    """(T, count) the latest samples of a signal, newest first, all ``delay`` samples late."""
    padded = np.concatenate([np.zeros(count - 1 + delay), signal])
    T = len(signal)
    return np.stack([padded[count - 1 - k : count - 1 - k + T] for k in range(count)], axis=1)


def echo(T: int) -> Task:
    rng = np.random.default_rng(0)
    u = rng.normal(size=T)
    for t in range(1, T):
        u[t] += 0.9 * u[t - 1]
    room = rng.normal(size=64) * np.exp(-np.arange(64) / 12)
    xs = taps(u, 64)
    clean = xs @ room
    clean, xs = clean / clean.std(), xs / u.std()
    return Task(xs, clean + 10 ** (-30 / 20) * rng.normal(size=T), clean)


def line(T: int) -> Task:
    rng = np.random.default_rng(1)
    clean = np.sin(0.2 * np.arange(T)) + np.sin(0.53 * np.arange(T) + 1)
    noisy = clean + clean.std() * rng.normal(size=T)
    return Task(taps(noisy, 32, delay=1), noisy, clean)


def channel(T: int, *, distorted: bool = False) -> Task:
    rng = np.random.default_rng(2)
    symbols = rng.choice([-1.0, 1.0], size=T)
    received = taps(symbols, 3) @ [0.3, 1.0, 0.3]
    if distorted:
        received = received + 0.3 * received**2
    received = received + 0.03 * rng.normal(size=T)
    late = np.concatenate([np.zeros(7), symbols[:-7]])
    return Task(taps(received, 11), late, late)


def decibels(task: Task, estimate: Any) -> float:
    half = slice(len(task.clean) // 2, None)
    left = np.asarray(estimate, np.float64)[half] - task.clean[half]
    return float(10 * np.log10(np.mean(task.clean[half] ** 2) / np.mean(left**2)))


def filters(name: str, n: int) -> dict[str, tuple[jb.Learner, Any]]:
    """The filters of a task: ours, and the maker of padasip's, or None."""
    f = importlib.import_module("padasip.filters")
    mu = {"echo": 0.002, "line": 0.0005}.get(name, 0.01)
    return {
        "LMS": (jb.SGD(mu), lambda: f.FilterLMS(n, mu, w="zeros")),
        "NLMS": (jb.NLMS(0.5, 0.1), lambda: f.FilterNLMS(n, 0.5, eps=0.1, w="zeros")),
        "affine projection, K = 4": (
            jb.AffineProjection(4, 0.5, 0.1),
            lambda: f.FilterAP(n, order=4, mu=0.5, ifc=0.1, w="zeros"),
        ),
        "sign-sign LMS": (
            jb.SignSignLMS(mu / 10),
            lambda: f.FilterSSLMS(n, mu / 10, w="zeros"),
        ),
        "variable-step LMS (Mathews)": (
            jb.VariableStepLMS(mu, 1e-7),
            lambda: f.FilterVSLMS_Mathews(n, mu, ro=1e-7, w="zeros"),
        ),
        "RLS": (
            jb.Newton(0.9995, 0.1),
            lambda: f.FilterRLS(n, 0.9995, eps=0.1, w="zeros"),
        ),
    }


def compare(name: str, task: Task) -> dict[str, Any]:
    found = {}
    models: dict[str, tuple[jb.Learner, Any]] = filters(name, task.xs.shape[1])
    if name == "distorted channel":
        behind = jb.pipeline(jb.Polynomial(), jb.Bias(), jb.Newton(0.9995, 0.1))
        models["RLS on products (Volterra)"] = behind, None
    xs, ds = task.xs.astype(np.float32), task.ds.astype(np.float32)
    for label, (model, make) in models.items():
        jb.run(model, xs, ds)
        start = time.perf_counter()
        prediction = np.asarray(jax.block_until_ready(jb.run(model, xs, ds)[1].prediction))
        spent = 1e6 * (time.perf_counter() - start) / len(ds)
        row: dict[str, Any] = {"dB": decibels(task, prediction), "µs": spent}
        if make is not None:
            start = time.perf_counter()
            with np.errstate(all="ignore"):
                theirs = make().run(task.ds, task.xs)[0]
            row["padasip µs"] = 1e6 * (time.perf_counter() - start) / len(ds)
            row["padasip dB"] = decibels(task, theirs)
        found[label] = row
    return found


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    T = experiment.samples(10_000, 1000)
    tasks = {"echo": echo(T), "line": line(T), "channel": channel(T)}
    tasks["distorted channel"] = channel(T, distorted=True)
    results = {}
    for name, task in tasks.items():
        results[name] = compare(name, task)
        for label, row in results[name].items():
            shown = "  ".join(f"{what} {value:.3g}" for what, value in row.items())
            print(f"{name:18} {label:30} {shown}", flush=True)
    experiment.write({"T": T}, results)


if __name__ == "__main__":
    main()
