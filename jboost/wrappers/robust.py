"""Huber's loss around any learner: an outlier pulls like an error of a few deviations, no more.

| letter | name        | meaning                                                    |
|--------|-------------|------------------------------------------------------------|
| k      | `threshold` | errors beyond k deviations are outliers                    |
| s      | `scale`     | running median of the sizes of the errors                  |
| σ̂      |             | 1.4826 s: the deviation of Gaussian errors with median s   |
| e      |             | d − d̂                                                      |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.numerics import dtype_of

GAUSSIAN = 1.4826  # the deviation over the median size of Gaussian numbers
# Steps of log s are ±a/2, a = GAIN/n: best for the median of log|e| is one over its density there,
# 0.43 for Gaussian errors. SLOWEST leaves s a random error of 8 %.
GAIN, SLOWEST = 2.3, 0.02
LONGEST_RUN = 8  # errors on one side of s: by chance once in 256


class Median(NamedTuple):
    """s, 0 before the first error that is not; the n of its gain; errors on one side of s, ±."""

    s: Array
    n: Array
    run: Array

    @classmethod
    def zeros(cls, dtype: Any) -> Median:
        zero = jnp.zeros((), dtype)
        return cls(zero, zero + 1, zero)

    def after(self, size: Array) -> Median:
        """The median after one more number ≥ 0, by its side of s alone: it may be of any size.

            log s ← log s ± a/2,    a = max(GAIN/n, SLOWEST)

        After Kesten n counts changes of side only, and it halves with every number of a run on one
        side: s finds its place from anywhere, and again after a change, in some twenty steps.
        """
        s, n, run = self
        side = jnp.where(size > s, 1, -1).astype(s.dtype)
        turned = side * run < 0
        run = jnp.where(turned, side, run + side)
        long = jnp.abs(run) > LONGEST_RUN
        n = jnp.where(turned, n + 1, jnp.where(long, jnp.maximum(n / 2, 1), n))
        a = jnp.maximum(GAIN / n, SLOWEST)
        moved = jnp.where(s > 0, s * jnp.exp(side * a / 2), size)
        some = size > 0  # an exact fit says nothing of the scale of what is not
        tiny = jnp.finfo(s.dtype).tiny
        return Median(
            jnp.where(some, jnp.maximum(moved, tiny), s),
            jnp.where(some & (s > 0), jnp.minimum(n, GAIN / SLOWEST), self.n),
            jnp.where(some & (s > 0), jnp.clip(run, -LONGEST_RUN - 1, LONGEST_RUN + 1), self.run),
        )


class HuberState(NamedTuple):
    """The scale of the errors, and the learner."""

    scale: Median
    learner: State


@model
class Huber(Wrapper):
    """A learner under Huber's loss: quadratic for |e| ≤ k σ̂, linear beyond.

        acts_on="weight":  learn d with weight min(1, k σ̂/|e|)
        acts_on="target":  learn d̂ + clip(e, ±k σ̂) with the full weight

    and nothing at all from |e| > ``reject`` σ̂, as Hampel: while a Newton's P is large even a small
    weight moves it far, and early on k σ̂ is still much to an SGD.

    For a learner of the SGD family either is the exact gradient of Huber's loss. For Newton the
    first is iteratively reweighted least squares, the second Huber's method of modified residuals;
    both have the same fixed point. With the second no part of a pipeline or a booster, be it a
    scale or an emphasis, ever sees the outlier.

    σ̂ comes from the errors before the sample, by a running median, so neither one absurd target nor
    its size matters and other units give the same weights. The first error of all only sets it.
    Errors that stay large are a change, not outliers: σ̂ follows within some twenty samples.

    Cost: clean samples beyond k σ̂ count less. For Gaussian errors k = 1.345 loses 5 % of the
    samples' worth, k = 3 nothing. Targets whose large values *are* the message want a large k, or
    no Huber: where errors are skewed it learns towards their median, and where most are next to
    nothing (a target that is 0 but for a tenth of the samples) it takes the others for outliers.

    Args:
      learner: any learner.
      threshold: k > 0.
      reject: at least k; None never rejects, which is Huber's loss itself.
      acts_on: "weight" or "target".

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(5000)
    >>> spoilt = ds.at[::100].set(400.0)
    >>> model = jb.Newton(0.999)
    >>> clean = jb.mse(model, xs, ds)
    >>> robust, plain = (jb.run(m, xs, spoilt)[1].prediction for m in (Huber(model), model))
    >>> bool(((robust - ds) ** 2).mean() < 1.1 * clean), bool(((plain - ds) ** 2).mean() > 10)
    (True, True)

    References: P. J. Huber, Robust estimation of a location parameter, Ann. Math. Statist. 35,
    1964; F. R. Hampel, The influence curve and its role in robust estimation, JASA 69, 1974;
    H. Kesten, Accelerated stochastic approximation, Ann. Math. Statist. 29, 1958.
    """

    learner: Learner
    threshold: Number = 3.0
    reject: Any = 30.0
    acts_on: str = static(default="weight")

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        threshold = checks.number("threshold", self.threshold, above=0)
        object.__setattr__(self, "threshold", threshold)
        if self.reject is not None:
            object.__setattr__(self, "reject", checks.number("reject", self.reject, above=0))
        checks.choice("acts_on", self.acts_on, ("weight", "target"))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> HuberState:
        learner = self.learner.init(num_features, dtype, key=key)
        return HuberState(Median.zeros(dtype_of(dtype)), learner)

    def learn(self, state: HuberState, sample: Sample) -> HuberState:
        estimate, e = self._error(state, sample)
        share = self._share(state.scale, e)
        if self.acts_on == "target":
            told = sample.with_target(jnp.where(share < 1, estimate + share * e, sample.d))
        else:
            told = sample.replace(weight=sample.weight * share)
        scale = sample.keep(state.scale.after(jnp.abs(e)), state.scale)
        told = told.only_if(share > 0)  # else the sample is rejected, or there is no scale yet
        return HuberState(scale, self.learner.learn(state.learner, told))

    def info(self, state: HuberState, sample: Sample) -> dict[str, Any]:
        """Report what the learner reports of the target as it came, and ``share``."""
        _, e = self._error(state, sample)
        reported = self.learner.info(state.learner, sample)
        return reported | {"share": self._share(state.scale, e)}

    def _error(self, state: HuberState, sample: Sample) -> tuple[Array, Array]:
        """Return d̂ and e, which is 0 where the sample is not good."""
        estimate = self.learner.predict(state.learner, sample.x)
        return estimate, jnp.where(sample.good, sample.d - estimate, 0)

    def _share(self, scale: Median, e: Array) -> Array:
        """min(1, k σ̂/|e|), 0 beyond ``reject`` σ̂, and 1 where e is 0."""
        sigma, size = jnp.asarray(GAUSSIAN, e.dtype) * scale.s, jnp.abs(e)
        most = jnp.asarray(self.threshold, e.dtype) * sigma
        far = size > most
        share = jnp.where(far, most / jnp.where(far, size, 1), 1)
        if self.reject is None:
            return share
        return jnp.where(size > jnp.asarray(self.reject, e.dtype) * sigma, 0, share)
