"""A combiner that works in the units of the target, whatever those are."""

from functools import partial
from typing import ClassVar

from jax import Array
from jax.typing import ArrayLike

from jboost.combiners.mean import from_mean
from jboost.core import DType, Key, Learner, Sample, checks, model
from jboost.core.arrays import real
from jboost.core.learner import instance
from jboost.core.numerics import known
from jboost.transforms.pipelines import ScaledState
from jboost.transforms.scale import Scale, Units


@model
class ScaleAlike(Learner):
    """A combiner of estimates that are scaled in the same way as the target.

        y′_k = (y_k − m)/s,    d′ = (d − m)/s    within ±c,    d̂ = m + s · combiner(y′)

    m and s are the running mean and deviation of the target. Whatever the units of a stream, its
    combiner sees numbers of about unit size, and a wild estimate counts as one of c deviations.
    When m and s move, the estimates move along, and a convex mix of them stays right. Least squares
    gives a sample from a time when s was smaller more weight, by 1/s², until it is forgotten.

    The first two estimates are 0 and the first target, as there is no scale before.

    Args:
      combiner: any learner, of the scaled estimates.
      scale: how the target and the estimates are scaled.

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
        checks.fields(
            self,
            combiner=partial(instance, example="BOA()"),
            scale=checks.of_kind(Scale, "a Scale()"),
        )
        checks.assign(self, combiner=from_mean(self.combiner))

    @property
    def needs_key(self) -> bool:
        return self.combiner.needs_key

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ScaledState:
        return ScaledState(
            self.scale.init(1, dtype), self.combiner.init(num_features, dtype, key=key)
        )

    def predict(self, state: ScaledState, x: ArrayLike) -> Array:
        y = self.combiner.predict(state.learner, self._scaled(state.scale, x))
        return self.scale.unscaled(state.scale, y[None])[0]

    def learn(self, state: ScaledState, sample: Sample) -> ScaledState:
        scale = self.scale.after(state.scale, sample.d[None])
        scaled = sample.with_input(self._scaled(scale, sample.x))
        scaled = scaled.with_target(self._scaled(scale, sample.d[None])[0])
        return ScaledState(
            sample.keep(scale, state.scale), self.combiner.learn(state.learner, scaled)
        )

    def _scaled(self, scale: Units, values: ArrayLike) -> Array:
        """Return values in the units of the target's past."""
        values = real(values)
        return self.scale.scaled(scale, known(values, values.dtype))
