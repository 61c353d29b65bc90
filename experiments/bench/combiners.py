"""Combiners on the same experts: their errors on real streams, and their regrets beside the bounds.

Twelve experts, six SGD and six Newton, run once over each stream: the first 8,192 rows of eight
data sets, scaled to [−1, 1] by these rows, and the paper's two streams. Every combiner then gets
the same predictions one by one. The adversarial streams are made of predictions directly; the
targets of one of them answer the combiner's own prediction. Regret is measured against a choice in
hindsight: the best expert (EWA), the best convex mix (BOA, ML-Poly) or the best linear mix (Newton,
ForwardNewton).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jboost as jb
from experiments.bench import regret_bounds
from experiments.bench.regret_bounds import Values
from experiments.shared import data
from experiments.shared.experiment import Experiment
from experiments.shared.figures import MARKERS, dress, style
from jboost import plots
from jboost.boosting.booster import RLS_COMBINER
from jboost.combiners.convex import BOA, EWA, MLPoly
from jboost.combiners.mean import from_mean
from jboost.core import Learner
from jboost.paper import datasets

STEPS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
FORGETTING = (0.98, 0.99, 0.995, 0.999, 0.9999, 1.0)
RIDGE = 0.1
COMBINER_RIDGE = 1.0
COMBINERS: dict[str, Learner] = {
    "uniform": jb.Uniform(),
    "EWA": EWA(),
    "EWA, known range": EWA(rate=1.0),  # at the largest rate that has a bound on the stream
    "EWA 0.5": EWA(rate=0.5),
    "BOA": BOA(),
    "ML-Poly": MLPoly(),
    "EWA, γ 0.99": EWA(forgetting=0.99),
    "BOA, γ 0.99": BOA(forgetting=0.99),
    "ML-Poly, γ 0.99": MLPoly(forgetting=0.99),
    "NSGD 0.01": jb.NSGD(step_size=0.01),
    "Newton": jb.Newton(1.0, ridge=COMBINER_RIDGE),
    "ForwardNewton": jb.ForwardNewton(1.0, ridge=COMBINER_RIDGE),
    "the default, γ 0.999": RLS_COMBINER,
}
AGAINST = {"EWA": "expert", "EWA, known range": "expert", "BOA": "mix", "ML-Poly": "mix",
           "Newton": "linear", "ForwardNewton": "linear"}  # fmt: skip
STREAMS = ("Duffing", "stationary")
ADVERSARIAL = ("alternating", "random signs", "switching", "perfect, then terrible",
               "growing", "against the mix")  # fmt: skip
DRAWN = ("EWA", "BOA", "ML-Poly", "Newton", "ForwardNewton")


def experts() -> list[Learner]:
    """Six SGD and six Newton learners."""
    sgd = [jb.SGD(step) for step in STEPS]
    return [*sgd, *(jb.Newton(beta, ridge=RIDGE) for beta in FORGETTING)]


def _estimates(state: Any, info: Any) -> Array:
    """Observe the predictions of the experts."""
    del state
    return info.y


def predictions(name: str, rows: int) -> tuple[Values, Values]:
    """The experts' predictions of a stream, (T, m), and its targets."""
    if name == "Duffing":
        xs, ds = jb.streams.duffing(rows)
    elif name == "stationary":
        xs, ds = jb.streams.stationary(jax.random.key(0), rows)
    else:
        xs, ds = data.scaled(name, rows)
    xs, ds = np.asarray(xs, np.float64), np.asarray(ds, np.float64)
    mixture = jb.boost(experts(), target_mse=0.0, dependence=0.0, combiner=jb.Uniform())
    y = jb.run(mixture, xs, ds, observe=_estimates)[1].observed
    return np.asarray(y), ds


