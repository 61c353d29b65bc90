"""River's and padasip's regressors on the stream of the soak.

Each gets the stream as it is, and once more without the damaged samples, so that one NaN does not
hide the effect of the other hazards. river's linear models stand behind its StandardScaler and so
take any units; its trees need no scaler; padasip has none and gets columns of size 1 and jumps of
10. They are slow and get fewer steps. bnm_wu and Newton of jboost stand beside them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import numpy as np

import jboost as jb
from experiments.bench.soak_stream import COLUMNS, LENGTH, spells
from experiments.shared.experiment import Experiment, Progress
from jboost.catalogue import named
from jboost.core.learner import Learner

Done = Callable[[str, str, dict[str, Any]], None]
SEED = 1
ABSURD = 1e6  # targets reach 1e4: a model with estimates beyond this has diverged


class Peer(NamedTuple):
    """A regressor: how to make it, whether it takes any units, and its share of the steps."""

    make: Callable[[], Any]
    units: bool
    part: float = 1.0


class _Ours:
    """A model of this library, as a peer that is run at once; compiled before the clock starts."""

    def __init__(self, model: Learner) -> None:
        self.model = model
        self.predictions(np.zeros((LENGTH, len(COLUMNS))), np.zeros(LENGTH, np.float32))

    def predictions(self, xs: np.ndarray, ds: np.ndarray) -> np.ndarray:
        stream = jb.run_stream(self.model, (xs.astype(np.float32), ds), block=LENGTH)
        return np.concatenate([block.prediction for block in stream]).astype(np.float64)


class _Filter:
    """A padasip filter with river's two methods."""

    def __init__(self, name: str, **settings: float) -> None:
        made = getattr(import_module("padasip.filters"), name)
        self.filter = made(n=len(COLUMNS), w="zeros", **settings)

    def predict_one(self, x: np.ndarray) -> float:
        return float(self.filter.predict(x))

    def learn_one(self, x: np.ndarray, d: float) -> None:
        self.filter.adapt(d, x)


class _Scaled:
    """A river regressor, given arrays, behind a StandardScaler or not."""

    def __init__(self, module: str, name: str, *, scaled: bool, **settings: Any) -> None:
        regressor = getattr(import_module(f"river.{module}"), name)(**settings)
        scaler = import_module("river.preprocessing").StandardScaler
        self.regressor = scaler() | regressor if scaled else regressor

    def predict_one(self, x: np.ndarray) -> float:
        return float(self.regressor.predict_one(dict(enumerate(x.tolist()))))

    def learn_one(self, x: np.ndarray, d: float) -> None:
        self.regressor.learn_one(dict(enumerate(x.tolist())), d)


def _filter(name: str, **settings: float) -> Peer:
    return Peer(lambda: _Filter(name, **settings), units=False)


def _river(module: str, name: str, scaled: bool, part: float = 1.0, **settings: Any) -> Peer:
    return Peer(lambda: _Scaled(module, name, scaled=scaled, **settings), True, part)


OURS = {
    "jboost bnm_wu, β = .999": Peer(lambda: _Ours(named("bnm_wu")), True),
    "jboost Newton, β = .99": Peer(lambda: _Ours(jb.Newton(0.99)), False),
}
RIVER = {
    "river LinearRegression": _river("linear_model", "LinearRegression", True),
    "river BayesianLinearRegression": _river("linear_model", "BayesianLinearRegression", True),
    "river BayesianLinearRegression, smoothing .999": _river(
        "linear_model", "BayesianLinearRegression", True, smoothing=0.999
    ),
    "river HoeffdingTreeRegressor": _river("tree", "HoeffdingTreeRegressor", False),
    "river ARFRegressor": _river("forest", "ARFRegressor", False, 0.25, seed=SEED),
}
PADASIP = {
    "padasip FilterLMS, μ = .01": _filter("FilterLMS", mu=0.01),
    "padasip FilterNLMS, μ = .1": _filter("FilterNLMS", mu=0.1),
    "padasip FilterRLS, β = .99": _filter("FilterRLS", mu=0.99),
    "padasip FilterRLS, β = .999": _filter("FilterRLS", mu=0.999),
}


def peers(quick: bool) -> dict[str, Peer]:
    """jboost's models and the installed peers; in a quick run only the fast ones."""
    river = RIVER if find_spec("river") and not quick else {}
    return OURS | river | (PADASIP if find_spec("padasip") else {})


