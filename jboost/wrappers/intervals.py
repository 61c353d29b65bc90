"""Intervals: prediction intervals d̂ ± h around any learner, whose coverage is held online."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.learner import instance
from jboost.core.numerics import LARGEST, dtype_of
from jboost.core.step import Info
from jboost.learners.newton import Newton
from jboost.transforms.maps import Bias, Polynomial
from jboost.transforms.pipelines import pipeline
from jboost.transforms.scale import Scale
from jboost.transforms.units import gain

LOCAL = pipeline(Scale(), Polynomial(2), Bias(), Newton(forgetting=0.999, ridge=1.0))
WIDEST = 2 * math.log(LARGEST)  # the bound of log h: beyond it exp would overflow float32
FARTHEST = 2.0  # the bound of |v|: e² ≈ 7.4 times as large or as small as usual
# Gaussian errors have σ = 1.776 u: this c solves E[clip(log|z| + log c, ±2)] = 0.
DEVIATION = 1.7760725


class ErrorScale(NamedTuple):
    """The usual size u of a learner's errors, followed online, in any units and with any tails.

        v = log|e| − log u, but within ±2,    log u ← log u + a v,    a = max(4/(n + 3), 1/N)

    e is the n-th error that is not 0, and N the ``memory``. No error moves log u by more than 2a.
    Once u has settled, the mean of v is 0 whatever the distribution of the errors; a test for
    change relies on that. The gain 4/n, as that of the moments of ``Scale``, makes the large errors
    of a learner that has just begun fade as n⁻⁴ or faster.

    Errors of exactly 0 do not count. Some streams begin with nothing but zeros, which a learner
    that has seen nothing predicts exactly; a u of almost 0 would take thousands of samples to grow.
    """

    samples: Array  # n, the number of errors that were not 0; 0 at the start
    log: Array  # log u; 0 at the start, where it has no meaning

    @classmethod
    def zeros(cls, dtype: DTypeLike) -> "ErrorScale":
        return cls(jnp.zeros((), dtype), jnp.zeros((), dtype))

    @property
    def known(self) -> Array:
        return self.samples > 0

    def offset(self, e: Array) -> Array:
        """Return v of an error, the logarithm of its size over the usual size; 0 for the first."""
        return jnp.where(self.known, jnp.clip(log_size(e) - self.log, -FARTHEST, FARTHEST), 0)

    def after(self, e: Array, memory: ArrayLike) -> "ErrorScale":
        """Return the scale after one more error; an error of 0 leaves it as it was."""
        n = self.samples + 1  # in float32 this ends at 2²⁴, long after 1/N is the larger gain
        a = jnp.maximum(gain(n), 1 / jnp.asarray(memory, n.dtype))
        log = jnp.where(self.known, self.log + a * self.offset(e), log_size(e))
        counts = e != 0
        return ErrorScale(jnp.where(counts, n, self.samples), jnp.where(counts, log, self.log))


def log_size(e: Array) -> Array:
    """Return log|e|, for e = 0 that of the smallest number there is."""
    size = jnp.abs(e)
    tiny = jnp.finfo(size.dtype).tiny
    return jnp.log(jnp.where(size > tiny, size, tiny))


class IntervalsState(NamedTuple):
    """The state of a learner with intervals."""

    learner: State
    scale: ErrorScale  # the usual size u of the errors
    log_q: Array  # log q, at the start log(z σ/u)
    local: State  # of the learner of g; of those of the two quantiles; () without either


@model
class Intervals(Wrapper):
    """A learner that says how far off its estimate may be. Its estimates are the learner's.

    | method      | h                         | q                                             |
    |-------------|---------------------------|-----------------------------------------------|
    | "conformal" | q u √exp g(d̂)             | follows the coverage                          |
    | "newton"    | q u √(1 + xᵀPx)           | follows the coverage                          |
    | "gaussian"  | q u √(1 + xᵀPx)           | the normal quantile z, times σ/u              |

    With "quantiles" the bounds are the estimates of two learners of quantiles, ``low`` and
    ``high``; :func:`from_quantiles` makes such a model. The width may depend on x in any way. The
    coverage is as good as the two learners are.

    u is the usual size of e = d − d̂, or of e/√(1 + xᵀPx), see ``ErrorScale``. P is the inverse
    Hessian of a Newton learner. g is the estimate of log|e| − log u from d̂ by the learner
    ``local``, as errors are often larger for some estimates than for others. By default it is a
    regression on (1, d̂, d̂²), halved by the root, for O(1) a sample.

    q follows the coverage by adaptive conformal inference. It starts at z σ/u, and

        log q ← log q + η (1{|d − d̂| > h} − α)

    So in any window of n samples the coverage is off by exactly (log q at its start − log q at its
    end)/(η n), whatever the stream does. The first steps are larger, 1/√(n + 9). Nothing depends on
    the units of the errors. ``experiments/bench/intervals.py`` compares the methods: "conformal" is
    narrower, as 1 + xᵀPx is far too large with few samples, and "gaussian" holds no coverage.

    Besides the learner's reports, ``info`` has ``low`` and ``high``, the ends of the interval, and
    ``covered``, whether d lies between them (False where d is not usable). Before the first answer
    the interval is (−∞, ∞). ``observe=jb.intervals.band`` records low and high over a run, and
    :func:`interval` gives them for one x.

    Wrap the whole model, ``Intervals(pipeline(…))``, where d has the units of the stream. "newton"
    and "gaussian" want a ``Newton``, ``ForwardNewton`` or ``GaussNewton``, also in a pipeline and
    in wrappers such as ``ScaleTarget`` or ``OnChange``.

    Args:
      learner: any learner; for "newton" and "gaussian" one that knows its leverage.
      coverage: 1 − α in (0, 1), the part of the answers that is to lie inside.
      method: "conformal", "newton", "gaussian" or "quantiles", as above.
      step: η > 0, how fast q follows.
      memory: at least 1, the number of samples over which u is taken.
      local: for "conformal", a learner of g from the one input d̂; None for g = 0.
      low: for "quantiles", the learner of the lower bound.
      high: for "quantiles", the learner of the upper bound.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(4000)
    >>> model = Intervals(jb.Newton(0.99), coverage=0.9)
    >>> state, trace = jb.run(model, xs, ds, observe=band)
    >>> low, high = trace.observed
    >>> inside = (low <= ds) & (ds <= high)
    >>> [round(float(half.mean()), 2) for half in (inside[:2000], inside[2000:])]
    [0.9, 0.9]
    >>> low, high = interval(model, state, xs[-1])
    >>> bool(low < model.predict(state, xs[-1]) < high)
    True

    References: I. Gibbs, E. Candès, Adaptive conformal inference under distribution shift, NeurIPS
    2021; A. N. Angelopoulos, E. Candès, R. J. Tibshirani, Conformal PID control for time series
    prediction, NeurIPS 2023.
    """

    learner: Learner
    coverage: Number = 0.9
    method: str = static(default="conformal")
    step: Number = 0.03
    memory: Number = 1000.0
    local: Learner | None = LOCAL
    low: Learner | None = None
    high: Learner | None = None

    def __post_init__(self) -> None:
        checks.fields(
            self,
            learner=instance,
            coverage=checks.a_number(above=0, below=1),
            method=checks.one_of("conformal", "newton", "gaussian", "quantiles"),
            step=checks.a_number(above=0),
            memory=checks.a_number(at_least=1),
            local=checks.or_none(checks.of_kind(Learner, "a learner of one input, or None")),
            low=checks.or_none(instance),
            high=checks.or_none(instance),
        )
        if self.method != "conformal":
            checks.assign(self, local=None)
        if self.method in ("newton", "gaussian"):
            check_leverage(f"method {self.method!r}", self.learner, "method='conformal'")
        for name, bound in (("low", self.low), ("high", self.high)):
            if (bound is None) == (self.method == "quantiles"):
                advice = "a learner of a quantile with method='quantiles', and None otherwise"
                raise ValueError(f"{name} must be {advice}; got {checks.shown(bound)}")

    @property
    def needs_key(self) -> bool:
        members = (self.learner, self.local, self.low, self.high)
        return any(member.needs_key for member in members if member is not None)

    @property
    def takes_missing(self) -> bool:
        members = (self.learner, self.low, self.high)
        return all(member.takes_missing for member in members if member is not None)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> IntervalsState:
        dtype = dtype_of(dtype)
        share, least = (1 + jnp.asarray(self.coverage, dtype)) / 2, jnp.finfo(dtype).eps
        z = jax.scipy.special.ndtri(jnp.clip(share, 0.5 + least, 1 - least))  # neither 0 nor ∞
        learner = self.learner.init(num_features, dtype, key=key)
        local = () if self.local is None else self.local.init(1, dtype, key=key)
        if self.low is not None and self.high is not None:
            local = tuple(m.init(num_features, dtype, key=key) for m in (self.low, self.high))
        return IntervalsState(learner, ErrorScale.zeros(dtype), jnp.log(DEVIATION * z), local)

    def interval(self, state: IntervalsState, x: ArrayLike) -> tuple[Array, Array]:
        """Return (low, high) for the answer to x."""
        if self.low is not None and self.high is not None:
            first = self.low.predict(state.local[0], x)
            second = self.high.predict(state.local[1], x)
            return jnp.minimum(first, second), jnp.maximum(first, second)
        y, _, h = self._parts(state, x)
        return y - h, y + h

    def learn(self, state: IntervalsState, sample: Sample) -> IntervalsState:
        if self.low is not None and self.high is not None:
            bounds = zip((self.low, self.high), state.local, strict=True)
            local = tuple(member.learn(before, sample) for member, before in bounds)
            return state._replace(local=local, learner=self.learner.learn(state.learner, sample))
        y, s, h = self._parts(state, sample.raw)
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
        low, high = self.interval(state, sample.raw)
        covered = sample.good & (low <= sample.d) & (sample.d <= high)
        return super().info(state, sample) | {"low": low, "high": high, "covered": covered}

    def _parts(self, state: IntervalsState, x: ArrayLike) -> tuple[Array, Array, Array]:
        """Return d̂, the factor √(1 + xᵀPx) of its error (1 for "conformal"), and h."""
        y = self.predict(state, x)
        s = jnp.ones_like(y)
        if self.method != "conformal":
            s = jnp.sqrt(1 + self.learner.leverage(state.learner, x))
        log_h = state.log_q + state.scale.log + jnp.log(s)
        if self.local is not None:
            g = self.local.predict(state.local, y[None])
            log_h = log_h + jnp.clip(g, -FARTHEST, FARTHEST) / 2
        h = jnp.exp(jnp.minimum(log_h, WIDEST))
        return y, s, jnp.where(state.scale.known, h, jnp.inf)


def check_leverage(setting: str, learner: Learner, alternative: str) -> None:
    """Refuse a setting that asks a learner for its leverage, where it does not know it."""
    if not learner.knows_leverage:
        raise TypeError(
            f"{setting} wants a Newton learner, as such or in a pipeline; got {learner!r}. "
            f"Pass {alternative} for any other"
        )


def interval(model: Learner, state: State, x: ArrayLike) -> tuple[Array, Array]:
    """Return (low, high) for the answer to x, by a model that has intervals."""
    advice = "a model with intervals, jboost.Intervals(model)"
    return checks.instance("model", model, Intervals, advice).interval(state, x)


def from_quantiles(make: Callable[[float], Learner], coverage: float = 0.9) -> Intervals:
    """Make a model whose intervals lie between two quantiles; it predicts the median.

    Args:
      make: ``make(tau)`` returns a learner under ``losses.pinball(tau)``.
      coverage: the part of the answers that should lie inside, in (0, 1).

    >>> import jboost as jb
    >>> model = from_quantiles(lambda tau: jb.NLMS(0.1, loss=jb.losses.pinball(tau)), 0.8)
    >>> xs, ds = jb.streams.duffing(2000)
    >>> low, high = jb.run(model, xs, ds, observe=band)[1].observed
    >>> bool(0.75 < ((low <= ds) & (ds <= high)).mean() < 0.85)
    True
    """
    checks.function("make", make, "tau, which returns a learner")
    alpha = 1 - checks.number("coverage", coverage, above=0, below=1)
    middle, low, high = (make(tau) for tau in (0.5, alpha / 2, 1 - alpha / 2))
    return Intervals(middle, coverage, "quantiles", low=low, high=high)


def band(state: State, info: Info) -> tuple[Array, Array]:
    """Return low and high: an ``observe`` for a run of a model with intervals."""
    return info.low, info.high
