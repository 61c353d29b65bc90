"""ScaleTarget: a target of any units, in units of its own for the learner."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Sample, State, Wrapper, checks, model
from jboost.core.learner import instance
from jboost.transforms.scale import Scale, Units


class ScaledState(NamedTuple):
    """The state of a learner in scaled units.

    scale: the units of the target.
    learner: the state of the learner.
    """

    scale: Units
    learner: State


@model
class ScaleTarget(Wrapper):
    """A learner that learns scaled targets, and whose estimates are scaled back.

        d′ = (d − m)/s within ±c,    d̂ = m + s y

    Here y is the learner's estimate, within ±c too, and m and s are the target's running mean and
    deviation. A target first moves m and s, and is then learned in the new units, those of the next
    estimate. What was learned before stays in the older units. To a Newton that never forgets this
    adds an error of the order of the target's variance over t; on the paper's eight sets (8,192
    rows) there is no difference to be seen from units taken from the whole set. The first estimate
    of all is 0, the second is the first target.

    A target that wanders takes m along. Inputs that wander with it, such as its own lags, must do
    the same: put :class:`Scale` before the learner.

    The learner's reports (``info``) are in scaled units.

    Args:
      learner: any learner.
      scale: how to scale; with ``Scale("range")`` d′ and y stay in [−1, 1].

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> model = ScaleTarget(jb.NLMS(0.1))
    >>> near, far = (jb.run(model, xs, d)[1].prediction for d in (ds, 1e4 * ds + 1e6))
    >>> bool(abs((far - 1e6) / 1e4 - near)[1:].max() < 1e-3)
    True
    """

    learner: Learner
    scale: Scale = Scale()

    def __post_init__(self) -> None:
        scale = checks.of_kind(Scale, "a Scale() or Scale('range')")
        checks.fields(self, learner=instance, scale=scale)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ScaledState:
        learner = self.learner.init(num_features, dtype, key=key)
        return ScaledState(self.scale.init(1, dtype), learner)

    def predict(self, state: ScaledState, x: ArrayLike) -> Array:
        y = self.learner.predict(state.learner, x)
        return self.scale.unscaled(state.scale, y[None])[0]

    def learn(self, state: ScaledState, sample: Sample) -> ScaledState:
        scale = sample.keep(self.scale.after(state.scale, sample.d[None]), state.scale)
        return ScaledState(scale, self.learner.learn(state.learner, self._scaled(state, sample)))

    def info(self, state: ScaledState, sample: Sample) -> dict[str, Any]:
        return self.learner.info(state.learner, self._scaled(state, sample))

    def _scaled(self, state: ScaledState, sample: Sample) -> Sample:
        """Return the sample as the learner sees it."""
        return sample.with_target(self.scale.apply(state.scale, sample.d[None])[0])