def samples(experiment: Experiment) -> int:
    """The number of spells of the stream that peers get."""
    return experiment.samples(32 * LENGTH, 3 * LENGTH) // LENGTH


def follow(peer: Peer, xs: np.ndarray, ds: np.ndarray, calm: np.ndarray) -> dict[str, Any]:
    """Predict, then learn, until the end or an exception; returns what became of the estimates."""
    model, said, ended, step = peer.make(), np.full(len(ds), np.nan), None, 0
    start = time.perf_counter()
    if isinstance(model, _Ours):
        said, step = model.predictions(xs, ds.astype(np.float32)), len(ds) - 1
    else:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                for step, (x, d) in enumerate(zip(xs, ds.tolist(), strict=True)):
                    said[step] = model.predict_one(x)
                    model.learn_one(x, d)
            except Exception as error:  # whatever a peer throws is a result here
                ended = f"{type(error).__name__}: {error}"[:80]
    steps = step + 1
    seconds = time.perf_counter() - start
    return outcome(said[:steps], ds[:steps], calm[:steps], seconds) | {"exception": ended}


def outcome(said: Any, ds: Any, calm: Any, seconds: float) -> dict[str, Any]:
    """When estimates were lost, and the error of the rest."""
    finite = np.isfinite(said)
    wild = np.flatnonzero(~finite | (np.abs(np.where(finite, said, 0)) > ABSURD))
    shown = finite & calm
    with np.errstate(over="ignore"):
        error = np.square(said[shown] - ds[shown]).mean() if shown.any() else np.nan
    return {
        "steps": len(ds),
        "lost": int(np.count_nonzero(~finite)),
        "first lost": int(np.flatnonzero(~finite)[0]) + 1 if not finite.all() else None,
        "first beyond 1e6": int(wild[0]) + 1 if len(wild) else None,
        "calm mse": float(error),
        "seconds": seconds,
    }


def gathered(seed: int, count: int, units: bool, clean: bool) -> tuple[Any, Any, Any]:
    """The first spells as (xs, ds, calm), with the damaged samples or without."""
    parts = []
    for spell in spells(seed, count, units, 1e4 if units else 10.0):
        rows = ~(spell.bad_x | spell.bad_d) if clean else slice(None)
        parts.append((spell.x[rows].astype(np.float64), spell.d[rows], spell.calm[rows]))
    xs, ds, calm = (np.concatenate(part) for part in zip(*parts, strict=True))
    return xs, ds.astype(np.float64), calm


def measure(experiment: Experiment, seed: int, known: dict[str, Any], done: Done) -> None:
    """Run every peer on both streams; ``done`` writes a row to the record."""
    jax.config.update("jax_enable_x64", False)
    count = samples(experiment)
    todo = [
        (f"{name}{', clean' if clean else ''}", peer, clean)
        for name, peer in peers(experiment.quick).items()
        for clean in (False, True)
    ]
    todo = [item for item in todo if item[0] not in known]
    bar = Progress("peers", len(todo))
    for label, peer, clean in todo:
        part = max(round(count * peer.part), 1)
        done("peers", label, follow(peer, *gathered(seed, part, peer.units, clean)))
        bar.add(1, label)


def table(results: dict[str, Any]) -> str:
    """What became of each peer, with the damaged samples and without them."""
    lines = [
        "| on the stream | steps | estimates lost | became | calm MSE of the rest | µs |",
        "|---|---|---|---|---|---|",
    ]
    for label, found in results.items():
        cells = (
            label,
            f"{found['steps']:,}",
            f"{100 * found['lost'] / found['steps']:.1f} %",
            fate(found),
            "–" if found["calm mse"] is None else f"{found['calm mse']:.4g}",
            f"{1e6 * found['seconds'] / found['steps']:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def fate(found: dict[str, Any]) -> str:
    """What became of a peer, in a few words."""
    words = []
    first, wild = found["first lost"], found["first beyond 1e6"]
    if wild is not None and wild != first:
        words.append(f"beyond 1e6 at step {wild:,}")
    if first is not None:
        words.append(f"NaN from step {first:,}")
    if found["exception"]:
        words.append(f"stopped at step {found['steps']:,}: {found['exception']}")
    return "; ".join(words) or "finite"
