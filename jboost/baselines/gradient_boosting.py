"""Online gradient boosting: m copies of a learner, each of which follows a gradient of the loss.

Both algorithms of Beygelzimer, Hazan, Kale and Luo (*Online Gradient Boosting*, NeurIPS 2015), for
the squared loss. The estimate of copy i joins the partial sum yⁱ⁻¹ of the copies before it. The
copy's loss is *linear*: the slope of the squared loss at yⁱ⁻¹ times the estimate of the copy.

| letter | name        | meaning                                                        |
|--------|-------------|----------------------------------------------------------------|
| D      | `bound`     | targets and estimates are within ±D                            |
| h      |             | the estimate of copy i, clipped to ±D                          |
| g      |             | slope of the loss at the partial sum, 2 (yⁱ⁻¹ − d)             |
| L      |             | the steepest slope within the range, 4D                        |
| η      | `shrinkage` | how much of h is added                                         |
| σ      |             | how much the partial sum shrinks for it, learned               |

The linear loss g h/L reaches a regression learner as the target h − g/L, for which the slope of the
learner's loss ½(Aⁱ(x) − target)² is g/L. For a learner that steps along its slope, such as SGD,
this *is* the linear loss; for others, such as Newton, it agrees in the slope. A linear loss has no
minimum: only the range holds a learner, because h is clipped in the target too and so draws a
learner back that has left the range. So scale the targets (``ScaleTarget``), or fit ``bound`` to
them.
"""

from __future__ import annotations

import abc
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.boosting import copies
from jboost.core import (
    DType,
    Key,
    Learner,
    Number,
    Sample,
    State,
    Wrapper,
    checks,
    draws,
    model,
    static,
)
from jboost.core.learner import instance
from jboost.core.numerics import Sum, dtype_of


class Shrinking(NamedTuple):
    """What span boosting learns besides its copies. Both are 0 at the start.

    sigma: σ of each copy, (m,).
    t: the weight of the samples so far.
    """

    sigma: Array
    t: Sum


class ChainState(NamedTuple):
    """The state of online gradient boosting.

    learners: the states of the copies, stacked, each as the learner starts.
    shrinking: what span boosting learns besides; None for hull boosting.
    """

    learners: State
    shrinking: Shrinking | None


