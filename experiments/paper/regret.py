"""The regret of NM against batch least squares: sequences where it grows as ln T or as T."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jboost as jb
from jboost.core import Learner
from jboost.paper import theory

RIDGE = 0.01
NEWTON = jb.Newton(forgetting=1.0, ridge=RIDGE, max_variance=None)
FORWARD = jb.ForwardNewton(forgetting=1.0, ridge=RIDGE, max_variance=None)
SEQUENCES = (
    "plane and noise",
    "random signs",
    "sign flips at powers of 2",
    "plane flips at powers of 10",
    "Duffing",
    "against the learner",
)


@jax.jit
def contrary(model: Learner, xs: Array) -> tuple[Array, Array]:
    """Predictions, and targets ±1 that are always on the other side of zero."""

    def step(state: Any, x: Array) -> tuple[Any, tuple[Array, Array]]:
        guess = model.predict(state, x)
        d = jnp.where(guess > 0, -1.0, 1.0).astype(guess.dtype)
        return model.update(state, x, d), (guess, d)

    return jax.lax.scan(step, model.init(xs.shape[1], xs.dtype), xs)[1]


def sequence(name: str, T: int) -> tuple[Any, Any]:
    """x within [−1, 1]³ (Duffing: 1.7) and bounded targets.

    The targets are None for the sequence that answers the learner's estimates.
    """
    rng, t = np.random.default_rng(11), np.arange(1, T + 1)
    xs = np.column_stack([rng.uniform(-1, 1, (T, 2)), np.ones(T)])
    plane = xs @ [0.4, -0.3, 0.2]
    match name:
        case "plane and noise":
            return xs, plane + rng.uniform(-0.5, 0.5, T)
        case "random signs":
            return xs, rng.choice([-1.0, 1.0], T)
        case "sign flips at powers of 2":
            return xs, np.where(np.floor(np.log2(t)) % 2, 1.0, -1.0)
        case "plane flips at powers of 10":
            return xs, plane * np.where(np.floor(np.log10(t)) % 2, 1.0, -1.0)
        case "Duffing":
            return jb.streams.duffing(T)
        case _:
            return xs, None


def grow(name: str, T: int) -> dict[str, Any]:
    """The regret at times from 10³ to T, and the slope of a line in ln T."""
    xs, ds = sequence(name, T)
    if ds is None:
        guess, ds = (np.asarray(a) for a in contrary(NEWTON, jnp.asarray(xs)))
    else:
        guess = np.asarray(jb.run(NEWTON, xs, ds)[1].prediction)
    xs, ds = np.asarray(xs, np.float64), np.asarray(ds, np.float64)
    times = np.unique(np.geomspace(min(1_000, T // 10), T, 13).round().astype(int))
    regret = theory.regret(guess, xs, ds, times)
    half = len(times) // 2
    error = np.abs(ds - guess)
    return {
        "times": times,
        "regret": regret,
        "slope": theory.regret_slope(regret, times),
        "slope_first_half": theory.regret_slope(regret[: half + 1], times[: half + 1]),
        "slope_second_half": theory.regret_slope(regret[half:], times[half:]),
        "largest_error": error.max(),
        "regret_over_T": regret[-1] / T,
        "slope_of_the_proof": xs.shape[1] * float(error.max() ** 2),
    }


def counterexample(lengths: list[int]) -> dict[str, Any]:
    """x = √(v/T), d = 1 for T steps, then x = 1, d = −1: the regret of NM and its forward form."""
    rows: dict[str, Any] = {"T": lengths, "NM": [], "forward": []}
    for T in lengths:
        xs = np.r_[np.full(T, math.sqrt(RIDGE / T)), 1.0][:, None]
        ds = np.r_[np.ones(T), -1.0]
        for name, model in (("NM", NEWTON), ("forward", FORWARD)):
            guess = np.asarray(jb.run(model, xs, ds)[1].prediction)
            # Against ridge regression, which a first row x = √v, d = 0 makes of least squares.
            padded = np.r_[math.sqrt(RIDGE), xs[:, 0]][:, None]
            args = np.r_[0.0, guess], padded, np.r_[0.0, ds], [T + 2]
            rows[name].append(float(theory.regret(*args)[0]))
    rows["forward_bound"] = math.log(2 + 1 / RIDGE)
    return rows
