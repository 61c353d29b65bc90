"""Compiles and runs a loop over time: model, state and rows go in, state and trace come out."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from jboost.core import Key, Learner, State
from jboost.core.step import Observe, Trace, over_time
from jboost.engine import layout as layouts
from jboost.engine.kernel import USUAL_LEVEL, key_of, key_words, one_kernel, outermost, programs
from jboost.engine.layout import Layout
from jboost.engine.plan import (
    Plan,
    Plans,
    bytes_of,
    inside_a_transformation,
    log,
    look_at,
    objection,
)

_plans = Plans()
_last: Plan | None = None


def last() -> Plan | None:
    """Return the plan of the latest run outside of any transformation."""
    return _last


def fold(
    model: Learner, state: State, xs: Array, ds: Array, key: Key, observe: Observe | None = None, *,
    traced: bool | None = None, donate: bool = False,
) -> tuple[State, Trace]:  # fmt: skip
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
    program = _in_place if donate and not plan.kernel else _programs[plan.level]
    return program(plan.kernel, plan.layout, model, state, xs, ds, *key_words(key), observe)[0]


def plan_for(
    model: Learner, state: State, xs: Array, ds: Array, key: Key, observe: Observe | None = None
) -> Plan:
    """Return the plan of a run, looking once at each structure of model and state."""

    def make() -> Plan:
        refusal = objection(bytes_of(state), {device.platform for device in xs.devices()})
        if refusal is None:
            layout = layouts.choose(model, state, kernel=True)
            operands = (model, state, xs, ds, *key_words(key), observe)
            plan = look_at(_programs[USUAL_LEVEL].trace(True, layout, *operands), state, layout)
            if plan.kernel:
                return plan
            refusal = plan.reason
        return Plan(False, refusal, layouts.choose(model, state, kernel=False))

    generator = key_words(key)[1]
    return _plans.get(observe, (model, state), (xs.dtype, generator), make)


def watched(observe: Observe | None, layout: Layout) -> Observe | None:
    """Return ``observe`` for a run in a layout: it sees the state as its model makes it."""
    if observe is None or layout == Layout():
        return observe
    return lambda state, info: observe(layouts.put_back(layout, state), info)


def _fold(
    kernel: bool, layout: Layout, model: Learner, state: State, xs: Array, ds: Array,
    words: Array | None, generator: str | None, observe: Observe | None,
) -> tuple[tuple[State, Trace], Array | None]:  # fmt: skip
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


_STATIC: dict[str, Any] = {"static_argnames": ("kernel", "layout", "generator", "observe")}
_inside = jax.jit(over_time, static_argnames="observe")
_programs = programs(_fold, **_STATIC)
_in_place = outermost(_fold, donate_argnames="state", **_STATIC)


def call(
    f: Callable[..., Any], size: int, operands: tuple[Any, ...], key: Key, observe: Any
) -> Any:
    """Return ``f(*operands, key, observe)``, compiled in the form that suits it.

    For loops over time that are not :func:`fold`. ``f`` is a function of a module, ``size`` the
    bytes that it carries from step to step.
    """
    words, generator = key_words(key)
    if inside_a_transformation(operands, key):
        return _call(False, f, operands, words, generator, observe)[0]

    def make() -> Plan:
        devices = {
            d for a in jax.tree.leaves(operands) if isinstance(a, Array) for d in a.devices()
        }
        refusal = objection(size, {device.platform for device in devices})
        if refusal is not None:
            return Plan(False, refusal)
        program = _calls[USUAL_LEVEL].trace(True, f, operands, words, generator, observe)
        return look_at(program, (), Layout())

    plan = _plans.get(observe, operands, (f, size, generator), make)
    return _calls[plan.level](plan.kernel, f, operands, words, generator, observe)[0]


def _call(
    kernel: bool, f: Callable[..., Any], operands: tuple[Any, ...],
    words: Array | None, generator: str | None, observe: Any,
) -> tuple[Any, Array | None]:  # fmt: skip
    def whole(operands: tuple[Any, ...], words: Array | None) -> Any:
        return f(*operands, key_of(words, generator), observe)

    return one_kernel(whole, operands, words) if kernel else (whole(operands, words), None)


_calls = programs(_call, static_argnames=("kernel", "f", "generator", "observe"))
