"""Intervals and changes: coverage and width beside river's, and recovery with and without OnChange.

The streams are Duffing, the stationary one, one whose coefficients all change half-way, and the
first 8,192 raw rows of the eight sets. The models are Newton and BNM-WU behind Scale, Bias and
ScaleTarget.

Intervals of 90 %: the share of answers inside, over all samples, in the worst block of 2,000 and in
the 2,000 after the change; and the mean width over that of the control, the one constant width that
holds 90 % in hindsight. river's jackknife gets the same estimates. river's Bayesian linear
regression gets the target scaled by its past. Without river these columns are left out.

Changes: the samples until the mean square of 50 errors is below twice that before the change, with
OnChange and without; what OnChange does to the MSE where nothing changes; and false alarms in 10⁵
samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import jboost as jb
from experiments.shared import data
from experiments.shared.experiment import Experiment
from experiments.shared.figures import dress
from jboost import plots
from jboost.core import Learner
from jboost.paper import datasets
from jboost.wrappers.change import OnChange
from jboost.wrappers.intervals import Intervals, band

COVERAGE, AFTER, WINDOW = 0.9, 2000, 50
WIDE = 30  # columns from which the booster has 5 learners instead of 20
METHODS: dict[str, dict[str, Any]] = {
    "conformal": {},
    "conformal, no local": {"local": None},
    "newton": {"method": "newton"},
    "gaussian": {"method": "gaussian"},
}
NOISES = ("Gaussian", "Student t₃", "AR(1), 0.9", "bursts")
Stream = tuple[NDArray[np.float32], NDArray[np.float32]]


def around(learner: Learner) -> Learner:
    """A learner with scaled inputs, a bias and a scaled target."""
    return jb.pipeline(jb.Scale(), jb.Bias(), jb.ScaleTarget(learner))


def booster(m: int, forgetting: float = 0.999) -> Learner:
    """BNM-WU with m learners."""
    return jb.bnm_wu(m, target_mse=0.1, forgetting=forgetting, ridge=0.1)


def changing(T: int, seed: int, *, noise: float = 0.1, columns: int = 5) -> Stream:
    """d = wᵀx + ν, with another w from T/2 on."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(T, columns))
    w = rng.normal(size=(2, columns))
    before = np.arange(T) < T // 2
    d = np.where(before, x @ w[0], x @ w[1]) + noise * rng.normal(size=T)
    return x.astype(np.float32), d.astype(np.float32)


def unchanging(T: int, seed: int, kind: str) -> Stream:
    """d = wᵀx + ν with one w, and noise that can be mistaken for a change."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(T, 5)), rng.normal(size=5)
    nu = rng.normal(size=T)
    if kind == "Student t₃":
        nu = rng.standard_t(3, size=T)
    elif kind == "AR(1), 0.9":
        for t in range(1, T):
            nu[t] += 0.9 * nu[t - 1]
    elif kind == "bursts":  # twice the noise for 50 samples, once in 500
        nu *= 1 + (np.arange(T) % 500 < 50)
    return x.astype(np.float32), (x @ w + 0.3 * nu).astype(np.float32)


def arrays(stream: Any, rows: int, start: int = 0) -> Stream:
    """The rows of a stream from ``start`` on, in float32."""
    xs, ds = (np.asarray(a[start : start + rows], np.float32) for a in stream)
    return xs, ds


def scored(limits: Any, ds: Any, control: float, changed: bool) -> dict[str, float]:
    """Coverage in percent, and mean width over the control's; the first interval is infinite."""
    low, high, ds = (np.asarray(a, np.float64)[1:] for a in (*limits, ds))
    inside = (low <= ds) & (ds <= high)
    block = min(AFTER, len(ds))
    shares = [inside[i : i + block].mean() for i in range(0, len(ds) - block + 1, block)]
    worst = max(shares, key=lambda share: abs(share - COVERAGE))
    found = {"coverage": 100 * inside.mean(), "worst": 100 * worst}
    if changed:
        half = (len(ds) + 1) // 2
        found["after"] = 100 * inside[half - 1 : half - 1 + AFTER].mean()
    return found | {"width": float(np.mean(high - low)) / control}


