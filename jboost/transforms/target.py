"""A target of any units: the learner sees a scaled one, and its estimates are scaled back."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.core import checks
from jboost.core.learner import Around, Learner, Number, State, model
from jboost.core.numerics import usable
from jboost.core.transform import kept, real
from jboost.transforms.scale import Scale


class ScaledState(NamedTuple):
    """What is known of the target's scale, and the learner."""

    scale: Any
    learner: State


@model
class ScaleTarget(Around):
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

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> ScaledState:
        return ScaledState(
            self.scale.init(1, dtype), self.learner.init(num_features, dtype, key=key)
        )

    def predict(self, state: ScaledState, x: Any) -> Array:
        y = self.learner.predict(state.learner, x)
        return self.scale.undo(state.scale, y[None])[0]

    def update(
        self,
        state: ScaledState,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> ScaledState:
        ok = usable(real(d))
        if not self.takes_missing:
            ok = ok & jnp.all(usable(real(x)))
        d = real(d)[None]
        learner = self.learner.update(
            state.learner,
            x,
            self.scale.apply(state.scale, d)[0],
            weight=weight,
            repeats=repeats,
            key=key,
        )
        scale = self.scale.learn(state.scale, d, None)
        return ScaledState(kept(ok, weight, repeats, scale, state.scale), learner)

    def info(self, state: ScaledState, x: Any, d: Any, key: Any = None) -> dict[str, Any]:
        scaled = self.scale.apply(state.scale, real(d)[None])[0]
        return self.learner.info(state.learner, x, scaled, key)
