"""The loops of a fleet over the rows of a block, compiled: see :mod:`jboost.fleets.fleet`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
from jax import Array

from jboost.core.learner import Learner
from jboost.engine import fold as engine
from jboost.engine.packing import Packing
from jboost.running.run import Trace, learns_from
from jboost.sweeps.devices import COPIED, SPLIT, Device, mesh_of


class Way(NamedTuple):
    """How blocks are compiled; all that is not an array."""

    packing: Packing
    form: str
    devices: tuple[Device, ...]
    num_features: int
    dtype: Any
    generator: str | None


@partial(jax.jit, static_argnums=0)
def init(way: Way, model: Learner, key: Any, streams: Array) -> Array:
    """The states of streams, (D, …), before any data."""

    def own(model: Learner, key: Any, streams: Array) -> Array:
        def one(stream: Array) -> Array:
            state = model.init(way.num_features, way.dtype, key=_key(way, key, stream))
            return way.packing.pack(state)

        return jax.vmap(one)(streams)

    return _on_each(way, own, model, key, streams)


def run(way: Way, model: Learner, key: Any, words: Array, block: Any) -> tuple[Array, Trace]:
    """The states after a block, in the memory of those before it, and its trace.

    ``block`` is (streams, xs, ds) with a leading axis over the devices; ``key`` is in words.
    """
    program = _kernel if way.form == "kernel" else _plain
    return program(way, model, key, words, block)[0]


def _on_each(way: Way, f: Any, model: Learner, key: Any, *laid: Any) -> Any:
    """f(model, key, …) on every device with its part of what is laid over them."""

    def own(model: Learner, key: Any, *laid: Any) -> Any:
        results = f(model, key, *jax.tree.map(lambda part: part[0], laid))
        return jax.tree.map(lambda part: part[None], results)

    mesh = mesh_of(way.devices)
    if mesh is None:
        return own(model, key, *laid)
    specs = (COPIED, COPIED, *(SPLIT for _ in laid))
    return jax.shard_map(own, mesh=mesh, in_specs=specs, out_specs=SPLIT, check_vma=False)(
        model, key, *laid
    )


def _key(way: Way, words: Any, stream: Any = None) -> Any:
    if words is None:
        return None
    key = jax.random.wrap_key_data(words, impl=way.generator)
    return key if stream is None else jax.random.fold_in(key, stream)


def _run(way: Way, model: Learner, key: Any, words: Array, block: Any) -> Any:
    def own(model: Learner, key: Any, words: Array, block: Any) -> Any:
        streams, xs, ds = block
        keys = None
        if key is not None:
            folded = jax.vmap(partial(_key, way, key))(streams)
            keys = jax.random.key_data(folded)
        rows = (streams // len(way.devices), xs, ds, keys)
        if way.form == "kernel":
            return engine.one_kernel(partial(_rows, way), model, rows, changed=(words,))
        form = _round if way.form == "rounds" else _rows
        return form(way, model, rows, words), ()

    return _on_each(way, own, model, key, words, block)


_plain = jax.jit(_run, static_argnums=0, donate_argnums=3)
_kernel = jax.jit(_run, static_argnums=0, donate_argnums=3, compiler_options=engine.OPTIONS)


def _one(way: Way, model: Learner, words: Array, x: Array, d: Array, key: Any) -> Any:
    """One sample of one stream."""
    state = way.packing.unpack(words)
    prediction = model.predict(state, x)
    after = model.update(state, x, d, key=_key(way, key))
    return way.packing.pack(after), Trace(prediction, ~learns_from(model, x, d), None)


def _rows(way: Way, model: Learner, rows: Any, words: Array) -> Any:
    """Row after row. What fills up a call has no answer, and so leaves the last state as it is."""

    def step(words: Array, row: Any) -> Any:
        at, x, d, key = row
        own = jax.lax.dynamic_index_in_dim(words, at, keepdims=False)
        own, trace = _one(way, model, own, x, d, key)
        return jax.lax.dynamic_update_index_in_dim(words, own, at, 0), trace

    return jax.lax.scan(step, words, rows)


def _round(way: Way, model: Learner, rows: Any, words: Array) -> Any:
    """All rows at once, no stream twice. What fills up a call lies beyond the last stream."""
    at, *sample = rows
    own, trace = jax.vmap(partial(_one, way, model))(words.at[at].get(mode="clip"), *sample)
    return words.at[at].set(own, mode="drop", unique_indices=True), trace
