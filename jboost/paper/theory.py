"""The paper's theory, as functions of plain numbers and of arrays recorded from a run.

Letters: σ² `guarantee`, σ_m² `target_mse`, σ_d² `desired_mse`, κ `kappa`, c `dependence`, λ `lam`,
K `max_reuse`, r `num_features`, γ = E[δ] `gamma`, ζ² = E[e²] `zeta2`. Where a proof does not yield
the printed statement, a keyword chooses between the printed and the corrected one.
`jboost.report` compares a whole run with all of it.
"""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jboost.core import checks
from jboost.paper.arguments import Floats, arrays_of, floats, positive, require, weights

Flags = NDArray[np.bool_]
Mode = Literal["WU", "DR", "RU"]
Method = Literal["SGD", "NM"]
Conditions = Literal["corrected", "printed", "converged"]


def modified_target(desired_mse: float, kappa: float) -> float:
    """Return σ_m² = (σ_d² − κ)/(1 − κ), for 0 < κ < σ_d² ≤ 1 (Appendix A, Lemma 1's proof).

    >>> modified_target(0.28, 0.1)
    0.2
    """
    sd2 = positive("desired_mse", desired_mse, at_most=1)
    k = positive("kappa", kappa, below=sd2)
    return (sd2 - k) / (1 - k)


def desired_mse(target_mse: float, kappa: float) -> float:
    """Return σ_d² = κ + (1 − κ)σ_m², the inverse of `modified_target`: 0 < κ < 1, 0 < σ_m² ≤ 1.

    >>> desired_mse(0.2, 0.1)
    0.28
    """
    sm2, k = positive("target_mse", target_mse, at_most=1), positive("kappa", kappa, below=1)
    return k + (1 - k) * sm2


def lemma1_learners(lam: ArrayLike, kappa: float) -> int | None:
    """Return Lemma 1's M: Σ_t λ^(k) ≥ κT for all k ≤ M, Σ_t λ^(M+1) < κT; None if there is none.

    `lam` is (T, m) in [0, 1], λ^(1) = 1, and 0 < κ < 1. With one more column, λ^(m+1), M can be m.

    >>> lemma1_learners([[1.0, 0.5, 0.1], [1.0, 0.5, 0.2]], kappa=0.2)
    2
    """
    w = weights(lam)
    require("lam", f"{w[:, 0].min():.4g}", w[:, 0] == 1, "1 for the first learner")
    short = np.flatnonzero(w.mean(axis=0) < positive("kappa", kappa, below=1))
    return int(short[0]) if short.size else None


class Lemma1(NamedTuple):
    """Lemma 1 on one run; e is the error of the mean of the first M learners."""

    learners: int | None  # M; if it is None, all that depends on it is nan
    weight: float  # Σ_t λ^(M+1) / T, below κ
    share: float  # |{t: e² > σ_m²}| / T, at most |{t: λ^(M+1) = 1}| / T (printed as equal)
    largest_error: float  # max |e|; the proof replaces e² by 1
    mse: float  # Σ_t e² / T
    desired_mse: float  # σ_d²
    proven_mse: float  # (1 − p)σ_m² + p max(e², σ_m²), p = `weight`: holds for any |e|
    reason: str  # why the lemma does not apply; empty if it does


def lemma1(lam: ArrayLike, y: ArrayLike, d: ArrayLike, kappa: float, target_mse: float) -> Lemma1:
    """Evaluate Lemma 1 (Appendix A): Σ_t e²/T ≤ σ_d² = κ + (1 − κ)σ_m², e = d − Σ_{k≤M} y^(k)/M.

    Where e² > σ_m², Cauchy–Schwarz makes l^(M+1) < 0 and so λ^(M+1) = 1, for any λ = min{1, b^l}
    with b ≤ 1. Conditions: M exists, |e| ≤ 1, 0 < κ < 1, 0 < σ_m² ≤ 1. `y` is (T, m), `d` (T,).

    >>> run = lemma1([[1, 0.1], [1, 0.1]], [[0.5], [0.8]], [0.6, 0.6], kappa=0.2, target_mse=0.1)
    >>> run.learners, round(run.mse, 3), round(run.desired_mse, 3), run.reason
    (1, 0.025, 0.28, '')
    """
    w, ys, ds = arrays_of(lam=(lam, 2), y=(y, 2), d=(d, 1))
    require("lam", w.shape, w.shape[1] <= ys.shape[1] + 1, f"at most y{ys.shape} and a column")
    sd2, M, sm2 = desired_mse(target_mse, kappa), lemma1_learners(w, kappa), float(target_mse)
    if M is None:
        reason = f"no M: least mean weight {w.mean(axis=0).min():.4g}, not below {kappa:.4g}"
        return Lemma1(None, math.nan, math.nan, math.nan, math.nan, sd2, math.nan, reason)
    e2 = (ds - ys[:, :M].mean(axis=1)) ** 2
    p, worst = float(w[:, M].mean()), float(e2.max())
    reason = f"max |e| is {worst**0.5:.4g}, the proof needs at most 1" if worst > 1 else ""
    share, proven = float(np.mean(e2 > sm2)), (1 - p) * sm2 + p * max(worst, sm2)
    return Lemma1(M, p, share, worst**0.5, float(e2.mean()), sd2, proven, reason)


