"""Newton's method on a linear model: weighted recursive least squares, O(r²) a step."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, checks, model, static
from jboost.core.numerics import dtype_of, geometric, known
from jboost.core.products import (
    dot,
    entry,
    matvec,
    minus_square,
    multiplied_late,
    symmetric_column,
    symmetric_matvec,
    vecmat,
    where_needed,
)

AUTOMATIC = "1/ridge, at most 1e4"  # the default of `max_variance`
LARGEST_DEFAULT_VARIANCE = 1e4  # a larger cap lets the null space of w wander in float32
SLACK = 1.02  # a variance is brought back to its cap once it exceeds that by 2 %: see `_excess`
# r steps under a cap keep at least this share of the past. With 1e-5, inputs that walk or hardly
# differ made the coefficients grow from step to step until they overflowed.
LEAST_MEMORY = 1e-3


class RootState(NamedTuple):
    """The state of a Newton learner that keeps a square root of P."""

    w: Array  # the coefficients, (r,), 0 at the start
    T: Array  # the square root of P = TᵀT, (r, r), I/√v at the start
    turn: Array  # which diagonal entry of P is compared with the cap next, 0 at the start


class CovarianceState(NamedTuple):
    """The state of a Newton learner that keeps P itself."""

    w: Array  # the coefficients, (r,), 0 at the start
    P: Array  # the inverse Hessian, (r, r), I/v at the start
    turn: Array  # as in `RootState`


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
        positive = checks.a_number(above=0)
        checks.fields(self, forgetting=checks.a_number(above=0, at_most=1), ridge=positive)
        checks.fields(self, forget_by_weight=checks.flag, shrink=checks.flag)
        checks.fields(self, storage=checks.one_of("root", "covariance"))
        if isinstance(self.max_variance, str) and self.max_variance == AUTOMATIC:
            smaller = jnp.minimum if checks.is_traced(self.ridge) else np.minimum
            cap = smaller(1 / self.ridge, LARGEST_DEFAULT_VARIANCE)  # type: ignore[operator]
            checks.assign(self, max_variance=cap)
        checks.fields(self, max_variance=checks.or_none(positive))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> NewtonState:
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
            beta = jnp.maximum(beta, LEAST_MEMORY ** (1 / w.shape[0]))
        learned = good & jnp.asarray(repeats).astype(bool)
        turn = jnp.where(learned, (state.turn + 1) % w.shape[0], state.turn)
        update = sample.x, sample.d, lam * n, beta, learned
        if isinstance(state, RootState):
            return self._root(state, *update)._replace(turn=turn)
        return self._covariance(state, *update)._replace(turn=turn)

    @property
    def knows_leverage(self) -> bool:
        return True

    def leverage(self, state: NewtonState, x: ArrayLike) -> Array:
        """Return xᵀP x ≥ 0.

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
        """Return the state after Potter's square-root form of the paper's eq. `w_rls`."""
        w, T, turn = state
        f = matvec(T, x)  # before the cap, as in `leverage`: the compiler computes it once for both
        k = None if multiplied_late(T) else vecmat(f, T)
        if self.max_variance is not None:
            c = entry(T, turn)
            a_c = self._excess(dot(c, c), learned)
            w, T, f, k = where_needed(a_c > 0, self._capped_root, (w, T, f, k), c, a_c, turn)
        k = vecmat(f, T) if k is None else k
        g, alpha = _gain(lam, beta, dot(f, f))
        a = g / (1 + jnp.sqrt(beta / alpha))
        w = w + (g * (d - dot(w, x))) * k[: w.shape[0]]
        grow = 1 / jnp.sqrt(beta)
        return RootState(w, grow * T - (grow * a * f)[:, None] * k[None, :], turn)

    def _capped_root(
        self, state: tuple[Array, Array, Array, Array | None], c: Array, a_c: Array, turn: Array
    ) -> tuple[Array, Array, Array, Array | None]:
        """Return w, T − a_c c cᵀT, which caps the variance of one coefficient, T x and TᵀT x.

        The last is None where it was not computed.
        """
        w, T, f, k = state
        k_c = vecmat(c, T)
        if self.shrink:
            w = w - (_covariances_gain(a_c, dot(c, c)) * entry(w, turn)) * k_c[: w.shape[0]]
        a_f = a_c * dot(c, f)
        f = f - a_f * c
        k = None if k is None else k - (a_f + a_c * dot(c, f)) * k_c
        return w, T - (a_c * c)[:, None] * k_c[None, :], f, k

    def _covariance(
        self, state: CovarianceState, x: Array, d: Array, lam: Array, beta: Array, learned: Array
    ) -> CovarianceState:
        """Return the state after eq. `w_rls` itself, whose P stays exactly symmetric."""
        w, P, turn = state
        k = symmetric_matvec(P, x)  # before the cap, as in `_root`
        if self.max_variance is not None:
            c = symmetric_column(P, turn)
            variance = entry(c, turn)
            a_c = self._excess(variance, learned)
            g_c = _covariances_gain(a_c, variance)
            w, P, k = where_needed(a_c > 0, self._capped_covariance, (w, P, k), c, g_c, turn, x)
        grow = 1 / beta
        g, _ = _gain(lam, beta, dot(x, k))
        w = w + (g * (d - dot(w, x))) * k
        return CovarianceState(w, minus_square(grow * P, grow * g, k), turn)

    def _capped_covariance(
        self, state: tuple[Array, Array, Array], c: Array, g_c: Array, turn: Array, x: Array
    ) -> tuple[Array, Array, Array]:
        """Return w, P − g_c c cᵀ, which caps the variance of one coefficient, and k = P x."""
        w, P, k = state
        if self.shrink:
            w = w - (g_c * entry(w, turn)) * c
        return w, minus_square(P, g_c, c), k - (g_c * dot(c, x)) * c

    def _excess(self, variance: Array, learned: Array) -> Array:
        """Return Potter's factor a that brings a diagonal entry of P back to the cap, or 0.

        At every step one P_jj, the next in turn, is brought back as if w_j had been measured and
        found to be as it is. Then P stays positive semi-definite, w does not move, and the
        directions that the input does excite go on forgetting, which they would not if row and
        column j were scaled. Between two turns P_jj grows by the forgetting of r steps, repeats
        included; LEAST_MEMORY bounds that growth. Without SLACK growth and correction become one
        cycle of a few steps, whose equal rounding errors add up over the memory.
        """
        cap = jnp.asarray(self.max_variance, variance.dtype)
        most = jnp.maximum(variance, cap)
        a = (1 - jnp.sqrt(cap / most)) / most
        return jnp.where(learned & (variance > SLACK * cap), a, 0)


