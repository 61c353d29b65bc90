"""The paper's pseudo-code, typed out in float64 NumPy: what the library is tested against.

Plain loops over t and over k, in the order of Algorithms 1 and 2 of "A Novel Family of Boosted
Online Regression Algorithms with Strong Theoretical Bounds". Nothing is vectorised over learners,
collapsed or guarded beyond the conventions below, and nothing of jboost is imported.

    w, P      coefficients and inverse Hessian of a learner, w_1 = 0, P_0 = I/v
    y, e, l   estimates, a-priori errors d - y, total loss
    lam       importance weights; delta, Lam: weighted MSE over 4 and the sum of the weights
    z         combination weights, z_1 = 1/m
    mu, beta, v, K, c   step size, forgetting, ridge, data-reuse factor, dependence

Where the paper is silent: 0**0 = 1, 0**(+) = 0, 0**(-) is infinite and so gives a weight of 1;
delta stays while lam and Lam are both 0; z stays when ||y||^2 + eps = 0.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Hyper = npt.ArrayLike | None
Learner = Literal["sgd", "nm"]
Combiner = tuple[str, *tuple[float, ...]]


class Boosted(NamedTuple):
    """A boosted run; row t holds what belongs to sample t."""

    prediction: Array  # (T,)
    y: Array  # (T, m)
    lam: Array  # (T, m)
    delta: Array  # (T, m), after sample t
    Lam: Array  # (T, m), after sample t
    z: Array  # (T, m), as used for prediction t
    updates: npt.NDArray[np.int64]  # (T, m), how often learner k was updated on sample t
    w: Array  # (m, r), after the last sample


class Single(NamedTuple):
    """A run of one learner."""

    prediction: Array  # (T,)
    w: Array  # (r,), after the last sample


def sgd_update(w: Array, x: Array, d: float, mu: float, lam: float) -> Array:
    """One weighted SGD step, eq. (blms): (I - mu lam x x') w + mu lam x d."""
    return w - mu * lam * x * (x @ w) + mu * lam * x * d


def nm_update(
    w: Array, P: Array, x: Array, d: float, beta: float, lam: float
) -> tuple[Array, Array]:
    """One weighted Newton step, eq. (w_rls)."""
    e = d - x @ w
    Px = P @ x
    s = lam / (beta + lam * (x @ Px))  # g = s P x
    # The outer product first, so that P stays exactly symmetric: 1/beta multiplies an asymmetry.
    return w + e * (s * Px), (P - s * np.outer(Px, Px)) / beta


def importance(base: float, exponent: float) -> float:
    """min{1, base**exponent}, with IEEE powers of zero."""
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        return min(1.0, float(np.power(np.float64(base), exponent)))


def per_learner(value: Hyper, m: int) -> Array:
    """A scalar or (m,) as (m,); one left out is NaN, so no learner can use it unnoticed."""
    return np.full(m, np.nan if value is None else value, dtype=np.float64)


def boosted(
    xs: Array,
    ds: Array,
    *,
    learner: Learner,
    m: int,
    target_mse: float,
    dependence: float = 1.0,
    guarantee: float | None = None,
    mode: Literal["wu", "dr", "ru"] = "wu",
    max_reuse: int = 5,
    step_size: Hyper = None,
    forgetting: Hyper = None,
    ridge: Hyper = None,
    combiner: Combiner = ("nsgd", 0.01, 0.0),
    decisions: npt.ArrayLike | None = None,
) -> Boosted:
    """Algorithm 2, or Algorithm 1 when `guarantee` (sigma^2) is given.

    The combiner is ("nsgd", step, eps), ("uniform",) or ("newton", forgetting, ridge). `decisions`
    (T, m) are the draws of the random updates; counts above 1 are Poisson reuse. `step_size` is the
    one the learners use: whoever wants mu/K under data reuse divides.
    """
    xs, ds = np.asarray(xs, np.float64), np.asarray(ds, np.float64)
    (T, r), c, sigma_m2 = xs.shape, dependence, target_mse
    mu, beta, v = (per_learner(a, m) for a in (step_size, forgetting, ridge))
    if learner not in ("sgd", "nm") or mode not in ("wu", "dr", "ru"):
        raise ValueError(f"unknown learner or mode: {learner!r}, {mode!r}")
    draws = np.asarray(decisions)
    if mode == "ru" and draws.shape != (T, m):
        raise ValueError("mode 'ru' needs decisions of shape (T, m)")

    w = np.zeros((m, r))
    P = [np.eye(r) / v[k] for k in range(m)]
    delta, Lam = np.zeros(m), np.zeros(m)
    z, P_z = combiner_init(m, combiner)
    out = Boosted(np.zeros(T), *np.zeros((5, T, m)), np.zeros((T, m), np.int64), w)

    for t in range(T):
        x, d = xs[t], float(ds[t])
        y = np.array([x @ w[k] for k in range(m)])  # every estimate before any update
        out.prediction[t], out.y[t], out.z[t] = z @ y, y, z

        l_k = 0.0
        for k in range(m):
            if guarantee is None:
                lam = importance(delta[k], c * l_k)  # eq. (weights)
            else:
                lam = importance(guarantee, l_k / 2)  # eq. (weights_original)

            weight, n = lam, 1
            if mode == "dr":
                weight, n = 1.0, math.ceil(max_reuse * lam)
            elif mode == "ru":
                weight, n = 1.0, int(draws[t, k])
            for _ in range(n):
                if learner == "sgd":
                    w[k] = sgd_update(w[k], x, d, mu[k], weight)
                else:
                    w[k], P[k] = nm_update(w[k], P[k], x, d, beta[k], weight)

            e = d - y[k]
            if Lam[k] + lam > 0:  # eq. (delta), the estimate thresholded into [-1, 1]
                e_plus = d - min(1.0, max(-1.0, y[k]))
                delta[k] = (Lam[k] * delta[k] + lam / 4 * e_plus**2) / (Lam[k] + lam)
            Lam[k] += lam
            l_k += sigma_m2 - e**2  # eq. (loss)
            out.lam[t, k], out.updates[t, k] = lam, n
        out.delta[t], out.Lam[t] = delta, Lam

        z, P_z = combiner_update(z, P_z, y, d, combiner)
    return out


def combiner_init(m: int, combiner: Combiner) -> tuple[Array, Array]:
    """z_1 = 1/m, and P of the recursive least squares combiner."""
    ridge = combiner[2] if combiner[0] == "newton" else 1.0
    return np.full(m, 1.0 / m), np.eye(m) / ridge


def combiner_update(
    z: Array, P_z: Array, y: Array, d: float, combiner: Combiner
) -> tuple[Array, Array]:
    """The last line of both algorithms."""
    match combiner:
        case ("uniform",):
            return z, P_z
        case ("nsgd", mu_z, eps):  # Section "The Combination Algorithm"
            power = y @ y + eps
            return (z + mu_z * (d - z @ y) * y / power if power > 0 else z), P_z
        case ("newton", beta_z, _):  # the lines commented out in both algorithms
            return nm_update(z, P_z, y, d, beta_z, 1.0)
    raise ValueError(f"unknown combiner: {combiner!r}")


def combined(ys: Array, ds: Array, combiner: Combiner) -> Array:
    """Predictions (T,) from recorded estimates: they do not depend on how they are combined."""
    z, P_z = combiner_init(ys.shape[1], combiner)
    prediction = np.zeros(len(ds))
    for t, (y, d) in enumerate(zip(ys, ds, strict=True)):
        prediction[t] = z @ y
        z, P_z = combiner_update(z, P_z, y, float(d), combiner)
    return prediction


def single(
    xs: Array,
    ds: Array,
    *,
    learner: Learner,
    step_size: float = math.nan,
    forgetting: float = math.nan,
    ridge: float = math.nan,
) -> Single:
    """Plain SGD ("sgd": step_size) or the Newton method ("nm": forgetting, ridge)."""
    xs, ds = np.asarray(xs, np.float64), np.asarray(ds, np.float64)
    T, r = xs.shape
    w, P, prediction = np.zeros(r), np.eye(r) / ridge, np.zeros(T)
    for t in range(T):
        x, d = xs[t], float(ds[t])
        prediction[t] = x @ w
        if learner == "sgd":
            w = sgd_update(w, x, d, step_size, 1.0)
        elif learner == "nm":
            w, P = nm_update(w, P, x, d, forgetting, 1.0)
        else:
            raise ValueError(f"unknown learner: {learner!r}")
    return Single(prediction, w)


def forward_newton(xs: Array, ds: Array, ridge: float, forgetting: float = 1.0) -> Array:
    """Predictions (T,) of the forward algorithm, eq. (mine): A_t holds x_t, b_t does not yet."""
    xs, ds = np.asarray(xs, np.float64), np.asarray(ds, np.float64)
    T, r = xs.shape
    A, b, prediction = ridge * np.eye(r), np.zeros(r), np.zeros(T)
    for t in range(T):
        x = xs[t]
        A = forgetting * A + np.outer(x, x)
        b = forgetting * b
        prediction[t] = x @ np.linalg.solve(A, b)
        b = b + ds[t] * x
    return prediction


def batch_least_squares(
    xs: Array,
    ds: Array,
    weights: npt.ArrayLike = 1.0,
    ridge: float = 0.0,
    forgetting: float = 1.0,
) -> Array:
    """R^-1 p with eqs. (R), (p) unrolled: what the Newton method holds after all T samples.

    Sample t of T counts weights[t] forgetting^(T-1-t), t from 0; the ridge, ridge forgetting^T.
    """
    xs, ds = np.asarray(xs, np.float64), np.asarray(ds, np.float64)
    T, r = xs.shape
    s = np.asarray(weights) * forgetting ** np.arange(T - 1, -1, -1)
    R = xs.T @ (s[:, None] * xs) + ridge * forgetting**T * np.eye(r)
    return np.linalg.solve(R, xs.T @ (s * ds))


def duffing(T: int) -> tuple[Array, Array]:
    """The chaotic stream: rows [x_{t-1}, x_t, 1] and d = x_{t+1}, from x_{-1}, x_0."""
    xs, ds = np.ones((T, 3)), np.zeros(T)
    before, now = 0.9279, 0.1727
    for t in range(T):
        after = 2.75 * now - now**3 - 0.2 * before
        xs[t, 0], xs[t, 1], ds[t] = before, now, after
        before, now = now, after
    return xs, ds
