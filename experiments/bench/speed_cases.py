"""The models of ``speed.py`` as calls to time, their streams, and checks that C does the same."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

import jboost as jb
from experiments.bench import speed_native as native
from experiments.bench import speed_report as report
from experiments.shared.experiment import Progress
from jboost.core import Learner

M, K, SEED = 20, 5, 4
TARGET = 0.01  # σ_m²: about the MSE that can be reached on these streams, so that λ is mixed
FORGETTING, RIDGE = 0.999, 0.01
STEP = 0.3  # μ r; inputs in [−1, 1] have ‖x‖² near r/3, so that steps are stable below about 6
MEAN_LAMBDA = 0.06  # what random updates are to save work at; the first learner alone makes 0.05
SPARING = f"BNM-RU, mean λ {MEAN_LAMBDA}"  # BNM-RU with the σ_m² that has this mean λ
CHECKED = 500  # samples over which C's predictions must be the library's
Floats = NDArray[np.float32]


class Case(NamedTuple):
    """Something to time: a call that runs a whole stream and returns the predictions."""

    name: str
    r: int
    how: str  # jboost, P form, "C, " and a layout, peer
    combiner: str
    steps: int
    call: Callable[[], Any]

    @property
    def label(self) -> str:
        return f"{self.name}, r = {self.r}, {self.combiner}"


def family_and_mode(name: str) -> tuple[str, str]:
    """Both halves of a model's name: "BNM" and "RU" of BNM-RU, whatever its settings."""
    family, mode = name.split(",")[0].split("-")
    return family, mode


class Settings(NamedTuple):
    """The hyperparameters of a model at a width."""

    r: int
    target_mse: float = TARGET
    step_size: float = STEP
    forgetting: float = FORGETTING
    ridge: float = RIDGE


def stream(T: int, r: int, seed: int = SEED) -> tuple[Floats, Floats]:
    """Inputs in [−1, 1] with a constant; targets in [−1, 1]: linear, a mild bend, and noise."""
    rng = np.random.default_rng(seed)
    xs = rng.uniform(-1, 1, (T, r)).astype(np.float32)
    xs[:, -1] = 1
    ds = xs @ (rng.normal(size=r) / np.sqrt(r)).astype(np.float32)
    ds += 0.3 * np.sin(3 * xs[:, 0]) + 0.2 * rng.standard_normal(T, np.float32)
    return xs, ds / np.abs(ds).max()


def combiner_of(name: str) -> Learner | None:
    """The combiner by its name."""
    return jb.NSGD(step_size=0.01, epsilon=0.01) if name == "NSGD" else None


def model_of(name: str, s: Settings, combiner: str) -> Learner:
    """One of the paper's six, with the library's safe default learners."""
    family, mode = family_and_mode(name)
    make = getattr(jb, f"{family}_{mode}".lower())
    options: dict[str, Any] = {"step_size": s.step_size / s.r}
    if family == "BNM":
        options = {"forgetting": s.forgetting, "ridge": s.ridge}
    if mode == "DR":
        options["max_reuse"] = K
    return make(M, target_mse=s.target_mse, combiner=combiner_of(combiner), **options)


def fast_model_of(name: str, s: Settings, combiner: str) -> Learner | None:
    """The same with Newton learners in the fast P form, where the library offers one."""
    family, mode = family_and_mode(name)
    if family != "BNM" or "storage" not in inspect.signature(jb.Newton).parameters:
        return None
    options: dict[str, Any] = {"storage": "covariance"}
    learner = jb.Newton(s.forgetting, s.ridge, **options)
    spend = {"WU": jb.Weighted(), "DR": jb.DataReuse(K), "RU": jb.RandomUpdate()}[mode]
    return jb.boost(learner, M, target_mse=s.target_mse, mode=spend, combiner=combiner_of(combiner))


def native_settings(name: str, s: Settings, combiner: str, *, capped: bool) -> native.Settings:
    """The settings in the form of the loops in C."""
    _, mode = family_and_mode(name)
    return native.Settings(
        m=M, r=s.r, mode=native.MODES[mode], max_reuse=K, combiner=native.COMBINERS[combiner],
        target_mse=s.target_mse, dependence=1.0,
        step_size=s.step_size / s.r / (K if mode == "DR" else 1),
        forgetting=s.forgetting, ridge=s.ridge, max_variance=1 / s.ridge if capped else 0.0,
        combiner_step=0.01, combiner_epsilon=0.01,
        combiner_forgetting=0.999, combiner_ridge=1.0, combiner_max_variance=100.0, seed=SEED,
    )  # fmt: skip


@cache
def key() -> Any:
    """One random key, made once: making it takes as long as a thousand steps of a small model."""
    return jax.random.key(SEED)