def learners_bound(
    guarantee: float, kappa: float, target_mse: float, *,
    corrected: bool = False, dependence: float = 0.5,
) -> float:  # fmt: skip
    """Return Lemma 2's bound (Appendix B), as printed: M ≤ 1 / (κ σ ln(1/σ) (1 − 4σ² + σ⁴σ_m²)).

    For 0 < σ² ≤ 1/4, 0 < κ < 1, 0 < σ_m² ≤ 1. The proof's 1/(σ ln(1/σ)) lacks a factor T that this
    result has; its inequality is false even so: learners with constant e² ≥ σ_m² have no M.
    Corrected, for all |e^(k)| ≤ 1: M ≤ 1/(κ(1 − ρ)), ρ = b^{σ_m²}(1 + 4σ²(1/b − 1)), b = σ^{2c}
    (Algorithm 1: c = 1/2), nan if ρ ≥ 1. tests/paper/test_theory.py has the proof.

    >>> [round(learners_bound(0.01, 0.1, 0.2, corrected=c), 2) for c in (False, True)]
    [45.24, 70.47]
    """
    s2, k = positive("guarantee", guarantee, at_most=0.25), positive("kappa", kappa, below=1)
    sm2 = positive("target_mse", target_mse, at_most=1)
    b = s2 ** positive("dependence", dependence)
    if checks.flag("corrected", corrected):
        rho = b**sm2 * (1 + 4 * s2 * (1 / b - 1))
        return 1 / (k * (1 - rho)) if rho < 1 else math.nan
    s = math.sqrt(s2)
    return 1 / (k * s * math.log(1 / s) * (1 - 4 * s2 + s2 * s2 * sm2))


def theorem1_learners(
    guarantee: float, kappa: float, desired_mse: float, *, corrected: bool = False
) -> float:
    """Return Theorem 1's number of learners (Section 4) with which Algorithm 1 reaches σ_d².

    It is ⌊bound on M⌋ + 1, by `learners_bound` at σ_m² = (σ_d² − κ)/(1 − κ), and nan if that is;
    the last learner is M + 1, whose weight shows M. For 0 < σ² < 1/4, 0 < κ < σ_d² ≤ 1; corrected,
    also for |e^(k)| ≤ 1.

    >>> [theorem1_learners(0.01, 0.1, 0.28, corrected=c) for c in (False, True)]
    [46.0, 71.0]
    """
    s2, sm2 = positive("guarantee", guarantee, below=0.25), modified_target(desired_mse, kappa)
    return float(np.floor(learners_bound(s2, kappa, sm2, corrected=corrected))) + 1


def weight_conditions(
    k: ArrayLike, delta: ArrayLike, zeta2: ArrayLike, target_mse: ArrayLike, *,
    dependence: float = 1.0, corrected: bool = True,
) -> tuple[Flags, Flags, Flags]:  # fmt: skip
    """Return whether Theorem 2's conditions hold: α > 0, the first, and the second (Section 7).

    They let φ(δ) = A^{(1−k)/2}, A = δ^{−2a}α, be concave at δ, with a = cσ_m², z = cζ²,
    α = 1 + 2z ln δ. φ'' < 0 is A·A'' > (k+1)/2 A'² (printed: A²A''), that is, with x = 2a − 2z/α,
    (1 + 4a)² > 8(k + 1)a² and |(k + 1)x − 1 − 4a| < √((1 + 4a)² − 8(k + 1)a²). Printed instead:
    δ^{2a}/α² < (1 + 2a)²/(4(k + 1)) and (1 − ξ₁)a < z(1 − 2a ln δ) < (1 − ξ₂)a.
    The corrected conditions hold on an interval of δ: if they hold at a run's least and largest δ,
    they hold between. Arguments broadcast: k ≥ 1 whole, 0 < δ ≤ 1, ζ² ≥ 0, σ_m² > 0; c > 0.

    >>> [bool(b) for b in weight_conditions(20, 0.003, 0.0117, 0.02)]
    [True, True, True]
    >>> [bool(b) for b in weight_conditions(20, 0.003, 0.0117, 0.02, corrected=False)]
    [True, False, False]
    """
    n, u, z, a, alpha = _letters(k, delta, zeta2, target_mse, dependence)
    with np.errstate(all="ignore"):  # the root of a negative is nan, and makes `second` false
        if checks.flag("corrected", corrected):
            root2, x = (1 + 4 * a) ** 2 - 8 * (n + 1) * a**2, 2 * a - 2 * z / alpha
            second = np.abs((n + 1) * x - 1 - 4 * a) < np.sqrt(root2)
        else:
            q, p = alpha * (1 + 2 * a), (n + 1) * np.exp(2 * a * u)
            root2, middle = q**2 - 4 * p, z * (1 - 2 * a * u)
            xi1, xi2 = (alpha * (q + sign * np.sqrt(root2)) / (2 * p) for sign in (1, -1))
            second = ((1 - xi1) * a < middle) & (middle < (1 - xi2) * a)
    return alpha > 0, root2 > 0, second


