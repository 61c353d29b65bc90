"""Transforms and then a learner, as one learner.

    x → t₁ → x′ → t₂ → x″ → … → learner → d̂

The learner learns on the very input that it predicted from. Only then do the transforms learn, each
from its own input, so a prediction never knows more than the past and its x.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import checks
from jboost.core.learner import Learner, Number, State, model
from jboost.core.numerics import usable
from jboost.core.transform import Transform, kept, real


class PipelineState(NamedTuple):
    """What each transform knows, and the learner."""

    transforms: tuple[State, ...]
    learner: State


@model
class Pipeline(Learner):
    """Transforms, then a learner. Made by :func:`pipeline`.

    ``weight`` and ``repeats`` are the learner's. The transforms learn a sample once, and not at all
    where either is zero. A sample whose d is unusable changes nothing; nor does one whose x is,
    unless an ``Impute`` comes before what needs it whole.
    """

    transforms: tuple[Transform, ...]
    learner: Learner

    @property
    def needs_key(self) -> bool:
        return any(part.needs_key for part in (*self.transforms, self.learner))

    @property
    def takes_missing(self) -> bool:
        for transform in self.transforms:
            if transform.fills_missing:
                return True
            if not transform.passes_missing:
                return False
        return self.learner.takes_missing

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> PipelineState:
        states, width = [], num_features
        for number, transform in enumerate(self.transforms):
            states.append(transform.init(width, dtype, key=_own(key, number)))
            width = transform.width(width)
        learner = self.learner.init(width, dtype, key=_own(key, len(self.transforms)))
        return PipelineState(tuple(states), learner)

    def predict(self, state: PipelineState, x: Any) -> Array:
        return self.learner.predict(state.learner, self._inputs(state, x)[-1])

    def update(
        self,
        state: PipelineState,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> PipelineState:
        *inputs, last = self._inputs(state, x)
        answer = self._answer(x, d)
        learner = self.learner.update(
            state.learner, last, answer, weight=weight, repeats=repeats, key=key
        )
        ok = ~jnp.isnan(answer)
        transforms = []
        for transform, own, before in zip(self.transforms, state.transforms, inputs, strict=True):
            after = transform.learn(own, before, answer)
            transforms.append(kept(ok, weight, repeats, after, own))
        return PipelineState(tuple(transforms), learner)

    def info(self, state: PipelineState, x: Any, d: Any, key: Any = None) -> dict[str, Any]:
        """What the learner reports."""
        last = self._inputs(state, x)[-1]
        return self.learner.info(state.learner, last, self._answer(x, d), key)

    @property
    def knows_leverage(self) -> bool:
        return self.learner.knows_leverage

    def leverage(self, state: PipelineState, x: Any) -> Array:
        return self.learner.leverage(state.learner, self._inputs(state, x)[-1])

    def _inputs(self, state: PipelineState, x: Any) -> list[Array]:
        """The input of each part; the learner's last."""
        inputs = [real(x)]
        for transform, own in zip(self.transforms, state.transforms, strict=True):
            inputs.append(transform.apply(own, inputs[-1]))
        return inputs

    def _answer(self, x: Any, d: Any) -> Array:
        """d, or NaN where nothing is to be learned from the sample."""
        d = real(d)
        ok = usable(d)
        if not self.takes_missing:
            ok = ok & jnp.all(usable(real(x)))
        return jnp.where(ok, d, jnp.nan)


def pipeline(*parts: Transform | Learner) -> Pipeline:
    """Transforms in the order in which they are applied, then a learner: a learner for raw streams.

    Args:
      parts: any number of transforms (``Scale``, ``Bias``, ``Impute``, ``RandomFourier``, …) and,
        last, a learner: a booster too, or another pipeline.

    >>> import jax.numpy as jnp
    >>> import jboost as jb
    >>> from jboost.transforms import Bias, Scale, ScaleTarget
    >>> xs, ds = jb.streams.duffing(500)
    >>> model = pipeline(Scale(), Bias(), ScaleTarget(jb.Newton(0.99)))
    >>> units = jnp.array([[1e-6, 1.0, 1e6]])
    >>> plain, other = (jb.mse(model, *data) for data in [(xs, ds), (xs * units, 1e4 * ds)])
    >>> bool(abs(other / 1e8 / plain - 1) < 0.01)
    True
    """
    if not parts:
        raise ValueError("a pipeline needs parts, of which the last is a learner; got none")
    *before, last = parts
    transforms = [
        checks.instance(
            f"part {number} of the pipeline",
            part,
            Transform,
            "a transform such as Scale() (a learner comes last)",
        )
        for number, part in enumerate(before, 1)
    ]
    learner = checks.instance(
        "the last part", last, Learner, "a learner such as SGD(step_size=0.1)"
    )
    return Pipeline(tuple(transforms), learner)


def _own(key: Any, number: int) -> Any:
    return None if key is None else jax.random.fold_in(key, number)