def run(model: Learner, xs: Any, ds: Any) -> Any:
    """The predictions of a run, once they and the final state are computed."""
    drawn_from = key() if model.needs_key else None
    return jax.block_until_ready(jb.run(model, xs, ds, key=drawn_from))[1].prediction


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def measure(
    cases: Sequence[Case], ds: Floats, rounds: int, budget: float, bar: Progress
) -> list[report.Row]:
    """Call every case once to compile it, then all in turns; the best time of each counts.

    Peers run ``rounds`` times. The other cases go on until ``budget`` seconds are spent: on a busy
    machine the best of many short calls is steady.
    """
    first, best, out = [], [float("inf")] * len(cases), []
    for case in cases:
        spent, prediction = seconds(case.call)
        first.append(spent)
        out.append(np.array(prediction, np.float64))
        bar.add(1, f"r = {case.r}: {case.name}, {case.how}")
    start, done = time.perf_counter(), 0
    while done < rounds or time.perf_counter() - start < budget:
        for k, case in enumerate(cases):
            if done < rounds or case.how != "peer":
                best[k] = min(best[k], seconds(case.call)[0])
        done += 1
    rows = []
    for case, slowest, spent, prediction in zip(cases, first, best, out, strict=True):
        mse = float(np.mean(np.square(prediction - ds[: case.steps])))
        row = report.Row(
            *case[:5], 1e6 * spent / case.steps, max(slowest - spent, 0.0), mse,
            finite=bool(np.isfinite(prediction).all()),
        )  # fmt: skip
        rows.append(row)
    return rows


def last_lambda(state: Any, info: Any) -> Any:
    """Observe the weight of the last learner."""
    del state
    return info.lam.mean()


def mean_lambda(model: Learner, xs: Any, ds: Any) -> float:
    """The mean λ of BNM-RU at a target."""
    _, trace = jb.run(model, xs, ds, key=key(), observe=last_lambda)
    return float(np.mean(trace.observed))


def sparing_target(s: Settings, xs: Any, ds: Any) -> tuple[float, float]:
    """The σ_m² at which BNM-RU has the wanted mean λ, by bisection, and the mean reached."""
    low, high, got = np.log(TARGET / 10), np.log(TARGET * 1e4), 1.0
    middle = high
    for _ in range(9):
        middle = (low + high) / 2
        model = model_of("BNM-RU", s._replace(target_mse=float(np.exp(middle))), "NSGD")
        got = mean_lambda(model, xs, ds)
        if abs(got - MEAN_LAMBDA) < 0.001:
            break
        low, high = (middle, high) if got > MEAN_LAMBDA else (low, middle)
    return float(np.exp(middle)), got


def cases_at(
    r: int, xs: Floats, ds: Floats, lengths: dict[str, int], combiners: Iterable[tuple[str, str]],
    settings: dict[str, Settings], loop: native.Native | None,
) -> Iterator[Case]:  # fmt: skip
    """All models at one width, each in every available form."""
    for name, combiner in combiners:
        family, _ = family_and_mode(name)
        T = lengths[family]
        x, d, s = jax.numpy.asarray(xs[:T]), jax.numpy.asarray(ds[:T]), settings[name]
        forms = {"jboost": model_of(name, s, combiner), "P form": fast_model_of(name, s, combiner)}
        for how, model in forms.items():
            if model is not None:
                yield Case(name, r, how, combiner, T, partial(run, model, x, d))
        if loop:
            same = native_settings(name, s, combiner, capped=False)
            for layout in native.LAYOUTS:
                call = loop.prepare(family.lower(), layout, same, xs[:T], ds[:T])
                yield Case(name, r, f"C, {layout}", combiner, T, call)


def check_same_algorithm(
    loop: native.Native, cases: Iterable[Case], settings: dict[str, Settings],
    xs: Floats, ds: Floats,
) -> dict[str, float]:  # fmt: skip
    """How far the predictions of C are from the library's, relative to the targets' deviation.

    C uses the library's cap here, so that both are the same algorithm. Random updates draw from
    different generators; for them the mean squared errors are compared.
    """
    apart = {}
    for case in cases:
        if case.how != "jboost":
            continue
        family, mode = family_and_mode(case.name)
        T = case.steps if mode == "RU" else min(CHECKED, case.steps)
        same = native_settings(case.name, settings[case.name], case.combiner, capped=True)
        ours = np.asarray(case.call(), np.float64)[:T]
        for layout in native.LAYOUTS:
            c = np.array(loop.prepare(family.lower(), layout, same, xs[:T], ds[:T])(), np.float64)
            if mode == "RU":
                errors = [float(np.mean(np.square(p - ds[:T]))) for p in (c, ours)]
                gap = abs(errors[0] / errors[1] - 1)
                allowed = 0.1 + 3 / T**0.5  # the shorter the run, the more the draws matter
            else:
                gap = float(np.abs(c - ours).max() / ds.std())
                # ceil(K λ) may fall on either side of a whole number
                allowed = 1e-3 if mode == "WU" else 2e-2
            if not gap <= allowed:
                raise RuntimeError(
                    f"{case.label}: the loop in C with the learners {layout} is not the same "
                    f"algorithm: it is {gap:.2g} away, allowed {allowed:g}"
                )
            apart[f"{case.label}, {layout}"] = gap
    return apart


def compiled_again(
    cases: Iterable[Case], xs: Floats, ds: Floats, count: Callable[[], int]
) -> dict[str, int]:
    """How many programs a second run compiles when every hyperparameter has changed."""
    found = {}
    for case in cases:
        if case.how != "jboost":
            continue
        model = model_of(case.name, Settings(case.r, 0.02, 0.2, 0.99, 0.05), case.combiner)
        x, d = jax.numpy.asarray(xs[: case.steps]), jax.numpy.asarray(ds[: case.steps])
        before = count()
        run(model, x, d)
        found[case.label] = count() - before
    return found
