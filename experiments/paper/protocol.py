"""The paper's eight algorithms, its settings, and the readings and combiners they are run under.

What the learners of a booster do does not depend on its combiner: λ comes from their own errors. So
a booster runs once, and every combiner is then run on the estimates of its learners. That gives the
same numbers as a booster with that combiner inside (tests/test_experiments.py) in less time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jboost as jb
from jboost.boosting.booster import RLS_COMBINER, Boosted
from jboost.combiners.mean import from_mean
from jboost.core import Learner

SINGLE = ("SGD", "NM")
BOOSTED = ("BSGD-WU", "BSGD-DR", "BSGD-RU", "BNM-WU", "BNM-DR", "BNM-RU")
ALGORITHMS = ("SGD", *BOOSTED[:3], "NM", *BOOSTED[3:])

# Combiners of the stationary and the chaotic stream, of the figures and the sweeps of parameters
# (literal reading), and of Table 1.
COMBINERS = ("NSGD 0.1", "NSGD 0.01", "NSGD 0.001", "uniform", "RLS", "forward RLS")
DRAWN = ("NSGD 0.01", "uniform", "RLS")
TABLED = ("NSGD 0.1", "NSGD 0.01", "NSGD 0.001", "uniform", "forward RLS")

# Table 1 of the paper, MSE, in the order of ALGORITHMS.
TABLE1 = {
    "mv": (0.2711, 0.2707, 0.2706, 0.2707, 0.2592, 0.2645, 0.2587, 0.2584),
    "puma8nh": (0.1340, 0.1334, 0.1332, 0.1334, 0.1296, 0.1269, 0.1295, 0.1284),
    "kin8nm": (0.0835, 0.0831, 0.0830, 0.0831, 0.0804, 0.0801, 0.0803, 0.0801),
    "compactiv": (0.0606, 0.0599, 0.0608, 0.0598, 0.0137, 0.0086, 0.0304, 0.0078),
    "protein": (0.2554, 0.2550, 0.2549, 0.2550, 0.2370, 0.2334, 0.2385, 0.2373),
    "onp": (0.0015, 0.0009, 0.0009, 0.0009, 0.0009, 0.0009, 0.0009, 0.0009),
    "california": (0.0446, 0.0450, 0.0452, 0.0448, 0.0685, 0.0671, 0.0579, 0.0683),
    "ypmsd": (0.0237, 0.0237, 0.0233, 0.0237, 0.0454, 0.0337, 0.0302, 0.0292),
}


def tabled(sets: dict[str, Any]) -> dict[str, Any]:
    """The sets of Table 1 among those of a record, which may have Bank8FM too."""
    return {name: block for name, block in sets.items() if name in TABLE1}


@dataclass(frozen=True)
class Settings:
    """The settings of the eight algorithms; the paper does not give ``ridge`` (v)."""

    step_size: Any
    forgetting: Any
    target_sgd: Any
    target_nm: Any
    ridge: Any = 0.01
    m: int = 20
    max_reuse: int = 5
    dependence: Any = 1.0

    def record(self) -> dict[str, Any]:
        """The settings as a dictionary, for the record."""
        return asdict(self)


STATIONARY = Settings(step_size=0.1, forgetting=0.9999, target_sgd=0.02, target_nm=0.004)
DUFFING = Settings(step_size=0.1, forgetting=0.999, target_sgd=0.25, target_nm=0.17)


def method(name: str) -> str:
    """The single learner behind an algorithm: SGD or NM."""
    return "SGD" if "SGD" in name else "NM"


def single(name: str, s: Settings, *, literal: bool) -> Learner:
    """SGD or NM alone, under the settings that the boosted learners have."""
    if name == "SGD":
        return jb.SGD(s.step_size, guard=not literal)
    if literal:
        return jb.Newton(s.forgetting, ridge=s.ridge, max_variance=None)
    return jb.Newton(s.forgetting, ridge=s.ridge)


def boosted(name: str, s: Settings, *, literal: bool) -> Boosted:
    """One of BOOSTED, with the plain mean as combiner."""
    common: Any = {"dependence": s.dependence, "literal": literal, "combiner": jb.Uniform()}
    sgd = common | {"target_mse": s.target_sgd, "step_size": s.step_size}
    nm = common | {"target_mse": s.target_nm, "forgetting": s.forgetting, "ridge": s.ridge}
    reuse: Any = {"max_reuse": s.max_reuse}
    match name:
        case "BSGD-WU":
            return jb.bsgd_wu(s.m, **sgd)
        case "BSGD-DR":
            return jb.bsgd_dr(s.m, **sgd, **reuse)
        case "BSGD-RU":
            return jb.bsgd_ru(s.m, **sgd)
        case "BNM-WU":
            return jb.bnm_wu(s.m, **nm)
        case "BNM-DR":
            return jb.bnm_dr(s.m, **nm, **reuse)
        case "BNM-RU":
            return jb.bnm_ru(s.m, **nm)
    raise ValueError(f"name must be one of {BOOSTED}; got {name!r}")


def combiners(*, literal: bool) -> dict[str, Learner]:
    """The combiners by name: the paper's at three steps, the mean, and RLS in two forms.

    The paper gives no step; its RLS combiner stands in commented-out lines. Literal RLS has no cap
    on its matrix; safe forward RLS is the library's default, and safe RLS has the same settings.
    """
    nsgd = {
        f"NSGD {step:g}": jb.NSGD(step_size=step, epsilon=0.0 if literal else 1e-8)
        for step in (0.1, 0.01, 0.001)
    }
    forward = RLS_COMBINER
    if literal:
        forward = jb.ForwardNewton(forgetting=0.999, ridge=1.0, max_variance=None)
    same = {field.name: getattr(forward, field.name) for field in fields(forward)}
    rls = {"RLS": jb.Newton(**same), "forward RLS": forward}
    return {**nsgd, "uniform": jb.Uniform(), **rls}


class Chain(NamedTuple):
    """What the learners of a booster did.

    y: their estimates, (…, T, m).
    lam: the mean of λ over time, (…, m).
    updates: the mean number of updates at a step, (…, m).
    """

    y: Array
    lam: Array
    updates: Array


def _record(state: Any, info: Any) -> tuple[Array, Array, Array]:
    """Observe estimates, weights and updates."""
    del state
    return info.y, info.lam, info.updates


def chain_of(model: Boosted, xs: Array, ds: Array, key: Array) -> Chain:
    """A booster over one stream."""
    y, lam, updates = jb.run(model, xs, ds, key, observe=_record)[1].observed
    return Chain(y, lam.mean(axis=0), updates.astype(y.dtype).mean(axis=0))


@jax.jit
def chains(model: Boosted, xs: Array, ds: Array, keys: Array) -> Chain:
    """A booster over n streams, (n, T, r) and (n, T), with n keys; 25 at a time, to save memory."""

    def one(stream: tuple[Array, Array, Array]) -> Chain:
        return chain_of(model, *stream)

    return jax.lax.map(one, (xs, ds, keys), batch_size=min(25, len(xs)))


@jax.jit
def combine(combiner: Learner, y: Array, ds: Array) -> Array:
    """The predictions (n, T) of a combiner that gets the estimates (n, T, m) one step at a time."""

    def one(y: Array, ds: Array) -> Array:
        return jb.run(from_mean(combiner), y, ds)[1].prediction

    return jax.vmap(one)(y, ds)


@jax.jit
def alone(model: Learner, xs: Array, ds: Array) -> Array:
    """The predictions (n, T) of a single learner over n streams."""
    return jax.vmap(lambda xs, ds: jb.run(model, xs, ds)[1].prediction)(xs, ds)


def repeated(xs: Any, ds: Any, n: int) -> tuple[Array, Array]:
    """n copies of one stream, for n keys."""
    xs, ds = jnp.asarray(xs), jnp.asarray(ds)
    return jnp.broadcast_to(xs, (n, *xs.shape)), jnp.broadcast_to(ds, (n, *ds.shape))


def all_combined(y: Array, ds: Array, chosen: Mapping[str, Learner]) -> dict[str, np.ndarray]:
    """The predictions (n, T) of each combiner, by name."""
    return {name: np.asarray(combine(each, y, ds)) for name, each in chosen.items()}
