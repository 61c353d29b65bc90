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

from jboost import checks
from jboost.learners.base import Learner, Number, State, model, static
from jboost.numerics import dtype_of, usable
from jboost.transforms.base import kept

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
        # Zero is no size: targets that are mostly exact would have no scale.
        some = size > 0
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
class Huber(Learner):
    """A learner under Huber's loss: quadratic for |e| ≤ k σ̂, linear beyond.

        form="target":  learn d̂ + clip(e, ±k σ̂) with weight 1
        form="weight":  learn d with weight min(1, k σ̂/|e|)

    For a learner of the SGD family either is the exact gradient of Huber's loss. For Newton the
    second is iteratively reweighted least squares, the first Huber's method of modified residuals;
    both have the same fixed point. Around a booster, a pipeline or a tree the first is the safer:
    no part inside, be it an emphasis or a scale, ever sees the outlier.

    σ̂ comes from the errors before the sample, by a running median, so neither one absurd target nor
    its size matters and other units give the same weights. The first error of all only sets it.
    Errors that stay large are a change, not outliers: σ̂ follows within some twenty samples.

    Cost: clean samples beyond k σ̂ count less. For Gaussian errors k = 1.345 loses 5 % of the
    samples' worth, k = 3 nothing. Targets whose large values *are* the message want a large k, or
    no Huber: a conditional median is learned where errors are skewed.

    Args:
      learner: any learner.
      threshold: k > 0.
      form: "target" or "weight".

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> spoilt = ds.at[::100].set(400.0)
    >>> model = jb.Newton(0.999)
    >>> clean = jb.mse(model, xs, ds)
    >>> robust, plain = (jb.run(m, xs, spoilt)[1].prediction for m in (Huber(model), model))
    >>> bool(((robust - ds) ** 2).mean() < 1.1 * clean), bool(((plain - ds) ** 2).mean() > 10)
    (True, True)

    References: P. J. Huber, Robust estimation of a location parameter, Ann. Math. Statist. 35,
    1964; H. Kesten, Accelerated stochastic approximation, Ann. Math. Statist. 29, 1958.
    """

    learner: Learner
    threshold: Number = 3.0
    form: str = static(default="target")

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        threshold = checks.number("threshold", self.threshold, above=0)
        object.__setattr__(self, "threshold", threshold)
        checks.choice("form", self.form, ("target", "weight"))

    @property
    def needs_key(self) -> bool:
        return self.learner.needs_key

    @property
    def takes_missing(self) -> bool:
        return self.learner.takes_missing

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> HuberState:
        learner = self.learner.init(num_features, dtype, key=key)
        return HuberState(Median.zeros(dtype_of(dtype)), learner)

    def predict(self, state: HuberState, x: Any) -> Array:
        return self.learner.predict(state.learner, x)

    def update(
        self,
        state: HuberState,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> HuberState:
        estimate, e, most, ok = self._look(state, x, d)
        target, importance = jnp.asarray(d, e.dtype), weight
        if self.form == "target":
            near = estimate + jnp.clip(e, -most, most)
            target = jnp.where(jnp.abs(e) > most, near, target)
        else:
            importance = jnp.asarray(weight, e.dtype) * _share(e, most)
        learner = self.learner.update(
            state.learner,
            x,
            jnp.where(ok & (most > 0), target, jnp.nan),  # NaN, no scale yet: nothing is learned
            weight=importance,
            repeats=repeats,
            key=key,
        )
        scale = state.scale.after(jnp.abs(e))
        return HuberState(kept(ok, weight, repeats, scale, state.scale), learner)

    def info(self, state: HuberState, x: Any, d: Any, key: Any = None) -> dict[str, Any]:
        """What the learner reports of the target as it came; ``share`` = min(1, k σ̂/|e|)."""
        _, e, most, _ = self._look(state, x, d)
        return self.learner.info(state.learner, x, d, key) | {"share": _share(e, most)}

    def _look(self, state: HuberState, x: Any, d: Any) -> tuple[Array, Array, Array, Array]:
        """d̂, e, k σ̂, and whether the sample is one to learn from."""
        estimate = self.learner.predict(state.learner, x)
        d = jnp.asarray(d, estimate.dtype)
        ok = usable(d)
        if not self.takes_missing:
            ok = ok & jnp.all(usable(jnp.asarray(x, estimate.dtype)))
        most = jnp.asarray(self.threshold * GAUSSIAN, estimate.dtype) * state.scale.s
        return estimate, jnp.where(ok, d - estimate, 0), most, ok


def _share(e: Array, most: Array) -> Array:
    """min(1, k σ̂/|e|), and 1 where e is 0."""
    far = jnp.abs(e) > most
    return jnp.where(far, most / jnp.where(far, jnp.abs(e), 1), 1)
