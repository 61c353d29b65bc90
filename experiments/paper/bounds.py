"""Lemmas 1 and 2, Theorems 1 and 2: checked, and shown to fail where the printed form is wrong."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

import jboost as jb
from jboost.paper import theory

Floats = NDArray[np.float64]
GUARANTEE, TARGET, KAPPA, LEARNERS = 0.02, 0.1, 0.1, 60


def chain(e: Floats, base: float, target: float) -> Floats:
    """λ^(1..m+1) = min{1, base^l}, l^(k+1) = l^(k) + target − e², for errors e (T, m)."""
    l = np.cumsum(np.pad(target - e**2, ((0, 0), (1, 0))), axis=1)
    return base ** np.maximum(l, 0.0)


def bounded_streams(T: int) -> dict[str, tuple[Any, Any]]:
    """Five streams with targets within [−1, 1]."""
    rng, t = np.random.default_rng(5), np.arange(T)
    xs = np.column_stack([rng.uniform(-1, 1, (T, 2)), np.ones(T)])
    plane = xs @ [0.2, -0.1, 0.05]
    gaussian = jb.streams.stationary(jax.random.key(0), T)
    chaotic = jb.streams.duffing(T)
    return {
        "stationary, (d − 2)/2": (gaussian[0], (gaussian[1] - 2) / 2),
        "plane and noise": (xs, plane + 0.05 * rng.normal(size=T)),
        "switching plane": (xs, plane * np.where(t // 250 % 2, 1, -1)),
        "sine times x₁": (xs, 0.4 * np.sin(t / 9) * xs[:, 0]),
        "Duffing / 2": (chaotic[0] / 2, chaotic[1] / 2),
    }


def _seen(state: Any, info: Any) -> tuple[Array, Array]:
    """Observe the weights and estimates of all learners."""
    del state
    return info.lam, info.y


def lemma1(T: int) -> dict[str, Any]:
    """Lemma 1 on Algorithm 1: 60 SGD learners with weighted updates on each stream."""
    model = jb.boost(
        jb.SGD(0.1), LEARNERS, target_mse=TARGET, guarantee=GUARANTEE, combiner=jb.Uniform()
    )
    rows = {}
    for name, (xs, ds) in bounded_streams(T).items():
        _, trace = jb.run(model, xs, ds, observe=_seen)
        lam, y = (np.asarray(a, np.float64) for a in trace.observed)
        d = np.asarray(ds, np.float64)
        run = theory.lemma1(lam, y, d, KAPPA, TARGET)
        weighted = (lam * (d[:, None] - y) ** 2).sum(axis=0) / (4 * lam.sum(axis=0))
        rows[name] = {
            **run._asdict(),
            "weighted_mse_over_4": float(weighted.max()),
            "applies": run.learners is not None and not run.reason,
            "holds": bool(run.mse <= run.desired_mse),
        }
    return rows


def lemma1_defects() -> dict[str, Any]:
    """Errors of 2 break Lemma 1; errors that cancel make its "=" an inequality."""
    e = np.zeros((100, 80))
    e[:9] = 2.0
    target = theory.modified_target(0.2, 0.1)
    run = theory.lemma1(chain(e, 0.5, target), 1 - e, np.ones(100), 0.1, target)
    pair = np.tile([0.9, -0.9], (10, 1))
    return {
        "errors of 2 on 9 of 100 samples": {
            "M": run.learners, "mse": run.mse, "desired_mse": run.desired_mse,
            "proven_mse": run.proven_mse, "reason": run.reason,
        },
        "two learners with errors 0.9 and −0.9": {
            "share_e2_above_target": float((pair.mean(axis=1) ** 2 > 0.1).mean()),
            "share_lam_equal_1": float((chain(pair, 0.5, 0.1)[:, 2] == 1).mean()),
        },
    }  # fmt: skip


def adversary(guarantee: float, base: float, target: float, kappa: float, limit: int) -> int | None:
    """The M of learners with errors of 1 on the lightest samples that the guarantee allows.

    None where M does not exist up to ``limit``.
    """
    l = np.zeros(20_000)
    for k in range(limit):
        lam = base ** np.maximum(l, 0)
        if lam.mean() < kappa:
            return k
        light = np.argsort(lam)
        missed = light[np.cumsum(lam[light]) <= 4 * guarantee * lam.sum()]
        l += target
        l[missed] -= 1
    return None


def lemma2(limit: int) -> dict[str, Any]:
    """The M that learners with a guarantee reach, beside the printed and the corrected bound."""

    def row(s2: float, sm2: float, kappa: float, M: int | None, c: float = 0.5) -> dict[str, Any]:
        bound = theory.learners_bound
        return {
            "guarantee": s2, "target_mse": sm2, "kappa": kappa, "dependence": c, "M": M,
            "printed": bound(s2, kappa, sm2),
            "corrected": bound(s2, kappa, sm2, corrected=True, dependence=c),
        }  # fmt: skip

    def constant(e2: float, s2: float, sm2: float, kappa: float) -> dict[str, Any]:
        lam = chain(np.full((1, limit), math.sqrt(e2)), math.sqrt(s2), sm2)
        return row(s2, sm2, kappa, theory.lemma1_learners(lam, kappa))

    def adverse(s2: float, sm2: float, kappa: float, c: float = 0.5) -> dict[str, Any]:
        return row(s2, sm2, kappa, adversary(s2, s2**c, sm2, kappa, limit), c)

    e = np.zeros((100, 1))
    lam = chain(e, 0.5, 0.1)[:, :-1]
    constant_term = 1 / (0.5 * math.log(2))
    return {
        "limit": limit,
        "rows": {
            "constant e² = 0.5": constant(0.5, 0.125, 0.1, 0.1),
            "constant e² = 0.4": constant(0.4, 0.1, 0.41, 0.12),
            "adversary, σ_m² 0.3": adverse(0.01, 0.3, 0.1),
            "adversary, σ_m² 0.15": adverse(0.01, 0.15, 0.1),
            "adversary, σ_m² 0.1": adverse(0.01, 0.1, 0.1),
            "adversary, c = 1/2": adverse(0.01, 0.2, 0.1),
            "adversary, c = 1": adverse(0.01, 0.2, 0.1, c=1.0),
        },
        "factor_T": {
            "case": "one perfect learner, T = 100, σ = 1/2, σ_m² = 0.1",
            "left": float((lam * (1 - e**2)).sum()),
            "right_as_printed": constant_term - 0.5**4 * 0.1 * float(lam.sum()),
            "right_with_T": 100 * constant_term - 0.5**4 * 0.1 * float(lam.sum()),
        },
    }


def gaussian_chain(
    zeta2: float, target: float, trials: int, steps: int, m: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """δ before the last of some steps and λ at it, (trials, m), of independent Gaussian errors.

    δ starts at 1. With δ₀ = 0, as printed, a learner whose predecessors meet σ_m² never starts.
    """
    num, den = np.zeros((trials, m)), np.zeros((trials, m))
    delta = used = lam = np.ones((trials, m))
    for _ in range(steps):
        e2 = zeta2 * rng.standard_normal((trials, m)) ** 2
        l = np.cumsum(np.pad(target - e2, ((0, 0), (1, 0)))[:, :-1], axis=1)
        used, lam = delta, np.minimum(1, delta**l)
        num, den = num + lam * e2 / 4, den + lam
        delta = num / den
    return used, lam


def monte_carlo(zeta2: float, target: float, trials: int, steps: int = 60, m: int = 20) -> Any:
    """The weights after some steps of independent Gaussian errors, beside Theorem 2's bound."""
    used, lam = gaussian_chain(zeta2, target, trials, steps, m, np.random.default_rng(7))
    k, gamma = np.arange(1, m + 1), used.mean(axis=0)
    bound = np.asarray(theory.weight_bound(k, gamma, zeta2, target))
    printed = np.asarray(theory.weight_bound(k, gamma, zeta2, target, conditions="printed"))
    mean, error = lam.mean(axis=0), lam.std(axis=0) / math.sqrt(trials)
    known = np.isfinite(bound)
    reasons = [
        theory.weight_bound_reason(int(i), float(g), zeta2, target)
        for i, g in zip(k, gamma, strict=True)
    ]
    return {
        "zeta2": zeta2, "target_mse": target, "trials": trials,
        "gamma_over_zeta2": gamma[-1] / zeta2,
        "mean": mean, "standard_error": error, "bound": bound,
        "learners_with_a_bound": int(known.sum()),
        "learners_with_printed_conditions": int(np.isfinite(printed[1:]).sum()),
        "holds": bool((mean <= bound + 4 * error)[known].all()),
        "largest_excess_in_errors": float(np.max(((mean - bound) / np.maximum(error, 1e-12))[1:],
                                                  initial=-np.inf, where=known[1:])),
        "reason": next((reason for reason in reasons if reason), ""),
    }  # fmt: skip


