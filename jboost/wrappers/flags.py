"""Flags: a learner that says which samples are odd, when its errors change, which inputs drift."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of
from jboost.core.step import Info
from jboost.transforms.units import Moments, standardised
from jboost.wrappers.detectors import ChangeDetector, PageHinkley
from jboost.wrappers.intervals import ErrorScale, log_size

BINS, WIDTH, LOWEST = 96, 0.125, -8.0  # of log|e|/u: from e⁻⁸ to e⁴ usual errors
STEP = 0.05  # how fast the level of an anomaly follows its rate
WARM_UP = 100  # values of a column before its drift is looked for: they set its units
CLIP = 5.0  # deviations: a value of a column beyond this counts as this
# The deviation of log((1 − p)/p), whose distribution is the logistic one where p is uniform.
LOGISTIC = math.pi / math.sqrt(3)
# Page–Hinkley on numbers of mean 0 and deviation about 1. A mean that moves by less than 0.25 is no
# change; by chance the sum passes 25 about once in 1/(2 · 0.25 · e^(−2 · 0.25 · 25)) ≈ 500,000.
# (For logistic numbers 0.488 stands for 2 · 0.25, where E e^(0.488 (v − 0.25)) = 1.)
DETECTOR = PageHinkley(threshold=25.0, delta=0.25, fading=1.0)


class FlagsState(NamedTuple):
    """The state of a learner with flags; all but the learner's is 0 at the start, or as said."""

    learner: State
    scale: ErrorScale  # the usual size u of the errors
    sizes: Array  # (96,) how many errors there were of each size over u, older ones fading
    log_level: Array  # log a, at the start that of ``rate``
    change: State  # of the detector of changes of the errors, as it starts
    moments: Moments  # of the columns
    drifts: State  # of the detectors of the columns, each as it starts