def ours(model: Learner, xs: Any, ds: Any, changed: bool, only: str | None) -> dict[str, Any]:
    """The coverage of every method around one model, the control's width, and the estimates."""
    traces = {
        name: jb.run(Intervals(model, COVERAGE, **settings), xs, ds, observe=band)[1]
        for name, settings in METHODS.items()
        if only is None or name.startswith(only)
    }
    said = np.asarray(traces["conformal"].prediction, np.float64)
    control = 2 * float(np.quantile(np.abs(ds - said)[1:], COVERAGE))
    found: dict[str, Any] = {
        name: scored(trace.observed, ds, control, changed) for name, trace in traces.items()
    }
    return found | {"control": control, "prediction": said}


def rivers(xs: Any, ds: Any, said: Any, control: float, changed: bool) -> dict[str, Any]:
    """river's jackknife around the same estimates, and river's Bayesian regression."""
    from river import base, conf, linear_model, preprocessing, stats

    class Given(base.Regressor):
        def learn_one(self, x: Any, y: Any) -> None: ...

        def predict_one(self, x: Any) -> Any:
            return x["said"]

    jackknife = conf.RegressionJackknife(Given(), confidence_level=COVERAGE)
    bayes, scaler = linear_model.BayesianLinearRegression(), preprocessing.StandardScaler()
    mean, var = stats.Mean(), stats.Var()
    z = 1.6448536
    bands = {"river's jackknife": [], "river's Bayes": []}
    for x, d, y in zip(xs.tolist(), ds.tolist(), said.tolist(), strict=True):
        limits = jackknife.predict_one({"said": y}, with_interval=True)
        bands["river's jackknife"].append((limits.lower, limits.upper))
        jackknife.learn_one({"said": y}, d)
        row: Any = dict(enumerate(x))
        scaler.learn_one(row)
        row = scaler.transform_one(row) | {"bias": 1.0}
        mean.update(d)
        var.update(d)
        m, s = mean.get(), var.get() ** 0.5 or 1.0
        answer: Any = bayes.predict_one(row, with_dist=True)
        half = z * answer.sigma
        bands["river's Bayes"].append((m + s * (answer.mu - half), m + s * (answer.mu + half)))
        bayes.learn_one(row, (d - m) / s)
    return {name: scored(np.array(b).T, ds, control, changed) for name, b in bands.items()}


def interval_work(stream: tuple[str, Any, bool]) -> dict[str, Any]:
    """The intervals of all methods on one stream."""
    _, (xs, ds), changed = stream
    out: dict[str, Any] = {"T": len(ds), "columns": xs.shape[1]}
    newton = ours(around(jb.Newton(0.999)), xs, ds, changed, None)
    said = newton.pop("prediction")
    if find_spec("river"):
        newton |= rivers(xs, ds, said, newton["control"], changed)
    out["Newton"] = newton
    m = 5 if xs.shape[1] > WIDE else 20
    boosted = ours(around(booster(m)), xs, ds, changed, "conformal")
    boosted.pop("prediction")
    out["BNM-WU"] = boosted
    return out