def theorem2(trials: int) -> dict[str, Any]:
    """Theorem 2 under its own assumption, its conditions on a grid, and counterexamples."""
    cases = [(0.01, 0.03), (0.0117, 0.02), (0.05, 0.15), (0.1, 0.25), (0.22, 0.25)]
    runs = [monte_carlo(zeta2, target, trials) for zeta2, target in cases]
    axes = np.arange(2, 21.0), np.linspace(0.02, 0.98, 25), np.geomspace(0.002, 1, 25)
    k, delta, zeta2, target = (g.ravel() for g in np.meshgrid(*axes, np.geomspace(0.002, 1, 25)))
    keep = 1 + 2 * zeta2 * np.log(delta) > 0.05
    point = k[keep], delta[keep], zeta2[keep], target[keep]
    concave = np.logical_and.reduce(theory.weight_conditions(*point))
    printed = np.logical_and.reduce(theory.weight_conditions(*point, corrected=False))
    fine = np.linspace(0.001, 1, 1000)
    undefined = np.isnan(theory.weight_bound(2, fine / 4, fine, 0.25, conditions="converged"))
    needed = np.linspace(0.1, 0.3, 2001)
    useful = np.asarray(theory.weight_bound(9, 0.025, 0.1, needed, conditions="converged")) < 1
    return {
        "monte_carlo": runs,
        "conditions_on_a_grid": {
            "points": len(point[0]), "printed_hold": int(printed.sum()),
            "of_these_not_concave": int((printed & ~concave).sum()), "concave": int(concave.sum()),
            "of_these_refused_by_printed": int((concave & ~printed).sum()),
        },
        "printed_is_false": printed_is_false(10 * trials),
        "least_zeta2_without_bound_at_gamma_zeta2_over_4": float(fine[undefined].min()),
        "least_useful_target_at_zeta2_0.1": float(needed[useful].min()),
        "shared_errors": shared_errors(),
    }  # fmt: skip