def _covariances_gain(a: Array, variance: Array) -> Array:
    """Return g such that P − g c cᵀ is what Potter's factor a does to T."""
    return a * (2 - a * variance)


def _gain(lam: Array, beta: Array, power: Array) -> tuple[Array, Array]:
    """Return (λ/α, α) with α = β + λ xᵀP x; ``power`` is xᵀP x."""
    lam = jnp.where(power >= 0, lam, 0)  # rounding can make a P that is stored itself indefinite
    alpha = beta + jnp.where(lam > 0, lam * power, 0)
    return lam / alpha, alpha


@model
class Newton(LeastSquares):
    """Weighted recursive least squares with forgetting, the paper's eqs. `R`, `p` and `w_rls`.

        R ← β R + λ x xᵀ,    w ← w + λ R⁻¹ x (d − wᵀx),    R₀ = v I,    λ the sample's weight

    in Potter's square-root form P = R⁻¹ = TᵀT, which stays positive semi-definite and keeps float32
    accurate to condition numbers of 1e10. n repeats are one update with βⁿ and weight
    λ (1 − βⁿ)/(1 − β).

    Stability: any 0 < β ≤ 1. In a direction that the input does not excite, forgetting alone would
    make P grow as β^−t until it overflows; ``max_variance`` caps the diagonal of P. Under a cap r
    steps keep at least 1e-3 of the past, so that β counts as at least 1e-3^(1/r).

    Args:
      forgetting: β in (0, 1]; about 1/(1 − β) samples are remembered.
      ridge: v > 0; small values trust the first samples more.
      max_variance: the cap of P's diagonal, by default 1/ridge but at most 1e4. Each step brings
        one entry back to it. ``None`` is no cap, which is the paper's recursion exactly.
      forget_by_weight: whether a sample forgets by 1 − λ(1 − β) instead of β, so that a sample of
        no importance does not make the learner forget.
      storage: "root" (the default) or "covariance", which stores P itself and needs fewer
        operations. In float32 it suits inputs whose condition number stays below about 1e4.
      shrink: whether a coefficient whose variance is brought back to the cap is drawn towards zero
        in the same proportion: for inputs that hardly differ, as those of a combiner.

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

    This is the forward algorithm of Vovk, Azoury and Warmuth. State and update are those of
    :class:`Newton`, and the estimate is drawn towards zero where the input is new. No estimate is
    larger than half the Euclidean norm of all targets so far, a bound that grows as √T and can be
    attained: after 100 samples x = d = 1 the estimate at x = 10 is 5. The regret against the best
    fixed coefficients is the optimal O(ln T). Stability and arguments: as :class:`Newton`.

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