@model
class Flags(Wrapper):
    """A learner that reports what a user should look at. Its estimates are the learner's.

    Besides the learner's reports, ``info`` has for each sample:

    * ``p_value``: how often errors are as large as this one, p = (1 + n_larger)/(1 + n), by a
      histogram of log|e|/u, where u is the usual size of errors (``ErrorScale``). It is 1 where
      there is no answer.
    * ``anomaly``: whether p ≤ a. The level a follows the rate, log a ← log a + η(rate − anomaly),
      so that in any window of n samples the share of anomalies is off by at most the change of
      log a over η n, whatever the errors do.
    * ``change``: whether the detector finds that the size of errors has moved, and u then begins
      anew. It watches log((1 − p)/p) over its deviation, whose distribution is the same whatever
      that of the errors is.
    * ``drifted``, (r,): whether the mean of a column has moved, in deviations of the column, which
      then begin anew. Columns that wander are found again and again.

    ``Intervals(Flags(model))`` has both flags and intervals. ``observe=jb.flags.flagged`` records
    the four over a run.

    Args:
      learner: any learner.
      rate: the share of samples that are called anomalies, in (0, 0.5].
      detector: of changes, :class:`~jboost.wrappers.detectors.PageHinkley` or ``ADWIN``, for
        numbers of mean 0 and deviation 1.
      memory: at least 1, the number of errors that u and the histogram remember.

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.stationary(jax.random.key(0), 3000)
    >>> ds = ds.at[2000].set(30.0)
    >>> _, trace = jb.run(Flags(jb.Newton()), xs, ds, observe=flagged)
    >>> bool(trace.observed["anomaly"][2000]), float(trace.observed["p_value"][2000]) < 0.002
    (True, True)
    >>> abs(float(trace.observed["anomaly"].mean()) - 0.01) < 0.003
    True
    """

    learner: Learner
    rate: Number = 0.01
    detector: ChangeDetector = DETECTOR
    memory: Number = 1000.0

    def __post_init__(self) -> None:
        advice = "a detector such as jboost.detectors.PageHinkley(25.0, delta=0.25)"
        checks.fields(
            self,
            learner=instance,
            rate=checks.a_number(above=0, at_most=0.5),
            detector=checks.of_kind(ChangeDetector, advice),
            memory=checks.a_number(at_least=1),
        )

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> FlagsState:
        dtype = dtype_of(dtype)
        first = self.detector.init(dtype)
        each = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_features, *leaf.shape)), first)
        return FlagsState(
            learner=self.learner.init(num_features, dtype, key=key),
            scale=ErrorScale.zeros(dtype),
            sizes=jnp.zeros(BINS, dtype),
            log_level=jnp.log(jnp.asarray(self.rate, dtype)),
            change=first,
            moments=Moments.zeros((num_features,), dtype),
            drifts=each,
        )

    def learn(self, state: FlagsState, sample: Sample) -> FlagsState:
        after, _ = self._watched(state, sample)
        return after._replace(learner=self.learner.learn(state.learner, sample))

    def info(self, state: FlagsState, sample: Sample) -> dict[str, Any]:
        return super().info(state, sample) | self._watched(state, sample)[1]

    def _watched(self, state: FlagsState, sample: Sample) -> tuple[FlagsState, dict[str, Array]]:
        """Return the state after a sample, the learner's as it was, and the flags."""
        dtype, counts = state.log_level.dtype, sample.counts
        e = jnp.where(sample.good, sample.d - self.predict(state, sample.raw), 0)
        rate, memory = jnp.asarray(self.rate, dtype), jnp.asarray(self.memory, dtype)

        v = (log_size(e) - state.scale.log - LOWEST) / WIDTH
        v = jnp.clip(v, 0, BINS)
        bins = jnp.arange(BINS, dtype=dtype)
        larger = jnp.sum(state.sizes * jnp.clip(bins + 1 - v, 0, 1))
        n = jnp.sum(state.sizes)
        p = jnp.where(state.scale.known & counts, (1 + larger) / (1 + n), 1)
        anomaly = p <= jnp.exp(state.log_level)
        moved = state.log_level + STEP * (rate - anomaly.astype(dtype))
        here = (bins == jnp.minimum(jnp.floor(v), BINS - 1)) & state.scale.known & (e != 0)
        sizes = state.sizes * (1 - 1 / memory) + here.astype(dtype)
        middle = (0.5 + larger) / (1 + n)  # as p, but never 1
        odds = jnp.log(1 - middle) - jnp.log(middle)
        watched = jnp.where(state.scale.known & (e != 0), odds / LOGISTIC, jnp.nan)
        change, changed = self.detector.update(state.change, watched)

        moments = state.moments.after(sample.raw, 1.0, CLIP)
        m, s = state.moments.frame
        raw = jnp.asarray(sample.raw, dtype)
        settled = (s > 0) & (state.moments.samples >= WARM_UP)
        x = jnp.where(settled, standardised(raw - m, s, jnp.asarray(CLIP, dtype)), jnp.nan)
        drifts, drifted = jax.vmap(self.detector.update)(state.drifts, x)
        after = state._replace(
            scale=_anew(changed, state.scale.after(e, self.memory)),
            sizes=sizes,
            log_level=jnp.where(n >= 1 / rate, jnp.minimum(moved, 0), state.log_level),
            change=change,
            moments=_anew(drifted, moments),
            drifts=drifts,
        )
        flags = {
            "p_value": p,
            "anomaly": anomaly & counts,
            "change": changed & counts,
            "drifted": drifted & counts,
        }
        return sample.keep(after, state), flags


def _anew(begins: Array, state: State) -> State:
    """Return zeros, the first state, where something begins anew."""
    return jax.tree.map(lambda leaf: jnp.where(begins, 0, leaf), state)


def flagged(state: State, info: Info) -> dict[str, Array]:
    """Return the flags of a step: an ``observe`` for a run of a model with flags."""
    return {name: info[name] for name in ("p_value", "anomaly", "change", "drifted")}
