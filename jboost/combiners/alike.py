"""A combiner in the target's own units: it scales the estimates as it scales the target."""

from __future__ import annotations

from typing import Any, ClassVar

from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.combiners.combine import from_mean
from jboost.core import checks
from jboost.core.arrays import real
from jboost.core.learner import Learner
from jboost.core.model import model
from jboost.core.numerics import known
from jboost.core.sample import Sample
from jboost.transforms.scale import Scale
from jboost.transforms.target import ScaledState


@model
class ScaleAlike(Learner):
    """A combiner in the target's units: estimates and target scaled alike.

        y′_k = (y_k − m)/s,    d′ = (d − m)/s    within ±c,    d̂ = m + s · combiner(y′)

    with the running mean m and deviation s of the target. Whatever the units of a stream, its
    combiner sees numbers of the size of 1, and a wild estimate is one of c deviations. When m and s
    move, estimates move along and a convex mix of them stays right; to least squares, samples from
    a time when s was smaller count for more, by 1/s², until they are forgotten.

    The first two estimates are 0 and the first target, as there is no scale before.

    Args:
      combiner: a learner on estimates.
      scale: how to scale.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> experts = [jb.ScaleTarget(jb.pipeline(jb.Scale(), jb.NLMS(mu))) for mu in (0.1, 0.5)]
    >>> model = jb.boost(experts, target_mse=0.1, dependence=0.0, combiner=jb.ScaleAlike(jb.BOA()))
    >>> near, far = (jb.run(model, xs, d)[1].prediction for d in (ds, 1e4 * ds + 1e6))
    >>> bool(abs((far - 1e6) / 1e4 - near)[1:].max() < 1e-2)
    True
    """

    combiner: Learner
    scale: Scale = Scale(clip=10.0)

    starts_at_mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        combiner = checks.instance("combiner", self.combiner, Learner, "a combiner such as BOA()")
        object.__setattr__(self, "combiner", from_mean(combiner))
        checks.instance("scale", self.scale, Scale, "a Scale()")

    @property
    def needs_key(self) -> bool:
        return self.combiner.needs_key

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> ScaledState:
        return ScaledState(
            self.scale.init(1, dtype), self.combiner.init(num_features, dtype, key=key)
        )

    def predict(self, state: ScaledState, x: ArrayLike) -> Array:
        y = self.combiner.predict(state.learner, self._alike(state.scale, x))
        return self.scale.unscaled(state.scale, y[None])[0]

    def learn(self, state: ScaledState, sample: Sample) -> ScaledState:
        scale = self.scale.after(state.scale, sample.d[None])
        told = sample.with_input(self._alike(scale, sample.x))
        told = told.with_target(self._alike(scale, sample.d[None])[0])
        return ScaledState(
            sample.keep(scale, state.scale), self.combiner.learn(state.learner, told)
        )

    def _alike(self, seen: Any, values: Any) -> Array:
        """Values where the target's past puts them."""
        values = real(values)
        return self.scale.scaled(seen, known(values, values.dtype))
