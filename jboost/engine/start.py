"""Compiles the state in which a model starts."""

from typing import Any

import numpy as np
from jax import Array
from jax.typing import DTypeLike

from jboost.core import Key, Learner, State
from jboost.engine.kernel import QUICKEST_LEVEL, in_form, key_of, key_words, programs
from jboost.engine.layout import Layout
from jboost.engine.pieces import platforms
from jboost.engine.plan import Form, Plan, Plans, look_at, objection

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
        return look_at(_programs[True].trace("kernel", *operands, *static), "kernel", 0, Layout())

    form = _plans.get(None, operands, static, make).form
    return _programs[form == "kernel"](form, *operands, *static)[0]


def _start(
    form: Form, model: Learner, words: Array | None, num_features: int, dtype: np.dtype,
    generator: str | None,
) -> tuple[State, Any]:  # fmt: skip
    def init(model: Learner, words: Array | None) -> State:
        return model.init(num_features, dtype, key=key_of(words, generator))

    return in_form(form, init, model, words)


_STATIC = ("form", "num_features", "dtype", "generator")
_programs = programs(_start, level=QUICKEST_LEVEL, static_argnames=_STATIC)
