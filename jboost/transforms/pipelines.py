"""Transforms and then a learner, as one learner.

    x → t₁ → x′ → t₂ → x″ → … → learner → d̂

The learner learns on the very input that it predicted from. Only then do the transforms learn, each
from its own input, so a prediction depends on the past and the present x alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Sample, State, Transform, Wrapper, checks, model
from jboost.core.learner import instance
from jboost.core.numerics import real


class PipelineState(NamedTuple):
    """The state of a pipeline.

    transforms: the state of each transform.
    learner: the state of the learner.
    """

    transforms: tuple[State, ...]
    learner: State


@model
class Pipeline(Wrapper):
    """Transforms, then a learner. Made by :func:`pipeline`.

    ``weight`` and ``repeats`` are for the learner. The transforms learn a sample once, and not at
    all where one of the two is zero. A sample whose d is unusable changes nothing. Nor does a
    sample with an unusable entry of x, unless an ``Impute`` comes before whatever needs all of x.
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

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> PipelineState:
        states, width = [], num_features
        for number, transform in enumerate(self.transforms):
            states.append(transform.init(width, dtype, key=_folded(key, number)))
            width = transform.width(width)
        learner = self.learner.init(width, dtype, key=_folded(key, len(self.transforms)))
        return PipelineState(tuple(states), learner)

    def predict(self, state: PipelineState, x: ArrayLike) -> Array:
        return self.learner.predict(state.learner, self.inputs(state, x)[-1])

    def learn(self, state: PipelineState, sample: Sample) -> PipelineState:
        inputs = self.inputs(state, sample.x)
        transformed = sample.with_input(inputs[-1], self.learner.takes_missing)
        transforms = self.transforms_after(state, inputs, sample)
        return PipelineState(transforms, self.learner.learn(state.learner, transformed))

    def info(self, state: PipelineState, sample: Sample) -> dict[str, Any]:
        x = self.inputs(state, sample.x)[-1]
        transformed = sample.with_input(x, self.learner.takes_missing)
        return self.learner.info(state.learner, transformed)

    def leverage(self, state: PipelineState, x: ArrayLike) -> Array:
        return self.learner.leverage(state.learner, self.inputs(state, x)[-1])

    def inputs(self, state: PipelineState, x: ArrayLike) -> list[Array]:
        """Return the input of each transform and, last, the input of the learner."""
        inputs = [real(x)]
        for transform, transform_state in zip(self.transforms, state.transforms, strict=True):
            inputs.append(transform.apply(transform_state, inputs[-1]))
        return inputs

    def transforms_after(
        self, state: PipelineState, inputs: list[Array], sample: Sample
    ) -> tuple[State, ...]:
        """Return the states of the transforms after a sample, each learned from its own input."""
        return tuple(
            sample.keep(transform.learn(before, sample.replace(x=x)), before)
            for transform, before, x in zip(
                self.transforms, state.transforms, inputs[:-1], strict=True
            )
        )


def pipeline(*parts: Transform | Learner) -> Pipeline:
    """Make one learner of transforms, in the order in which they are applied, and a learner.

    Args:
      parts: any number of transforms (``Scale``, ``Bias``, ``Impute``, ``RandomFourier``, …) and,
        last, a learner, which may be a booster or another pipeline.

    >>> import jax.numpy as jnp, jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> model = pipeline(jb.Scale(), jb.Bias(), jb.ScaleTarget(jb.Newton(0.99)))
    >>> units = jnp.array([[1e-6, 1.0, 1e6]])
    >>> plain, other = (jb.mse(model, *data) for data in [(xs, ds), (xs * units, 1e4 * ds)])
    >>> bool(abs(other / 1e8 / plain - 1) < 0.01)
    True
    """
    if not parts:
        raise ValueError("a pipeline needs parts, of which the last is a learner; got none")
    *before, last = parts
    advice = "a transform such as Scale() (a learner comes last)"
    transforms = [
        checks.instance(f"part {number} of the pipeline", part, Transform, advice)
        for number, part in enumerate(before, 1)
    ]
    return Pipeline(tuple(transforms), instance("the last part", last))


def _folded(key: Key, number: int) -> Array | None:
    """Return the key of one part of a pipeline, None where the run has none."""
    return None if key is None else jax.random.fold_in(key, number)
