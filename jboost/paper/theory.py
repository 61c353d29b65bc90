"""The paper's theory, as functions of plain numbers and of arrays recorded from a run.

Letters: σ² `guarantee`, σ_m² `target_mse`, σ_d² `desired_mse`, κ `kappa`, c `dependence`, λ `lam`,
K `max_reuse`, r `num_features`, γ = E[δ] `gamma`, ζ² = E[e²] `zeta2`. Where a proof does not give
what is printed, the printed and the corrected statement stand side by side, chosen by keyword.
`jboost.report` holds a whole run against all of it.
"""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Letters = tuple[Array, Array, Array, Array, Array]
Mode = Literal["WU", "DR", "RU"]
Method = Literal["SGD", "NM"]
Conditions = Literal["corrected", "printed", "converged"]


def modified_target(desired_mse: float, kappa: float) -> float:
    """σ_m² = (σ_d² − κ)/(1 − κ), for 0 < κ < σ_d² ≤ 1 (Appendix A, Lemma 1's proof).

    >>> modified_target(0.28, 0.1)
    0.2
    """
    sd2 = _number("desired_mse", desired_mse, 1, closed=True)
    k = _number("kappa", kappa, sd2)
    return (sd2 - k) / (1 - k)


def desired_mse(target_mse: float, kappa: float) -> float:
    """σ_d² = κ + (1 − κ)σ_m², the inverse of `modified_target`, for 0 < κ < 1, 0 < σ_m² ≤ 1.

    >>> desired_mse(0.2, 0.1)
    0.28
    """
    sm2, k = _number("target_mse", target_mse, 1, closed=True), _number("kappa", kappa, 1)
    return k + (1 - k) * sm2


def lemma1_learners(lam: ArrayLike, kappa: float) -> int | None:
    """Lemma 1's M: Σ_t λ^(k) ≥ κT for all k ≤ M, Σ_t λ^(M+1) < κT; None where there is none.

    `lam` is (T, m) in [0, 1], λ^(1) = 1, and 0 < κ < 1. One column more, λ^(m+1), lets M be m.

    >>> lemma1_learners([[1.0, 0.5, 0.1], [1.0, 0.5, 0.2]], kappa=0.2)
    2
    """
    w = _weights(lam)
    _require("lam", f"{w[:, 0].min():.4g}", w[:, 0] == 1, "1 for the first learner")
    short = np.flatnonzero(w.mean(axis=0) < _number("kappa", kappa, 1))
    return int(short[0]) if short.size else None


class Lemma1(NamedTuple):
    """Lemma 1 on one run; e is the error of the mean of the first M learners."""

    learners: int | None  # M; where it is None, what depends on it is nan
    weight: float  # Σ_t λ^(M+1) / T, below κ
    share: float  # |{t: e² > σ_m²}| / T, at most |{t: λ^(M+1) = 1}| / T (printed as equal)
    largest_error: float  # max |e|; the proof replaces e² by 1
    mse: float  # Σ_t e² / T
    desired_mse: float  # σ_d²
    proven_mse: float  # (1 − p)σ_m² + p max(e², σ_m²), p = `weight`: holds for any |e|
    reason: str  # why the lemma does not apply; empty where it does


