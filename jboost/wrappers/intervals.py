"""Prediction intervals d̂ ± h around any learner, whose coverage is held online.

| method      | h                         | q                                             |
|-------------|---------------------------|-----------------------------------------------|
| "conformal" | q u √exp g(d̂)             | follows the coverage                          |
| "newton"    | q u √(1 + xᵀPx)           | follows the coverage                          |
| "gaussian"  | q u √(1 + xᵀPx) = z σ̂ √…  | the normal quantile z, times σ/u              |

| letter | name        | meaning                                                                 |
|--------|-------------|-------------------------------------------------------------------------|
| 1 − α  | `coverage`  | how many of the answers are to lie inside                               |
| u      |             | the usual size of e, or of e/√(1 + xᵀPx); see :mod:`.error_scale`       |
| g      | `local`     | a learner's estimate of log|e| − log u from d̂, within ±2                |
| P      |             | the inverse Hessian of a Newton learner                                 |
| η      | `step`      | how fast q follows                                                      |

By adaptive conformal inference, from z σ/u on,

    log q ← log q + η (1{|d − d̂| > h} − α)

So in any window of n samples the coverage is off by (log q at its start − log q at its end)/(η n)
and nothing else, whatever the stream does: with η = 0.03, by less than 2 % in 2,000 samples unless
q changed by a factor of 3. The first steps are larger, 1/√(n + 9). All is in units of the errors.

I. Gibbs, E. Candès, Adaptive conformal inference under distribution shift, NeurIPS 2021;
A. N. Angelopoulos, E. Candès, R. J. Tibshirani, Conformal PID control for time series prediction,
NeurIPS 2023.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.numerics import LARGEST, dtype_of
from jboost.learners.newton import Newton
from jboost.transforms.maps import Bias, Polynomial
from jboost.transforms.pipelines import pipeline
from jboost.transforms.scale import Scale
from jboost.wrappers.error_scale import DEVIATION, FARTHEST, ErrorScale

METHODS = ("conformal", "newton", "gaussian")
LOCAL = pipeline(Scale(), Polynomial(2), Bias(), Newton(forgetting=0.999, ridge=1.0))
WIDEST = 2 * math.log(LARGEST)


class IntervalsState(NamedTuple):
    """The learner; u, log q and the learner of g."""

    learner: State
    scale: ErrorScale
    log_q: Array
    local: State


class _Half(NamedTuple):
    """Half of an interval's width, and what it was made of."""

    prediction: Array
    spread: Array
    width: Array


