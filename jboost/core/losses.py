"""Losses: what a learner makes small, where that is not the squared error.

A loss is a function ℓ of a raw estimate v = wᵀx, or f(x), and the target d. A learner needs:

    mean(v)              the estimate of d that v stands for: v itself, but exp(v) for Poisson
    residual(v, d)       ρ = −∂ℓ/∂v, which is d − v for the squared loss
    curvature(v, d)      h > 0, which makes v + ρ/h the target of a least-squares step of weight h
    gap(v, d)            how far v is from the value at which the loss is least
    deviance(y, d)       2ℓ of an estimate y of d, less the least it can be: (d − y)² if squared
"""

import abc
import math

import jax.numpy as jnp
from jax import Array

from jboost.core import checks
from jboost.core.numerics import LARGEST
from jboost.core.pytree import Number, model

LARGEST_LOG = math.log(LARGEST)
LOG_TWO = math.log(2)


class Loss(abc.ABC):
    """Base class of losses; subclasses are decorated with :func:`jboost.model`."""

    @property
    def has_link(self) -> bool:
        """Whether the estimate of d is not v itself."""
        return False

    def mean(self, v: Array) -> Array:
        """Return the estimate of d that v stands for."""
        return v

    def gap(self, v: Array, d: Array) -> Array:
        """Return what must be added to v so that the loss is least."""
        return d - v

    @abc.abstractmethod
    def residual(self, v: Array, d: Array) -> Array:
        """Return ρ = −∂ℓ/∂v."""

    @abc.abstractmethod
    def curvature(self, v: Array, d: Array) -> Array:
        """Return h > 0: the weight of a least-squares step towards v + ρ/h."""

    @abc.abstractmethod
    def deviance(self, y: Array, d: Array) -> Array:
        """Return 2ℓ of an estimate y of d, less the least that it can be."""

    def step(self, v: Array, d: Array, mu_s: Array) -> Array:
        """Return how far a step of length μ along the gradient moves v; ``mu_s`` is μ‖x‖².

        Where μ‖x‖² > 2 a step on the squared loss would diverge: v moves to the least loss instead.
        """
        return jnp.where(mu_s <= 2, mu_s * self.residual(v, d), self.gap(v, d))


@model
class SquaredLoss(Loss):
    """The squared error: ℓ = (d − v)²/2. Its estimates are means."""

    def residual(self, v: Array, d: Array) -> Array:
        return d - v

    def curvature(self, v: Array, d: Array) -> Array:
        return jnp.ones_like(v)

    def deviance(self, y: Array, d: Array) -> Array:
        return jnp.square(d - y)


@model
class AbsoluteLoss(Loss):
    """The absolute error: ℓ = |d − v|. Its estimates are medians.

    Args:
      width: > 0; errors below it count as errors of this size in a least-squares step.
    """

    width: Number = 0.1

    def __post_init__(self) -> None:
        checks.fields(self, width=checks.a_number(above=0))

    def residual(self, v: Array, d: Array) -> Array:
        return jnp.sign(d - v)

    def curvature(self, v: Array, d: Array) -> Array:
        return 1 / (jnp.abs(d - v) + jnp.asarray(self.width, v.dtype))

    def deviance(self, y: Array, d: Array) -> Array:
        return 2 * jnp.abs(d - y)


@model
class PinballLoss(Loss):
    """The pinball loss: ℓ = τ(d − v) where d ≥ v, else (1 − τ)(v − d). Its estimates are quantiles.

    A part τ of the answers lies below the estimates.

    Args:
      tau: τ in (0, 1); 0.5 is half the absolute error.
      width: as for :class:`AbsoluteLoss`.

    >>> loss, v, d = PinballLoss(0.9), jnp.array([0.0, 0.0]), jnp.array([1.0, -1.0])
    >>> loss.residual(v, d).round(2).tolist(), loss.deviance(v, d).round(2).tolist()
    ([0.89..., -0.09...], [1.79..., 0.19...])

    Reference: R. Koenker, G. Bassett, Regression quantiles, Econometrica 46, 1978; D. R. Hunter,
    K. Lange, Quantile regression via an MM algorithm, J. Comput. Graph. Statist. 9, 2000.
    """

    tau: Number
    width: Number = 0.1

    def __post_init__(self) -> None:
        checks.fields(self, tau=checks.a_number(above=0, below=1), width=checks.a_number(above=0))

    def residual(self, v: Array, d: Array) -> Array:
        tau = jnp.asarray(self.tau, v.dtype)
        return jnp.where(d >= v, tau, tau - 1)

    def curvature(self, v: Array, d: Array) -> Array:
        return 0.5 / (jnp.abs(d - v) + jnp.asarray(self.width, v.dtype))

    def deviance(self, y: Array, d: Array) -> Array:
        return 2 * self.residual(y, d) * (d - y)


