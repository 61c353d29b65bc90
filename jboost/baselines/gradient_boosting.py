"""Online gradient boosting: m copies of a learner, each given the gradient where those before end.

Both algorithms of Beygelzimer, Hazan, Kale and Luo (*Online Gradient Boosting*, NeurIPS 2015), for
the squared loss. Copy i joins the partial sum yⁱ⁻¹ of those before it and then suffers a *linear*
loss, the slope of the squared loss at yⁱ⁻¹ times what it said.

| letter | name        | meaning                                                        |
|--------|-------------|----------------------------------------------------------------|
| D      | `bound`     | targets and learners are within ±D                             |
| h      |             | what copy i says of x, clipped to ±D                           |
| g      |             | slope of the loss at the partial sum, 2 (yⁱ⁻¹ − d)             |
| L      |             | the steepest slope within the range, 4D                        |
| η      | `shrinkage` | how much of h is added                                         |
| σ      |             | how much the partial sum shrinks for it, learned               |

The linear loss g h/L reaches a regression learner as the target h − g/L: the slope of the learner's
own loss, ½(Aⁱ(x) − target)², is then g/L. For a learner that steps along its slope, as SGD, this
*is* the linear loss; for others, as Newton, it agrees in the slope. A linear loss has no least
value: it is the range that holds a learner, which outside of it is drawn back, since h is clipped
in the target too. So scale the targets (``ScaleTarget``), or set ``bound`` to fit them.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.boosting import copies
from jboost.core import checks
from jboost.core.learner import Learner, State, Wrapper
from jboost.core.pytree import Number, model, static
from jboost.core.numerics import Sum, dtype_of
from jboost.core.sample import Sample


class ChainState(NamedTuple):
    """The copies, and what else an algorithm learns."""

    learners: State
    own: Any


class GradientChain(Wrapper):
    """What the two algorithms share; they say how a copy joins, and what it is told."""

    learner: Learner
    m: int
    bound: Number

    per_learner: ClassVar[tuple[str, ...]] = ("learner",)

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        object.__setattr__(self, "m", checks.whole("m", self.m, at_least=1))
        object.__setattr__(self, "bound", checks.number("bound", self.bound, above=0))
        copies.check(self.learner, self.m)

    @property
    def knows_leverage(self) -> bool:
        return False  # of many learners

    @abc.abstractmethod
    def start(self, dtype: Any) -> Any:
        """What is learned besides the copies, before any data."""

    @abc.abstractmethod
    def join(self, own: Any, h: Array) -> tuple[Array, Array]:
        """The last partial sum, and those before each copy, (m,)."""

    def target(self, h: Array, g: Array, L: Array) -> Array:
        """What each copy is told."""
        return h - g / L

    def adapt(self, own: Any, slope: Array, lam: Array, L: Array) -> Any:
        """What is learned besides the copies, after a sample; ``slope`` is g yⁱ⁻¹."""
        del slope, lam, L
        return own

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> ChainState:
        def make(one: Learner, key: Any = None) -> State:
            return one.init(num_features, dtype, key=key)

        states = copies.each(make, self.learner, self.m, self._keys(key))
        return ChainState(states, self.start(dtype_of(dtype)))

    def predict(self, state: ChainState, x: ArrayLike) -> Array:
        return self.join(state.own, self._said(state, x))[0]

    def learn(self, state: ChainState, sample: Sample) -> ChainState:
        keys, told = self._keys(sample.key), sample.only_if(sample.weight > 0).replace(repeats=1)

        def once(state: ChainState) -> ChainState:
            h = self._said(state, sample.x)
            _, before = self.join(state.own, h)
            g = 2 * (before - told.d)
            L = 4 * jnp.asarray(self.bound, h.dtype)

            def learn(
                learner: Learner, state: State, target: Array, key: Array | None = None
            ) -> State:
                return learner.learn(state, told.replace(key=key).with_target(target))

            target = self.target(h, g, L)
            learners = copies.each(learn, self.learner, self.m, state.learners, target, keys)
            own = told.keep(self.adapt(state.own, g * before, told.weight, L), state.own)
            return ChainState(learners, own)

        return sample.repeat(once, state, guard=False)

    def _said(self, state: ChainState, x: ArrayLike) -> Array:
        def predict(one: Learner, own: State) -> Array:
            return one.predict(own, x)

        h = copies.each(predict, self.learner, self.m, state.learners)
        D = jnp.asarray(self.bound, h.dtype)
        return jnp.clip(h, -D, D)

    def _keys(self, key: Any) -> Any:
        if key is None or not self.needs_key:
            return None
        return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(self.m, dtype=jnp.uint32))


class Shrinking(NamedTuple):
    """σ of each copy, and the number of samples (the sum of their weights)."""

    sigma: Array
    t: Sum


@model
class SpanBoosting(GradientChain):
    """Online gradient boosting for the span of the learners, the paper's Algorithm 1.

        yⁱ = clip((1 − σⁱ η) yⁱ⁻¹ + η h, ±D),    y⁰ = 0,    d̂ = yᵐ
        σⁱ ← clip(σⁱ + α g yⁱ⁻¹, 0, 1),    α = 1/(L D √t),    σⁱ = 0 at first

    The paper's radius B is D for the squared loss: clipping to a range that holds the target never
    adds to the error.

    Measured (``experiments/bench/baselines.py``) with 20 Newton copies, MSE against one alone, both
    kept within the range: puma8nh .1298 to .1361, mv .0255 to .0316, compactiv .0330 to .0331;
    worse under drift, california .0597 to .0452. What gains is the clipping, which makes a sum of
    linear learners non-linear: on the first three, with none of it, 20 were no better than one.

    Args:
      learner: the learner; its floats may hold one value per copy.
      m: the number of copies.
      shrinkage: η in [1/m, 1]; by default 1/m, the best of those tried for the linear loss.
      bound: D > 0.
      feed: "gradient", the linear loss as above; or "residual", the target d − yⁱ⁻¹ as in batch
        gradient boosting, for an η of about ln m/m: better under drift (california .0397) and worse
        where there is noise (puma8nh .1390).

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
        eta = 1 / self.m if self.shrinkage is None else self.shrinkage
        eta = checks.number("shrinkage", eta, at_least=1 / self.m, at_most=1)
        object.__setattr__(self, "shrinkage", eta)
        checks.choice("feed", self.feed, ("gradient", "residual"))

    def start(self, dtype: Any) -> Shrinking:
        return Shrinking(jnp.zeros(self.m, dtype), Sum.zeros((), dtype))

    def join(self, own: Shrinking, h: Array) -> tuple[Array, Array]:
        eta, D = (jnp.asarray(a, h.dtype) for a in (self.shrinkage, self.bound))

        def link(y: Array, copy: tuple[Array, Array]) -> tuple[Array, Array]:
            sigma, h = copy
            return jnp.clip((1 - sigma * eta) * y + eta * h, -D, D), y

        return jax.lax.scan(link, jnp.zeros((), h.dtype), (own.sigma, h))

    def target(self, h: Array, g: Array, L: Array) -> Array:
        return h - g / L if self.feed == "gradient" else -g / 2

    def adapt(self, own: Shrinking, slope: Array, lam: Array, L: Array) -> Shrinking:
        t = own.t.add(lam)
        D = jnp.asarray(self.bound, L.dtype)
        alpha = lam / (L * D * jnp.sqrt(jnp.where(t.total > 0, t.total, 1)))
        return Shrinking(jnp.clip(own.sigma + alpha * slope, 0, 1), t)


@model
class HullBoosting(GradientChain):
    """Online gradient boosting for the convex hull of the learners, the paper's Algorithm 2.

        yⁱ = (1 − ηⁱ) yⁱ⁻¹ + ηⁱ h,    ηⁱ = 2/(i + 1),    y⁰ = 0,    d̂ = yᵐ

    Measured as :class:`SpanBoosting`, and seldom a gain: kin8nm .0817 to .0821, puma8nh .1364 to
    .1361, mv .0381 to .0316, california .0539 to .0452.

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

    def start(self, dtype: Any) -> tuple[()]:
        del dtype
        return ()

    def join(self, own: tuple[()], h: Array) -> tuple[Array, Array]:
        del own

        def link(y: Array, copy: tuple[Array, Array]) -> tuple[Array, Array]:
            eta, h = copy
            return (1 - eta) * y + eta * h, y

        steps = 2 / jnp.arange(2, self.m + 2, dtype=h.dtype)
        return jax.lax.scan(link, jnp.zeros((), h.dtype), (steps, h))
