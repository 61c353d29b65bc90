"""Online gradient boosting: m copies of a learner, each of which follows a gradient of the loss.

Both algorithms of Beygelzimer, Hazan, Kale and Luo (*Online Gradient Boosting*, NeurIPS 2015), for
the squared loss. Targets and estimates are within ±D (`bound`). The estimate h of copy i, clipped
to ±D, joins the partial sum yⁱ⁻¹ of the copies before it, by a share η (`shrinkage`). The copy's
loss is *linear*: g h/L with the slope g = 2 (yⁱ⁻¹ − d), over the steepest slope L = 4D.

A regression learner gets the target h − g/L, at which the slope of its squared loss is g/L. For a
learner that steps along its slope, such as SGD, this *is* the linear loss; for others, such as
Newton, it agrees in the slope. A linear loss has no minimum: only the clipping of h holds a
learner. So scale the targets (``ScaleTarget``), or fit ``bound`` to them.
"""

import abc
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.boosting import copies
from jboost.boosting.boost import MOST_LEARNERS
from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.draws import keys as keys_for
from jboost.core.learner import instance
from jboost.core.numerics import LARGEST, Sum, dtype_of


class ChainState(NamedTuple):
    """The state of online gradient boosting. Hull boosting has neither σ nor t, but None."""

    learners: State  # the states of the copies, stacked, each as the learner starts
    sigma: Array | None  # (m,), how much the sum shrinks before h is added, 0 at the start
    t: Sum | None  # the weight of the samples so far, 0 at the start


class GradientChain(Wrapper):
    """Base class of the two algorithms, in both of which yⁱ = clip((1 − aⁱ) yⁱ⁻¹ + ηⁱ h, ±D)."""

    learner: Learner
    m: int
    bound: Number
    feed: str = "gradient"

    per_learner: ClassVar[tuple[str, ...]] = ("learner",)

    def __post_init__(self) -> None:
        whole = checks.a_whole_number(at_least=1, at_most=MOST_LEARNERS)
        bound = checks.a_number(at_least=1 / LARGEST, at_most=LARGEST)  # float32 holds its square
        checks.fields(self, learner=instance, m=whole, bound=bound)
        copies.check(self.learner, self.m)

    @property
    def knows_leverage(self) -> bool:
        return False  # it is that of one learner

    @abc.abstractmethod
    def steps(self, state: ChainState, dtype: DTypeLike) -> tuple[Array, Array]:
        """Return a and η of each copy, (m,)."""

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ChainState:
        def start(learner: Learner, key: Key) -> State:
            return learner.init(num_features, dtype, key=key)

        return ChainState(copies.each(start, self.learner, self.m, self._keys(key)), None, None)

    def predict(self, state: ChainState, x: ArrayLike) -> Array:
        return self._chained(state, x)[2]

    def learn(self, state: ChainState, sample: Sample) -> ChainState:
        once_only = sample.only_if(sample.weight > 0).replace(repeats=1)
        keys = self._keys(sample.key)

        def once(state: ChainState) -> ChainState:
            h, before, _ = self._chained(state, sample.raw)
            g, lam = 2 * (before - once_only.d), jnp.minimum(once_only.weight, 1)
            D = jnp.asarray(self.bound, h.dtype)
            L = 4 * D

            def learn(learner: Learner, state: State, target: Array, key: Key) -> State:
                return learner.learn(state, once_only.replace(key=key).with_target(target))

            targets = h - g / L if self.feed == "gradient" else -g / 2
            learners = copies.each(learn, self.learner, self.m, state.learners, targets, keys)
            sigma, t = state.sigma, state.t
            if sigma is not None and t is not None:
                new_t = t.add(lam)
                alpha = lam / (L * D * jnp.sqrt(jnp.where(new_t.total > 0, new_t.total, 1)))
                new = jnp.clip(sigma + alpha * (g * before), 0, 1), new_t
                sigma, t = once_only.keep(new, (sigma, t))
            return ChainState(learners, sigma, t)

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

    def _keys(self, key: Key) -> Array | None:
        return keys_for(key, jnp.arange(self.m, dtype=jnp.uint32)) if self.needs_key else None


@model
class SpanBoosting(GradientChain):
    """Online gradient boosting for the span of the learners, Algorithm 1 of Beygelzimer et al.

        yⁱ = clip((1 − σⁱ η) yⁱ⁻¹ + η h, ±D),    y⁰ = 0,    d̂ = yᵐ
        σⁱ ← clip(σⁱ + α g yⁱ⁻¹, 0, 1),    α = 1/(L D √t),    σⁱ = 0 at first

    Their radius B is D for the squared loss. Linear learners gain by clipping, which makes
    their sum non-linear; under drift they lose (``experiments/bench/baselines.py``).

    Args:
      learner: the learner; its floats may hold one value per copy.
      m: the number of copies.
      shrinkage: η in [1/m, 1]; by default 1/m, the best of those tried for the linear loss.
      bound: D, from 1e-15 to 1e15.
      feed: "gradient" for the linear loss as above, or "residual" for the target d − yⁱ⁻¹ as in
        batch gradient boosting, with an η of about ln m/m: better under drift, worse under noise.

    >>> import jboost as jb
    >>> bool(jb.mse(SpanBoosting(jb.SGD(0.1), m=10, bound=2.0), *jb.streams.duffing(2000)) < 0.3)
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
        shares = checks.a_number(at_least=1 / self.m, at_most=1)
        checks.fields(self, shrinkage=shares, feed=checks.one_of("gradient", "residual"))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ChainState:
        sigma, t = jnp.zeros(self.m, dtype_of(dtype)), Sum.zeros((), dtype_of(dtype))
        return super().init(num_features, dtype, key=key)._replace(sigma=sigma, t=t)

    def steps(self, state: ChainState, dtype: DTypeLike) -> tuple[Array, Array]:
        assert state.sigma is not None and self.shrinkage is not None
        eta = jnp.asarray(self.shrinkage, dtype)
        return state.sigma * eta, jnp.broadcast_to(eta, (self.m,))


@model
class HullBoosting(GradientChain):
    """Online gradient boosting for the convex hull of the learners, Algorithm 2 of theirs.

        yⁱ = (1 − ηⁱ) yⁱ⁻¹ + ηⁱ h,    ηⁱ = 2/(i + 1),    y⁰ = 0,    d̂ = yᵐ

    It is seldom better than one learner. Arguments: as :class:`SpanBoosting`.

    >>> import jboost as jb
    >>> bool(jb.mse(HullBoosting(jb.SGD(0.1), m=10, bound=2.0), *jb.streams.duffing(2000)) < 0.3)
    True
    """

    learner: Learner
    m: int = static(default=20)
    bound: Number = 1.0

    def steps(self, state: ChainState, dtype: DTypeLike) -> tuple[Array, Array]:
        eta = 2 / jnp.arange(2, self.m + 2, dtype=dtype)
        return eta, eta