def recovery(errors: NDArray[np.float64]) -> int | None:
    """Samples after the change until the mean square of WINDOW errors is below twice the old."""
    T = len(errors)
    usual = np.mean(errors[T // 4 : T // 2])
    means = np.convolve(errors[T // 2 :], np.ones(WINDOW) / WINDOW, "valid")
    low = np.flatnonzero(means < 2 * usual)
    return int(low[0]) + WINDOW if len(low) else None


def squares(model: Learner, xs: Any, ds: Any) -> tuple[NDArray[np.float64], Any]:
    """The squared errors of a model, and its state at the end."""
    state, trace = jb.run(model, xs, ds, jax.random.key(0))
    return np.square(np.asarray(trace.prediction, np.float64) - ds), state


def change_work(case: tuple[str, Learner, Any]) -> dict[str, Any]:
    """One model on one stream, alone and with each action of OnChange."""
    _, model, (xs, ds) = case
    alone, _ = squares(model, xs, ds)
    out: dict[str, Any] = {"mse": alone.mean(), "recovery": recovery(alone), "T": len(ds)}
    for action in ("inflate", "restart"):
        errors, state = squares(OnChange(model, action), xs, ds)
        detector = state.detector
        out[action] = {
            "ratio": errors.mean() / alone.mean(),
            "recovery": recovery(errors),
            "alarms": int(detector.changes),
            "last": int(detector.last),
        }
    return out


def requirement(what: str, wanted: str, got: str, good: bool) -> dict[str, Any]:
    """Print a requirement with what was measured, and return both for the record."""
    print(f"{'ok ' if good else 'NOT'} {what}: wanted {wanted}, got {got}", flush=True)
    return {"what": what, "wanted": wanted, "got": got, "holds": good}


def verdicts(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Every requirement with what was measured."""
    lines = []
    for model in ("Newton", "BNM-WU"):
        rows = {name: found[model]["conformal"] for name, found in results["intervals"].items()}
        for field, what in (("coverage", "coverage"), ("after", "coverage after the change")):
            values = {name: row[field] for name, row in rows.items() if field in row}
            good = all(88 <= value <= 92 for value in values.values())
            got = f"{min(values.values()):.1f} to {max(values.values()):.1f} %"
            lines.append(requirement(f"{model}, {what}", "88 to 92 %", got, good))
        widths = [row["width"] for row in rows.values()]
        got = f"{np.mean(widths):.3f} × the constant control's"
        lines.append(requirement(f"{model}, mean width", "reported", got, True))
    rivals = [row["Newton"] for row in results["intervals"].values()]
    if "river's jackknife" in rivals[0]:
        for rival in ("river's jackknife", "river's Bayes"):
            ratio = [row["conformal"]["width"] / row[rival]["width"] for row in rivals]
            inside = [row[rival]["coverage"] for row in rivals]
            got = f"{np.mean(ratio):.3f} × its width; it covers {min(inside):.1f} to "
            lines.append(
                requirement(f"beside {rival}", "reported", f"{got}{max(inside):.1f} %", True)
            )
    for name, row in results["change"].items():
        if row["recovery"] is None and row["inflate"]["recovery"] is None:
            continue
        for action in ("inflate", "restart"):
            alone, acted = row["recovery"], row[action]["recovery"]
            good = acted is not None and (alone is None or acted <= alone / 2)
            lines.append(
                requirement(f"{name}, {action}", f"at most half of {alone}", f"{acted}", good)
            )
    worst = max(
        ((row[action]["ratio"], f"{name}, {action}") for name, row in results["no change"].items()
         for action in ("inflate", "restart"))
    )  # fmt: skip
    good = worst[0] <= 1.02
    lines.append(
        requirement("MSE where nothing changes", "≤ 1.02", f"{worst[0]:.4f} ({worst[1]})", good)
    )
    for name, rate in results["false alarms"].items():
        lines.append(requirement(f"false alarms in 1e5, {name}", "reported", f"{rate:.1f}", True))
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    sets = ("kin8nm",) if experiment.quick else datasets.names()
    origin = data.origin(sets, quick=experiment.quick)
    rows, T = experiment.samples(8_192, 3_000), experiment.samples(20_000, 4_500)
    still = {
        "Duffing": arrays(jb.streams.duffing(T), T),
        "stationary": arrays(jb.streams.stationary(jax.random.key(0), T), T),
    } | {name: arrays(data.raw(name), rows) for name in sets}
    moving = {
        "change": changing(T // 2, 0),
        "change, noisier": changing(T // 2, 1, noise=0.5),
        "change, 20 columns": changing(T // 2, 2, columns=20),
    }
    kinds, betas = NOISES, (0.99, 0.999, 1.0)
    if experiment.quick:
        moving, kinds, betas = {"change": moving["change"]}, NOISES[:1], betas[1:2]
    streams = [(name, pair, False) for name, pair in still.items()]
    streams += [(name, pair, True) for name, pair in moving.items()]

    found = experiment.each(interval_work, streams, lambda item: item[0])
    results: dict[str, Any] = {
        "intervals": {item[0]: row for item, row in zip(streams, found, strict=True)}
    }

    memories = {f"Newton({beta})": around(jb.Newton(beta)) for beta in betas}
    many = memories | {"BNM-WU": around(booster(5))}
    cases = [(f"{n}, {m}", model, pair) for n, pair in moving.items() for m, model in many.items()]
    found = experiment.each(change_work, cases, lambda case: case[0])
    results["change"] = {case[0]: row for case, row in zip(cases, found, strict=True)}

    # The defaults were chosen on Duffing and the first rows of the sets: later ones are judges.
    later = {
        f"{name}, later rows": arrays(data.raw(name), rows, rows)
        for name in sets
        if len(data.raw(name)[1]) >= 1.5 * rows
    }
    long = experiment.samples(100_000, 5_000)
    noises = {f"{kind} noise": unchanging(long, 3, kind) for kind in kinds}
    alarms = {"Duffing, long": arrays(jb.streams.duffing(long), long)} | noises
    calm = still | later | alarms
    cases = [
        (f"{n}, {m}", model, pair)
        for n, pair in calm.items()
        for m, model in (memories if n in alarms else many).items()
        if not (m == "BNM-WU" and pair[0].shape[1] > WIDE)
    ]
    found = experiment.each(change_work, cases, lambda case: case[0])
    results["no change"] = {case[0]: row for case, row in zip(cases, found, strict=True)}
    results["false alarms"] = {
        name: 1e5 * row["inflate"]["alarms"] / row["T"]
        for name, row in results["no change"].items()
        if name.rpartition(", ")[0] in alarms or name.startswith("stationary")
    }
    results["verdicts"] = verdicts(results)
    settings = {
        "rows": rows, "T": T, "long": long, "coverage": COVERAGE, "forgetting": 0.999,
        "river": bool(find_spec("river")),
        "data": origin,
    }  # fmt: skip
    experiment.write(settings, results)
    experiment.save(figure(T // 2))


def figure(T: int) -> Any:
    """The errors and the intervals around an abrupt change, with OnChange and without."""
    xs, ds = changing(T, 0)
    half = T // 2
    shown = slice(half - 150, half + 450)
    fig, axes = plots.grid(1, 2, width=5.4, height=3.4)
    newton = around(jb.Newton(0.999))
    models = {"Newton(0.999)": newton, "OnChange(Newton(0.999))": OnChange(newton)}
    time = np.arange(T)[shown] - half
    for ax, (name, model) in zip(axes[0], models.items(), strict=True):
        names = ("90 % interval", "inside", "outside") if ax is axes[0, 1] else (None,) * 3
        _, trace = jb.run(Intervals(model, COVERAGE), xs, ds, observe=band)
        said = np.asarray(trace.prediction)
        low, high = (np.asarray(a)[shown] - said[shown] for a in trace.observed)
        e = ds[shown] - said[shown]
        ax.fill_between(time, low, high, color="tab:blue", alpha=0.3, lw=0, label=names[0])
        inside = (low <= e) & (e <= high)
        ax.plot(time[inside], e[inside], ".", color="0.3", ms=3, label=names[1])
        ax.plot(time[~inside], e[~inside], "x", color="tab:red", ms=4, label=names[2])
        ax.axvline(0, color="black", linewidth=0.8)
        dress(ax, name, "samples after the change", "answer − estimate", loc="upper right")
    axes[0, 1].set_ylim(axes[0, 0].get_ylim())
    return fig


if __name__ == "__main__":
    main()