@model
class Intervals(Wrapper):
    """A learner that says how far off it may be. Its estimates are the learner's.

    ``info`` adds to the learner's: ``low`` and ``high``, and ``covered``, whether d lies between
    them (False where there is no usable d). Before the first answer the interval is (−∞, ∞).
    ``observe=jb.intervals.band`` records the two over a run, :func:`interval` gives them for one x.

    It belongs around a whole model, where d has its own units: ``Intervals(pipeline(…))``.

    Errors are mostly larger for some estimates than for others. g is a regression of log|e| on
    (1, d̂, d̂²), of which half is believed, for O(1) a sample: on the paper's eight sets it makes
    the intervals 8 % narrower on average, on mv 24 %, and at most 1 % wider. Newton's variance is
    the textbook's, and does not do that: where there are many samples it hardly varies, and with
    few of them it is far too large (ypmsd: 40 % wider). "gaussian" takes it at its word and covers
    between 86 % and 95 % there. ``experiments/bench/intervals.py`` has the figures.

    Args:
      learner: any learner; for "newton" and "gaussian" a ``Newton``, ``ForwardNewton`` or
        ``GaussNewton``, also in a pipeline and in wrappers as ``ScaleTarget`` or ``OnChange``.
      coverage: 1 − α, in (0, 1).
      method: "conformal", "newton" or "gaussian", as above.
      step: η > 0.
      memory: N ≥ 1, over how many samples u is taken.
      local: for "conformal": a learner of g from the one input d̂, or None for g = 0.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(4000)
    >>> model = Intervals(jb.Newton(0.99), coverage=0.9)
    >>> _, trace = jb.run(model, xs, ds, observe=band)
    >>> low, high = trace.observed
    >>> inside = (low <= ds) & (ds <= high)
    >>> [round(float(part.mean()), 2) for part in (inside[:2000], inside[2000:])]
    [0.9, 0.9]
    """

    learner: Learner
    coverage: Number = 0.9
    method: str = static(default="conformal")
    step: Number = 0.03
    memory: Number = 1000.0
    local: Learner | None = LOCAL

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as Newton(0.999)")
        checks.choice("method", self.method, METHODS)
        ranges = {
            "coverage": {"above": 0, "below": 1},
            "step": {"above": 0},
            "memory": {"at_least": 1},
        }
        for name, allowed in ranges.items():
            object.__setattr__(self, name, checks.number(name, getattr(self, name), **allowed))
        if self.method != "conformal":
            object.__setattr__(self, "local", None)
            if not self.learner.knows_leverage:
                raise TypeError(
                    f"method {self.method!r} wants a Newton learner, as such or in a pipeline; "
                    f"got {self.learner!r}. Pass method='conformal' for any other"
                )
        if self.local is not None:
            checks.instance("local", self.local, Learner, "a learner of one input, or None")

    @property
    def needs_key(self) -> bool:
        return self.learner.needs_key or (self.local is not None and self.local.needs_key)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> IntervalsState:
        dtype = dtype_of(dtype)
        z = jax.scipy.special.ndtri((1 + jnp.asarray(self.coverage, dtype)) / 2)
        return IntervalsState(
            learner=self.learner.init(num_features, dtype, key=key),
            scale=ErrorScale.zeros(dtype),
            log_q=jnp.log(DEVIATION * z),
            local=() if self.local is None else self.local.init(1, dtype, key=key),
        )

    def interval(self, state: IntervalsState, x: ArrayLike) -> tuple[Array, Array]:
        """(low, high) for the answer to x."""
        half = self._half(state, x)
        return half.prediction - half.width, half.prediction + half.width

    def learn(self, state: IntervalsState, sample: Sample) -> IntervalsState:
        y, s, h = self._half(state, sample.x)
        e = jnp.where(sample.good, sample.d - y, 0)
        log_q, local = state.log_q, state.local
        if self.method != "gaussian":
            n, alpha = state.scale.samples, 1 - jnp.asarray(self.coverage, y.dtype)
            eta = jnp.maximum(jnp.asarray(self.step, y.dtype), jax.lax.rsqrt(n + 9))
            missed = (jnp.abs(e) > h).astype(y.dtype)
            log_q = jnp.where(state.scale.known, log_q + eta * (missed - alpha), log_q)
        if self.local is not None:
            local = self.local.update(local, y[None], state.scale.offset(e / s), key=sample.key)
        scale = state.scale.after(e / s, self.memory)
        after = sample.keep(state._replace(scale=scale, log_q=log_q, local=local), state)
        return after._replace(learner=self.learner.learn(state.learner, sample))

    def info(self, state: IntervalsState, sample: Sample) -> dict[str, Any]:
        """Report what the learner reports, and low, high and covered."""
        low, high = self.interval(state, sample.x)
        covered = sample.good & (low <= sample.d) & (sample.d <= high)
        reported = self.learner.info(state.learner, sample)
        return reported | {"low": low, "high": high, "covered": covered}

    def _half(self, state: IntervalsState, x: ArrayLike) -> _Half:
        y = self.predict(state, x)
        s = jnp.ones_like(y)
        if self.method != "conformal":
            s = jnp.sqrt(1 + self.learner.leverage(state.learner, x))
        log_h = state.log_q + state.scale.log + jnp.log(s)
        if self.local is not None:
            g = self.local.predict(state.local, y[None])
            log_h = log_h + jnp.clip(g, -FARTHEST, FARTHEST) / 2
        h = jnp.exp(jnp.minimum(log_h, WIDEST))
        return _Half(y, s, jnp.where(state.scale.known, h, jnp.inf))


def interval(model: Learner, state: State, x: Any) -> tuple[Array, Array]:
    """(low, high) for the answer to x, by a model that has intervals.

    >>> import jax.numpy as jnp, jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> model = Intervals(jb.Newton(0.99))
    >>> state, _ = jb.run(model, xs, ds)
    >>> low, high = interval(model, state, xs[-1])
    >>> bool(low < model.predict(state, xs[-1]) < high)
    True
    """
    wanted = "one with intervals, jboost.Intervals(model)"
    return checks.instance("model", model, Intervals, wanted).interval(state, x)


def band(state: State, info: Any) -> tuple[Array, Array]:
    """An ``observe`` for a run of a model with intervals: low and high over time."""
    del state
    return info.low, info.high
