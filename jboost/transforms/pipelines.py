"""Transforms and then a learner, as one learner; and a learner of scaled targets.

    x → t₁ → x′ → t₂ → x″ → … → learner → d̂

The learner learns on the very input that it predicted from. Only then do the transforms learn, each
from its own input, so a prediction depends on the past and the present x alone.
"""

from typing import Any, NamedTuple

import jax
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Sample, State, Transform, Wrapper, checks, model
from jboost.core.learner import instance
from jboost.core.numerics import real
from jboost.transforms.scale import Scale, Units


class PipelineState(NamedTuple):
    """The state of a pipeline."""

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
        inputs = self.inputs(state, sample.raw)
        transformed = sample.with_input(inputs[-1], self.learner.takes_missing)
        transforms = self.transforms_after(state, inputs, sample)
        return PipelineState(transforms, self.learner.learn(state.learner, transformed))

    def info(self, state: PipelineState, sample: Sample) -> dict[str, Any]:
        x = self.inputs(state, sample.raw)[-1]
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
        triples = zip(self.transforms, state.transforms, inputs[:-1], strict=True)
        return tuple(
            sample.keep(transform.learn(before, sample.replace(raw=x, takes_missing=True)), before)
            for transform, before, x in triples
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
    return None if key is None else jax.random.fold_in(key, number)


class ScaledState(NamedTuple):
    """The state of a learner in scaled units."""

    scale: Units
    learner: State


@model
class ScaleTarget(Wrapper):
    """A learner that learns scaled targets, and whose estimates are scaled back.

        d′ = (d − m)/s within ±c,    d̂ = m + s y

    Here y is the learner's estimate, within ±c too, and m and s are the target's running mean and
    deviation. A target first moves m and s, and is then learned in the new units, those of the next
    estimate. What was learned before stays in the older units: to a Newton that never forgets this
    adds an error of the order of the target's variance over t. The first estimate of all is 0, the
    second is the first target. The learner's reports (``info``) are in scaled units.

    A target that wanders takes m along. Inputs that wander with it, such as its own lags, must do
    the same: put :class:`Scale` before the learner.

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
    scale: Scale = Scale(floor=False)

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
        return sample.with_target(self.scale.apply(state.scale, sample.d[None])[0])
