"""The compiled programs of :mod:`.feed`, which run a block of rows on a packed model and state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters.partial_eval import dce_jaxpr

from jboost.core import Learner, State
from jboost.core.step import step
from jboost.engine.kernel import key_of, one_kernel, outermost, quickly
from jboost.engine.layout import Layout, lay_out, put_back
from jboost.engine.packing import Packing, SplitPacking
from jboost.wrappers.intervals import Intervals

MOST_PROGRAMS = 256  # programs that are remembered
Program = Callable[..., Any]
Packed = tuple[Array, ...]


@functools.partial(quickly, static_argnums=(0, 1))
def packed(layout: Layout, packing: SplitPacking, both: tuple[Learner, State]) -> Packed:
    """Return a model and its state as they are packed."""
    return packing.pack(lay_out(layout, *both))


@functools.partial(quickly, static_argnums=(0, 1))
def state(layout: Layout, packing: SplitPacking, packed: Packed) -> State:
    """Return the state that was packed."""
    return put_back(layout, packing.unpack(packed)[1])


@functools.lru_cache(MOST_PROGRAMS)
def draws(packing: Packing, generator: str, num_features: int, dtype: np.dtype) -> bool:
    """Return whether a model that needs no key uses one to learn."""

    def learn(packed: Array, words: Array) -> State:
        model, state = packing.unpack(packed)
        x, d = jnp.zeros(num_features, dtype), jnp.zeros((), dtype)
        return model.update(state, x, d, key=key_of(words, generator))

    words = jax.random.key_data(jax.random.key(0, impl=generator))
    program = jax.make_jaxpr(learn)(jnp.zeros(packing.width, jnp.uint32), words).jaxpr
    _, used = dce_jaxpr(program, [True] * len(program.outvars))  # without what nothing depends on
    return used[-1]


@functools.lru_cache(MOST_PROGRAMS)
def program(packing: SplitPacking, generator: str | None, kernel: bool, level: int | None) -> Any:
    """Return the program that runs a block of rows.

    Args:
      packing: how the model and its state are packed.
      generator: the name of the key's random generator; None if learning draws nothing.
      kernel: whether the program is compiled as one kernel.
      level: the compiler's optimisation level, None for XLA's own.
    """

    def run(packed: Packed, words: Array | None, block: Array) -> tuple[Packed, Array]:
        (model, state), key = packing.unpack(packed), key_of(words, generator)
        learned, count = block[-1, :2].astype(jnp.int32)

        def row(i: Array) -> Array:
            return jax.lax.dynamic_index_in_dim(block, i, keepdims=False)

        def with_row(estimates: Array, i: Array, *values: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(estimates, jnp.stack(values), i, 0)

        # A step of a run: so both are compiled alike, and round alike.
        def learn(i: Array, carried: tuple[State, Array]) -> tuple[State, Array]:
            state, estimates = carried
            x, d, weight = row(i)[:-2], row(i)[-2], row(i)[-1]
            d = jnp.where(weight > 0, d, jnp.nan)  # a target that is NaN changes no state
            after, trace = step(model, state, x, d, key, weight=weight)
            return after, with_row(estimates, i, *[trace.prediction] * columns)

        def predict(i: Array, estimates: Array) -> Array:
            x = row(i)[:-2]
            bounds = model.interval(state, x) if isinstance(model, Intervals) else ()
            return with_row(estimates, i, model.predict(state, x), *bounds)

        columns = 3 if isinstance(model, Intervals) else 1
        estimates = jnp.zeros((len(block) - 1, columns), block.dtype)
        state, estimates = jax.lax.fori_loop(0, learned, learn, (state, estimates))
        estimates = jax.lax.fori_loop(learned, count, predict, estimates)
        return packing.pack((model, state)), estimates

    def whole(*operands: Any) -> tuple[tuple[Packed, Array], Array | None]:
        return one_kernel(run, *operands) if kernel else (run(*operands), None)

    return outermost(whole, kernel=kernel, level=level)
