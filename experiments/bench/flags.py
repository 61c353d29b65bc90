"""Do flags hold their rates where nothing happens, and how fast do they find what happens?

Quiet streams of three kinds of noise count false alarms: the share of anomalies at a rate of 1 %,
the share of p-values up to 0.05, and changes and drifts per 100,000 rows. Then the errors become
two or four times as large, or a column moves by one deviation, in the middle of 80 streams of
4,000 rows: the median delay in rows, the share of streams in which it is found within 500 rows, and
the false alarms before it, per 100,000 rows. River's detectors see the absolute errors divided by
their deviation, which they are told; ours find the size of errors themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.shared.experiment import Experiment

NOISES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, T: rng.normal(size=T),
    "heavy tails (t, 3)": lambda rng, T: rng.standard_t(3, size=T) / np.sqrt(3),
    "skewed (exponential)": lambda rng, T: rng.exponential(size=T) - 1,
}
W, SCALE = np.array([1.0, -0.5, 0.2]), 0.3
DETECTORS = {
    "Page–Hinkley": jb.Flags(jb.Newton(0.999)),
    "ADWIN": jb.Flags(jb.Newton(0.999), detector=jb.detectors.ADWIN()),
}


def stream(noise: str, T: int, seed: int, factor: float = 1.0, shift: float = 0.0) -> Any:
    """Inputs and targets; from the middle on, larger errors and a column that has moved."""
    rng = np.random.default_rng(seed)
    later = np.arange(T) >= T // 2
    xs = rng.normal(size=(T, 3))
    xs[later, 1] += shift
    e = SCALE * NOISES[noise](rng, T) * np.where(later, factor, 1.0)
    return xs.astype(np.float32), (xs @ W + e).astype(np.float32)


def quiet(T: int, seeds: int) -> dict[str, Any]:
    """False alarms where nothing happens, after the first 1,000 rows."""
    found = {}
    for noise in NOISES:
        shares, counts = [], []
        for seed in range(seeds):
            xs, ds = stream(noise, T, seed)
            seen = jb.run(DETECTORS["Page–Hinkley"], xs, ds, observe=jb.flags.flagged)[1].observed
            late = {name: np.asarray(values)[1000:] for name, values in seen.items()}
            shares.append([late["anomaly"].mean(), (late["p_value"] <= 0.05).mean()])
            counts.append([late["change"].sum(), late["drifted"].sum() / 3])
        per = 1e5 / (seeds * (T - 1000))
        anomalies, small = np.mean(shares, axis=0)
        changes, drifts = per * np.sum(counts, axis=0)
        found[noise] = {"anomalies": anomalies, "p ≤ 0.05": small, "changes": changes}
        found[noise]["drifts, a column"] = drifts
    return found


def of_river(xs: np.ndarray, ds: np.ndarray, make: Callable[[], Any]) -> np.ndarray:
    """Whether river's detector alarms at each row, on the errors of the same learner."""
    prediction = np.asarray(jb.run(jb.Newton(0.999), xs, ds)[1].prediction)
    detector, alarms = make(), np.zeros(len(ds), bool)
    for t, e in enumerate(np.abs(ds - prediction) / SCALE):
        detector.update(float(e))
        alarms[t] = detector.drift_detected
    return alarms


def found_at(alarms: Sequence[np.ndarray], T: int) -> dict[str, float]:
    """Median delay, the share that is found, and false alarms before the middle."""
    middle = T // 2
    delays = [
        next(iter(np.flatnonzero(row[middle : middle + 500])), np.inf) + 1.0 for row in alarms
    ]
    false = sum(int(row[1000:middle].sum()) for row in alarms)
    return {
        "delay": float(np.median(delays)),
        "found": float(np.mean(np.isfinite(delays))),
        "false": 1e5 * false / (len(alarms) * (middle - 1000)),
    }


def events(T: int, seeds: int) -> dict[str, Any]:
    from river import drift

    found: dict[str, Any] = {}
    kinds = {"errors × 2": (2.0, 0.0), "errors × 4": (4.0, 0.0), "column + 1 deviation": (1.0, 1.0)}
    for kind, (factor, shift) in kinds.items():
        streams = [stream("normal", T, 100 + seed, factor, shift) for seed in range(seeds)]
        flag = "drifted" if shift else "change"
        for name, model in DETECTORS.items():
            run = jax.jit(
                lambda xs, ds, model=model: jb.run(model, xs, ds, observe=jb.flags.flagged)[1]
            )
            rows = [np.asarray(run(xs, ds).observed[flag]) for xs, ds in streams]
            rows = [row[:, 1] if shift else row for row in rows]
            found[f"{kind}, {name}"] = found_at(rows, T)
        if not shift:
            peers = {"river, PageHinkley": drift.PageHinkley, "river, ADWIN": drift.ADWIN}
            for name, make in peers.items():
                few = streams[: max(seeds // 4, 1)]
                rows = [of_river(xs, ds, make) for xs, ds in few]
                found[f"{kind}, {name}"] = found_at(rows, T)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    T, seeds = experiment.samples(50_000, 3000), experiment.size(4, 1)
    short, many = experiment.samples(4000, 3000), experiment.size(80, 2)
    results = {"quiet": quiet(T, seeds), "events": events(short, many)}
    for part, rows in results.items():
        for name, row in rows.items():
            shown = "  ".join(f"{what} {value:.4g}" for what, value in row.items())
            print(f"{part:8} {name:36} {shown}", flush=True)
    experiment.write({"T": T, "streams": many, "rate": 0.01}, results)


if __name__ == "__main__":
    main()