def weight_bound(
    k: ArrayLike, gamma: ArrayLike, zeta2: ArrayLike, target_mse: ArrayLike, *,
    dependence: float = 1.0, conditions: Conditions = "corrected",
) -> float | Floats:  # fmt: skip
    """Return Theorem 2's bound: E[λ^(k)] ≤ (γ^{−2cσ_m²}(1 + 2cζ² ln γ))^{(1−k)/2} (eq. `bound`).

    It is nan where the conditions fail, and 1 for k = 1, as λ^(1) = 1. Errors are to be i.i.d.
    N(0, ζ²) over learners and time. δ is a mean square over 4, so γ → ζ²/4, not ζ². `conditions`
    are `weight_conditions` at γ, "corrected" or "printed"; "converged" is for a δ without spread,
    which only needs 1 + 2cζ² ln γ > 0 (and a bound of 1 or more says nothing).
    Ranges as there; a float if all arguments are scalars, else an array.

    >>> round(weight_bound(20, 0.003, 0.0117, 0.02), 3), weight_bound(2, 0.05, 0.2, 0.25)
    (0.441, nan)
    """
    n, u, _, a, alpha = _letters(k, gamma, zeta2, target_mse, dependence)
    checks.choice("conditions", conditions, get_args(Conditions))
    defined, first, second = weight_conditions(
        k, gamma, zeta2, target_mse, dependence=dependence, corrected=conditions == "corrected"
    )
    with np.errstate(all="ignore"):
        phi = np.exp((1 - n) / 2 * (np.log(alpha) - 2 * a * u))
    met = defined & (first & second | (conditions == "converged"))
    bound = np.where(n == 1, 1.0, np.where(met, phi, np.nan))
    return bound if bound.ndim else float(bound)


def weight_bound_reason(
    k: int, gamma: float, zeta2: float, target_mse: float, *,
    dependence: float = 1.0, conditions: Conditions = "corrected",
) -> str:  # fmt: skip
    """Say why `weight_bound` is nan for these scalars; empty if it is not.

    >>> weight_bound_reason(2, 0.05, 0.2, 0.25)
    '1 + 2cζ² ln γ = -0.1983 is not positive'
    """
    args, c = (k, gamma, zeta2, target_mse), dependence
    if not np.isnan(weight_bound(*args, dependence=c, conditions=conditions)):
        return ""
    alpha = float(_letters(*args, c)[-1])
    if alpha <= 0:
        return f"1 + 2cζ² ln γ = {alpha:.4g} is not positive"
    _, first, _ = weight_conditions(*args, dependence=c, corrected=conditions == "corrected")
    return f"the {conditions} {'second' if first else 'first'} condition fails at γ = {gamma:.4g}"


def updates(lam: ArrayLike, mode: Mode, max_reuse: int = 5, *, corrected: bool = False) -> Floats:
    """Return the expected updates (T, m) that weights λ (T, m) in [0, 1] lead to (Section 7).

    WU makes 1 and RU λ of them. DR makes Kλ as printed; corrected, ceil(Kλ), as they are whole.

    >>> updates([[1.0, 0.1]], "DR", corrected=True).tolist()
    [[5.0, 1.0]]
    """
    w, K = weights(lam), checks.whole("max_reuse", max_reuse, at_least=1)
    checks.choice("mode", mode, get_args(Mode))
    corrected = checks.flag("corrected", corrected)
    return {"WU": np.ones_like(w), "RU": w, "DR": np.ceil(K * w) if corrected else K * w}[mode]


