"""Transforms and then a learner, as one learner.

    x → t₁ → x′ → t₂ → x″ → … → learner → d̂

The learner learns on the very input that it predicted from. Only then do the transforms learn, each
from its own input, so a prediction never knows more than the past and its x.
"""

from typing import Any, NamedTuple

import jax
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Sample, State, Transform, checks, model
from jboost.core.numerics import real


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

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> PipelineState:
        states, width = [], num_features
        for number, transform in enumerate(self.transforms):
            states.append(transform.init(width, dtype, key=_own(key, number)))
            width = transform.width(width)
        learner = self.learner.init(width, dtype, key=_own(key, len(self.transforms)))
        return PipelineState(tuple(states), learner)

    def predict(self, state: PipelineState, x: ArrayLike) -> Array:
        return self.learner.predict(state.learner, self.inputs(state, x)[-1])

    def learn(self, state: PipelineState, sample: Sample) -> PipelineState:
        inputs = self.inputs(state, sample.x)
        told = sample.with_input(inputs[-1], self.learner.takes_missing)
        transforms = self.transforms_after(state, inputs, sample)
        return PipelineState(transforms, self.learner.learn(state.learner, told))

    def info(self, state: PipelineState, sample: Sample) -> dict[str, Any]:
        """Report what the learner reports."""
        last = self.inputs(state, sample.x)[-1]
        told = sample.with_input(last, self.learner.takes_missing)
        return self.learner.info(state.learner, told)

    @property
    def knows_leverage(self) -> bool:
        return self.learner.knows_leverage

    def leverage(self, state: PipelineState, x: ArrayLike) -> Array:
        return self.learner.leverage(state.learner, self.inputs(state, x)[-1])

    def inputs(self, state: PipelineState, x: ArrayLike) -> list[Array]:
        """Return the input of each transform, and last that of the learner."""
        inputs = [real(x)]
        for transform, state_of_it in zip(self.transforms, state.transforms, strict=True):
            inputs.append(transform.apply(state_of_it, inputs[-1]))
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
    """Transforms in the order in which they are applied, then a learner: a learner for raw streams.

    Args:
      parts: any number of transforms (``Scale``, ``Bias``, ``Impute``, ``RandomFourier``, …) and,
        last, a learner: a booster too, or another pipeline.

    >>>     >>> import jboost as jb
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