class GradientChain(Wrapper):
    """Base class of the two algorithms, in both of which yⁱ = clip((1 − aⁱ) yⁱ⁻¹ + ηⁱ h, ±D)."""

    learner: Learner
    m: int
    bound: Number
    feed: str = "gradient"

    per_learner: ClassVar[tuple[str, ...]] = ("learner",)

    def __post_init__(self) -> None:
        whole, positive = checks.a_whole_number(at_least=1), checks.a_number(above=0)
        checks.fields(self, learner=instance, m=whole, bound=positive)
        copies.check(self.learner, self.m)

    @property
    def knows_leverage(self) -> bool:
        return False  # of many learners

    @abc.abstractmethod
    def steps(self, state: ChainState, dtype: DTypeLike) -> tuple[Array, Array]:
        """Return a and η of each copy, (m,)."""

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ChainState:
        def start(learner: Learner, key: Key) -> State:
            return learner.init(num_features, dtype, key=key)

        return ChainState(copies.each(start, self.learner, self.m, self._keys(key)), None)

    def predict(self, state: ChainState, x: ArrayLike) -> Array:
        return self._chained(state, x)[2]

    def learn(self, state: ChainState, sample: Sample) -> ChainState:
        once_only = sample.only_if(sample.weight > 0).replace(repeats=1)
        keys = self._keys(sample.key)

        def once(state: ChainState) -> ChainState:
            h, before, _ = self._chained(state, sample.x)
            g = 2 * (before - once_only.d)
            L = 4 * jnp.asarray(self.bound, h.dtype)

            def learn(learner: Learner, state: State, target: Array, key: Key) -> State:
                return learner.learn(state, once_only.replace(key=key).with_target(target))

            targets = h - g / L if self.feed == "gradient" else -g / 2
            learners = copies.each(learn, self.learner, self.m, state.learners, targets, keys)
            shrinking = state.shrinking
            if shrinking is not None:
                new = self._shrinking_after(shrinking, g * before, once_only.weight)
                shrinking = once_only.keep(new, shrinking)
            return ChainState(learners, shrinking)

        return sample.repeat(once, state, guard=False)

    def _chained(self, state: ChainState, x: ArrayLike) -> tuple[Array, Array, Array]:
        """Return h of each copy, the partial sum before each copy, and the last partial sum."""

        def predict(learner: Learner, state: State) -> Array:
            return learner.predict(state, x)

        h = copies.each(predict, self.learner, self.m, state.learners)
        D = jnp.asarray(self.bound, h.dtype)
        h = jnp.clip(h, -D, D)

        def link(y: Array, copy: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            a, eta, h = copy
            return jnp.clip((1 - a) * y + eta * h, -D, D), y

        steps = self.steps(state, h.dtype)
        last, before = jax.lax.scan(link, jnp.zeros((), h.dtype), (*steps, h))
        return h, before, last

    def _shrinking_after(self, shrinking: Shrinking, slope: Array, lam: Array) -> Shrinking:
        """Return σ and t after a sample; ``slope`` is g yⁱ⁻¹ of each copy."""
        D, t = jnp.asarray(self.bound, slope.dtype), shrinking.t.add(lam)
        alpha = lam / (4 * D * D * jnp.sqrt(jnp.where(t.total > 0, t.total, 1)))
        return Shrinking(jnp.clip(shrinking.sigma + alpha * slope, 0, 1), t)

    def _keys(self, key: Key) -> Array | None:
        return draws.keys(key, jnp.arange(self.m, dtype=jnp.uint32)) if self.needs_key else None


@model
class SpanBoosting(GradientChain):
    """Online gradient boosting for the span of the learners, the paper's Algorithm 1.

        yⁱ = clip((1 − σⁱ η) yⁱ⁻¹ + η h, ±D),    y⁰ = 0,    d̂ = yᵐ
        σⁱ ← clip(σⁱ + α g yⁱ⁻¹, 0, 1),    α = 1/(L D √t),    σⁱ = 0 at first

    The paper's radius B is D for the squared loss: clipping to a range that holds the target never
    adds to the error.

    Mean squared errors with 20 Newton copies and with one alone, both clipped to the range
    (``experiments/bench/baselines.py``): puma8nh .1298 to .1361, mv .0255 to .0316, compactiv
    .0330 to .0331; worse under drift, california .0597 to .0452. The gain comes from the clipping, which
    makes a sum of linear learners non-linear: on the first three sets, without any clipping, 20
    copies were no better than one.

    Args:
      learner: the learner; its floats may hold one value per copy.
      m: the number of copies.
      shrinkage: η in [1/m, 1]; by default 1/m, the best of those tried for the linear loss.
      bound: D > 0.
      feed: "gradient" for the linear loss as above, or "residual" for the target d − yⁱ⁻¹ as in
        batch gradient boosting, with an η of about ln m/m. The latter is better under drift
        (california .0397) and worse where there is noise (puma8nh .1390).

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model = SpanBoosting(jb.SGD(0.1), m=10, bound=2.0)
    >>> bool(jb.mse(model, xs, ds) < 0.3)
    True
    """

    learner: Learner
    m: int = static(default=20)
    shrinkage: Number | None = None
    bound: Number = 1.0
    feed: str = static(default="gradient")

    def __post_init__(self) -> None:
        GradientChain.__post_init__(self)
        if self.shrinkage is None:
            checks.assign(self, shrinkage=1 / self.m)
        checks.fields(
            self,
            shrinkage=checks.a_number(at_least=1 / self.m, at_most=1),
            feed=checks.one_of("gradient", "residual"),
        )

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ChainState:
        dtype = dtype_of(dtype)
        shrinking = Shrinking(jnp.zeros(self.m, dtype), Sum.zeros((), dtype))
        return super().init(num_features, dtype, key=key)._replace(shrinking=shrinking)

    def steps(self, state: ChainState, dtype: DTypeLike) -> tuple[Array, Array]:
        assert state.shrinking is not None and self.shrinkage is not None
        eta = jnp.asarray(self.shrinkage, dtype)
        return state.shrinking.sigma * eta, jnp.broadcast_to(eta, (self.m,))


@model
class HullBoosting(GradientChain):
    """Online gradient boosting for the convex hull of the learners, the paper's Algorithm 2.

        yⁱ = (1 − ηⁱ) yⁱ⁻¹ + ηⁱ h,    ηⁱ = 2/(i + 1),    y⁰ = 0,    d̂ = yᵐ

    Measured as for :class:`SpanBoosting` it is seldom a gain: kin8nm .0817 to .0821, puma8nh .1364
    to .1361, mv .0381 to .0316, california .0539 to .0452.

    Args:
      learner: the learner; its floats may hold one value per copy.
      m: the number of copies.
      bound: D > 0.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model = HullBoosting(jb.SGD(0.1), m=10, bound=2.0)
    >>> bool(jb.mse(model, xs, ds) < 0.3)
    True
    """

    learner: Learner
    m: int = static(default=20)
    bound: Number = 1.0

    def steps(self, state: ChainState, dtype: DTypeLike) -> tuple[Array, Array]:
        del state
        eta = 2 / jnp.arange(2, self.m + 2, dtype=dtype)
        return eta, eta
