"""Combiners with regret bounds: convex mixes of the m predictions, started at their mean.

The experts predict y and their mix ŷ = Σ p_k y_k, where p ≥ 0, Σ p = 1 and at first p = 1/m. The
loss of a sample is λ (ŷ − d)², λ ≤ 1 (a larger weight counts as 1: its loss would set the unit of
all later ones), and r = λ 2 (ŷ − d)(ŷ − y) is the regret of the linearised loss,
which is at least the true regret. Every sum over the past fades by γ a step (`forgetting`).

*Regret* is the loss of the mix minus the loss of a choice that is fixed in hindsight: an expert, or
a convex mix q of experts. The bounds are for γ = 1 and hold for any predictions and targets. Among
``experiments/bench``, ``combiners.py`` has measured regrets and ``regret_bounds.py`` the proofs.
"""

import abc
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, State, checks, model
from jboost.core.numerics import Sum, dtype_of, known
from jboost.core.products import dot

BERNSTEIN = 2.2  # makes r/√V ≥ −0.675, and exp(x − x²) ≤ 1 + x holds down to x = −0.683
LARGEST_LOG_WEIGHT = 1e30  # an expert that far behind is out; a float32 sum might overflow later


class Aggregation(Learner):
    """Base class of combiners whose estimate is a mix ŷ = Σ p_k y_k of the predictions."""

    forgetting: Number
    starts_at_mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.fields(self, forgetting=checks.a_number(above=0, at_most=1))

    @abc.abstractmethod
    def start(self, m: int, dtype: jnp.dtype) -> State:
        """Return the state of m experts before any data."""

    @abc.abstractmethod
    def mix(self, state: State) -> Array:
        """Return p, the weights of the experts."""

    @abc.abstractmethod
    def after(self, state: State, y: Array, d: Array, lam: Array) -> State:
        """Return the state after one good sample of weight λ > 0."""

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return self.start(num_features, dtype_of(dtype))

    def predict(self, state: State, x: ArrayLike) -> Array:
        p = self.mix(state)
        return _mixed(p, known(x, p.dtype))

    def learn(self, state: State, sample: Sample) -> State:
        lam = jnp.minimum(sample.weight, 1)

        def once(state: State) -> State:
            new = self.after(state, sample.x, sample.d, lam)
            return jax.tree.map(partial(jnp.where, lam > 0), new, state)

        return sample.repeat(once, state, guard=False)


class EWAState(NamedTuple):
    """The state of an exponentially weighted average. All of it is 0 at the start."""

    log_weights: Sum  # ln p up to a number common to all experts, (m,)
    S: Array  # at least the largest loss of an expert so far


@model
class EWA(Aggregation):
    """Exponentially weighted average: p_k ∝ exp(−η Σ_t ℓ_k), with the losses ℓ = λ (y − d)².

    Bound on the regret against the best expert: ln m / η where η ℓ ≤ 1/2 for every loss of every
    expert, that is η ≤ 1/(2E²) for errors up to E: there the loss is η-exp-concave (Kivinen and
    Warmuth 1999; Cesa-Bianchi and Lugosi 2006, §3.3). Without ``rate``, η = 1/(2S), where S starts
    at 0 and becomes 2ℓ at a loss ℓ > S. As S at least doubles each time, the regret is at most
    2 S ln m + S, and S ≤ 2E². The mix leaves 1/m slowly: use it to find one expert.

    Args:
      rate: η > 0; by default 1/(2S), from the largest loss so far.
      forgetting: γ in (0, 1].

    >>> combiner = EWA(rate=0.5)
    >>> state = combiner.update(combiner.init(2), jnp.array([1.0, 3.0]), 1.0)
    >>> [round(float(p), 3) for p in combiner.mix(state)]  # 1/(1 + exp(−2)): the losses are 0 and 4
    [0.881, 0.119]
    """

    rate: Number | None = None
    forgetting: Number = 1.0

    def __post_init__(self) -> None:
        checks.fields(self, rate=checks.or_none(checks.a_number(above=0)))
        Aggregation.__post_init__(self)

    def start(self, m: int, dtype: jnp.dtype) -> EWAState:
        return EWAState(Sum.zeros((m,), dtype), jnp.zeros((), dtype))

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
            positive = new_S > 0
            divisor = jnp.where(positive, new_S, 1)
            eta = jnp.where(positive, 0.5 / divisor, 0)
            keep = jnp.where(positive, gamma * (S / divisor), 0)
        else:
            eta, keep = jnp.asarray(self.rate, d.dtype), gamma
        logs = _faded(logs, keep)
        # Only differences count. The largest sum is subtracted to keep the best expert near zero,
        # where float32 is finest; subtracted from the step it would be lost beside a large loss.
        step = jnp.clip(eta * gain, -LARGEST_LOG_WEIGHT, LARGEST_LOG_WEIGHT)
        logs = Sum(logs.total - jnp.max(logs.total), logs.lost).add(step)
        return EWAState(Sum(jnp.maximum(logs.total, -LARGEST_LOG_WEIGHT), logs.lost), new_S)


