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
    words, generator = key_words(key)
    operands, static = (model, words), (num_features, np.dtype(dtype), generator)

    def make() -> Plan:
        refusal = objection(platforms(np.zeros(0)))
        if refusal is not None:
            return Plan("plain", refusal)
        question = Question(impediment, ("kernel", 0))
        refusal = _programs[True].answer(question, "kernel", *operands, *static)
        return Plan("plain", refusal) if refusal else planned("kernel", 0, Layout())

    form = _plans.get(None, operands, static, make).form
    return _programs[form == "kernel"](form, *operands, *static)[0]


def size_at_start(model: Learner, num_features: int, dtype: DTypeLike, key: Key = None) -> int:
    """Return how many bytes the state before any data takes, without computing it.

    >>> import jboost as jb
    >>> size_at_start(jb.SGD(0.1), 3, "float32")
    12
    """
    words, generator = key_words(key)
    arguments = "plain", model, words, num_features, np.dtype(dtype), generator
    return _programs[False].answer(Question(_size_of_results, ()), *arguments)


def _size_of_results(program: Any) -> int:
    arrays = program.jaxpr.out_avals
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