def adversarial(name: str, T: int) -> tuple[Values, Values | None]:
    """Predictions and targets; the targets are None where they answer the combiner."""
    rng, t = np.random.default_rng(5), np.arange(T)
    wave = np.sin(t / 50)
    sides = np.tile([1.0, -1.0], (T, 1))
    match name:
        case "alternating":
            return sides, np.where(t % 2, 1.0, -1.0)
        case "random signs":
            return sides, rng.choice([-1.0, 1.0], T)
        case "switching":  # three experts, each the best for a twelfth of the time, in turn
            turn = t // max(T // 12, 1) % 3
            noise = np.where(turn[:, None] == np.arange(3), 0.05, 0.5) * rng.normal(size=(T, 3))
            return wave[:, None] + noise, wave
        case "perfect, then terrible":
            noise = rng.normal(size=(T, 3)) * [0.0, 0.1, 0.5]
            noise[T // 2 :, 0] = 100.0
            return wave[:, None] + noise, wave
        case "growing":  # errors from 1 to 1e8
            scale = 10 ** (8 * t / T)
            return scale[:, None] * rng.normal(size=(T, 4)), scale * rng.normal(size=T)
        case _:
            return np.column_stack([sides, np.full(T, 0.1), rng.uniform(-1, 1, T)]), None


@jax.jit
def contrary(combiner: Learner, y: Array) -> tuple[Array, Array]:
    """A combiner's predictions, and targets that are always on the other side of 0.1."""

    def step(state: Any, y: Array) -> tuple[Any, tuple[Array, Array]]:
        guess = combiner.predict(state, y)
        d = jnp.where(guess > 0.1, -1.0, 1.0)
        return combiner.update(state, y, d), (guess, d)

    return jax.lax.scan(step, combiner.init(y.shape[1], y.dtype), y)[1]


def combined(combiner: Learner, y: Values, d: Values | None) -> tuple[Values, Values]:
    """A combiner's predictions, and the targets."""
    combiner = from_mean(combiner)
    if d is not None:
        return np.asarray(jb.run(combiner, y, d)[1].prediction), d
    guess, answers = contrary(combiner, jnp.asarray(y))
    return np.asarray(guess), np.asarray(answers)


def known_rate(y: Values, d: Values | None) -> float:
    """The largest rate of EWA that has a bound; targets that answer the combiner are ±1."""
    sides = np.array([[-1.0, 1.0]]) if d is None else d[:, None]
    return 0.5 / max(float(np.square(y - side[:, None]).max()) for side in sides.T)


def held(name: str, guess: Values, y: Values, d: Values) -> dict[str, Any]:
    """A regret and its bound, and whether the regret to every expert is within its bound."""
    if AGAINST[name] == "linear":
        forward = name == "ForwardNewton"
        regret, bound = regret_bounds.least_squares(guess, y, d, COMBINER_RIDGE, forward)[1:]
        return {"regret": regret, "bound": bound, "holds": regret <= bound}
    bounds: dict[str, Callable[[Values, Values, Values], Values]] = {
        "EWA": lambda *a: regret_bounds.ewa(*a, rate=None),
        "EWA, known range": lambda *a: regret_bounds.ewa(*a, rate=known_rate(y, d)),
        "BOA": regret_bounds.boa,
        "ML-Poly": regret_bounds.ml_poly,
    }
    b = bounds[name](guess, y, d)
    loss = np.square(guess - d).sum()
    regrets = loss - np.square(y - d[:, None]).sum(axis=0)
    q = np.eye(len(b))[regrets.argmax()]
    if AGAINST[name] == "mix":
        q = regret_bounds.best_mix(y, d)
    regret = float(loss - np.square(y @ q - d).sum())
    holds = bool((regrets <= b).all() and regret <= b @ q)
    return {"regret": regret, "bound": float(b @ q), "holds": holds}


def work(name: str, rows: int, T: int) -> dict[str, Any]:
    """All combiners on one stream."""
    y, d = adversarial(name, T) if name in ADVERSARIAL else predictions(name, rows)
    result: dict[str, Any] = {"T": len(y), "experts": y.shape[1], "mse": {}, "regret": {}}
    for combiner, model in COMBINERS.items():
        if combiner == "EWA, known range":
            model = EWA(rate=known_rate(y, d))
        guess, answers = combined(model, y, d)
        result["mse"][combiner] = np.square(guess - answers).mean()
        if combiner in AGAINST:
            result["regret"][combiner] = held(combiner, guess, y, answers)
    if d is not None:
        hindsight = {
            "best expert": np.square(y - d[:, None]).mean(axis=0).min(),
            "best mix": np.square(y @ regret_bounds.best_mix(y, d) - d).mean(),
            "best linear": np.square(y @ np.linalg.lstsq(y, d, rcond=None)[0] - d).mean(),
        }
        result["hindsight"] = hindsight
    return result


def means(results: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Geometric mean and largest value, over the real streams, of MSE over the best expert's."""
    summary = {}
    for combiner in COMBINERS:
        ratios = [
            results[n]["mse"][combiner] / results[n]["hindsight"]["best expert"] for n in names
        ]
        summary[combiner] = {"mean": np.exp(np.mean(np.log(ratios))), "largest": max(ratios)}
    return summary


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=True)
    sets = ("kin8nm",) if experiment.quick else datasets.names()
    hard = ADVERSARIAL[:3] if experiment.quick else ADVERSARIAL
    origin = data.origin(sets, quick=experiment.quick)
    rows, T = experiment.samples(8_192, 1_000), experiment.samples(20_000, 1_000)
    real = (*sets, *STREAMS)
    names = (*real, *hard)
    done = experiment.each(lambda name: work(name, rows, T), names)
    streams = dict(zip(names, done, strict=True))
    results = {"streams": streams, "over the best expert": means(streams, real)}
    settings = {
        "rows": rows, "T": T, "steps": STEPS, "forgetting": FORGETTING, "ridge": RIDGE,
        "combiner_ridge": COMBINER_RIDGE, "seed": 5, "against": AGAINST,
        "data": origin,
    }  # fmt: skip
    experiment.write(settings, results)
    experiment.save(figure(streams, real))


def figure(streams: dict[str, Any], real: Sequence[str]) -> Any:
    """Errors over the best expert's, and regrets over their bounds."""
    fig, axes = plots.grid(1, 2, width=5.6, height=4.2)
    for i, combiner in enumerate(DRAWN):
        look = style(i) | {"linestyle": "", "marker": (*MARKERS[1:], "x")[i], "markersize": 5}
        look |= {"markerfacecolor": "none"} if i % 2 else {}
        offset = 0.15 * (i - 2)
        over = [streams[n]["mse"][combiner] / streams[n]["hindsight"]["best expert"] for n in real]
        axes[0, 0].plot(over, np.arange(len(real)) + offset, label=combiner, **look)
        cells = [block["regret"][combiner] for block in streams.values()]
        share = [max(cell["regret"] / cell["bound"], 0) for cell in cells]
        axes[0, 1].plot(share, np.arange(len(cells)) + offset, label=combiner, **look)
    for ax, names in ((axes[0, 0], real), (axes[0, 1], streams)):
        ax.set_yticks(range(len(names)), names, fontsize="small")
        ax.invert_yaxis()
    axes[0, 0].axvline(1, color="black", linewidth=0.8)
    axes[0, 1].axvline(1, color="black", linewidth=0.8)
    axes[0, 1].set_xlim(-0.05, 1.1)
    dress(axes[0, 0], "Error on real streams", "MSE over that of the best expert", "")
    dress(axes[0, 1], "Regret, at least 0", "regret over its bound", "")
    return fig


if __name__ == "__main__":
    main()
