"""Regret bounds of the combiners, computed from predictions and targets alone, with proofs.

Losses are (ŷ − d)²; r_k = 2 (ŷ − d)(ŷ − y_k), so that ŷ's loss less that of any convex mix q of
the experts is at most Σ q_k r_k, and Σ p_k r_k = 0. Three of the bounds are proved here, because
these rules, other than the published ones, are not told the range of the losses.

**EWA, η = 1/(2S).** W_t(η) = −(1/η) ln Σ_k exp(−η L_k)/m, L_k the losses up to t, falls in η, and
ŷ's loss is at most W_t(η) − W_{t−1}(η) where η times every loss is at most 1/2. Summed over the
steps with η falling, the losses are at most W_T(η_T) ≤ min L_k + ln m/η_T, plus, at each step where
a loss ℓ > S sets S to 2ℓ, at most ℓ = S/2; S at least doubles there, so these sum to at most S.

**BOA.** Let η = 1/√V before a step, u = η r, a² = V/(V + 2.2 r²) and z = exp(η R). After it the
exponential is z^a g, g = exp(au − a²u²) ≤ 1 + au since au > −0.683. Where all |u| ≤ 1/2,
z^a ≤ az + 1 − a gives z^a g ≤ z (1 + u) + 1.5 (1 − a), because 1 + u (1 + a) ≥ 0; and the mean of
z u over the experts is 0 by the choice of p. At any other step g ≤ e^¼. So the mean of exp(η R)
never exceeds e^(N/4) (1 + 1.5 A); its logarithm and ln m bound every R_k/√V_k, and
Σ_t r²/√V_t ≤ 2√V/2.2. Experts with V = 0 have r = 0 at every step that is not among the N.

**ML-Poly.** Φ = Σ η_k max(R_k, 0)² grows by at most Σ η_k r_k², η before the step, since the
mixed term is 0 by the choice of p and η falls; or else √Φ grows by at most √m, since η_k r_k² ≤ 1
with η after the step. The second is counted where B more than doubles, the first elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def linearised(guess: Values, y: Values, d: Values) -> Values:
    """The linearised regret r of every expert at every step, (T, m)."""
    return 2 * (guess - d)[:, None] * (guess[:, None] - y)


def ewa(guess: Values, y: Values, d: Values, rate: float | None) -> Values:
    """The bound of EWA on the regret against each expert; NaN for too large a rate."""
    del guess
    losses = np.square(y - d[:, None]).max(axis=1)
    m = y.shape[1]
    if rate is not None:
        return np.full(m, math.log(m) / rate if rate * losses.max() <= 0.5 + 1e-9 else np.nan)
    S = 0.0
    for loss in losses[losses > 0]:
        S = 2 * loss if loss > S else S
    return np.full(m, 2 * S * math.log(m) + S)


def boa(guess: Values, y: Values, d: Values) -> Values:
    """The bound of BOA on the regret against each expert."""
    r = linearised(guess, y, d)
    V = 2.2 * np.cumsum(r**2, axis=0)
    before = np.vstack([np.zeros(r.shape[1]), V[:-1]])
    N = int(np.any(4 * r**2 > before, axis=1).sum())
    a = np.sqrt(np.divide(before, V, out=np.ones_like(V), where=V > 0))
    A = float((1 - a).sum(axis=0).mean())
    factor = math.log(r.shape[1]) + 2 / 2.2 + N / 4 + math.log(1 + 1.5 * A)
    return np.sqrt(V[-1]) * factor


def ml_poly(guess: Values, y: Values, d: Values) -> Values:
    """The bound of ML-Poly on the regret against each expert."""
    r = linearised(guess, y, d)
    B = np.maximum.accumulate(np.square(r).max(axis=1))
    old_B = np.r_[0.0, B[:-1]]
    old = old_B[:, None] + np.cumsum(r**2, axis=0) - r**2
    jump = 2 * old_B < B
    D = float(np.divide(r**2, old, out=np.zeros_like(r), where=old > 0)[~jump].sum())
    power = B[-1] + np.square(r).sum(axis=0)
    return np.sqrt(power) * (math.sqrt(D) + jump.sum() * math.sqrt(r.shape[1]))


def least_squares(guess: Values, y: Values, d: Values, ridge: float, forward: bool) -> Any:
    """(best linear z, regret against it, bound) of Newton and ForwardNewton from the mean, γ = 1.

    Both learn e = d − mean(y) from y. With u = z − 1/m the bound is v ‖u‖² + E² ln det(I + Σyyᵀ/v),
    E the largest |e| for ForwardNewton (Vovk 2001; Azoury and Warmuth 2001), the largest |d − d̂|
    for Newton, whose error times √(1/(1 + yᵀPy)) sums to that of ridge regression exactly.
    """
    m = y.shape[1]
    e = d - y.mean(axis=1)
    u = np.linalg.lstsq(y, e, rcond=1e-10)[0]
    regret = float(np.square(guess - d).sum() - np.square(e - y @ u).sum())
    largest = np.abs(e if forward else d - guess).max()
    volume = np.linalg.slogdet(np.eye(m) + y.T @ y / ridge)[1]
    return u + 1 / m, regret, ridge * float(u @ u) + float(largest**2 * volume)


def best_mix(y: Values, d: Values, steps: int = 20_000) -> Values:
    """The convex mix with the least squared error: projected gradient steps with momentum."""
    G, b = y.T @ y / len(d), y.T @ d / len(d)
    q = last = np.full(len(b), 1 / len(b))
    step = 1 / max(np.linalg.eigvalsh(G)[-1], 1e-300)
    for k in range(1, steps + 1):
        ahead = q + (k - 1) / (k + 2) * (q - last)
        last, q = q, on_simplex(ahead - step * (G @ ahead - b))
        if k % 100 == 0 and np.abs(q - last).max() < 1e-13:
            break
    return q


def on_simplex(v: Values) -> Values:
    """The nearest point with q ≥ 0 and Σ q = 1."""
    u = np.sort(v)[::-1]
    excess = (np.cumsum(u) - 1) / np.arange(1, len(v) + 1)
    return np.maximum(v - excess[np.nonzero(u > excess)[0][-1]], 0)
