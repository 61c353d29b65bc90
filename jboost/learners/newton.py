"""Newton's method on a linear model: weighted recursive least squares, O(r²) a step.

| letter | name         | meaning                                            |
|--------|--------------|----------------------------------------------------|
| β      | `forgetting` | forgetting factor                                  |
| v      | `ridge`      | P₀ = I/v                                           |
| λ      | `weight`     | importance of the sample                           |
| P      |              | inverse Hessian R⁻¹, kept as a square root: P = TᵀT |
| p      |              | an estimate of P's diagonal, for the cap           |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost import checks
from jboost.learners.base import Learner, Number, model, static
from jboost.numerics import dtype_of, geometric, known, sanitize
from jboost.products import dot, matvec, symmetric_matvec, vecmat

AUTOMATIC = "1/ridge, at most 1e4"
LARGEST_DEFAULT_VARIANCE = 1e4  # a larger cap lets the null space of w wander in float32


class RootState(NamedTuple):
    """Coefficients w, P's square root T and carried diagonal p, the next column to refresh."""

    w: Array
    T: Array
    p: Array
    turn: Array


class CovarianceState(NamedTuple):
    """Coefficients w, the matrix P and its diagonal p."""

    w: Array
    P: Array
    p: Array


NewtonState = RootState | CovarianceState


