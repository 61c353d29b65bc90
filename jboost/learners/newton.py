"""Newton's method on a linear model: weighted recursive least squares, O(r²) a step.

| letter | name         | meaning                                            |
|--------|--------------|----------------------------------------------------|
| β      | `forgetting` | forgetting factor                                  |
| v      | `ridge`      | P₀ = I/v                                           |
| λ      | `weight`     | importance of the sample                           |
| P      |              | inverse Hessian R⁻¹, kept as a square root: P = TᵀT |
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import checks
from jboost.core.learner import Learner
from jboost.core.pytree import Number, model, static
from jboost.core.numerics import dtype_of, geometric, known
from jboost.core.products import (
    column,
    dot,
    entry,
    matvec,
    minus_square,
    symmetric_column,
    symmetric_matvec,
    vecmat,
    vecmat_where,
)
from jboost.core.sample import Sample

AUTOMATIC = "1/ridge, at most 1e4"
LEAST_KEPT = 1e-5  # the least part of the past that r steps keep
SLACK = 1.02  # times the cap, before anything is brought back to it: see `_excess`
LARGEST_DEFAULT_VARIANCE = 1e4  # a larger cap lets the null space of w wander in float32


class RootState(NamedTuple):
    """The state of a Newton learner that keeps a square root of P.

    w: the coefficients, (r,), 0 at the start.
    T: the square root of P = TᵀT, (r, r), I/√v at the start.
    turn: the number of the next diagonal entry of P that is compared with the cap, 0 at the start.
    """

    w: Array
    T: Array
    turn: Array


class CovarianceState(NamedTuple):
    """The state of a Newton learner that keeps P itself.

    w: the coefficients, (r,), 0 at the start.
    P: the inverse Hessian, (r, r), I/v at the start.
    turn: the number of the next diagonal entry of P that is compared with the cap, 0 at the start.
    """

    w: Array
    P: Array
    turn: Array


NewtonState = RootState | CovarianceState


@model
class LeastSquares(Learner):
    """Base class of the two Newton learners: their settings, their state and its update."""

    forgetting: Number = 1.0
    ridge: Number = 0.01
    max_variance: Number | str | None = AUTOMATIC
    forget_by_weight: bool = static(default=False)
    storage: str = static(default="root")
    shrink: bool = static(default=False)

    def __post_init__(self) -> None:
        beta = checks.number("forgetting", self.forgetting, above=0, at_most=1)
        ridge = checks.number("ridge", self.ridge, above=0)
        cap = self.max_variance
        if isinstance(cap, str) and cap == AUTOMATIC:
            smaller = jnp.minimum if checks.is_traced(ridge) else np.minimum
            cap = smaller(1 / ridge, LARGEST_DEFAULT_VARIANCE)
        if cap is not None:
            cap = checks.number("max_variance", cap, above=0)
        for name, value in (("forgetting", beta), ("ridge", ridge), ("max_variance", cap)):
            object.__setattr__(self, name, value)
        checks.choice("storage", self.storage, ("root", "covariance"))

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> NewtonState:
        del key
        dtype = dtype_of(dtype)
        variance = 1 / jnp.asarray(self.ridge, dtype)
        if self.max_variance is not None:
            variance = jnp.minimum(variance, jnp.asarray(self.max_variance, dtype))
        w, eye = jnp.zeros(num_features, dtype), jnp.eye(num_features, dtype=dtype)
        turn = jnp.zeros((), jnp.int32)
        if self.storage == "covariance":
            return CovarianceState(w, variance * eye, turn)
        return RootState(w, jnp.sqrt(variance) * eye, turn)

    def learn(self, state: NewtonState, sample: Sample) -> NewtonState:
        w, good, lam, repeats = state.w, sample.good, sample.weight, sample.repeats
        one_minus_beta = jnp.where(good, 1 - jnp.asarray(self.forgetting, w.dtype), 0)
        if self.forget_by_weight:
            one_minus_beta = lam * one_minus_beta
        # n updates with β are one with βⁿ and weight λ (1 − βⁿ)/(1 − β).
        beta, n = geometric(one_minus_beta, repeats, sample.most_repeats)
        if self.max_variance is not None:
            beta = jnp.maximum(beta, LEAST_KEPT ** (1 / w.shape[0]))
        learned = good if isinstance(repeats, int) else good & jnp.asarray(repeats).astype(bool)

        turn = jnp.where(learned, (state.turn + 1) % w.shape[0], state.turn)
        rule = self._root if isinstance(state, RootState) else self._covariance
        return rule(state, sample.x, sample.d, lam * n, beta, learned)._replace(turn=turn)

    @property
    def knows_leverage(self) -> bool:
        return True

    def leverage(self, state: NewtonState, x: ArrayLike) -> Array:
        """xᵀP x ≥ 0.

        >>> learner = Newton(ridge=1.0)
        >>> state = learner.update(learner.init(2), jnp.array([1.0, 0.0]), 1.0)
        >>> [round(float(learner.leverage(state, jnp.array(x))), 3) for x in ([1.0, 0.0], [0, 1.0])]
        [0.5, 1.0]
        """
        x = known(x, state.w.dtype)
        if isinstance(state, CovarianceState):
            return jnp.maximum(dot(x, symmetric_matvec(state.P, x)), 0)
        f = matvec(state.T, x)
        return dot(f, f)

    def _root(
        self, state: RootState, x: Array, d: Array, lam: Array, beta: Array, learned: Array
    ) -> RootState:
        """Potter's square-root form of the paper's eq. `w_rls`.

        First the measurement that holds the cap, T ← T − a_c c k_cᵀ, then the sample's,
        T ← (T − a f kᵀ)/√β; both in one pass over T.
        """
        w, T, turn = state
        f = matvec(T, x)
        if self.max_variance is None:
            k = k_T = vecmat(f, T)
            hold = None
        else:
            c = column(T, turn)
            a_c = self._excess(dot(c, c), learned)
            f = f - (a_c * dot(c, f)) * c
            k_c, k_T = vecmat_where(a_c > 0, c, T), vecmat(f, T)
            a_f = a_c * dot(c, f)
            k = k_T - a_f * k_c
            hold = a_c * c, a_f, k_c
            if self.shrink:
                w = w - (_covariances_gain(a_c, dot(c, c)) * entry(w, turn)) * k_c[: w.shape[0]]
        g, alpha = _gain(lam, beta, dot(f, f))
        a = g / (1 + jnp.sqrt(beta / alpha))
        w = w + (g * (d - dot(w, x))) * k[: w.shape[0]]
        grow = 1 / jnp.sqrt(beta)
        new = grow * T - (grow * a * f)[:, None] * k_T[None, :]
        if hold is not None:
            a_cc, a_f, k_c = hold
            new = new - (grow * (a_cc - a * a_f * f))[:, None] * k_c[None, :]
        return RootState(w, new, turn)

    def _covariance(
        self, state: CovarianceState, x: Array, d: Array, lam: Array, beta: Array, learned: Array
    ) -> CovarianceState:
        """eq. `w_rls` itself, by operations that leave P exactly symmetric."""
        w, P, turn = state
        k = symmetric_matvec(P, x)
        grow = 1 / beta
        new = grow * P
        if self.max_variance is not None:
            c = symmetric_column(P, turn)
            variance = entry(c, turn)
            a_c = self._excess(variance, learned)
            g_c = _covariances_gain(a_c, variance)
            if self.shrink:
                w = w - (g_c * entry(w, turn)) * c
            k = k - (g_c * dot(c, x)) * c
            new = minus_square(new, grow * g_c, c)
        g, _ = _gain(lam, beta, dot(x, k))
        w = w + (g * (d - dot(w, x))) * k
        return CovarianceState(w, minus_square(new, grow * g, k), turn)

    def _excess(self, variance: Array, learned: Array) -> Array:
        """How far one diagonal entry of P is beyond its cap, as Potter's factor a.

        Forgetting without excitation makes P grow as β^−t. At every step one P_jj, the next in
        turn, is brought back to the cap by a measurement of w_j that finds it as it is: P stays
        positive semi-definite, w stays, and directions that the input does excite go on
        forgetting. (Scaling row and column j instead would stop them: with a duplicated column
        the learner no longer follows a change.) Between two turns P_jj may grow by β^−n, where n
        is the number of updates, repeats included, in r steps; at most by 1/LEAST_KEPT, or with
        memories much shorter than r every entry would be looked at too late.

        Not at once: 2 % are let pass. Otherwise growth and hold become one cycle of a few steps,
        whose rounding errors are the same each time and add up over the memory. At β = .9999 with
        collinear columns float32 was .7 % off so, in the directions that are excited.
        """
        cap = jnp.asarray(self.max_variance, variance.dtype)
        most = jnp.maximum(variance, cap)
        a = (1 - jnp.sqrt(cap / most)) / most
        return jnp.where(learned & (variance > SLACK * cap), a, 0)


def _covariances_gain(a: Array, variance: Array) -> Array:
    """g: P − g c cᵀ is what Potter's factor a does to T."""
    return a * (2 - a * variance)


