"""The compiled programs of :mod:`.held`, which run a block of rows on a packed model and state."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters.partial_eval import dce_jaxpr

from jboost.core import Learner, State
from jboost.core.rows import row_of, with_row
from jboost.core.step import Observe, step
from jboost.engine.kept import Kept
from jboost.engine.kernel import corners, in_form, key_of, one_kernel, outermost, quickly
from jboost.engine.layout import Layout, lay_out, put_back
from jboost.engine.loop import watched
from jboost.engine.packing import Packing, SplitPacking
from jboost.engine.pieces import clean, using
from jboost.engine.plan import Form
from jboost.wrappers.intervals import Intervals

MOST_PROGRAMS = 256  # programs that are remembered
# Few, since most calls have two rows; and JAX computes only the smallest programs in the calling
# thread, by default, which is faster.
CHUNK = 4  # rows
Packed = tuple[Array, ...]


class Watching(NamedTuple):
    """Has a program return the traces of rows, with what ``observe`` returns in them.

    They do not say which rows were skipped.
    """

    observe: Observe
    layout: Layout  # of the model and its state, which ``observe`` sees as the model makes it


def _pack(layout: Layout, packing: SplitPacking, both: tuple[Learner, State]) -> Packed:
    """Return a model and its state as they are packed."""
    return packing.pack(lay_out(layout, *both))


def _unpack(layout: Layout, packing: SplitPacking, packed: Packed) -> State:
    """Return the state that was packed."""
    return put_back(layout, packing.unpack(packed)[1])


_STATIC = ("layout", "packing")
pack = Kept(quickly(_pack, static_argnames=_STATIC), _pack, _STATIC)
unpack = Kept(quickly(_unpack, static_argnames=_STATIC), _unpack, _STATIC)


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
def program(
    packing: SplitPacking,
    generator: str | None,
    form: Form,
    by_steps: bool,
    watching: Watching | None = None,
) -> Kept:
    """Return the program that runs a block of rows.

    It returns the packed model and state, and of each row an estimate, or the trace of its step.

    Args:
      packing: how the model and its state are packed.
      generator: the name of the key's random generator; None if learning draws nothing.
      form: the form in which it is compiled; see :mod:`jboost.engine.plan`.
      by_steps: whether an x is predicted by a step without a target. It takes longer, but rounds as
        a run does also in a kernel, and where inputs were cleaned.
      watching: what traces hold; None for estimates.
    """
    run = functools.partial(_run_in_form, packing, generator, form, by_steps, watching)
    return Kept(outermost(run, kernel=form != "plain"), run, ())


def _run_in_form(
    packing: SplitPacking,
    generator: str | None,
    form: Form,
    by_steps: bool,
    watching: Watching | None,
    *operands: Any,
) -> tuple[Packed, Any]:
    run = functools.partial(_run, packing, generator, by_steps, watching)

    def with_corners(*operands: Any) -> tuple[Packed, Any]:
        packed, found = run(*operands)
        estimates = found if watching is None else found.prediction
        # Behind the estimates, where nobody looks: an array more costs a call 3 µs.
        behind = corners(operands).astype(estimates.dtype)
        behind = behind.reshape(-1, *(1 for _ in estimates.shape[1:]))
        behind = jnp.broadcast_to(behind, (len(behind), *estimates.shape[1:]))
        estimates = jnp.concatenate([estimates, behind])
        return packed, estimates if watching is None else found._replace(prediction=estimates)

    if form == "kernel":
        return one_kernel(with_corners, changed=operands)[0]
    return in_form(form, run, *operands)[0]


def _run(
    packing: SplitPacking, generator: str | None, by_steps: bool, watching: Watching | None,
    packed: Packed, words: Array | None, block: Array,
) -> tuple[Packed, Any]:  # fmt: skip
    (model, state), key = packing.unpack(packed), key_of(words, generator)
    learned, count = block[-1, :2].astype(jnp.int32)
    observe = None if watching is None else watched(*watching)

    # With a jit of its own JAX traces it once, for the shapes and for the loop.
    @jax.jit
    def one_step(state: State, sample: tuple[Array, ...], cleaned: Any) -> tuple[State, Any]:
        x, d, weight = sample
        with using(x, cleaned):
            after, trace = step(model, state, x, d, key, observe, weight=weight)
        if watching is None:
            return after, values(state, x, trace.prediction)
        return after, trace._replace(skipped=None)

    # Rows are cleaned and taken as in a run: so both are compiled alike, and round alike.
    def run_chunk(number: Array, carried: tuple[State, Any]) -> tuple[State, Any]:
        first = number * CHUNK
        rows = jax.lax.dynamic_slice_in_dim(block, first, CHUNK)
        cleaned = clean(model, rows[:, :-2])

        def run_row(i: Array, carried: tuple[State, Any]) -> tuple[State, Any]:
            state, found = carried
            row, i_cleaned = row_of((rows, cleaned), i - first)
            x, d, weight = row[:-2], row[-2], row[-1]
            # A target that is NaN changes no state.
            d = jnp.where((i < learned) & (weight > 0), d, jnp.nan)
            after, of_row = one_step(state, (x, d, weight), i_cleaned)
            return after, with_row(found, i, of_row)

        return jax.lax.fori_loop(first, jnp.minimum(first + CHUNK, stepped), run_row, carried)

    def predict(i: Array, estimates: Array) -> Array:
        x = row_of(block, i)[:-2]
        return with_row(estimates, i, values(state, x, model.predict(state, x)))

    def values(state: State, x: Array, estimate: Array) -> Array:
        if model.ahead:
            return estimate
        bounds = model.interval(state, x) if isinstance(model, Intervals) else ()
        return jnp.stack([estimate, *bounds])

    x, d, weight = block[0, :-2], block[0, -2], block[0, -1]
    of_one = row_of(clean(model, block[:1, :-2]), 0)
    _, of_row = jax.eval_shape(one_step, state, (x, d, weight), of_one)
    found = jax.tree.map(lambda a: jnp.zeros((len(block) - 1, *a.shape), a.dtype), of_row)
    stepped = count if by_steps else learned
    chunks = (stepped + CHUNK - 1) // CHUNK
    state, found = jax.lax.fori_loop(0, chunks, run_chunk, (state, found))
    if not by_steps:
        found = jax.lax.fori_loop(learned, count, predict, found)
    return packing.pack((model, state)), found