@model
class LeastSquares(Learner):
    """What the two Newton learners share: their settings, the state and its update."""

    forgetting: Number = 1.0
    ridge: Number = 0.01
    max_variance: Any = AUTOMATIC
    forget_by_weight: bool = static(default=False)
    form: str = static(default="root")

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
        checks.choice("form", self.form, ("root", "covariance"))

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> NewtonState:
        del key
        dtype = dtype_of(dtype)
        variance = 1 / jnp.asarray(self.ridge, dtype)
        if self.max_variance is not None:
            variance = jnp.minimum(variance, jnp.asarray(self.max_variance, dtype))
        w, eye = jnp.zeros(num_features, dtype), jnp.eye(num_features, dtype=dtype)
        p = jnp.full(num_features, variance)
        if self.form == "covariance":
            return CovarianceState(w, variance * eye, p)
        return RootState(w, jnp.sqrt(variance) * eye, p, jnp.zeros((), jnp.int32))

    def update(
        self,
        state: NewtonState,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> NewtonState:
        del key
        w = state.w
        x, d, ok = sanitize(x, d, w.dtype)
        lam = jnp.where(ok, jnp.asarray(weight, w.dtype), 0)
        one_minus_beta = jnp.where(ok, 1 - jnp.asarray(self.forgetting, w.dtype), 0)
        if self.forget_by_weight:
            one_minus_beta = lam * one_minus_beta
        # n updates with β are one with βⁿ and weight λ (1 − βⁿ)/(1 − β).
        beta, n = geometric(one_minus_beta, repeats)
        learned = ok if isinstance(repeats, int) else ok & jnp.asarray(repeats, bool)

        f, k, power = _times_variance(state, x)
        # Round-off can make the covariance form's P indefinite; such a sample is not learned.
        lam = jnp.where(ok & (power >= 0), lam * n, 0)
        alpha = beta + jnp.where(lam > 0, lam * power, 0)
        g = lam / alpha
        w = w + (g * (d - dot(w, x))) * k
        if isinstance(state, CovarianceState):
            return self._covariance(state, w, k, g, beta, learned)
        return self._root(state, w, f, k, g, alpha, beta, learned)

    def _root(
        self,
        state: RootState,
        w: Array,
        f: Array,
        k: Array,
        g: Array,
        alpha: Array,
        beta: Array,
        learned: Array,
    ) -> RootState:
        """Potter's square-root form of the paper's eq. `w_rls`."""
        _, T, p, turn = state
        a = g / (1 + jnp.sqrt(beta / alpha))
        grow = jnp.full(w.shape, 1 / jnp.sqrt(beta))  # what each column of T is scaled by
        if self.max_variance is not None:
            # One column a step is measured exactly, from the old T, so that p cannot drift.
            column = jax.lax.dynamic_index_in_dim(T, turn, axis=1, keepdims=False)
            exact = jnp.where(
                jnp.arange(p.shape[0], dtype=turn.dtype) == turn, dot(column, column), p
            )
            grown, capped = self._cap(jnp.maximum(exact - g * k * k, 0) / beta)
            grow = grow * capped
            p = jnp.where(learned, grown, p)
            turn = jnp.where(learned, (turn + 1) % p.shape[0], turn)
        return RootState(w, (T - f[:, None] * (a * k)[None, :]) * grow[None, :], p, turn)

    def _covariance(
        self, state: CovarianceState, w: Array, k: Array, g: Array, beta: Array, learned: Array
    ) -> CovarianceState:
        """eq. `w_rls` itself, the outer product formed first so that P stays exactly symmetric."""
        _, P, p = state
        u = jnp.sqrt(g) * k
        grow = jnp.full(w.shape, 1 / jnp.sqrt(beta))
        if self.max_variance is not None:
            grown, capped = self._cap((p - u * u) / beta)
            grow = grow * capped
            p = jnp.where(learned, grown, p)
        P = (P - u[:, None] * u[None, :]) * (grow[:, None] * grow[None, :])
        return CovarianceState(w, P, p)

    def _cap(self, p: Array) -> tuple[Array, Array]:
        """P's diagonal within its cap, and what the columns of its root are scaled by for that.

        Forgetting without excitation makes P grow as β^−t. Scaling a column of the root caps P_jj
        and is a congruence, so P stays positive semi-definite.
        """
        cap = jnp.asarray(self.max_variance, p.dtype)
        return jnp.minimum(p, cap), jnp.sqrt(cap / jnp.maximum(p, cap))


def _times_variance(state: NewtonState, x: Array) -> tuple[Array, Array, Array]:
    """(f, P x, xᵀP x), where f = T x is the root's."""
    if isinstance(state, CovarianceState):
        k = symmetric_matvec(state.P, x)
        return k, k, dot(x, k)
    f = matvec(state.T, x)
    return f, vecmat(f, state.T), dot(f, f)


@model
class Newton(LeastSquares):
    """Weighted recursive least squares with forgetting, the paper's eqs. `R`, `p` and `w_rls`.

        R ← β R + λ x xᵀ,    w ← w + λ R⁻¹ x (d − wᵀx),    R₀ = v I

    in Potter's square-root form P = R⁻¹ = TᵀT, which stays positive semi-definite and keeps float32
    accurate to condition numbers of 1e10. n repeats are one update with βⁿ and weight
    λ (1 − βⁿ)/(1 − β).

    Stability: any 0 < β ≤ 1. Where the input does not excite a direction, forgetting alone would
    let P = R⁻¹ grow as β^−t until it overflows; ``max_variance`` caps P's diagonal.

    As a combiner this is the recursive least squares of the paper's commented lines.

    Args:
      forgetting: β in (0, 1]; about 1/(1 − β) samples are remembered.
      ridge: v > 0; small values trust the first samples more.
      max_variance: the cap on P's diagonal; by default 1/ridge but at most 1e4. ``None`` is no cap,
        the paper's recursion exactly.
      forget_by_weight: forget by 1 − λ(1 − β) instead of β, so that samples of no importance do not
        make the learner forget.
      form: "root" (the default), or "covariance": P itself, in fewer operations. In float32 that is
        for inputs whose condition number stays below about 1e4, and not for a combiner, whose
        inputs are nearly equal.

    >>> import jax.numpy as jnp
    >>> learner = Newton(forgetting=1.0, ridge=1e-4)
    >>> state = learner.init(1)
    >>> for x, d in [(1.0, 2.0), (2.0, 4.0)]:
    ...     state = learner.update(state, jnp.array([x]), d)
    >>> round(float(learner.predict(state, jnp.array([3.0]))), 2)
    6.0
    """

    def predict(self, state: NewtonState, x: Any) -> Array:
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

    def predict(self, state: NewtonState, x: Any) -> Array:
        x = known(x, state.w.dtype)
        beta = jnp.asarray(self.forgetting, x.dtype)
        *_, power = _times_variance(state, x)
        return dot(state.w, x) * (beta / (beta + power))