def _gain(lam: Array, beta: Array, power: Array) -> tuple[Array, Array]:
    """(λ/α, α) with α = β + λ xᵀP x.

    Round-off can make the covariance form's P indefinite; then nothing is learned.
    """
    lam = jnp.where(power >= 0, lam, 0)
    alpha = beta + jnp.where(lam > 0, lam * power, 0)
    return lam / alpha, alpha


@model
class Newton(LeastSquares):
    """Weighted recursive least squares with forgetting, the paper's eqs. `R`, `p` and `w_rls`.

        R ← β R + λ x xᵀ,    w ← w + λ R⁻¹ x (d − wᵀx),    R₀ = v I

    in Potter's square-root form P = R⁻¹ = TᵀT, which stays positive semi-definite and keeps float32
    accurate to condition numbers of 1e10. n repeats are one update with βⁿ and weight
    λ (1 − βⁿ)/(1 − β).

    Stability: any 0 < β ≤ 1. Where the input does not excite a direction, forgetting alone would
    let P = R⁻¹ grow as β^−t until it overflows; ``max_variance`` caps P's diagonal. Capped, r steps
    keep at least 1e-5 of the past: with r = 90 a β below .88 counts as .88, and so does βⁿ.

    As a combiner this is the recursive least squares of the paper's commented lines.

    Args:
      forgetting: β in (0, 1]; about 1/(1 − β) samples are remembered.
      ridge: v > 0; small values trust the first samples more.
      max_variance: what P's diagonal is brought back to, one entry a step, from 2 % beyond it;
        between two turns an entry may grow by the forgetting of r steps. By default 1/ridge but at
        most 1e4. ``None`` is no cap, the paper's recursion exactly.
      forget_by_weight: forget by 1 − λ(1 − β) instead of β, so that samples of no importance do not
        make the learner forget.
      storage: "root" (the default), or "covariance": P itself, in fewer operations. In float32
        that is for inputs whose condition number stays below about 1e4, and not for a combiner,
        whose inputs are nearly equal.
      shrink: draw what is held at the cap towards zero, as much as is forgotten there, instead of
        leaving it as it is. For inputs of one kind, as a combiner's: where those hardly differ,
        their coefficients would otherwise wander with the rounding of float32.

    >>> import jax.numpy as jnp
    >>> learner = Newton(forgetting=1.0, ridge=1e-4)
    >>> state = learner.init(1)
    >>> for x, d in [(1.0, 2.0), (2.0, 4.0)]:
    ...     state = learner.update(state, jnp.array([x]), d)
    >>> round(float(learner.predict(state, jnp.array([3.0]))), 2)
    6.0
    """

    def predict(self, state: NewtonState, x: ArrayLike) -> Array:
        return dot(state.w, known(x, state.w.dtype))


