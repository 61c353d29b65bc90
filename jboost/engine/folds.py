"""The one door to a compiled run: model, state and rows go in, state and trace come out."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array

from jboost.core.learner import Learner, State
from jboost.core.step import Observe, Trace, over_time
from jboost.engine import layout as layouts
from jboost.engine.kernel import (
    UNROLLING_LEVEL,
    USUAL_LEVEL,
    key_of,
    key_words,
    one_kernel,
    outermost,
)
from jboost.engine.layout import Layout
from jboost.engine.plan import Plan, Plans, inside_a_transformation, log, look_at, objection

_plans = Plans()
_last: Plan | None = None


def last() -> Plan | None:
    """Return the plan of the latest run outside of any transformation."""
    return _last


def fold(
    model: Learner,
    state: State,
    xs: Array,
    ds: Array,
    key: Array | None,
    observe: Observe | None = None,
    *,
    traced: bool | None = None,
    donate: bool = False,
) -> tuple[State, Trace]:
    """Return ``over_time(model, state, xs, ds, key, observe)``, compiled in the form that suits it.

    ``traced`` says whether a transformation runs, where that is known. With ``donate`` a state too
    large for a kernel is changed in place: the caller's is gone.
    """
    global _last
    if traced is None:
        traced = inside_a_transformation(model, state, xs, ds, key)
    if traced:
        return _inside(model, state, xs, ds, key, observe)
    plan = _last = plan_for(model, state, xs, ds, key, observe)
    log.debug("%s form: %s", "kernel" if plan.kernel else "plain", plan.reason)
    program, form = _program(plan, donate), (plan.kernel, plan.layout)
    return program(*form, model, state, xs, ds, *key_words(key), observe)[0]


def plan_for(
    model: Learner,
    state: State,
    xs: Array,
    ds: Array,
    key: Array | None,
    observe: Observe | None = None,
) -> Plan:
    """Return the plan of a run, looking once at each structure of model and state."""

    def make() -> Plan:
        refusal = objection(state, {device.platform for device in xs.devices()})
        if refusal is None:

            def trace(plan: Plan) -> Any:
                program, form = _program(plan), (plan.kernel, plan.layout)
                return program.trace(*form, model, state, xs, ds, *key_words(key), observe)

            layout = layouts.choose(model, state, kernel=True)
            kernel = look_at(Plan(True, "", layout, level=USUAL_LEVEL), state, trace)
            if kernel.kernel:
                return kernel
            refusal = kernel.reason
        return Plan(False, refusal, layouts.choose(model, state, kernel=False))

    generator = key_words(key)[1]
    return _plans.get(observe, (model, state), (xs.dtype, generator), make)


def watched(observe: Observe | None, layout: Layout) -> Observe | None:
    """Return ``observe`` for a run in a layout: it sees the state as its model makes it."""
    if observe is None or layout == Layout():
        return observe
    return lambda state, info: observe(layouts.put_back(layout, state), info)


def _fold(
    kernel: bool,
    layout: Layout,
    model: Learner,
    state: State,
    xs: Array,
    ds: Array,
    words: Array | None,
    generator: str | None,
    observe: Observe | None,
) -> tuple[tuple[State, Trace], Array | None]:
    def loop(model: Learner, state: State, xs: Array, ds: Array, words: Array | None) -> Any:
        key = key_of(words, generator)
        return over_time(model, state, xs, ds, key, watched(observe, layout))

    # Outside of the kernel: inside, XLA would choose a layout that undoes the rearrangement.
    model, state = layouts.lay_out(layout, model, state)
    if kernel:
        (state, trace), corners = one_kernel(loop, model, state, xs, ds, words)
    else:
        (state, trace), corners = loop(model, state, xs, ds, words), None
    return (layouts.put_back(layout, state), trace), corners


_STATIC = {"static_argnames": ("kernel", "layout", "generator", "observe")}
_inside = jax.jit(over_time, static_argnames="observe")
_plain = outermost(_fold, **_STATIC)
_plain_in_place = outermost(_fold, donate_argnames="state", **_STATIC)
_kernels = {
    level: outermost(_fold, kernel=True, level=level, **_STATIC)
    for level in (USUAL_LEVEL, UNROLLING_LEVEL)
}


def _program(plan: Plan, donate: bool = False) -> Any:
    if plan.kernel:
        return _kernels[plan.level or USUAL_LEVEL]
    return _plain_in_place if donate else _plain