class BOAState(NamedTuple):
    """The state of Bernstein online aggregation. All of it is 0 at the start."""

    unit: Array  # the unit of R; see `_regrets`
    R: Sum  # Σ (r − r²/√V) of each expert, (m,)
    V: Sum  # 2.2 Σ r² of each expert, (m,), in the square of the unit


@model
class BOA(Aggregation):
    """Bernstein online aggregation, in which every expert has a learning rate 1/√V_k.

        V_k ← V_k + 2.2 r_k²,    R_k ← R_k + r_k − r_k²/√V_k,    p_k ∝ exp(R_k/√V_k)/√V_k

    An expert that never differed from the mix keeps 1/m. The scale of the targets does not matter.

    Bound on the regret against a convex mix q of the experts (an expert is one): Σ_k q_k b_k with

        b_k = √V_k (ln m + 0.91 + N/4 + ln(1 + 1.5 A))

    where N counts the steps at which some |r_k| > √V_k/2, V_k before the step (such a step makes
    V_k grow by half), and A is the mean over the experts of Σ_t (1 − √(V_{k,t−1}/V_{k,t})), at most
    half the logarithm of V_k's growth. The procedure is that of Wintenberger (2017, Machine
    Learning 106), with the constant 2.2 of the R package opera, which needs no range of the losses.
    It is the steadiest of the three and the first to try. A linear mix, such as that of
    ``ForwardNewton(ridge=1.0)``, gains more where errors of the experts cancel.

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

    def start(self, m: int, dtype: jnp.dtype) -> BOAState:
        zeros = Sum.zeros((m,), dtype)
        return BOAState(jnp.zeros((), dtype), zeros, zeros)

    def mix(self, state: BOAState) -> Array:
        differed, root = _root(state.V.total)
        log = state.R.total / root - jnp.log(root)
        top = jax.lax.stop_gradient(jnp.max(jnp.where(differed, log, -jnp.inf)))
        w = jnp.where(differed, jnp.exp(jnp.where(differed, log - top, 0)), 0)
        share = jnp.mean(differed.astype(w.dtype)) / jnp.maximum(jnp.sum(w), 1)
        return jnp.where(differed, share * w, 1 / w.shape[0])

    def after(self, state: BOAState, y: Array, d: Array, lam: Array) -> BOAState:
        gamma = jnp.asarray(self.forgetting, d.dtype)
        r, unit, c = _regrets(self.mix(state), y, d, lam, state.unit, gamma)
        V = _faded(state.V, gamma * c * c).add(BERNSTEIN * r * r)
        positive, root = _root(V.total)
        R = _faded(state.R, gamma * c).add(r - jnp.where(positive, r * r / root, 0))
        return BOAState(unit, R, V)


class MLPolyState(NamedTuple):
    """The state of a polynomially weighted average. All of it is 0 at the start."""

    unit: Array  # the unit of R; see `_regrets`
    R: Sum  # Σ r of each expert, (m,)
    V: Sum  # Σ r² of each expert, (m,), in the square of the unit
    B: Array  # the largest r² of any expert so far, in the square of the unit


@model
class MLPoly(Aggregation):
    """Polynomially weighted average, in which every expert has a learning rate η_k.

        R_k ← R_k + r_k,   B ← max(B, max_j r_j²),   1/η_k = B + Σ_t r_k²,   p_k ∝ η_k max(R_k, 0)

    and p = 1/m where no R_k is positive. An expert that the mix beats gets no weight at all.

    Bound on the regret against a convex mix q of the experts: Σ_k q_k b_k with

        b_k = √(B + Σ_t r_k²) (√D + M √m)

    where D sums η_k r_k² (η_k before the step) over experts and steps, except for the M steps at
    which B more than doubles. Where |r| ≤ 1 is known and B is set to 1 this is Gaillard, Stoltz and
    van Erven's (2014, COLT) √(m (1 + ln(1 + T)) (1 + Σ_t r_k²)). The rule is that of the R package
    opera. It is the quickest of the three to leave an expert that is no longer the best, and still
    quicker with ``forgetting=0.99``.

    Args:
      forgetting: γ in (0, 1].

    >>> combiner = MLPoly()
    >>> state = combiner.update(combiner.init(2), jnp.array([1.0, 3.0]), 1.0)
    >>> combiner.mix(state).tolist()
    [1.0, 0.0]
    """

    forgetting: Number = 1.0

    def start(self, m: int, dtype: jnp.dtype) -> MLPolyState:
        zeros, zero = Sum.zeros((m,), dtype), jnp.zeros((), dtype)
        return MLPolyState(zero, zeros, zeros, zero)

    def mix(self, state: MLPolyState) -> Array:
        power = state.B + state.V.total
        w = jnp.maximum(state.R.total, 0) / jnp.where(power > 0, power, 1)
        total = jnp.sum(w)
        return jnp.where(total > 0, w / jnp.where(total > 0, total, 1), 1 / w.shape[0])

    def after(self, state: MLPolyState, y: Array, d: Array, lam: Array) -> MLPolyState:
        gamma = jnp.asarray(self.forgetting, d.dtype)
        r, unit, c = _regrets(self.mix(state), y, d, lam, state.unit, gamma)
        B = jnp.maximum(gamma * c * c * state.B, jnp.max(r * r))
        V = _faded(state.V, gamma * c * c).add(r * r)
        return MLPolyState(unit, _faded(state.R, gamma * c).add(r), V, B)


def _mixed(p: Array, y: Array) -> Array:
    """Return Σ p_k y_k, which is exactly the common value where all y_k are equal."""
    return y[0] + dot(p, y - y[0])


def _regrets(
    p: Array, y: Array, d: Array, lam: Array, unit: Array, gamma: Array
) -> tuple[Array, Array, Array]:
    """Return r of every expert in a new unit, the new unit, and the old unit in the new one.

    Squares of r would overflow float32 from errors of 1e9 on, so the unit is at least the largest
    |r| that still counts, and at least doubles when it grows. The rules do not depend on it.
    """
    y_hat = _mixed(p, y)
    r = (2 * lam * (y_hat - d)) * (y_hat - y)
    faded, largest = jnp.sqrt(gamma) * unit, jnp.max(jnp.abs(r))
    new = jax.lax.stop_gradient(jnp.where(largest > faded, 2 * largest, faded))
    divisor = jnp.where(new > 0, new, 1)
    return r / divisor, new, jax.lax.stop_gradient(unit) / divisor


def _faded(total: Sum, keep: Array) -> Sum:
    return Sum(keep * total.total, keep * total.lost)


def _root(V: Array) -> tuple[Array, Array]:
    """Return whether V > 0, and √V there and 1 elsewhere, as a root has no derivative at 0."""
    positive = V > 0
    return positive, jnp.sqrt(jnp.where(positive, V, 1))
