"""The weight λ of each learner of a booster, from the errors of the learners before it.

The chain is the paper's, with its letters: the total loss l¹ = 0, l^(k+1) = l^(k) + σ_m² − (e^(k))²
(eq. `loss`), the importance λ = min{1, δ^(c·l)} (eq. `weights`), the weighted MSE/4 so far δ, and
the sum of the weights Λ (eq. `delta`). σ_m² is `target_mse`, c `dependence` and σ² `guarantee`.
The errors are a-priori, so λ of all learners is known before any of them is updated, and the chain
over k is a prefix sum. ``chain="scan"`` walks it literally, one learner after the other.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jboost.core import Number, checks, losses, model, static
from jboost.core.losses import Loss
from jboost.core.numerics import LARGEST, Sum
from jboost.core.products import sums_before

# δ = 0 with l > 0 makes λ = 0, and then δ and the learner never change again. The first sample
# always reaches that deadlock; a small floor under δ ends it.
SMALLEST_DELTA = 1e-6
LARGEST_SQUARE = LARGEST**2  # of an error that enters l; beyond it l is as good as −∞ and λ is 1


class EmphasisState(NamedTuple):
    """The record of each learner, (m,), 0 at the start; the quotient of the two sums is δ."""

    Lam: Sum  # Λ = Σ λ
    loss: Sum  # Σ λ·(clipped squared error)/4


@model
class Emphasis:
    """The rule that computes λ from the errors of the learners before, and records δ and Λ.

    Its arguments are those of :func:`jboost.boost`. With ``literal`` δ₀ = 0 (where 0⁰ = 1, 0⁺ = 0
    and 0⁻ → 1), and the estimate is clipped to [−1, 1] inside δ. Otherwise δ is at least 1e-6, and
    an error enters it as min(1, e²/4). That is the paper's δ where |d| ≤ 1 and |y| ≤ 1, and
    0 ≤ δ ≤ 1 for any target. With a ``loss`` its deviance takes the place of e² in the chain and in
    δ.
    """

    target_mse: Number
    dependence: Number = 1.0
    guarantee: Number | None = None
    chain: str = static(default="prefix")
    literal: bool = static(default=False)
    loss: Loss | None = None

    def __post_init__(self) -> None:
        from_zero, share = checks.a_number(at_least=0), checks.a_number(above=0, below=1)
        checks.fields(self, target_mse=from_zero, dependence=from_zero)
        checks.fields(self, guarantee=checks.or_none(share), chain=checks.one_of("prefix", "scan"))
        checks.fields(self, literal=checks.flag, loss=losses.rule)
        if self.literal and self.loss is not None:
            raise ValueError("loss must be None in a literal model: the paper's is the squared one")

    def init(self, m: int, dtype: DTypeLike) -> EmphasisState:
        return EmphasisState(Sum.zeros((m,), dtype), Sum.zeros((m,), dtype))

    def delta(self, state: EmphasisState) -> Array:
        """Return δ_{t−1} of each learner."""
        Lam, loss = state.Lam.total, state.loss.total
        positive = Lam > jnp.finfo(Lam.dtype).tiny ** 0.5  # the derivative of loss/Λ divides by Λ²
        delta = jnp.where(positive, loss / jnp.where(positive, Lam, 1), 0)
        return delta if self.literal else jnp.maximum(delta, SMALLEST_DELTA)

    def importance(self, delta: Array, loss: Array) -> Array:
        """Return λ = min{1, δ^(c·l)} = exp(c min{0, l·ln δ}), whose gradient is always finite."""
        c = jnp.asarray(self.dependence, loss.dtype)
        if self.guarantee is not None:
            delta, c = jnp.asarray(self.guarantee, loss.dtype), jnp.asarray(0.5, loss.dtype)
        tiny = jnp.finfo(loss.dtype).tiny
        lowest = math.log(tiny) + 1  # λ > 0 where δ > 0: data reuse learns at least once, ceil(K λ)

        def power(delta: Array) -> Array:
            return jnp.exp(jnp.maximum(c * jnp.minimum(loss * jnp.log(delta), 0), lowest))

        if not self.literal:
            return power(delta)
        positive = delta > tiny
        lam = power(jnp.where(positive, delta, 1))
        return jnp.where(positive, lam, jnp.where(c * loss > 0, jnp.zeros_like(lam), 1))

    def record(self, state: EmphasisState, y: Array, d: Array, lam: Array) -> EmphasisState:
        if self.literal:
            error = jnp.square(d - jnp.clip(y, -1, 1)) / 4
        else:
            error = jnp.minimum(self.square(y, d) / 4, 1)
        return EmphasisState(state.Lam.add(lam), state.loss.add(lam * error))

    def square(self, y: Array, d: Array) -> Array:
        """Return e², or what takes its place: the deviance of the loss, twice its value."""
        return jnp.square(d - y) if self.loss is None else self.loss.deviance(y, d)

    def weigh(
        self, state: EmphasisState, y: Array, d: Array, weight: Array
    ) -> tuple[Array, EmphasisState]:
        """Return λ of every learner for a sample of a weight, and the record that includes it."""
        target_mse = jnp.broadcast_to(jnp.asarray(self.target_mse, y.dtype), y.shape)
        # The square of a huge estimate may overflow, and 0 · ∞ below would be NaN for ever.
        gain = target_mse - jnp.minimum(self.square(y, d), LARGEST_SQUARE)
        if self.chain == "prefix":
            lam = self.importance(self.delta(state), sums_before(gain))
            return lam, self.record(state, y, d, weight * lam)

        def link(
            loss: Array, learner: tuple[EmphasisState, Array, Array]
        ) -> tuple[Array, tuple[Array, EmphasisState]]:
            state, y, gain = learner
            lam = self.importance(self.delta(state), loss)
            return loss + gain, (lam, self.record(state, y, d, weight * lam))

        _, (lam, state) = jax.lax.scan(link, jnp.zeros((), y.dtype), (state, y, gain))
        return lam, state
