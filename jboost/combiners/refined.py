"""Combiners around other combiners: a mix that is corrected, and estimates in common units."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.combiners.convex import BOA, MLPoly
from jboost.combiners.mean import from_mean
from jboost.core import DType, Key, Learner, Sample, State, checks, model
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of, known, real, root, rounded
from jboost.learners.newton import ForwardNewton
from jboost.transforms.pipelines import ScaledState
from jboost.transforms.scale import Scale, Units
from jboost.transforms.units import gain

FARTHEST = 10.0  # errors beyond this many of their units count as this
LEAST_GAIN = 0.001  # of the newest squared error in their mean


class RefinedState(NamedTuple):
    """The states of the three learners of a refined combiner, and the size of the mix's errors."""

    mix: State
    correction: State
    judge: State
    samples: Array  # how many errors were counted, 0 at the start
    power: Array  # the mean square error of the mix, 0 at the start


@model
class Refined(Learner):
    """A convex mix p of the estimates y, corrected by least squares, and a judge between the two.

        q = p + wᵀ(y − p),    d̂ = a p + (1 − a) q

    The convex mix is almost at once as good as the best of the estimates. Least squares is better
    in the end and worse at first; as w starts at 0, q starts as p. The correction learns y − p and
    d − p in units of the root of the running mean of (d − p)², so that its ridge means the same
    however small the errors are. The judge mixes p and q with a regret bound, so d̂ is hardly worse
    than either. It is the combiner of :func:`jboost.auto`.

    Args:
      mix: the combiner that makes p; its weights should add up to 1.
      correction: a linear learner with the inputs y − p and the target d − p.
      judge: the combiner of p and q.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(1000)
    >>> experts = [jb.SGD(0.1), jb.SGD(0.5), jb.Newton(0.9)]
    >>> mixed = jb.boost(experts, target_mse=0.1, dependence=0.0, combiner=Refined())
    >>> bool(jb.mse(mixed, xs, ds) < min(jb.mse(one, xs, ds) for one in experts))
    True
    """

    mix: Learner = BOA()
    correction: Learner = ForwardNewton(forgetting=0.995, ridge=30.0)
    judge: Learner = MLPoly()

    starts_at_mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, example in (("mix", "BOA()"), ("correction", "Newton()"), ("judge", "MLPoly()")):
            instance(name, getattr(self, name), example)
        # The correction starts at w = 0 and not at a mean: its inputs are deviations from p.
        checks.assign(self, mix=from_mean(self.mix), judge=from_mean(self.judge))

    @property
    def needs_key(self) -> bool:
        return any(learner.needs_key for learner in (self.mix, self.correction, self.judge))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> RefinedState:
        mix = self.mix.init(num_features, dtype, key=key)
        correction = self.correction.init(num_features, dtype, key=key)
        zero = jnp.zeros((), dtype_of(dtype))
        return RefinedState(mix, correction, self.judge.init(2, dtype, key=key), zero, zero)

    def predict(self, state: RefinedState, x: ArrayLike) -> Array:
        return self.judge.predict(state.judge, self._both(state, x))

    def learn(self, state: RefinedState, sample: Sample) -> RefinedState:
        both = self._both(state, sample.raw)
        unit = root(state.power)
        e = sample.d - both[0]
        e = jnp.where(unit > 0, jnp.clip(e, -FARTHEST * unit, FARTHEST * unit), e)
        samples = state.samples + 1
        share = jnp.maximum(gain(samples), LEAST_GAIN)
        power = state.power + share * (e * e - state.power)
        samples, power = sample.keep((samples, power), (state.samples, state.power))
        unit = _unit(power)
        left = sample.with_input((sample.raw - both[0]) / unit).with_target(e / unit)
        correction = self.correction.learn(state.correction, left)
        judge = self.judge.learn(state.judge, sample.with_input(both))
        mix = self.mix.learn(state.mix, sample)
        return RefinedState(mix, correction, judge, samples, power)

    def _both(self, state: RefinedState, x: ArrayLike) -> Array:
        """Return p and q."""
        x, unit = jnp.asarray(x), _unit(state.power)
        p = self.mix.predict(state.mix, x)
        correction = self.correction.predict(state.correction, (x - p) / unit)
        return jnp.stack([p, p + rounded(unit * correction)])


def _unit(power: Array) -> Array:
    return jnp.where(power > 0, root(power), 1)


@model
class ScaleAlike(Learner):
    """A combiner of estimates that are scaled in the same way as the target.

        y′_k = (y_k − m)/s,    d′ = (d − m)/s    within ±c,    d̂ = m + s · combiner(y′)

    m and s are the running mean and deviation of the target. So the combiner sees numbers of about
    unit size, and a wild estimate counts as one of c deviations. When m and s move, a convex mix of
    the estimates stays right. The first two estimates are 0 and the first target.

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
    scale: Scale = Scale(clip=10.0, floor=False)

    starts_at_mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.fields(self, scale=checks.of_kind(Scale, "a Scale()"))
        checks.assign(self, combiner=from_mean(instance("combiner", self.combiner, "BOA()")))

    @property
    def needs_key(self) -> bool:
        return self.combiner.needs_key

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ScaledState:
        combiner = self.combiner.init(num_features, dtype, key=key)
        return ScaledState(self.scale.init(1, dtype), combiner)

    def predict(self, state: ScaledState, x: ArrayLike) -> Array:
        y = self.combiner.predict(state.learner, self._scaled(state.scale, x))
        return self.scale.unscaled(state.scale, y[None])[0]

    def learn(self, state: ScaledState, sample: Sample) -> ScaledState:
        scale = self.scale.after(state.scale, sample.d[None])
        scaled = sample.with_input(self._scaled(scale, sample.raw))
        scaled = scaled.with_target(self._scaled(scale, sample.d[None])[0])
        combiner = self.combiner.learn(state.learner, scaled)
        return ScaledState(sample.keep(scale, state.scale), combiner)

    def _scaled(self, scale: Units, values: ArrayLike) -> Array:
        values = real(values)
        return self.scale.scaled(scale, known(values, values.dtype))