def expected_cost(
    lam: ArrayLike, num_features: int, *, mode: Mode, method: Method,
    max_reuse: int = 5, corrected: bool = False,
) -> float:  # fmt: skip
    """Return E[C_t] (Section 7): `updates` a step, times r (SGD) or r² (NM) operations an update.

    Corrected, m·r operations more compute the estimates. At r = 1 the printed cost is the updates.

    >>> lam = [[1.0, 0.1], [1.0, 0.3]]
    >>> [expected_cost(lam, 1, mode="DR", method="SGD", corrected=c) for c in (False, True)]
    [6.0, 8.5]
    """
    r = checks.whole("num_features", num_features, at_least=1)
    each = {"SGD": r, "NM": r * r}[checks.choice("method", method, get_args(Method))]
    n = updates(lam, mode, max_reuse, corrected=corrected)
    return float(n.sum(axis=1).mean()) * each + corrected * n.shape[1] * r


def regret(
    prediction: ArrayLike, xs: ArrayLike, ds: ArrayLike, times: ArrayLike | None = None
) -> Floats:
    """Return R_T = Σ_{t≤T} (d − d̂)² − min_w Σ_{t≤T} (d − xᵀw)² at each T, or at `times` alone.

    `times` are whole and rising in 1..len(ds). That NM has R_T ≤ O(ln T) (eq. `rls_bound`) needs
    bounded errors: for P₀ = I/v, x = √(v/T), d = 1 for T steps, then x = 1, d = −1, make R exceed
    T/(4v(1 + 2v)).

    >>> regret([0.0, 1.0, 1.0], [[1.0], [1.0], [1.0]], [1.0, 2.0, 0.0]).round(9).tolist()
    [1.0, 1.5, 1.0]
    """
    p, x, d = arrays_of(prediction=(prediction, 1), xs=(xs, 2), ds=(ds, 1))
    ends = floats("times", np.arange(1, len(d) + 1) if times is None else times)
    rising = ends.ndim == 1 and np.diff(ends, prepend=0) > 0
    whole = (ends == np.floor(ends)) & (ends <= len(d))
    require("times", times, rising & whole, f"whole numbers rising within 1..{len(d)}")
    ends, least, R = ends.astype(int), np.empty(len(ends)), np.empty((0, x.shape[1] + 1))
    for i, rows in enumerate(np.split(np.column_stack([x, d]), ends)[:-1]):
        R = np.asarray(np.linalg.qr(np.vstack([R, rows]), mode="r"))  # all that the past leaves
        w = np.linalg.lstsq(R[:, :-1], R[:, -1], rcond=None)[0]
        least[i] = np.sum((R[:, -1] - R[:, :-1] @ w) ** 2)
    return np.cumsum((d - p) ** 2)[ends - 1] - least


def regret_slope(regret: ArrayLike, times: ArrayLike | None = None) -> float:
    """Return b of the line R_T = a + b ln T fitted by least squares at `times` (None: 1, 2, …).

    >>> round(regret_slope([1.0, 3.0, 5.0], times=[10, 100, 1000]) * math.log(10), 9)
    2.0
    """
    every = np.arange(1, floats("regret", regret).size + 1)
    R, t = arrays_of(regret=(regret, 1), times=(every if times is None else times, 1))
    require("times", times, (t > 0) & (np.ptp(t) > 0), "above 0, and two or more")
    return float(np.polynomial.polynomial.polyfit(np.log(t), R, 1)[1])


def _letters(
    k: ArrayLike, delta: ArrayLike, zeta2: ArrayLike, target_mse: ArrayLike, dependence: float
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return Theorem 2's k, ln δ, z = cζ², a = cσ_m² and α = 1 + 2z ln δ."""
    named = {"k": k, "gamma (or delta)": delta, "zeta2": zeta2, "target_mse": target_mse}
    n, g, z, a = np.broadcast_arrays(*(floats(name, value) for name, value in named.items()))
    require("k", k, (n >= 1) & (n == np.floor(n)) & np.isfinite(n), "whole and at least 1")
    require("gamma (or delta)", delta, (g > 0) & (g <= 1), "in (0, 1]")
    require("zeta2", zeta2, (z >= 0) & np.isfinite(z), "finite and at least 0")
    require("target_mse", target_mse, (a > 0) & np.isfinite(a), "finite and above 0")
    u, c = np.log(g), positive("dependence", dependence)
    return n, u, c * z, c * a, 1 + 2 * c * z * u
