"""Compiles the state in which a model starts."""

import math
from typing import Any

import numpy as np
from jax import Array
from jax.typing import DTypeLike

from jboost.core import Key, Learner, State
from jboost.engine.kept import Kept, Question
from jboost.engine.kernel import QUICKEST_LEVEL, in_form, key_of, key_words, programs
from jboost.engine.layout import Layout
from jboost.engine.pieces import platforms
from jboost.engine.plan import Form, Plan, Plans, impediment, objection, planned

_plans = Plans()


def start(model: Learner, num_features: int, dtype: DTypeLike, key: Key) -> State:
    """Return the state before any data, outside of any transformation.

    It is computed once, so what counts is how long it compiles: one kernel does so in a quarter of
    the time of as many small ones, without optimisations in a third of the time.
    """
    form, operands, static = _planned(model, num_features, dtype, key)
    return _programs[form == "kernel"](form, *operands, *static)[0]


def size_at_start(model: Learner, num_features: int, dtype: DTypeLike, key: Key = None) -> int:
    """Return how many bytes the state before any data takes, without computing it.

    The program that would compute it is traced, once for this function and :func:`start`.

    >>> import jboost as jb
    >>> size_at_start(jb.SGD(0.1), 3, "float32")
    12
    """
    form, operands, static = _planned(model, num_features, dtype, key)
    question = Question(_size_of_state, (form,))
    return _programs[form == "kernel"].answer(question, form, *operands, *static)


def _planned(
    model: Learner, num_features: int, dtype: DTypeLike, key: Key
) -> tuple[Form, tuple[Any, ...], tuple[Any, ...]]:
    """Return the form of the program, and its arguments without it."""
    words, generator = key_words(key)
    operands, static = (model, words), (num_features, np.dtype(dtype), generator)

    def make() -> Plan:
        refusal = objection(platforms(np.zeros(0)))
        if refusal is not None:
            return Plan("plain", refusal)
        question = Question(impediment, ("kernel", 0))
        refusal = _programs[True].answer(question, "kernel", *operands, *static)
        return Plan("plain", refusal) if refusal else planned("kernel", 0, Layout())

    return _plans.get(None, operands, static, make).form, operands, static


def _size_of_state(program: Any, form: Form) -> int:
    arrays = program.jaxpr.out_avals
    if form == "kernel":
        arrays = arrays[:-1]  # without the corners
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


def _start(
    form: Form, model: Learner, words: Array | None, num_features: int, dtype: np.dtype,
    generator: str | None,
) -> tuple[State, Any]:  # fmt: skip
    def init(model: Learner, words: Array | None) -> State:
        return model.init(num_features, dtype, key=key_of(words, generator))

    return in_form(form, init, model, words)


_STATIC = ("form", "num_features", "dtype", "generator")
_programs = {
    kernel: Kept(program, _start, _STATIC)
    for kernel, program in programs(_start, level=QUICKEST_LEVEL, static_argnames=_STATIC).items()
}
