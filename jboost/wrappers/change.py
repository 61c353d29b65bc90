"""OnChange: a learner that notices by its errors that the stream has changed at once."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.learner import instance, required_key
from jboost.core.numerics import dtype_of
from jboost.learners.newton import CovarianceState, RootState
from jboost.transforms.pipelines import PipelineState, ScaledState
from jboost.wrappers.detectors import ChangeDetector
from jboost.wrappers.intervals import DEVIATION, ErrorScale

WARM_UP, PER_FEATURE = 100, 10  # samples without an alarm: at least, and for each column
LARGEST = 2.0  # nats: the most that one error adds to the evidence
BEHIND_SCALES = (PipelineState, ScaledState)  # an action keeps the scales and reaches the learner
NEWTON = (RootState, CovarianceState)


class Detector(NamedTuple):
    """The detector of changes. All numbers are 0 at the start."""

    usual: ErrorScale  # the usual size of errors since the last alarm
    excess: State  # g, the evidence since the last alarm; or the state of another detector
    samples: Array  # the number of samples that were learned; it wraps at 2³²
    changes: Array  # the number of alarms
    last: Array  # the value of ``samples`` at the last alarm; 0 if there was none


class OnChangeState(NamedTuple):
    """The state of a learner that answers changes."""

    detector: Detector
    learner: State


@model
class OnChange(Wrapper):
    """A learner that begins anew where the stream does.

    The detector is Page's cumulative sum of log-likelihood ratios. It compares two claims: that
    errors are k times as large as usual, and that they are as usual.

        v = ½ (1 − 1/k²) e²/σ² − log k but at most 2,    g ← max(0, g + v),    alarm where g > h

    k is ``factor`` and h is ``threshold``. σ is the usual size of errors, as ``ErrorScale`` has it:
    heavy tails do not move it. A single error adds at most 2 to g, so an alarm takes at least
    twenty; ``experiments/bench/intervals.py`` measures how fast it comes. After the start and after
    an alarm the detector waits for ``warm_up`` samples: the errors of a learner that has just begun
    say nothing of a change.

    At an alarm the learner acts before it learns the sample that raised the alarm:

    * "restart" is for learners of any kind: they forget everything but the scales of inputs and
      targets.
    * "inflate" gives every Newton learner inside (also in boosters, pipelines, Gauss–Newton and
      combiners) the variance P that it started with. It keeps its coefficients until new samples
      contradict them. A booster recovers more slowly than after a restart.

    Around a booster OnChange acts on all of it. Inside, as in ``boost(OnChange(Newton()), m)``, it
    acts on those copies whose errors grow. Besides the learner's reports, ``info`` has ``alarm``
    (whether this sample raises one), and ``changes`` and ``last`` as in the state.

    Args:
      learner: any learner.
      action: "restart" or "inflate".
      factor: k > 1; with 3, errors up to 1.6 times as large as usual are no evidence.
      threshold: h > 0, the evidence that an alarm takes, in nats.
      memory: at least 1, the number of samples over which σ is taken.
      warm_up: samples without an alarm at the start and after one; None is 10 per column, at
        least 100.
      detector: another detector of :mod:`jboost.detectors`, ``ADWIN`` or ``PageHinkley``, which
        then watches log|e|/u, numbers of mean 0 and deviation about 1, in place of this one.
        ``factor`` and ``threshold`` are not used.

    >>> import jax.numpy as jnp, jboost as jb
    >>> xs, ds = jb.streams.stationary(jax.random.key(0), 2000)
    >>> ds = jnp.where(jnp.arange(2000) < 1000, ds, 2.0 - ds)
    >>> model = OnChange(jb.Newton(0.999))
    >>> state, _ = jb.run(model, xs, ds)
    >>> int(state.detector.changes), 1000 < int(state.detector.last) < 1040
    (1, True)
    >>> bool(jb.mse(model, xs, ds) < 0.5 * jb.mse(jb.Newton(0.999), xs, ds))
    True

    References: E. S. Page, Continuous inspection schemes, Biometrika 41, 1954; D. V. Hinkley,
    Inference about the change-point from cumulative sum tests, Biometrika 58, 1971.
    """

    learner: Learner
    action: str = static(default="restart")
    factor: Number = 3.0
    threshold: Number = 39.0
    memory: Number = 1000.0
    warm_up: int | None = static(default=None)
    detector: ChangeDetector | None = None

    def __post_init__(self) -> None:
        checks.fields(
            self,
            learner=instance,
            action=checks.one_of("restart", "inflate"),
            factor=checks.a_number(above=1),
            threshold=checks.a_number(above=0),
            memory=checks.a_number(at_least=1),
            warm_up=checks.or_none(checks.a_whole_number(at_least=0)),
            detector=checks.or_none(checks.of_kind(ChangeDetector, "a detector such as ADWIN()")),
        )

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> OnChangeState:
        dtype = dtype_of(dtype)
        learner = self.learner.init(num_features, dtype, key=key)
        nodes = jax.tree.leaves(learner, is_leaf=lambda node: isinstance(node, NEWTON))
        if self.action == "inflate" and not any(isinstance(node, NEWTON) for node in nodes):
            raise ValueError("there is no Newton learner to inflate; pass action='restart'")
        zero, excess = jnp.zeros((), jnp.uint32), jnp.zeros((), dtype)
        if self.detector is not None:
            excess = self.detector.init(dtype)
        return OnChangeState(Detector(ErrorScale.zeros(dtype), excess, zero, zero, zero), learner)

    def learn(self, state: OnChangeState, sample: Sample) -> OnChangeState:
        detector = self._detector_after(state, sample)

        def act(learner: State) -> State:
            t, r = state.detector.samples, sample.raw.shape[0]
            key = jax.random.fold_in(required_key(sample.key), t) if self.needs_key else None
            fresh = self.learner.init(r, detector.usual.log.dtype, key=key)
            return _acted(self.action, learner, fresh)

        # A condition, not a choice: a fresh state is computed only at an alarm.
        alarm = detector.changes != state.detector.changes
        learner = jax.lax.cond(alarm, act, lambda learner: learner, state.learner)
        return OnChangeState(detector, self.learner.learn(learner, sample))

    def info(self, state: OnChangeState, sample: Sample) -> dict[str, Any]:
        after = self._detector_after(state, sample)
        alarm = after.changes != state.detector.changes
        reports = {"alarm": alarm, "changes": after.changes, "last": after.last}
        return super().info(state, sample) | reports

    def _detector_after(self, state: OnChangeState, sample: Sample) -> Detector:
        """Return the detector after a sample; as it was where the sample does not count."""
        usual, g = state.detector[:2]
        e = jnp.where(sample.good, sample.d - self.predict(state, sample.raw), 0)
        default = max(WARM_UP, PER_FEATURE * sample.raw.shape[0])
        warm_up = default if self.warm_up is None else self.warm_up
        if self.detector is not None:
            watched, alarm = self.detector.update(g, usual.offset(e))
            begun = usual.samples >= warm_up
            g = jax.tree.map(lambda new, old: jnp.where(begun, new, old), watched, g)
            return self._after(state, sample, e, g, begun & alarm)

        k, h = jnp.asarray(self.factor, g.dtype), jnp.asarray(self.threshold, g.dtype)
        z = jnp.exp(usual.offset(e)) / DEVIATION  # |e|/σ, at most 4
        v = jnp.minimum((1 - 1 / (k * k)) * z * z / 2 - jnp.log(k), LARGEST)
        g = jnp.where(usual.samples >= warm_up, jnp.maximum(g + v, 0), 0)
        alarm = g > h
        return self._after(state, sample, e, g, alarm)

    def _after(
        self, state: OnChangeState, sample: Sample, e: Array, g: State, alarm: Array
    ) -> Detector:
        """Return the detector after a sample, with its evidence and whether there is an alarm."""
        usual, _, t, changes, last = state.detector
        usual = jax.tree.map(lambda new: jnp.where(alarm, 0, new), usual.after(e, self.memory))
        if self.detector is None:  # another detector begins anew by itself
            g = jnp.where(alarm, 0, g)
        last = jnp.where(alarm, t, last)
        after = Detector(usual, g, t + 1, changes + alarm.astype(t.dtype), last)
        return sample.keep(after, state.detector)


def _acted(action: str, state: State, fresh: State) -> State:
    def act(old: Any, new: Any) -> Any:
        if isinstance(old, BEHIND_SCALES):
            return old._replace(learner=_acted(action, old.learner, new.learner))
        if action == "restart":
            return new
        return new._replace(w=old.w, turn=old.turn) if isinstance(old, NEWTON) else old

    units = (*BEHIND_SCALES, *NEWTON)
    return jax.tree.map(act, state, fresh, is_leaf=lambda node: isinstance(node, units))
