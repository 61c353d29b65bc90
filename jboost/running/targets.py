"""Several targets at once: ``ds`` of shape (T, q), one model, one run.

Each target has a learner of its own, alike but for what it has learned, and (T, q) is what q runs
would give, to rounding. What does not depend on a target is computed and kept once:

* a linear learner changes its coefficients by w ← w + g (d − wᵀx), where the gain g, and in it
  Newton's inverse P, is the same for every target: one P, q vectors w;
* behind transforms that look at x alone the q learners see one x′.

Whatever weighs a sample by its target, as a booster does, has a P for each target: the q runs are
then made side by side, on all cores (inside a transformation, and where every step is observed, as
one ``vmap``).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jboost.boosting import copies
from jboost.core import checks
from jboost.core.arrays import as_array, cast
from jboost.core.learner import Learner, Number, State, model, static
from jboost.core.numerics import known, usable
from jboost.core.products import matvec
from jboost.core.transform import kept, real
from jboost.engine import fold as engine
from jboost.learners.newton import ForwardNewton, Newton
from jboost.learners.sgd import NLMS, SGD
from jboost.running.run import (
    Observe,
    Trace,
    check_state,
    checked,
    checked_key,
    initial,
    scan,
)
from jboost.transforms import Bias, Impute, Polynomial, RandomFourier, Scale, ScaleTarget
from jboost.transforms.pipelines import Pipeline, PipelineState
from jboost.transforms.target import ScaledState

LINEAR = (SGD, NLMS, Newton, ForwardNewton)
OF_X_ALONE = (Bias, Impute, Polynomial, RandomFourier, Scale)


class Targets(Learner):
    """A learner whose d is (q,) and whose estimate is (q,). Made by :func:`targets`."""

    learner: Any
    q: int

    @property
    def needs_key(self) -> bool:
        return self.learner.needs_key

    @property
    def takes_missing(self) -> bool:
        return self.learner.takes_missing

    def _ok(self, x: Any, d: Any) -> Array:
        """For each target, whether it is one to learn from."""
        ok = usable(real(d))
        return ok if self.takes_missing else ok & jnp.all(usable(real(x)))


@model
class Separate(Targets):
    """A learner for each target, side by side; a float of it is one value or one per target."""

    learner: Learner
    q: int = static()

    per_learner: ClassVar[tuple[str, ...]] = ("learner",)

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> State:
        def make(one: Learner) -> State:
            return one.init(num_features, dtype, key=key)

        return copies.each(make, self.learner, slice(0, self.q))

    def alone(self, j: int) -> Learner:
        """The learner of target j."""
        leaves, structure = jax.tree.flatten(self.learner)
        own = copies.one_each(self.learner)
        return structure.unflatten(
            [leaf[j] if o else leaf for leaf, o in zip(leaves, own, strict=True)]
        )

    def predict(self, state: State, x: Any) -> Array:
        def estimate(one: Learner, own: State) -> Array:
            return one.predict(own, x)

        return copies.each(estimate, self.learner, slice(0, self.q), state)

    def update(
        self,
        state: State,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> State:
        def learn(one: Learner, own: State, d: Array) -> State:
            return one.update(own, x, d, weight=weight, repeats=repeats, key=key)

        return copies.each(learn, self.learner, slice(0, self.q), state, real(d))

    def info(self, state: State, x: Any, d: Any, key: Any = None) -> dict[str, Any]:
        """What each learner reports, with the targets along the first axis."""

        def report(one: Learner, own: State, d: Array) -> dict[str, Any]:
            return one.info(own, x, d, key)

        return copies.each(report, self.learner, slice(0, self.q), state, real(d))


@model
class Shared(Targets):
    """Linear learners of q targets with one gain; the state is the learner's, with w (q, r).

        w_j ← w_j + g (d_j − w_jᵀx),    g what the learner makes of w = 0 with the target 1

    A missing target leaves its own w_j as it is, while the gain goes on to count x as long as any
    target is there: a target that is missing often learns a little slower than it would alone.
    """

    learner: Any
    q: int = static()

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> State:
        state = self.learner.init(num_features, dtype, key=key)
        return state._replace(w=jnp.zeros((self.q, num_features), state.w.dtype))

    def predict(self, state: State, x: Any) -> Array:
        return jax.vmap(lambda w: self.learner.predict(state._replace(w=w), x))(state.w)

    def update(
        self,
        state: State,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> State:
        w, dtype = state.w, state.w.dtype
        ok = self._ok(x, d)
        one = jnp.where(jnp.any(ok), jnp.ones((), dtype), jnp.nan)
        start = state._replace(w=jnp.zeros(w.shape[1], dtype))
        after = self.learner.update(start, x, one, weight=weight, repeats=repeats, key=key)
        e = jnp.where(ok, jnp.asarray(d, dtype) - matvec(w, known(x, dtype)), 0)
        return after._replace(w=w + e[:, None] * after.w[None, :])


@model
class SharedScaled(Targets):
    """``ScaleTarget`` of q targets, each in its own units, around one learner of them all."""

    learner: Targets
    scale: Scale
    q: int = static()

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> ScaledState:
        learner = self.learner.init(num_features, dtype, key=key)
        return ScaledState(self.scale.init(self.q, dtype), learner)

    def predict(self, state: ScaledState, x: Any) -> Array:
        return self.scale.undo(state.scale, self.learner.predict(state.learner, x))

    def update(
        self,
        state: ScaledState,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> ScaledState:
        ok = self._ok(x, d)
        answer = jnp.where(ok, real(d), jnp.nan)  # NaN: that target's scale stays
        scaled = self.scale.apply(state.scale, answer)
        scale = self.scale.learn(state.scale, answer, None)
        return ScaledState(
            kept(jnp.any(ok), weight, repeats, scale, state.scale),
            self.learner.update(state.learner, x, scaled, weight=weight, repeats=repeats, key=key),
        )


@model
class SharedPiped(Targets):
    """A pipeline whose transforms look at x alone, before one learner of all targets.

    The transforms learn a sample as soon as one of its targets is there.
    """

    learner: Targets
    pipe: Pipeline
    q: int = static()

    @property
    def needs_key(self) -> bool:
        return self.pipe.needs_key

    @property
    def takes_missing(self) -> bool:
        return self.pipe.takes_missing

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> PipelineState:
        # By the pipeline itself, so that they draw what each run by itself would.
        transforms = self.pipe.init(num_features, dtype, key=key).transforms
        width = num_features
        for transform in self.pipe.transforms:
            width = transform.width(width)
        return PipelineState(transforms, self.learner.init(width, dtype, key=key))

    def predict(self, state: PipelineState, x: Any) -> Array:
        return self.learner.predict(state.learner, self.pipe._inputs(state, x)[-1])

    def update(
        self,
        state: PipelineState,
        x: Any,
        d: Any,
        *,
        weight: Number = 1.0,
        repeats: Any = 1,
        key: Any = None,
    ) -> PipelineState:
        *inputs, last = self.pipe._inputs(state, x)
        ok = self._ok(x, d)
        transforms = tuple(
            kept(jnp.any(ok), weight, repeats, transform.learn(own, before, None), own)
            for transform, own, before in zip(
                self.pipe.transforms, state.transforms, inputs, strict=True
            )
        )
        answer = jnp.where(ok, real(d), jnp.nan)
        learner = self.learner.update(
            state.learner, last, answer, weight=weight, repeats=repeats, key=key
        )
        return PipelineState(transforms, learner)


def targets(learner: Learner, q: int, *, share: bool = True) -> Targets:
    """A learner of q targets: ``predict`` gives (q,), ``update`` takes d of shape (q,).

    With ``share`` (the default) the targets share what they can: the inverse of ``Newton`` and
    ``ForwardNewton``, the gain of ``SGD`` and ``NLMS``, also inside ``ScaleTarget`` and behind
    ``Scale``, ``Bias``, ``Impute``, ``Polynomial`` and ``RandomFourier``. Any other learner is
    separate for each target. Where rows lack some of their targets, sharing counts their x for all
    targets alike; ``share=False`` is q separate learners then too.

    Models that draw do so alike for every target, as runs with one key would.

    Args:
      learner: any learner; where it is separate, a float of it may be one value per target, (q,).
      q: the number of targets, at least 1.
      share: whether targets may share what does not depend on them.
    """
    checks.instance("learner", learner, Learner, "a learner such as SGD(step_size=0.1)")
    q = checks.whole("q", q, at_least=1)
    one_value = all(jnp.ndim(leaf) == 0 for leaf in jax.tree.leaves(learner))
    form = _shared(learner, q) if share and one_value else None
    if form is None:
        copies.check(learner, q)
        form = Separate(learner, q)
    return form


def _shared(learner: Learner, q: int) -> Targets | None:
    """The form that shares, or None where nothing can be."""
    if isinstance(learner, LINEAR):
        return Shared(learner, q)
    if isinstance(learner, ScaleTarget):
        inside = _shared(learner.learner, q)
        return None if inside is None else SharedScaled(inside, learner.scale, q)
    if isinstance(learner, Pipeline):
        if not all(isinstance(one, OF_X_ALONE) for one in learner.transforms):
            return None
        inside = _shared(learner.learner, q)
        return None if inside is None else SharedPiped(inside, learner, q)
    return None


def run(
    model: Learner,
    xs: Any,
    ds: Any,
    key: Any = None,
    state: State = None,
    observe: Observe | None = None,
) -> tuple[State, Trace]:
    """:func:`jboost.run` with several targets: ``ds`` is (T, q).

    A learner of one target is made one of q by :func:`targets`. Of a row that lacks some of its
    targets (NaN) the others are learned; ``trace.prediction`` and ``trace.skipped`` are (T, q).

    >>> import numpy as np
    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> both = np.stack([ds, 1 - 2 * ds], axis=1)
    >>> _, trace = run(jb.Newton(0.99), xs, both)
    >>> _, alone = jb.run(jb.Newton(0.99), xs, both[:, 1])
    >>> trace.prediction.shape, bool(abs(trace.prediction[:, 1] - alone.prediction).max() < 1e-3)
    ((500, 2), True)
    """
    checks.instance("model", model, Learner, "a learner such as Newton(0.99), or targets(…)")
    ds = as_array("ds", ds, "(T, q)")
    if ds.ndim != 2 or ds.shape[1] == 0:
        raise ValueError(f"ds must have shape (T, q), q ≥ 1; got {ds.shape}: for one, jb.run")
    form = model if isinstance(model, Targets) else targets(model, ds.shape[1])
    if form.q != ds.shape[1]:
        raise ValueError(f"ds must have one column per target, here {form.q}; got {ds.shape[1]}")
    xs, _, dtype = checked(xs, ds[:, 0], jnp.result_type(float))
    xs, ds = cast(xs, dtype), cast(ds, dtype)
    if form.needs_key:
        key = checked_key(key)
    if state is None:
        state = initial(form, xs.shape[1], xs.dtype, key)
    else:
        check_state(form, state, xs, key)
    traced = engine.inside_a_transformation(form, state, xs, ds, key)
    if isinstance(form, Separate) and observe is None and not traced:
        return _on_all_cores(form, state, xs, ds, key)
    return engine.fold(scan, form, state, xs, ds, key, observe)


def _on_all_cores(
    form: Separate, state: State, xs: Array, ds: Array, key: Any
) -> tuple[State, Trace]:
    """A run for each target: each in the layout that suits it, which a ``vmap`` of it has not."""
    double = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def one(j: int) -> tuple[State, Trace]:
        with jax.enable_x64(double):  # which threads do not inherit
            done = engine.fold(scan, form.alone(j), states[j], xs, columns[j], key, None)
            return jax.block_until_ready(done)

    states, columns = _apart(state, ds)
    first = one(0)  # compiles
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return _joined([first, *pool.map(one, range(1, form.q))])


# Each as one call: a hundred small operations by themselves take as long as a short run.
@jax.jit
def _apart(state: State, ds: Array) -> tuple[list[State], list[Array]]:
    targets = range(ds.shape[1])
    return [jax.tree.map(lambda a, j=j: a[j], state) for j in targets], [ds[:, j] for j in targets]


@jax.jit
def _joined(done: list[tuple[State, Trace]]) -> tuple[State, Trace]:
    states, traces = zip(*done, strict=True)
    state = jax.tree.map(lambda *rows: jnp.stack(rows), *states)
    return state, jax.tree.map(lambda *columns: jnp.stack(columns, axis=1), *traces)
