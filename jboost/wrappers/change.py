"""Streams that change at once: noticed by the error, and answered inside the state.

The detector is Page's cumulative sum of log-likelihood ratios, of errors k times as large as usual
against errors as usual:

    v = ½ (1 − 1/k²) e²/σ² − log k but at most 2,    g ← max(0, g + v),    alarm where g > h

| letter | name          | meaning                                                           |
|--------|---------------|-------------------------------------------------------------------|
| σ      |               | the usual size of errors, see :mod:`.error_scale`                 |
| k      | `factor`      | how many times as large they are after a change worth acting on   |
| h      | `threshold`   | how much evidence it takes, in nats                               |

A single absurd error counts at most 2, so that it takes twenty of them. σ is a median's kind of
deviation: heavy tails do not move it. Errors that become three times as large or more are noticed
after 20 to 25 samples, those that become twice as large after 55 to 75.

E. S. Page, Continuous inspection schemes, Biometrika 41, 1954; D. V. Hinkley, Inference about the
change-point from cumulative sum tests, Biometrika 58, 1971.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.learner import required_key
from jboost.core.numerics import dtype_of
from jboost.learners.newton import CovarianceState, RootState
from jboost.transforms.pipelines import PipelineState
from jboost.transforms.target import ScaledState
from jboost.wrappers.error_scale import DEVIATION, ErrorScale

ACTIONS = ("restart", "inflate")
WARM_UP, PER_FEATURE = 100, 10
LARGEST = 2.0  # nats, of one error


class Detector(NamedTuple):
    """The usual size of errors and the sum g since the last alarm; t, how many alarms, the last.

    ``samples`` counts what was learned from, and ``last`` is its value at the last alarm, or 0.
    """

    usual: ErrorScale
    excess: Array
    samples: Array
    changes: Array
    last: Array


class OnChangeState(NamedTuple):
    """The detector, and the learner."""

    detector: Detector
    learner: State


@model
class OnChange(Wrapper):
    """A learner that begins anew where the stream does.

    At an alarm, before the sample that raised it is learned,

    * "restart" is for learners of any kind: they forget all. What transforms know of scales stays.
    * "inflate" gives every Newton learner inside (also in boosters, pipelines, Gauss–Newton and
      combiners) the variance P that it started with. What it knows stays until it is contradicted:
      a Newton alone recovers as fast, a booster more slowly.

    Wrapper a booster it acts on all of it; inside one, ``boost(OnChange(Newton()), m)``, on the
    copies that suffer. The detector is then blind for ``warm_up`` samples, as at the start, where
    errors of a learner of r columns are no measure of anything.

    ``experiments/bench/intervals.py`` has the figures: after an abrupt change of all coefficients
    Newton(0.999) is at twice the noise after 79 samples, alone after 2,779. Where the noise is so
    large that the errors only double, a learner that forgets within 100 samples recovers by itself
    almost as soon. The paper's eight sets raise no alarm but for california, whose rows are in the
    order of places, and where it helps.

    ``info`` adds to the learner's: ``alarm`` (at this sample), ``changes`` (how many so far) and
    ``last`` (the number of samples learned before the last one; 0 if there was none).

    Args:
      learner: any learner.
      action: "restart" or "inflate".
      factor: k > 1; with 3 an error up to 1.6 times as large as usual is none to act on.
      threshold: h > 0.
      memory: N ≥ 1, over how many samples the usual size of errors is taken.
      warm_up: samples after the start, or an alarm, without one; by default 10 per column, and at
        least 100.

    >>> import jax.numpy as jnp, jboost as jb
    >>> xs, ds = jb.streams.stationary(jax.random.key(0), 2000)
    >>> ds = jnp.where(jnp.arange(2000) < 1000, ds, 2.0 - ds)
    >>> model = OnChange(jb.Newton(0.999))
    >>> state, _ = jb.run(model, xs, ds)
    >>> int(state.detector.changes), 1000 < int(state.detector.last) < 1040
    (1, True)
    >>> bool(jb.mse(model, xs, ds) < 0.5 * jb.mse(jb.Newton(0.999), xs, ds))
    True
    """

    learner: Learner
    action: str = static(default="restart")
    factor: Number = 3.0
    threshold: Number = 39.0
    memory: Number = 1000.0
    warm_up: int | None = static(default=None)

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as Newton(0.999)")
        checks.choice("action", self.action, ACTIONS)
        ranges = {"factor": {"above": 1}, "threshold": {"above": 0}, "memory": {"at_least": 1}}
        for name, allowed in ranges.items():
            object.__setattr__(self, name, checks.number(name, getattr(self, name), **allowed))
        if self.warm_up is not None:
            object.__setattr__(self, "warm_up", checks.whole("warm_up", self.warm_up, at_least=0))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> OnChangeState:
        dtype = dtype_of(dtype)
        learner = self.learner.init(num_features, dtype, key=key)
        if self.action == "inflate" and not _has_variance(learner):
            raise ValueError(
                "there is no Newton learner to inflate; pass action='restart' to OnChange"
            )
        none = jnp.zeros((), jnp.uint32)
        excess = jnp.zeros((), dtype)
        return OnChangeState(Detector(ErrorScale.zeros(dtype), excess, none, none, none), learner)

    def learn(self, state: OnChangeState, sample: Sample) -> OnChangeState:
        detector = sample.keep(self._seen(state, sample), state.detector)
        own = state.learner

        def act(own: State) -> State:
            t, r = state.detector.samples, sample.x.shape[0]
            key = jax.random.fold_in(required_key(sample.key), t) if self.needs_key else None
            fresh = self.learner.init(r, detector.excess.dtype, key=key)
            return _acted(self.action, own, fresh)

        # A condition, not a choice: what starts anew is computed only where something does.
        own = jax.lax.cond(detector.changes != state.detector.changes, act, lambda own: own, own)
        return OnChangeState(detector, self.learner.learn(own, sample))

    def info(self, state: OnChangeState, sample: Sample) -> dict[str, Any]:
        """Report what the learner reports, and alarm, changes and last."""
        now = sample.keep(self._seen(state, sample), state.detector)
        alarm = now.changes != state.detector.changes
        reported = self.learner.info(state.learner, sample)
        return reported | {"alarm": alarm, "changes": now.changes, "last": now.last}

    def _seen(self, state: OnChangeState, sample: Sample) -> Detector:
        """Return the detector after a good sample."""
        usual, g, t, changes, last = state.detector
        e = jnp.where(sample.good, sample.d - self.predict(state, sample.x), 0)

        k, h = jnp.asarray(self.factor, g.dtype), jnp.asarray(self.threshold, g.dtype)
        z = jnp.exp(usual.offset(e)) / DEVIATION  # |e|/σ, at most 4
        v = jnp.minimum((1 - 1 / (k * k)) * z * z / 2 - jnp.log(k), LARGEST)
        blind = self.warm_up
        if blind is None:
            blind = max(WARM_UP, PER_FEATURE * sample.x.shape[0])
        g = jnp.where(usual.samples >= blind, jnp.maximum(g + v, 0), 0)
        alarm = g > h
        usual = jax.tree.map(lambda new: jnp.where(alarm, 0, new), usual.after(e, self.memory))
        return Detector(
            usual,
            jnp.where(alarm, 0, g),
            t + 1,
            changes + alarm.astype(t.dtype),
            jnp.where(alarm, t, last),
        )


def _acted(action: str, own: State, fresh: State) -> State:
    """A learner's state after the action; ``fresh`` is the one that it started with."""

    def change(old: Any, new: Any) -> Any:
        if isinstance(old, PipelineState):
            return PipelineState(old.transforms, _acted(action, old.learner, new.learner))
        if isinstance(old, ScaledState):
            return ScaledState(old.scale, _acted(action, old.learner, new.learner))
        if action == "restart":
            return new
        return new._replace(w=old.w, turn=old.turn) if _is_newton(old) else old

    def whole(node: Any) -> bool:
        return isinstance(node, (PipelineState, ScaledState)) or _is_newton(node)

    return jax.tree.map(change, own, fresh, is_leaf=whole)


def _is_newton(node: Any) -> bool:
    return isinstance(node, (RootState, CovarianceState))


def _has_variance(state: State) -> bool:
    return any(map(_is_newton, jax.tree.leaves(state, is_leaf=_is_newton)))