@model
class ForwardNewton(LeastSquares):
    """Least squares that counts the newest input before it predicts, the paper's eq. `mine`.

        d̂ = xᵀ (β R + x xᵀ)⁻¹ β p = wᵀx · β / (β + xᵀ P x),    w = P p,  P = R⁻¹

    The forward algorithm of Vovk, Azoury and Warmuth: the same state and update as :class:`Newton`,
    with estimates drawn towards zero where the input is new. Their sizes stay bounded by those of
    the targets, and the regret against the best fixed coefficients is the optimal O(ln T).

    Stability and arguments: as :class:`Newton`.

    >>> import jax.numpy as jnp
    >>> learner = ForwardNewton(ridge=1.0)
    >>> state = learner.update(learner.init(1), jnp.array([1.0]), 1.0)
    >>> round(float(learner.predict(state, jnp.array([1.0]))), 4)  # Newton says 0.5
    0.3333
    """

    def predict(self, state: NewtonState, x: ArrayLike) -> Array:
        return dot(state.w, known(x, state.w.dtype)) * self._share(state, x)

    def coefficients(self, state: NewtonState, x: ArrayLike) -> Array:
        return state.w * self._share(state, x)

    def _share(self, state: NewtonState, x: ArrayLike) -> Array:
        beta = jnp.asarray(self.forgetting, state.w.dtype)
        return beta / (beta + self.leverage(state, x))
