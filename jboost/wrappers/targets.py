"""Several targets at once: a learner whose d and whose estimate are (q,). Made by :func:`targets`.

All targets together give, to rounding, what q runs would give. What does not depend on a target is
computed and stored once (:class:`Shared`). A learner that weighs a sample by its target, as a
booster does, is separate for each target (:class:`Separate`).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting import copies
from jboost.core import DType, Key, Learner, Sample, State, Wrapper, checks, model, static
from jboost.core.learner import float_dtype, instance
from jboost.core.numerics import known
from jboost.core.products import matvec
from jboost.learners.newton import ForwardNewton, Newton
from jboost.learners.sgd import NLMS, SGD
from jboost.transforms import Bias, Impute, Polynomial, RandomFourier, Scale, ScaleTarget
from jboost.transforms.pipelines import Pipeline

LINEAR = (SGD, NLMS, Newton, ForwardNewton)
OF_X_ALONE = (Bias, Impute, Polynomial, RandomFourier, Scale)


class Targets(Wrapper):
    """Base class of learners of q targets. Made by :func:`targets`."""

    q: int

    @property
    def knows_leverage(self) -> bool:
        return False  # there may be one for each target


@model
class Separate(Targets):
    """A learner for each target, along the first axis of the state and of its reports."""

    learner: Learner
    q: int = static()

    per_learner: ClassVar[tuple[str, ...]] = ("learner",)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return copies.each(
            lambda learner: learner.init(num_features, dtype, key=key), self.learner, self.q
        )

    def alone(self, j: int) -> Learner:
        """Return the learner of target j."""
        varied, copy_with = copies.apart(self.learner)
        return copy_with([leaf[j] for leaf in varied])

    def predict(self, state: State, x: ArrayLike) -> Array:
        return copies.each(
            lambda learner, state: learner.predict(state, x), self.learner, self.q, state
        )

    def learn(self, state: State, sample: Sample) -> State:
        return self._each("learn", state, sample)

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        return self._each("info", state, sample)

    def _each(self, method: str, state: State, sample: Sample) -> Any:
        def call(learner: Learner, state: State, d: Array, good: Array, weight: Array) -> Any:
            alone = sample.replace(d=d, good=good, weight=weight)
            return getattr(learner, method)(state, alone)

        rows = (sample.d, sample.good, sample.weight)
        return copies.each(call, self.learner, self.q, state, *rows)


@model
class Shared(Targets):
    """Linear learners of q targets with one gain, behind transforms that look at x alone.

        w_j ← w_j + g (d_j − w_jᵀx),    g the w that the learner makes of w = 0 and the target 1

    The gain, and in it Newton's inverse P, is the same for every target. The state is the
    learner's, but w is (q, r) and ``ScaleTarget`` has a scale for each target. A missing target
    leaves its w_j and its scale as they are. The gain and the transforms count x while any target
    is there, so a target that is often missing learns a little slower than alone.
    """

    learner: Learner
    q: int = static()

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return _widened(self.learner, self.learner.init(num_features, dtype, key=key), self.q)

    def predict(self, state: State, x: ArrayLike) -> Array:
        return _predict(self.learner, state, x)

    def learn(self, state: State, sample: Sample) -> State:
        return _learn(self.learner, state, sample)

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        return {}


def _widened(learner: Learner, state: State, q: int) -> State:
    if isinstance(learner, (Pipeline, ScaleTarget)):
        if isinstance(learner, ScaleTarget):
            state = state._replace(scale=learner.scale.init(q, float_dtype(state)))
        return state._replace(learner=_widened(learner.learner, state.learner, q))
    return state._replace(w=jnp.zeros((q, *state.w.shape), state.w.dtype))


def _predict(learner: Learner, state: State, x: ArrayLike) -> Array:
    if isinstance(learner, Pipeline):
        return _predict(learner.learner, state.learner, learner.inputs(state, x)[-1])
    if isinstance(learner, ScaleTarget):
        return learner.scale.unscaled(state.scale, _predict(learner.learner, state.learner, x))
    return jax.vmap(lambda w: learner.predict(state._replace(w=w), x))(state.w)


def _learn(learner: Learner, state: State, sample: Sample) -> State:
    """Return the state after a sample whose ``d``, ``good`` and ``weight`` are (q,)."""
    together = sample.replace(good=jnp.any(sample.good), weight=jnp.max(sample.weight))
    if isinstance(learner, Pipeline):
        *_, last = inputs = learner.inputs(state, sample.raw)
        transformed = sample.with_input(last, learner.learner.takes_missing)
        transforms = learner.transforms_after(state, inputs, together)
        after = _learn(learner.learner, state.learner, transformed)
        return state._replace(transforms=transforms, learner=after)
    if isinstance(learner, ScaleTarget):
        answer = jnp.where(sample.good, sample.d, jnp.nan)  # NaN leaves a target's scale as it is
        scaled = sample.with_target(learner.scale.apply(state.scale, answer))
        scale = together.keep(learner.scale.after(state.scale, answer), state.scale)
        return state._replace(scale=scale, learner=_learn(learner.learner, state.learner, scaled))
    w, x = state.w, known(sample.raw, state.w.dtype)
    from_zero = state._replace(w=jnp.zeros(w.shape[1], w.dtype))
    after = learner.learn(from_zero, together.replace(d=jnp.ones((), w.dtype)))  # its w is the gain
    e = jnp.where(sample.good, sample.d - matvec(w, x), 0)
    return after._replace(w=w + e[:, None] * after.w[None, :])


def targets(learner: Learner, q: int, *, share: bool = True) -> Targets:
    """Make a learner of q targets: ``predict`` gives (q,), ``update`` takes d of shape (q,).

    With ``share`` the targets share what they can: the inverse of ``Newton`` and ``ForwardNewton``,
    the gain of ``SGD`` and ``NLMS``, also inside ``ScaleTarget`` and behind ``Scale``, ``Bias``,
    ``Impute``, ``Polynomial`` and ``RandomFourier``. Any other learner is separate for each target.
    Where a row lacks some of its targets, a shared learner counts its x for all targets. Models
    that draw do so alike for every target, as q runs with one key would.

    Args:
      learner: any learner; where it is separate, a setting may have one value per target, (q,).
      q: the number of targets, at least 1.
      share: whether targets may share what they can.

    >>> import jax.numpy as jnp, jboost as jb
    >>> both = jb.targets(jb.NLMS(1.0, epsilon=0.0), 2)
    >>> state = both.update(both.init(1), jnp.array([2.0]), jnp.array([4.0, -2.0]))
    >>> both.predict(state, jnp.array([1.0])).tolist()
    [2.0, -1.0]
    """
    instance("learner", learner)
    q, share = checks.whole("q", q, at_least=1), checks.flag("share", share)
    one_value = all(jnp.ndim(leaf) == 0 for leaf in jax.tree.leaves(learner))
    if share and one_value and _can_share(learner):
        return Shared(learner, q)
    copies.check(learner, q)
    return Separate(learner, q)


def _can_share(learner: Learner) -> bool:
    if isinstance(learner, (Pipeline, ScaleTarget)):
        transforms = learner.transforms if isinstance(learner, Pipeline) else ()
        of_x_alone = all(isinstance(transform, OF_X_ALONE) for transform in transforms)
        return of_x_alone and _can_share(learner.learner)
    return isinstance(learner, LINEAR) and getattr(learner, "loss", None) is None