def lemma1(lam: ArrayLike, y: ArrayLike, d: ArrayLike, kappa: float, target_mse: float) -> Lemma1:
    """Lemma 1 (Appendix A): Σ_t e²/T ≤ σ_d² = κ + (1 − κ)σ_m², where e = d − Σ_{k≤M} y^(k)/M.

    Where e² > σ_m², Cauchy–Schwarz makes l^(M+1) < 0 and so λ^(M+1) = 1, for any λ = min{1, b^l}
    with b ≤ 1. Conditions: M exists, |e| ≤ 1, 0 < κ < 1, 0 < σ_m² ≤ 1. `y` is (T, m), `d` (T,).

    >>> run = lemma1([[1, 0.1], [1, 0.1]], [[0.5], [0.8]], [0.6, 0.6], kappa=0.2, target_mse=0.1)
    >>> run.learners, round(run.mse, 3), round(run.desired_mse, 3), run.reason
    (1, 0.025, 0.28, '')
    """
    w, ys, ds = _arrays(lam=(lam, 2), y=(y, 2), d=(d, 1))
    _require("lam", w.shape, w.shape[1] <= ys.shape[1] + 1, f"at most y{ys.shape} and a column")
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
    """Lemma 2 (Appendix B), as printed: M ≤ 1 / (κ σ ln(1/σ) (1 − 4σ² + σ⁴σ_m²)).

    For 0 < σ² ≤ 1/4, 0 < κ < 1, 0 < σ_m² ≤ 1. The proof's 1/(σ ln(1/σ)) lacks a factor T that this
    result has; its inequality is false even so: learners with constant e² ≥ σ_m² have no M.
    Corrected, for all |e^(k)| ≤ 1: M ≤ 1/(κ(1 − ρ)), ρ = b^{σ_m²}(1 + 4σ²(1/b − 1)), b = σ^{2c}
    (Algorithm 1: c = 1/2), nan where ρ ≥ 1, for σ_m² ≤ ln(1 + 4σ²(1/b − 1))/ln(1/b), itself ≥ 4σ².
    Proof: let G(l) be 1 − b^l for l ≥ 0, l ln(1/b) below. λ(1 − b^{σ_m² − e²}) is at most
    G(l^(k+1)) − G(l^(k)), and G ≤ 1, so its sum over t and k ≤ M is at most T; with
    b^{−e²} ≤ 1 + e²(1/b − 1) and the guarantee it is at least κTM(1 − ρ).

    >>> [round(learners_bound(0.01, 0.1, 0.2, corrected=c), 2) for c in (False, True)]
    [45.24, 70.47]
    """
    s2, k = _number("guarantee", guarantee, 0.25, closed=True), _number("kappa", kappa, 1)
    sm2 = _number("target_mse", target_mse, 1, closed=True)
    b = s2 ** _number("dependence", dependence, math.inf)
    if corrected:
        rho = b**sm2 * (1 + 4 * s2 * (1 / b - 1))
        return 1 / (k * (1 - rho)) if rho < 1 else math.nan
    s = math.sqrt(s2)
    return 1 / (k * s * math.log(1 / s) * (1 - 4 * s2 + s2 * s2 * sm2))


def theorem1_learners(
    guarantee: float, kappa: float, desired_mse: float, *, corrected: bool = False
) -> float:
    """Theorem 1 (Section 4): ⌊bound on M⌋ + 1 learners are enough for Algorithm 1 to reach σ_d².

    The bound is `learners_bound` at σ_m² = (σ_d² − κ)/(1 − κ), nan where it is; the last learner
    is M + 1, whose weight shows M. For 0 < σ² < 1/4, 0 < κ < σ_d² ≤ 1; corrected, |e^(k)| ≤ 1.

    >>> [theorem1_learners(0.01, 0.1, 0.28, corrected=c) for c in (False, True)]
    [46.0, 71.0]
    """
    s2, sm2 = _number("guarantee", guarantee, 0.25), modified_target(desired_mse, kappa)
    return float(np.floor(learners_bound(s2, kappa, sm2, corrected=corrected))) + 1


