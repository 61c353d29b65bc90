"""The compiled loops over the rows of a block: see :mod:`jboost.fleets.fleet`."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import Learner, State
from jboost.core.rows import row_of, with_row
from jboost.core.step import Observe, Trace
from jboost.core.step import step as one_step
from jboost.engine.kernel import in_form, key_of, one_kernel, outermost
from jboost.engine.packing import Packing
from jboost.sweeps.devices import COPIED, SPLIT, Device, on_each

LENGTHS = (16, 256, 4096, 65536)  # the loop is compiled for those that are met, and for no other
# Of each row of each device: the position of its state, x, d, and the words of its key or None.
Block = tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike | None]
Rows = tuple[Array, Array, Array, Array | None]  # the same on one device
Results = tuple[Array, Trace]  # the packed states after the rows, and the trace of the rows


class FleetSpec(NamedTuple):
    """How the blocks of a fleet are compiled: everything that is not an array."""

    packing: Packing  # how a state is packed into words
    loop: str  # row after row in this form of a plan; or "rounds": all rows of a call at once
    devices: tuple[Device, ...]  # the devices that share the streams
    generator: str | None  # the name of the key's generator; None for models that do not draw
    observe: Observe | None = None  # what is to be reported of each row

    def packed(self, states: State) -> Array:
        """Return stacked states as rows of words."""
        return jax.vmap(self.packing.pack)(states)

    def unpacked(self, words: ArrayLike) -> State:
        """Return rows of words as stacked states."""
        return jax.vmap(self.packing.unpack)(jnp.asarray(words))


def compiled_lengths(n: int, call_cost: int) -> list[int]:
    """Cut n rows into lengths that the loop is compiled for; only the last may need padding.

    The cut weighs calls against padding: a call takes as long as ``call_cost`` samples.

    >>> compiled_lengths(300, 6), compiled_lengths(300, 1000), compiled_lengths(3000, 1000)
    ([256, 16, 16, 16], [256, 256], [4096])
    """
    longer = [length for length in LENGTHS if length >= n]
    shorter = [length for length in LENGTHS if length <= n]
    if not shorter:
        return longer[:1]
    count, rest = divmod(n, shorter[-1])
    several = [shorter[-1]] * count + (compiled_lengths(rest, call_cost) if rest else [])
    if longer and call_cost + longer[0] <= len(several) * call_cost + sum(several):
        return longer[:1]
    return several


def _run(
    spec: FleetSpec, model: Learner, words: Array | None, states: Array, block: Block
) -> tuple[Results, Any]:
    """Return the states after a block, which replace ``states`` in memory, and its trace.

    With them come the corners that :func:`one_kernel` asks to return.
    """

    def on_device(model: Learner, words: Array | None, states: Array, block: Any) -> Any:
        states, (positions, xs, ds, hashes) = jax.tree.map(lambda array: array[0], (states, block))
        rows = (positions, xs, ds, _keys(spec, words, hashes))
        if spec.loop == "kernel":
            results = one_kernel(partial(_by_rows, spec), model, rows, changed=(states,))
        else:
            loop = _by_rounds if spec.loop == "rounds" else _by_rows
            results = in_form(spec.loop, partial(loop, spec), model, rows, states)
        return jax.tree.map(lambda array: array[None], results)

    run = on_each(spec.devices, on_device, COPIED, COPIED, SPLIT, SPLIT)
    return run(model, words, states, block)


def _keys(spec: FleetSpec, words: Array | None, hashes: Array | None) -> Array | None:
    """Return the words of the keys of rows; ``hashes`` (n, 2) are the hashes of their names."""
    key = key_of(words, spec.generator)
    if key is None or hashes is None:
        return None
    return jax.random.key_data(jax.vmap(partial(folded, key))(hashes))


def folded(key: Array, words: Array) -> Array:
    """Return the key of a name, whose hash is two words."""
    return jax.random.fold_in(jax.random.fold_in(key, words[0]), words[1])


_plain = outermost(_run, static_argnums=0, donate_argnums=3)
_kernel = outermost(_run, kernel=True, static_argnums=0, donate_argnums=3)
RUN = {
    "kernel": _kernel,
    "stages": _kernel,
    "plain": _plain,
    "rounds": _plain,
}  # by the loop of a spec


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def init(
    packing: Packing, num_features: int, generator: str | None, dtype: Any, model: Learner,
    words: Array | None, hashes: Array,
) -> Array:  # fmt: skip
    """Return the packed states of names before any data; ``hashes`` (n, 2) are of the names."""

    def pack(hashed: Array) -> Array:
        key = key_of(words, generator)
        key = None if key is None else folded(key, hashed)
        return packing.pack(model.init(num_features, dtype, key=key))

    return jax.vmap(pack)(hashes)


def _by_rows(spec: FleetSpec, model: Learner, rows: Rows, states: Array) -> Results:
    """Take row after row. A row that fills up a call has no target and changes no state.

    A step reads the state for the next row, after its own update. If the read came before the
    update, XLA would move it into several later operations, and copy all states at every row.
    """
    positions = rows[0]

    def step(carry: tuple[Array, Array], inputs: tuple[Array, Rows]) -> tuple[Any, Trace]:
        states, packed = carry
        following, (position, x, d, words) = inputs
        packed, trace = _step(spec, model, packed, x, d, words)
        states = with_row(states, position, packed)
        return (states, row_of(states, following)), trace

    carry = (states, row_of(states, positions[0]))
    (states, _), trace = jax.lax.scan(step, carry, (jnp.roll(positions, -1), rows))
    return states, trace


def _by_rounds(spec: FleetSpec, model: Learner, rows: Rows, states: Array) -> Results:
    """Take all rows at once, each of another stream.

    A row that fills up a call has a position beyond the last state, so its result is dropped.
    """
    positions, xs, ds, words = rows
    packed = states.at[positions].get(mode="clip")
    packed, trace = jax.vmap(partial(_step, spec, model))(packed, xs, ds, words)
    return states.at[positions].set(packed, mode="drop", unique_indices=True), trace


def _step(
    spec: FleetSpec, model: Learner, packed: Array, x: Array, d: Array, words: Array | None
) -> Results:
    """Predict, then learn: the packed state of one stream after a sample, and its trace."""
    state, key = spec.packing.unpack(packed), key_of(words, spec.generator)
    after, trace = one_step(model, state, x, d, key, spec.observe)
    return spec.packing.pack(after), trace
