"""Adaptive filters of signal processing: affine projection, sign-sign and variable-step LMS.

They are linear learners, estimates wᵀx with w = 0 at the start. A tapped delay line in front of one
is ``Lags(inputs=p)``, and a Volterra filter is one behind ``Volterra``.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.core import DType, Key, Number, Sample, checks, model, static
from jboost.core.numerics import dtype_of, known
from jboost.core.products import dot, matvec
from jboost.learners.sgd import LARGEST_COEFFICIENT, Linear, LinearState, guarded

MOST_ORDERS = 32  # of affine projection: its equations are solved by a loop that is written out
LEAST_PIVOT = 1e-6  # over the largest diagonal entry: what float32 can tell from zero
FARTHEST = 100.0  # a variable step stays within this factor of where it began
KINDS = ("mathews", "ang", "benveniste")


@model
class SignSignLMS(Linear):
    """Sign-sign LMS: each coefficient moves by a fixed amount.

        w ← w + μ λ sign(d − wᵀx) sign(x),    repeated n times

    It needs no multiplication, and no sample moves it far. Stability: the estimate wanders within
    about μ Σ|x_i| of its best value. ``SGD(μ, loss=losses.absolute())`` is sign-error LMS.

    Args:
      step_size: μ > 0; a scalar, or (m,) inside a booster of m learners.

    >>> learner = SignSignLMS(0.5)
    >>> learner.update(learner.init(3), jnp.array([2.0, -0.1, 0.0]), 9.0).w.tolist()
    [0.5, -0.5, 0.0]

    Reference: R. W. Lucky, Techniques for adaptive equalization of digital communication systems,
    Bell Syst. Tech. J. 45, 1966.
    """

    step_size: Number

    def __post_init__(self) -> None:
        checks.fields(self, step_size=checks.a_number(above=0))

    def learn(self, state: LinearState, sample: Sample) -> LinearState:
        x, mu = sample.x, jnp.asarray(self.step_size, sample.x.dtype) * sample.weight

        def once(state: LinearState) -> LinearState:
            e = sample.d - dot(state.w, x)
            w = state.w + mu * jnp.sign(e) * jnp.sign(x)
            return LinearState(jnp.where(jnp.abs(w) < LARGEST_COEFFICIENT, w, state.w))

        return sample.repeat(once, state)


class VariableStepState(NamedTuple):
    """The state of LMS with a step that adapts."""

    w: Array  # the coefficients, (r,), 0 at the start
    step: Array  # μ, ``step_size`` at the start
    trend: Array  # φ, (r,), 0 at the start


@model
class VariableStepLMS(Linear):
    """LMS whose step grows while errors point the same way, and shrinks while they alternate.

        μ ← μ + ρ e φᵀx,    w ← w + μ λ e x,    e = d − wᵀx

    and φ, the trend of the gradients, becomes for the next sample

        "mathews"     e x
        "ang"         a φ + e x
        "benveniste"  (I − μ x xᵀ) φ + e x

    Stability: μ stays within a hundredth and a hundred times the step that it began with, and a
    sample with μλ‖x‖² > 2 gets the step 1/‖x‖².

    Args:
      step_size: the first μ > 0; a scalar, or (m,) inside a booster of m learners.
      rate: ρ ≥ 0.
      kind: "mathews", "ang" or "benveniste".
      memory: a in [0, 1), for "ang".

    >>> import numpy as np, jboost as jb
    >>> xs = np.random.default_rng(0).normal(size=(1000, 3))
    >>> ds = xs @ [1.0, -0.5, 0.2]
    >>> bool(jb.mse(VariableStepLMS(0.001, 1e-4), xs, ds) < 0.5 * jb.mse(jb.SGD(0.001), xs, ds))
    True

    References: V. J. Mathews, Z. Xie, A stochastic gradient adaptive filter with gradient adaptive
    step size, IEEE Trans. Signal Process. 41, 1993; W.-P. Ang, B. Farhang-Boroujeny, A new class of
    gradient adaptive step-size LMS algorithms, ibid. 49, 2001; A. Benveniste, M. Métivier,
    P. Priouret, Adaptive algorithms and stochastic approximation, 1990.
    """

    step_size: Number
    rate: Number = 1e-3
    kind: str = static(default="mathews")
    memory: Number = 0.95

    def __post_init__(self) -> None:
        rate, memory = checks.a_number(at_least=0), checks.a_number(at_least=0, below=1)
        checks.fields(self, step_size=checks.a_number(above=0), rate=rate, memory=memory)
        checks.fields(self, kind=checks.one_of(*KINDS))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> VariableStepState:
        zeros = jnp.zeros(num_features, dtype_of(dtype))
        step = jnp.asarray(self.step_size, zeros.dtype)
        return VariableStepState(zeros, jnp.broadcast_to(step, ()), zeros)

    def learn(self, state: VariableStepState, sample: Sample) -> VariableStepState:
        x, d, lam = sample.x, sample.d, sample.weight
        first = jnp.asarray(self.step_size, x.dtype)
        rate, memory = jnp.asarray(self.rate, x.dtype), jnp.asarray(self.memory, x.dtype)
        s = dot(x, x)

        def once(state: VariableStepState) -> VariableStepState:
            w, mu, trend = state
            e = d - dot(w, x)
            change = known(rate * e * dot(trend, x), x.dtype)
            mu = jnp.clip(mu + change, first / FARTHEST, first * FARTHEST)
            if self.kind == "ang":
                trend = memory * trend
            elif self.kind == "benveniste":
                trend = known(trend - guarded(mu, s) * dot(trend, x) * x, x.dtype)
            else:
                trend = jnp.zeros_like(trend)
            moved = w + guarded(mu * lam, s) * e * x
            w = jnp.where(jnp.abs(moved) < LARGEST_COEFFICIENT, moved, w)
            return VariableStepState(w, mu, known(trend + e * x, x.dtype))

        return sample.repeat(once, state)


class AffineState(NamedTuple):
    """The state of affine projection."""

    w: Array  # the coefficients, (r,), 0 at the start
    X: Array  # the latest inputs, newest first, (order, r), 0 at the start
    D: Array  # their targets, (order,), 0 at the start


@model
class AffineProjection(Linear):
    """Affine projection: NLMS on the latest K samples at once.

        w ← w + μ λ Xᵀ(X Xᵀ + ε I)⁻¹(D − X w),    X, D: the latest K inputs and targets

    With K = 1 it is NLMS. Where inputs are correlated in time, as speech is, it converges much
    faster than NLMS, for O(K r + K³) a sample. Stability: 0 < μ < 2.

    Args:
      order: K, 1 to 32.
      step_size: 0 < μ < 2; a scalar, or (m,) inside a booster of m learners.
      epsilon: ε > 0; about 1 % of ‖x‖², or more where there is noise.

    >>> import numpy as np, jboost as jb
    >>> u = np.convolve(np.random.default_rng(0).normal(size=1000), [1, 0.9, 0.8, 0.7])
    >>> xs = np.stack([u[3:1000], u[2:999], u[1:998]], axis=1)
    >>> ds = xs @ [1.0, -0.5, 0.2]
    >>> bool(jb.mse(AffineProjection(3, 0.5), xs, ds) < 0.2 * jb.mse(jb.NLMS(0.5), xs, ds))
    True

    Reference: K. Ozeki, T. Umeda, An adaptive filtering algorithm using an orthogonal projection to
    an affine subspace and its properties, Electron. Commun. Jpn. 67-A, 1984.
    """

    order: int = static(default=4)
    step_size: Number = 0.5
    epsilon: Number = 1e-2

    def __post_init__(self) -> None:
        step_size, epsilon = checks.a_number(above=0, below=2), checks.a_number(above=0)
        order = checks.a_whole_number(at_least=1, at_most=MOST_ORDERS)
        checks.fields(self, order=order, step_size=step_size, epsilon=epsilon)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> AffineState:
        X = jnp.zeros((self.order, num_features), dtype_of(dtype))
        return AffineState(X[0], X, X[:, 0])

    def learn(self, state: AffineState, sample: Sample) -> AffineState:
        x, d = sample.x, sample.d
        mu = jnp.asarray(self.step_size, x.dtype) * jnp.minimum(sample.weight, 1)
        epsilon = jnp.asarray(self.epsilon, x.dtype)

        def once(state: AffineState) -> AffineState:
            X = jnp.concatenate([x[None], state.X[:-1]])
            D = jnp.concatenate([d[None], state.D[:-1]])
            gram = jnp.stack([matvec(X, X[k]) for k in range(self.order)])
            gram = gram + epsilon * jnp.eye(self.order, dtype=x.dtype)
            solved = _solved(gram, D - matvec(X, state.w))
            w = state.w + mu * matvec(X.T, solved)
            w = jnp.where(jnp.all(jnp.abs(w) < LARGEST_COEFFICIENT), w, state.w)
            return AffineState(w, X, D)

        return sample.repeat(once, state)


def _solved(A: Array, b: Array) -> Array:
    """Return A⁻¹b of a small positive definite matrix, by operations that a kernel may hold."""
    numbers = jnp.arange(len(b))
    least = LEAST_PIVOT * jnp.max(jnp.stack([A[k, k] for k in range(len(b))]))
    pivots = []
    for k in range(len(b)):
        pivots.append(jnp.maximum(A[k, k], least))
        factors = jnp.where(numbers > k, A[:, k] / pivots[k], 0)
        A, b = A - factors[:, None] * A[k][None, :], b - factors * b[k]
    x = jnp.zeros_like(b)
    for k in reversed(range(len(b))):
        left = b[k] - jnp.sum(jnp.where(numbers > k, A[k] * x, 0))
        x = jnp.where(numbers == k, left / pivots[k], x)
    return x
