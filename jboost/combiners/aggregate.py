"""Combiners with regret bounds: convex mixes of the m predictions, started at their mean.

| letter | name         | meaning                                                                  |
|--------|--------------|--------------------------------------------------------------------------|
| y, ŷ   |              | the predictions of the experts, and their mix ŷ = Σ p_k y_k              |
| p      |              | the mix: p ≥ 0, Σ p = 1, at first 1/m                                    |
| λ      | `weight`     | importance of the sample: its loss is λ (ŷ − d)²                         |
| r      |              | λ 2 (ŷ − d)(ŷ − y): the regret of the linearised loss, at least the true |
| γ      | `forgetting` | every sum over the past fades by γ a step; bounds are for γ = 1          |

*Regret* is the loss of the mix minus that of a fixed choice made in hindsight: an expert, or, since
the linearised loss is linear in the choice, a convex mix q of them. Bounds hold for any sequence of
predictions and targets. ``experiments/bench/combiners.py`` measures regrets beside their bounds,
and where each rule pays.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import checks
from jboost.core.learner import Learner, State
from jboost.core.pytree import Number, model
from jboost.core.numerics import Sum, dtype_of, known
from jboost.core.products import dot
from jboost.core.sample import Sample

# With V = 2.2 Σ r², r/√V ≥ −0.675, and exp(x − x²) ≤ 1 + x holds down to −0.683.
BERNSTEIN = 2.2
# An expert this far behind is out for good; further down a float32 sum would overflow.
LARGEST_LOG_WEIGHT = 1e30


class Aggregation(Learner):
    """Base class of combiners whose estimate is a mix ŷ = Σ p_k y_k of the predictions."""

    starts_at_mean: ClassVar[bool] = True

    @abc.abstractmethod
    def mix(self, state: State) -> Array:
        """Return p, the weights of the experts."""

    @abc.abstractmethod
    def after(self, state: State, y: Array, d: Array, lam: Array) -> State:
        """Return the state after one good sample of weight λ > 0."""

    def predict(self, state: State, x: ArrayLike) -> Array:
        p = self.mix(state)
        return _mixed(p, known(x, p.dtype))

    def learn(self, state: State, sample: Sample) -> State:
        def once(state: State) -> State:
            new = self.after(state, sample.x, sample.d, sample.weight)
            return jax.tree.map(lambda new, old: jnp.where(sample.weight > 0, new, old), new, state)

        return sample.repeat(once, state, guard=False)


class EWAState(NamedTuple):
    """Log weights up to a common number, and S: at least the largest loss of an expert so far."""

    log_weights: Sum
    S: Array


@model
class EWA(Aggregation):
    """Exponentially weighted average: p_k ∝ exp(−η Σ_t ℓ_k), with the losses ℓ = λ (y − d)².

    Log weights are kept, relative to the best, so that none underflows for ever; equal predictions
    give exactly their common value.

    Bound, on the regret against the best expert: ln m / η where η ℓ ≤ 1/2 for every loss of every
    expert, that is η ≤ 1/(2E²) for errors up to E, or 1/(8B²) where |y| ≤ B and |d| ≤ B: there the
    loss is η-exp-concave (Kivinen and Warmuth 1999; Cesa-Bianchi and Lugosi 2006, §3.3). Without
    ``rate``, η = 1/(2S) with S = 0 at first and S ← 2ℓ at a loss ℓ > S; S at least doubles then,
    so that the regret is at most 2 S ln m + S, and S ≤ 2E².

    Measured, MSE over that of the best of 12 SGD and Newton experts, mean over ten streams: 1.020
    (at most 1.18). A rate that has a bound is small, so that it leaves 1/m slowly, and it competes
    with single experts only: use it where one expert is to be found, else :class:`BOA`.

    Args:
      rate: η > 0; by default by the largest loss so far.
      forgetting: γ in (0, 1].

    >>> combiner = EWA(rate=0.5)
    >>> state = combiner.update(combiner.init(2), jnp.array([1.0, 3.0]), 1.0)
    >>> [round(float(p), 3) for p in combiner.mix(state)]  # 1/(1 + exp(−2)): the losses are 0 and 4
    [0.881, 0.119]
    """

    rate: Number | None = None
    forgetting: Number = 1.0

    def __post_init__(self) -> None:
        if self.rate is not None:
            object.__setattr__(self, "rate", checks.number("rate", self.rate, above=0))
        object.__setattr__(self, "forgetting", _forgetting(self.forgetting))

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> EWAState:
        del key
        dtype = dtype_of(dtype)
        return EWAState(Sum.zeros((num_features,), dtype), jnp.zeros((), dtype))

    def mix(self, state: EWAState) -> Array:
        return jax.nn.softmax(state.log_weights.total)

    def after(self, state: EWAState, y: Array, d: Array, lam: Array) -> EWAState:
        logs, S = state
        gamma = jnp.asarray(self.forgetting, d.dtype)
        y_hat = _mixed(self.mix(state), y)
        gain = lam * (y_hat - y) * ((y_hat - d) + (y - d))  # the mix's loss less each expert's
        largest = jnp.max(lam * jnp.square(y - d))
        new_S = jnp.where(largest > gamma * S, 2 * largest, gamma * S)
        if self.rate is None:
            some = new_S > 0
            eta = jnp.where(some, 0.5 / jnp.where(some, new_S, 1), 0)
            keep = jnp.where(some, gamma * (S / jnp.where(some, new_S, 1)), 0)
        else:
            eta, keep = jnp.asarray(self.rate, d.dtype), gamma
        logs = _faded(logs, keep)
        # Only differences count: what is subtracted keeps the best near zero, where digits are.
        # From the sum and not from the step, which would be lost beside a large loss just before.
        step = jnp.clip(eta * gain, -LARGEST_LOG_WEIGHT, LARGEST_LOG_WEIGHT)
        logs = Sum(logs.total - jnp.max(logs.total), logs.lost).add(step)
        return EWAState(Sum(jnp.maximum(logs.total, -LARGEST_LOG_WEIGHT), logs.lost), new_S)


class BOAState(NamedTuple):
    """In units of ``unit``: R = Σ (r − r²/√V) and, of its square, V = 2.2 Σ r²."""

    unit: Array
    R: Sum
    V: Sum


@model
class BOA(Aggregation):
    """Bernstein online aggregation, with a learning rate 1/√V of its own for every expert.

        V_k ← V_k + 2.2 r_k²,    R_k ← R_k + r_k − r_k²/√V_k,    p_k ∝ exp(R_k/√V_k)/√V_k

    Experts with V = 0, which never differed from the mix, keep 1/m. Nothing depends on the scale of
    the targets, and there is nothing to tune.

    Bound, on the regret against a convex mix q of the experts (an expert is one): Σ_k q_k b_k with

        b_k = √V_k (ln m + 0.91 + N/4 + ln(1 + 1.5 A))

    where N counts the steps at which some |r_k| > √V_k/2, V_k before the step (such a step makes
    V_k grow by half), and A is the mean over the experts of Σ_t (1 − √(V_{k,t−1}/V_{k,t})), at most
    half the logarithm of V_k's growth. The proof is in ``experiments/bench/regret_bounds.py``,
    after Wintenberger (2017, Machine Learning 106), whose procedure it is; the constant 2.2 and the
    form without the range are those of the R package opera.

    Measured as for :class:`EWA`: 0.999 (at most 1.06), the steadiest of the three and the first to
    try. ``ForwardNewton(ridge=1.0)``, whose mix is linear, had 0.996 (at most 1.07): it gains where
    errors of the experts cancel, and its bound grows with the range of the targets.

    Args:
      forgetting: γ in (0, 1].

    >>> combiner = BOA()
    >>> state = combiner.init(2)
    >>> for d in (1.0, 1.2, 0.9):
    ...     state = combiner.update(state, jnp.array([1.0, 3.0]), d)
    >>> bool(combiner.mix(state)[0] > 0.75)
    True
    """

    forgetting: Number = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "forgetting", _forgetting(self.forgetting))

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> BOAState:
        del key
        zeros = Sum.zeros((num_features,), dtype_of(dtype))
        return BOAState(jnp.zeros((), zeros.total.dtype), zeros, zeros)

    def mix(self, state: BOAState) -> Array:
        some, root = _root(state.V.total)
        log = state.R.total / root - jnp.log(root)
        top = jax.lax.stop_gradient(jnp.max(jnp.where(some, log, -jnp.inf)))
        w = jnp.where(some, jnp.exp(jnp.where(some, log - top, 0)), 0)
        share = jnp.mean(some.astype(w.dtype)) / jnp.maximum(jnp.sum(w), 1)
        return jnp.where(some, share * w, 1 / w.shape[0])

    def after(self, state: BOAState, y: Array, d: Array, lam: Array) -> BOAState:
        gamma = jnp.asarray(self.forgetting, d.dtype)
        r, unit, c = _in_units(_regret(self.mix(state), y, d, lam), state.unit, gamma)
        V = _faded(state.V, gamma * c * c).add(BERNSTEIN * r * r)
        some, root = _root(V.total)
        R = _faded(state.R, gamma * c).add(r - jnp.where(some, r * r / root, 0))
        return BOAState(unit, R, V)


class MLPolyState(NamedTuple):
    """In units of ``unit``: R = Σ r, and, of its square, V = Σ r² and B, the largest r² of any."""

    unit: Array
    R: Sum
    V: Sum
    B: Array


@model
class MLPoly(Aggregation):
    """Polynomially weighted average with a learning rate η for every expert, not to be tuned.

        R_k ← R_k + r_k,   B ← max(B, max_j r_j²),   1/η_k = B + Σ_t r_k²,   p_k ∝ η_k max(R_k, 0)

    and p = 1/m where no R_k is positive. An expert that the mix beats gets no weight at all.

    Bound, on the regret against a convex mix q of the experts: Σ_k q_k b_k with

        b_k = √(B + Σ_t r_k²) (√D + M √m)

    where D sums η_k r_k² (η_k before the step) over experts and steps, but for the M steps at which
    B more than doubles. Where |r| ≤ 1 is known and B is set to 1 this is Gaillard, Stoltz and van
    Erven's (2014, COLT) √(m (1 + ln(1 + T)) (1 + Σ_t r_k²)). The proof for an unknown range is in
    ``experiments/bench/regret_bounds.py``; the rule is that of the R package opera.

    Measured as for :class:`EWA`: 1.005 (at most 1.09). It is the quickest to leave an expert: where
    the best of three changed eleven times its MSE was .0063, BOA's .020 and that of recursive least
    squares .039; with ``forgetting=0.99`` it was .0037.

    Args:
      forgetting: γ in (0, 1].

    >>> combiner = MLPoly()
    >>> state = combiner.update(combiner.init(2), jnp.array([1.0, 3.0]), 1.0)
    >>> combiner.mix(state).tolist()
    [1.0, 0.0]
    """

    forgetting: Number = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "forgetting", _forgetting(self.forgetting))

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> MLPolyState:
        del key
        zeros = Sum.zeros((num_features,), dtype_of(dtype))
        zero = jnp.zeros((), zeros.total.dtype)
        return MLPolyState(zero, zeros, zeros, zero)

    def mix(self, state: MLPolyState) -> Array:
        power = state.B + state.V.total
        w = jnp.maximum(state.R.total, 0) / jnp.where(power > 0, power, 1)
        total = jnp.sum(w)
        some = total > 0
        return jnp.where(some, w / jnp.where(some, total, 1), 1 / w.shape[0])

    def after(self, state: MLPolyState, y: Array, d: Array, lam: Array) -> MLPolyState:
        gamma = jnp.asarray(self.forgetting, d.dtype)
        r, unit, c = _in_units(_regret(self.mix(state), y, d, lam), state.unit, gamma)
        B = jnp.maximum(gamma * c * c * state.B, jnp.max(r * r))
        V = _faded(state.V, gamma * c * c).add(r * r)
        return MLPolyState(unit, _faded(state.R, gamma * c).add(r), V, B)


def _forgetting(value: Any) -> Any:
    return checks.number("forgetting", value, above=0, at_most=1)


def _mixed(p: Array, y: Array) -> Array:
    """Σ p_k y_k, exactly the common value where all are equal."""
    return y[0] + dot(p, y - y[0])


def _regret(p: Array, y: Array, d: Array, lam: Array) -> Array:
    """r of every expert; Σ p_k r_k = 0."""
    y_hat = _mixed(p, y)
    return (2 * lam * (y_hat - d)) * (y_hat - y)


def _in_units(r: Array, unit: Array, gamma: Array) -> tuple[Array, Array, Array]:
    """(r/unit, unit, old unit/unit): squares of r would overflow float32 from errors of 1e9 on.

    The rules do not depend on the unit, so it has no gradient. It is at least the largest |r| of
    the past that counts, and at least doubles when it grows, so that it rarely does.
    """
    faded = jnp.sqrt(gamma) * unit
    largest = jnp.max(jnp.abs(r))
    new = jax.lax.stop_gradient(jnp.where(largest > faded, 2 * largest, faded))
    divisor = jnp.where(new > 0, new, 1)
    return r / divisor, new, jax.lax.stop_gradient(unit) / divisor


def _faded(total: Sum, keep: Array) -> Sum:
    return Sum(keep * total.total, keep * total.lost)


def _root(V: Array) -> tuple[Array, Array]:
    """Where V > 0, and √V there (1 elsewhere: a root has no derivative at 0)."""
    some = V > 0
    return some, jnp.sqrt(jnp.where(some, V, 1))
