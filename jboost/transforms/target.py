"""A target of any units: the learner sees a scaled one, and its estimates are scaled back."""

from typing import Any, NamedTuple

from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Sample, State, Wrapper, checks, model
from jboost.transforms.scale import Scale


class ScaledState(NamedTuple):
    """What is known of the target's scale, and the learner."""

    scale: Any
    learner: State


@model
class ScaleTarget(Wrapper):
    """A learner whose targets are scaled by their past, and its estimates back.

        d′ = (d − m)/s within ±c,    d̂ = m + s y

    where y is the learner's estimate, within ±c too, and m and s are the target's running mean and
    deviation. A target moves these first and is then learned in the new units, those of the next
    estimate. What was learned before stays in the older ones: to a Newton that never forgets that
    adds an error of the order of the target's variance over t, which is nothing to see on the
    paper's eight sets (8,192 rows) against units taken from the whole set. The first estimate of
    all is 0, the second the first target.

    A target that wanders takes m along. Inputs that wander with it, as its own lags do, must do the
    same: put :class:`Scale` before the learner.

    What the learner reports through ``info`` is in its own units.

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
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        checks.instance("scale", self.scale, Scale, "a Scale() or Scale('range')")

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ScaledState:
        return ScaledState(
            self.scale.init(1, dtype), self.learner.init(num_features, dtype, key=key)
        )

    def predict(self, state: ScaledState, x: ArrayLike) -> Array:
        y = self.learner.predict(state.learner, x)
        return self.scale.undo(state.scale, y[None])[0]

    def learn(self, state: ScaledState, sample: Sample) -> ScaledState:
        d = sample.d[None]
        told = sample.with_target(self.scale.apply(state.scale, d)[0])
        scale = sample.keep(self.scale.after(state.scale, d), state.scale)
        return ScaledState(scale, self.learner.learn(state.learner, told))

    def info(self, state: ScaledState, sample: Sample) -> dict[str, Any]:
        scaled = self.scale.apply(state.scale, sample.d[None])[0]
        return self.learner.info(state.learner, sample.with_target(scaled))