def printed_is_false(trials: int) -> dict[str, float]:
    """A chain from δ = 1 whose every δ meets the printed conditions, and E[λ] beside the bound."""
    k, zeta2, target, steps = 5, 0.005, 0.5, 20
    used, lam = gaussian_chain(zeta2, target, trials, steps, k, np.random.default_rng(0))
    delta, last = used[:, -1], lam[:, -1]
    met = np.logical_and.reduce(theory.weight_conditions(k, delta, zeta2, target, corrected=False))
    gamma = float(delta.mean())
    return {
        "k": k, "zeta2": zeta2, "target_mse": target, "steps": steps, "trials": trials,
        "mean_lam": float(last.mean()),
        "standard_error": float(last.std() / math.sqrt(trials)),
        "gamma_over_zeta2": gamma / zeta2,
        "bound": float(theory.weight_bound(k, gamma, zeta2, target, conditions="printed")),
        "share_of_delta_that_meets_the_printed_conditions": float(met.mean()),
    }  # fmt: skip


def deadlock(T: int) -> dict[str, Any]:
    """δ₀ = 0 on a plane whose targets are within σ_m²: learners after the first never learn."""
    rng = np.random.default_rng(5)
    xs = np.column_stack([rng.uniform(-1, 1, (T, 2)), np.ones(T)])
    ds = xs @ [0.1, -0.06, 0.04]
    settings: Any = {"target_mse": 0.05, "step_size": 0.1, "combiner": jb.Uniform()}
    alone = jb.run(jb.SGD(0.1, guard=False), xs, ds)[1].prediction
    rows: dict[str, Any] = {
        "largest_d": float(np.abs(ds).max()),
        "SGD": float(np.square(np.asarray(alone) - ds).mean()),
    }
    for reading in ("literal", "safe"):
        model = jb.bsgd_wu(3, **settings, literal=reading == "literal")
        trace = jb.run(model, xs, ds, observe=_seen)[1]
        rows[reading] = {
            "mse": float(np.square(np.asarray(trace.prediction) - ds).mean()),
            "mean_lam": np.asarray(trace.observed[0]).mean(axis=0),
        }
    return rows


def shared_errors() -> dict[str, float]:
    """λ^(60) beside its bound where all learners share one error, as copies nearly do."""
    zeta2, target, k = 0.0117, 0.02, 60
    e2 = zeta2 * np.random.default_rng(1).standard_normal(400_000) ** 2
    lam = np.minimum(1, (zeta2 / 4) ** ((k - 1) * (target - e2)))
    return {
        "mean_lam": float(lam.mean()),
        "bound": float(theory.weight_bound(k, zeta2 / 4, zeta2, target)),
    }


def costs(T: int) -> dict[str, Any]:
    """The costs of DR and RU on Duffing: printed, with whole repeats and estimates, and made."""
    xs, ds = jb.streams.duffing(T)
    models = {
        "BSGD-DR": jb.bsgd_dr(target_mse=0.25, step_size=0.1, literal=True),
        "BSGD-RU": jb.bsgd_ru(target_mse=0.25, step_size=0.1, literal=True),
    }
    rows = {}
    for name, model in models.items():
        _, trace = jb.run(model, xs, ds, jax.random.key(1), observe=_spent)
        lam, updates = (np.asarray(a, np.float64) for a in trace.observed)
        mode: Any = name[-2:]
        printed, corrected = (
            theory.expected_cost(lam, 3, mode=mode, method="SGD", corrected=c)
            for c in (False, True)
        )
        rows[name] = {
            "printed_updates": printed / 3,
            "corrected_updates": corrected / 3 - lam.shape[1],
            "made_updates": float(updates.sum(axis=1).mean()),
            "printed_cost": printed,
            "corrected_cost": corrected,
        }
    return rows


def _spent(state: Any, info: Any) -> tuple[Array, Array]:
    """Observe the weights and the updates of all learners."""
    del state
    return info.lam, jnp.asarray(info.updates)