@model
class HuberLoss(Loss):
    """Huber's loss: (d − v)²/2 for errors up to k, and k(|d − v| − k/2) beyond.

    :class:`jboost.Huber` finds k from the errors; here it is fixed, in units of d.

    Args:
      threshold: k > 0.
    """

    threshold: Number = 1.0

    def __post_init__(self) -> None:
        checks.fields(self, threshold=checks.a_number(above=0))

    def residual(self, v: Array, d: Array) -> Array:
        k = jnp.asarray(self.threshold, v.dtype)
        return jnp.clip(d - v, -k, k)

    def curvature(self, v: Array, d: Array) -> Array:
        k = jnp.asarray(self.threshold, v.dtype)
        return k / jnp.maximum(jnp.abs(d - v), k)

    def deviance(self, y: Array, d: Array) -> Array:
        k, e = jnp.asarray(self.threshold, y.dtype), jnp.abs(d - y)
        return jnp.where(e <= k, jnp.square(jnp.minimum(e, k)), k * (2 * e - k))


@model
class LogCoshLoss(Loss):
    """The logarithm of the hyperbolic cosine: ℓ = k² log cosh((d − v)/k), a smooth Huber's loss.

    Args:
      scale: k > 0, in units of d: errors far below it count as their squares, others as their size.
    """

    scale: Number = 1.0

    def __post_init__(self) -> None:
        checks.fields(self, scale=checks.a_number(above=0))

    def residual(self, v: Array, d: Array) -> Array:
        k = jnp.asarray(self.scale, v.dtype)
        return k * jnp.tanh((d - v) / k)

    def curvature(self, v: Array, d: Array) -> Array:
        u = jnp.abs(d - v) / jnp.asarray(self.scale, v.dtype)
        small = u < 1e-2  # where tanh(u)/u is 1 − u²/3
        ratio = jnp.tanh(u) / jnp.where(small, 1, u)
        return jnp.where(small, 1 - u * u / 3, ratio)

    def deviance(self, y: Array, d: Array) -> Array:
        k = jnp.asarray(self.scale, y.dtype)
        u = jnp.abs(d - y) / k
        return 2 * k * k * (u + jnp.log1p(jnp.exp(-2 * u)) - LOG_TWO)


@model
class PoissonLoss(Loss):
    """The Poisson loss for counts: ℓ = exp(v) − d v. The estimate of d is exp(v), above 0.

    Targets below 0 count as 0. Do not put it behind ``ScaleTarget``, whose targets are no counts. A
    step never goes beyond the v at which the loss of its sample is least, log d; for d = 0 that is
    taken to be log ½.
    """

    @property
    def has_link(self) -> bool:
        return True

    def mean(self, v: Array) -> Array:
        return jnp.exp(jnp.clip(v, -LARGEST_LOG, LARGEST_LOG))

    def gap(self, v: Array, d: Array) -> Array:
        return jnp.log(jnp.maximum(d, 0.5)) - v

    def residual(self, v: Array, d: Array) -> Array:
        return jnp.maximum(d, 0) - self.mean(v)

    def curvature(self, v: Array, d: Array) -> Array:
        # Where the target is far above the estimate, a step of weight exp(v) would go far too far:
        # the chord from v to the least loss is steeper than the tangent.
        gap = self.gap(v, d)
        apart = jnp.abs(gap) > 1e-2
        chord = self.residual(v, d) / jnp.where(apart, gap, 1)
        return jnp.maximum(self.mean(v), jnp.where(apart, chord, 0))

    def deviance(self, y: Array, d: Array) -> Array:
        y, d = jnp.maximum(y, 1e-6), jnp.maximum(d, 0)
        logs = jnp.where(d > 0, d * jnp.log(jnp.where(d > 0, d, 1) / y), 0)
        return 2 * jnp.maximum(logs - d + y, 0)

    def step(self, v: Array, d: Array, mu_s: Array) -> Array:
        farthest = jnp.abs(self.gap(v, d))
        return jnp.clip(mu_s * self.residual(v, d), -farthest, farthest)


def rule(name: str, value: object) -> Loss | None:
    """Check a field ``loss`` of a learner; the squared loss is None, which computes least."""
    advice = "one of jboost.losses, such as losses.pinball(0.9), or None for the squared loss"
    if value is None or isinstance(value, SquaredLoss):
        return None
    return checks.instance(name, value, Loss, advice)


squared, absolute, huber = SquaredLoss, AbsoluteLoss, HuberLoss
pinball, log_cosh, poisson = PinballLoss, LogCoshLoss, PoissonLoss
