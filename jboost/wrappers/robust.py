"""Huber: an outlier changes the learner no more than an error of a few deviations would."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of

GAUSSIAN = 1.4826  # the deviation over the median size of Gaussian numbers
# log s moves by ±a/2 with a = GAIN/n. For a median the best gain is one over the density at the
# median, which for log|e| of Gaussian errors is 0.43. a is at least SLOWEST, which leaves s with a
# random error of 8 %.
GAIN, SLOWEST = 2.3, 0.02
LONGEST_RUN = 8  # errors in a row on one side of s: happens by chance once in 256


class Median(NamedTuple):
    """The running median of positive numbers of any size."""

    s: Array  # the median; 0 before the first number
    n: Array  # the count that sets the gain of s, 1 at the start
    run: Array  # how many numbers in a row lay above s, negative if below; 0 at the start

    @classmethod
    def zeros(cls, dtype: DTypeLike) -> "Median":
        zero = jnp.zeros((), dtype)
        return cls(zero, zero + 1, zero)

    def after(self, size: Array) -> "Median":
        """Return the median after one more number ≥ 0; a number of 0 leaves it as it was.

            log s ← log s ± a/2,    a = max(GAIN/n, SLOWEST)

        up if the number is above s, down if it is below. After Kesten, n counts only those numbers
        that lie on another side of s than the number before. Within a long run on one side, every
        number halves n. So s reaches the median from anywhere in some twenty steps.
        """
        s, n, run = self
        side = jnp.where(size > s, 1, -1).astype(s.dtype)
        turned = side * run < 0
        run = jnp.where(turned, side, run + side)
        long = jnp.abs(run) > LONGEST_RUN
        n = jnp.where(turned, n + 1, jnp.where(long, jnp.maximum(n / 2, 1), n))
        a = jnp.maximum(GAIN / n, SLOWEST)
        moved = jnp.where(s > 0, s * jnp.exp(side * a / 2), size)
        counts = size > 0  # an exact fit says nothing of how large the other errors are
        later = counts & (s > 0)
        return Median(
            jnp.where(counts, jnp.maximum(moved, jnp.finfo(s.dtype).tiny), s),
            jnp.where(later, jnp.minimum(n, GAIN / SLOWEST), self.n),
            jnp.where(later, jnp.clip(run, -LONGEST_RUN - 1, LONGEST_RUN + 1), self.run),
        )


class HuberState(NamedTuple):
    """The state of a learner under Huber's loss."""

    scale: Median  # of |e|
    learner: State


@model
class Huber(Wrapper):
    """A learner under Huber's loss, which is quadratic for |e| ≤ k σ̂ and linear beyond.

        acts_on="weight":  learn d with weight min(1, k σ̂/|e|)
        acts_on="target":  learn d̂ + clip(e, ±k σ̂) with the full weight

    Here e = d − d̂, and σ̂ is 1.4826 times the running median of |e| before the sample, which is the
    deviation of Gaussian errors. A sample with |e| > ``reject`` σ̂ is not learned at all, as with
    Hampel: while the P of a Newton is large even a small weight moves it far.

    For a learner of the SGD family both are the exact gradient of Huber's loss. For Newton the
    first is iteratively reweighted least squares, the second Huber's method of modified residuals;
    their fixed point is the same. With the second, nothing inside the learner, such as a scale or
    an emphasis, ever sees the outlier. The very first error sets σ̂ and is not learned. Errors that
    stay large are a change, not outliers: σ̂ follows within some twenty samples.

    With Gaussian errors k = 1.345 loses 5 % of the samples' worth, k = 3 loses nothing. Use a large
    k, or no Huber, where large targets matter: with skewed errors it learns towards their median,
    and where most errors are almost 0 it takes the others for outliers. Besides the learner's
    reports, ``info`` has ``share``: the part of the sample, or of its error, that is learned.

    Args:
      learner: any learner.
      threshold: k > 0.
      reject: at least k; None never rejects, as in Huber's loss itself.
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
    reject: Number | None = 30.0
    acts_on: str = static(default="weight")

    def __post_init__(self) -> None:
        positive = checks.a_number(above=0)
        checks.fields(
            self,
            learner=instance,
            threshold=positive,
            reject=checks.or_none(positive),
            acts_on=checks.one_of("weight", "target"),
        )

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> HuberState:
        learner = self.learner.init(num_features, dtype, key=key)
        return HuberState(Median.zeros(dtype_of(dtype)), learner)

    def learn(self, state: HuberState, sample: Sample) -> HuberState:
        estimate, e, share = self._share(state, sample)
        if self.acts_on == "target":
            tamed = sample.with_target(jnp.where(share < 1, estimate + share * e, sample.d))
        else:
            tamed = sample.replace(weight=sample.weight * share)
        scale = sample.keep(state.scale.after(jnp.abs(e)), state.scale)
        tamed = tamed.only_if(share > 0)  # else the sample is rejected, or there is no scale yet
        return HuberState(scale, self.learner.learn(state.learner, tamed))

    def info(self, state: HuberState, sample: Sample) -> dict[str, Any]:
        _, _, share = self._share(state, sample)
        return super().info(state, sample) | {"share": share}

    def _share(self, state: HuberState, sample: Sample) -> tuple[Array, Array, Array]:
        """Return d̂, e (0 if the sample is not good) and the share of the sample to learn."""
        estimate = self.predict(state, sample.raw)
        e = jnp.where(sample.good, sample.d - estimate, 0)
        sigma, size = jnp.asarray(GAUSSIAN, e.dtype) * state.scale.s, jnp.abs(e)
        most = jnp.asarray(self.threshold, e.dtype) * sigma
        far = size > most
        share = jnp.where(far, most / jnp.where(far, size, 1), 1)
        if self.reject is not None:
            share = jnp.where(size > jnp.asarray(self.reject, e.dtype) * sigma, 0, share)
        return estimate, e, share