def weight_conditions(
    k: ArrayLike, delta: ArrayLike, zeta2: ArrayLike, target_mse: ArrayLike, *,
    dependence: float = 1.0, corrected: bool = True,
) -> tuple[Flags, Flags, Flags]:  # fmt: skip
    """Theorem 2's conditions, for φ(δ) = A^{(1−k)/2}, A = δ^{−2a}α to be concave at δ (Section 7).

    Here a = cσ_m², z = cζ², α = 1 + 2z ln δ. Returned: α > 0, and the first and second condition.
    φ'' < 0 is A·A'' > (k+1)/2 A'² (printed: A²A''), that is, with x = 2a − 2z/α,
    (1 + 4a)² > 8(k + 1)a² and |(k + 1)x − 1 − 4a| < √((1 + 4a)² − 8(k + 1)a²). Printed instead:
    δ^{2a}/α² < (1 + 2a)²/(4(k + 1)) and (1 − ξ₁)a < z(1 − 2a ln δ) < (1 − ξ₂)a.
    The corrected ones hold on an interval of δ: where they do at a run's least and largest δ, they
    do between. Arguments broadcast: k ≥ 1 whole, 0 < δ ≤ 1, ζ² ≥ 0, σ_m² > 0; c > 0.

    >>> [bool(b) for b in weight_conditions(20, 0.003, 0.0117, 0.02)]
    [True, True, True]
    >>> [bool(b) for b in weight_conditions(20, 0.003, 0.0117, 0.02, corrected=False)]
    [True, False, False]
    """
    n, u, z, a, alpha = _letters(k, delta, zeta2, target_mse, dependence)
    with np.errstate(all="ignore"):  # the root of a negative is nan, and makes `second` false
        if corrected:
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
) -> float | Array:  # fmt: skip
    """Theorem 2 (eq. `bound`): E[λ^(k)] ≤ (γ^{−2cσ_m²}(1 + 2cζ² ln γ))^{(1−k)/2}, nan outside it.

    For errors i.i.d. N(0, ζ²) over learners and time. δ is a mean square over 4, so γ → ζ²/4, not
    ζ². `conditions` are `weight_conditions` at γ, "corrected" or "printed"; "converged" is for a δ
    without spread, which needs 1 + 2cζ² ln γ > 0 alone (and a bound of 1 or more says nothing).
    λ^(1) = 1 always. Ranges as there; a float where all arguments are scalars, else an array.

    >>> round(weight_bound(20, 0.003, 0.0117, 0.02), 3), weight_bound(2, 0.05, 0.2, 0.25)
    (0.441, nan)
    """
    n, u, _, a, alpha = _letters(k, gamma, zeta2, target_mse, dependence)
    options, corrected = get_args(Conditions), conditions == "corrected"
    _require("conditions", conditions, conditions in options, f"one of {options}")
    defined, first, second = weight_conditions(
        k, gamma, zeta2, target_mse, dependence=dependence, corrected=corrected
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
    """Why `weight_bound` is nan for these scalars; empty where it is not.

    >>> weight_bound_reason(2, 0.05, 0.2, 0.25)
    '1 + 2cζ² ln γ = -0.1983 is not positive'
    """
    args = (k, gamma, zeta2, target_mse)
    if not np.isnan(weight_bound(*args, dependence=dependence, conditions=conditions)):
        return ""
    alpha = float(_letters(*args, dependence)[-1])
    if alpha <= 0:
        return f"1 + 2cζ² ln γ = {alpha:.4g} is not positive"
    corrected = conditions == "corrected"
    _, first, _ = weight_conditions(*args, dependence=dependence, corrected=corrected)
    return f"the {conditions} {'second' if first else 'first'} condition fails at γ = {gamma:.4g}"


def expected_cost(
    lam: ArrayLike, num_features: int, *, mode: Mode, method: Method,
    max_reuse: int = 5, corrected: bool = False,
) -> float:  # fmt: skip
    """E[C_t] (Section 7): mean updates a step, times r (SGD) or r² (NM) operations an update.

    Updates a step: WU m, RU Σ_k E[λ^(k)], DR, as printed, K·Σ_k E[λ^(k)]; corrected, DR makes
    Σ_k E[ceil(Kλ^(k))], at least m while λ > 0, and each mode spends m·r more on its estimates.
    `lam` is (T, m) in [0, 1], r and K whole, at least 1. At r = 1 the printed cost is the updates.

    >>> lam = [[1.0, 0.1], [1.0, 0.3]]
    >>> [expected_cost(lam, 1, mode="DR", method="SGD", corrected=c) for c in (False, True)]
    [6.0, 8.5]
    """
    w, r, K = _weights(lam), num_features, max_reuse
    _require("num_features", r, r >= 1 and r % 1 == 0, "whole and at least 1")
    _require("max_reuse", K, K >= 1 and K % 1 == 0, "whole and at least 1")
    _require("mode", mode, mode in get_args(Mode), f"one of {get_args(Mode)}")
    _require("method", method, method in get_args(Method), f"one of {get_args(Method)}")
    n = {"WU": np.ones_like(w), "RU": w, "DR": np.ceil(K * w) if corrected else K * w}[mode]
    each = r if method == "SGD" else r * r
    return float(n.sum(axis=1).mean()) * each + corrected * w.shape[1] * r


def regret(
    prediction: ArrayLike, xs: ArrayLike, ds: ArrayLike, times: ArrayLike | None = None
) -> Array:
    """R_T = Σ_{t≤T} (d − d̂)² − min_w Σ_{t≤T} (d − xᵀw)², at each T or at `times` (eq. `rls_bound`).

    `times` are whole and rising in 1..len(ds). That NM has R_T ≤ O(ln T) needs bounded errors: for
    P₀ = I/v, x = √(v/T), d = 1 for T steps, then x = 1, d = −1, make R exceed T/(4v(1 + 2v)).

    >>> regret([0.0, 1.0, 1.0], [[1.0], [1.0], [1.0]], [1.0, 2.0, 0.0]).round(9).tolist()
    [1.0, 1.5, 1.0]
    """
    p, x, d = _arrays(prediction=(prediction, 1), xs=(xs, 2), ds=(ds, 1))
    ends = np.asarray(np.arange(1, len(d) + 1) if times is None else times, np.float64)
    rising = ends.ndim == 1 and np.diff(ends, prepend=0) > 0
    whole = (ends == np.floor(ends)) & (ends <= len(d))
    _require("times", times, rising & whole, f"whole numbers rising within 1..{len(d)}")
    ends, least, R = ends.astype(int), np.empty(len(ends)), np.empty((0, x.shape[1] + 1))
    for i, rows in enumerate(np.split(np.column_stack([x, d]), ends)[:-1]):
        R = np.asarray(np.linalg.qr(np.vstack([R, rows]), mode="r"))  # all that the past leaves
        w = np.linalg.lstsq(R[:, :-1], R[:, -1], rcond=None)[0]
        least[i] = np.sum((R[:, -1] - R[:, :-1] @ w) ** 2)
    return np.cumsum((d - p) ** 2)[ends - 1] - least


def regret_slope(regret: ArrayLike, times: ArrayLike | None = None) -> float:
    """b of the line R_T = a + b ln T fitted by least squares at `times` (None: 1, 2, …).

    >>> round(regret_slope([1.0, 3.0, 5.0], times=[10, 100, 1000]) * math.log(10), 9)
    2.0
    """
    every = np.arange(1, np.size(regret) + 1)
    R, t = _arrays(regret=(regret, 1), times=(every if times is None else times, 1))
    _require("times", times, (t > 0) & (np.ptp(t) > 0), "above 0, and two or more")
    return float(np.polynomial.polynomial.polyfit(np.log(t), R, 1)[1])


def _letters(k: ArrayLike, d: ArrayLike, z2: ArrayLike, sm2: ArrayLike, c: float) -> Letters:
    """Theorem 2's k, ln δ, z = cζ², a = cσ_m² and α = 1 + 2z ln δ."""
    n, g, z, a = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (k, d, z2, sm2)))
    _require("k", k, (n >= 1) & (n == np.floor(n)) & np.isfinite(n), "whole and at least 1")
    _require("gamma (or delta)", d, (g > 0) & (g <= 1), "in (0, 1]")
    _require("zeta2", z2, (z >= 0) & np.isfinite(z), "finite and at least 0")
    _require("target_mse", sm2, (a > 0) & np.isfinite(a), "finite and above 0")
    u, c = np.log(g), _number("dependence", c, math.inf)
    return n, u, c * z, c * a, 1 + 2 * c * z * u


def _require(name: str, came: object, met: ArrayLike, wanted: str) -> None:
    if not np.all(met):
        raise ValueError(f"{name} must be {wanted}, got {came}")


def _number(name: str, value: float, high: float, *, closed: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    met = 0 < number < high or (closed and number == high)
    _require(name, value, met, f"a number in (0, {high:g}{']' if closed else ')'}")
    return number


def _arrays(**named: tuple[ArrayLike, int]) -> list[Array]:
    arrays = [np.asarray(value, np.float64) for value, _ in named.values()]
    for array, (name, (_, ndim)) in zip(arrays, named.items(), strict=True):
        whole = array.ndim == ndim and array.size > 0 and len(array) == len(arrays[0])
        came = f"shape {array.shape}{'' if np.isfinite(array).all() else ', not finite'}"
        wanted = f"finite, of {ndim} axes and as long as {next(iter(named))}"
        _require(name, came, whole and np.isfinite(array), wanted)
    return arrays


def _weights(lam: ArrayLike) -> Array:
    (w,) = _arrays(lam=(lam, 2))
    _require("lam", f"{w.min():.4g} to {w.max():.4g}", (w >= 0) & (w <= 1), "in [0, 1]")
    return w
