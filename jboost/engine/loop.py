"""Compiles and runs a loop over time: model, state and rows go in, state and trace come out."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from jboost.core import Key, Learner, State
from jboost.core.step import Info, Observe, Trace, over_time
from jboost.engine import layout as layouts
from jboost.engine import pieces
from jboost.engine.kept import Kept, Question
from jboost.engine.kernel import in_form, key_of, key_words, outermost, programs
from jboost.engine.layout import Layout
from jboost.engine.plan import (
    Form,
    Plan,
    Plans,
    bytes_of,
    form_for,
    impediment,
    inside_a_transformation,
    log,
    objection,
    planned,
)

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
    key: Key,
    observe: Observe | None = None,
    *,
    traced: bool | None = None,
) -> tuple[State, Trace]:
    """Return ``over_time(model, state, xs, ds, key, observe)``, compiled in the form that suits it.

    ``traced`` says whether a transformation runs, where that is known. One program serves streams
    of every length.
    """
    if traced is None:
        traced = inside_a_transformation(model, state, xs, ds, key)
    if traced:
        return _inside(model, state, xs, ds, key, observe)
    state, traces = begin(model, state, xs, ds, key, observe)
    return state, pieces.put(pieces.joined(traces), xs)


def begin(
    model: Learner,
    state: State,
    xs: Array | np.ndarray,
    ds: Array | np.ndarray,
    key: Key,
    observe: Observe | None = None,
) -> tuple[State, list[pieces.PieceTrace]]:
    """Begin the run of :func:`fold` on concrete arrays, and do not wait for its numbers.

    Returns the state after it, and the traces that :func:`jboost.engine.pieces.joined` joins.
    """
    global _last
    plan = _last = plan_for(model, state, xs, ds, key, observe)
    log.debug("%s form: %s", plan.form, plan.reason)
    if plan.form != "kernel":  # a large state is changed in place, but not the caller's
        # Not by jnp.array, which compiles a program for each shape.
        state = jax.device_put(state, may_alias=False)
    words, traces = key_words(key), []
    for x, d, chunks, n in pieces.cut(xs, ds, plan.rows):
        operands = (plan.form, plan.layout, model, state, x, d, chunks, *words, observe)
        (state, trace), _ = _programs[plan.form](*operands)
        traces.append(pieces.PieceTrace(trace, n))
    return state, traces


def plan_for(
    model: Learner,
    state: State,
    xs: Array | np.ndarray,
    ds: Array | np.ndarray,
    key: Key,
    observe: Observe | None = None,
) -> Plan:
    """Return the plan of a run, looking once at each structure of model, state and rows."""

    def make() -> Plan:
        rows = pieces.length(model, state, xs, ds, key, observe)

        def problem(form: Form, layout: Layout) -> str | None:
            piece = (jax.ShapeDtypeStruct((rows, *a.shape[1:]), xs.dtype) for a in (xs, ds))
            operands = (model, state, *piece, np.int32(0), *key_words(key), observe)
            asked = Question(impediment, (form, bytes_of(state)))
            return _programs[form].answer(asked, form, layout, *operands)

        return decide(model, state, pieces.platforms(xs), problem)._replace(rows=rows)

    others = xs.dtype, xs.shape[1:], ds.shape[1:], key_words(key)[1]
    return _plans.get(observe, (model, state), others, make)


def decide(
    model: Learner,
    state: State,
    platforms: set[str],
    problem: Callable[[Form, Layout], str | None],
) -> Plan:
    """Return the plan of a program.

    ``problem`` traces it in a form and a layout, and returns its :func:`impediment`.
    """
    refusal, size = objection(platforms), bytes_of(state)
    if refusal is None:
        form = form_for(size)
        kernel, stages = form == "kernel", form == "stages"
        layout = layouts.choose(model, state, kernel=kernel, stages=stages)
        refusal = problem(form, layout)
        if refusal is None:
            return planned(form, size, layout)
    return Plan("plain", refusal, layouts.choose(model, state, kernel=False))


def watched(observe: Observe | None, layout: Layout) -> Observe | None:
    """Return ``observe`` for a run in a layout: it sees the state as its model makes it."""
    if observe is None or layout == Layout():
        return observe

    def see(state: State, info: Info) -> Any:
        before = info.before
        info.before = lambda: layouts.put_back(layout, before())
        return observe(layouts.put_back(layout, state), info)

    return see


def _fold(
    form: Form,
    layout: Layout,
    model: Learner,
    state: State,
    xs: Array,
    ds: Array,
    chunks: Array,
    words: Array | None,
    generator: str | None,
    observe: Observe | None,
) -> tuple[tuple[State, Trace], Array | None]:
    def loop(
        model: Learner, state: State, words: Array | None, xs: Array, ds: Array, chunks: Array
    ) -> tuple[State, Trace]:
        rows, key = (xs, ds, chunks), key_of(words, generator)
        return pieces.over_chunks(model, state, *rows, key, watched(observe, layout))

    # Outside of the kernel: inside, XLA would choose a layout that undoes the rearrangement.
    model, state = layouts.lay_out(layout, model, state)
    (state, trace), corners = in_form(form, loop, model, state, words, xs, ds, chunks)
    return (layouts.put_back(layout, state), trace), corners


_STATIC = ("form", "layout", "generator", "observe")
_inside = jax.jit(over_time, static_argnames="observe")


def _kept(**settings: Any) -> Kept:
    return Kept(outermost(_fold, static_argnames=_STATIC, **settings), _fold, _STATIC)


_programs: dict[Form, Kept] = {
    "kernel": _kept(kernel=True),
    "stages": _kept(kernel=True, donate_argnames="state"),
    "plain": _kept(donate_argnames="state"),
}


def call(
    f: Callable[..., Any], size: int, operands: tuple[Any, ...], key: Key, observe: Any
) -> Any:
    """Return ``f(*operands, key, observe)``, compiled in the form that suits it.

    For loops over time that are not :func:`fold`. ``f`` is a function of a module, ``size`` the
    bytes that it carries from step to step.
    """
    words, generator = key_words(key)
    if inside_a_transformation(operands, key):
        return _call("plain", f, operands, words, generator, observe)[0]

    def make() -> Plan:
        devices = {
            d for a in jax.tree.leaves(operands) if isinstance(a, Array) for d in a.devices()
        }
        refusal = objection({device.platform for device in devices})
        if refusal is None and form_for(size) != "kernel":
            refusal = f"{size:,} bytes are more than one kernel is good for"
        if refusal is not None:
            return Plan("plain", refusal)
        program = _calls[True].trace("kernel", f, operands, words, generator, observe)
        refusal = impediment(program, "kernel", size)
        return Plan("plain", refusal) if refusal else planned("kernel", size, Layout())

    plan = _plans.get(observe, operands, (f, size, generator), make)
    kernel = plan.form == "kernel"
    return _calls[kernel](plan.form, f, operands, words, generator, observe)[0]


def _call(
    form: Form, f: Callable[..., Any], operands: tuple[Any, ...],
    words: Array | None, generator: str | None, observe: Any,
) -> tuple[Any, Array | None]:  # fmt: skip
    def whole(operands: tuple[Any, ...], words: Array | None) -> Any:
        return f(*operands, key_of(words, generator), observe)

    return in_form(form, whole, operands, words)


_calls = programs(_call, static_argnames=("form", "f", "generator", "observe"))
