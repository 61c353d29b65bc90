"""How a model and its state lie in memory while a run is compiled as one kernel, or in stages.

A model is laid out on the way into the loop (:func:`lay_out`) and its state is put back on the way
out (:func:`put_back`). Models never see the layout. Three things change.

**Copies of a booster's learner lie side by side.** Where learners are small, arithmetic runs along
the copies, if these are neighbours in memory: the last axis of every array. A vector instruction
works on eight float32 numbers. Twenty copies leave four over, which would be worked on one at a
time, exponentials and logarithms included; with four idle copies behind them nothing is left over.
An idle copy starts as the last real one and learns at the end of the chain, where nothing sees it.
Measured at XLA's level 3 with m = 20, one kernel, µs a step:

|                   | copies first | side by side, 24 of them |
|-------------------|--------------|--------------------------|
| BSGD-WU, r = 3    | 0.31         | 0.19                     |
| BSGD-WU, r = 21   | 0.62         | 0.27                     |
| BNM-WU, r = 3     | 0.88         | 0.29                     |
| BNM-WU, r = 21    | 8.0          | 4.4                      |

**Random updates skip what is not drawn**, where a copy's state is large enough to make up for it.

**Trees learn one by one.** Five of depth 2 then take 10 µs a step where a batch of them takes 28
(the paper's piecewise stream, r = 2).

**Rows of large square matrices are whole vectors**, with zeros behind: a remainder would be worked
on one number at a time (BNM-WU, r = 90: 46.7 instead of 40.7 µs; auto, r = 8: 67 instead of 60).
This holds in stages too.

The engine's own classes take the place of the model's, inside pipelines and wrappers too. jit
compares their fields, so each layout compiles a program of its own.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting import copies
from jboost.boosting.booster import Boosted, BoostedState, OfCopy
from jboost.core import DType, Key, Learner, Sample, State, model, static
from jboost.core.products import LARGEST_SUM
from jboost.core.rows import row_of, with_row
from jboost.core.surroundings import written_for
from jboost.engine import trailing
from jboost.learners import PiecewiseLinear
from jboost.learners.newton import CovarianceState, ForwardNewton, Newton, NewtonState, RootState

VECTOR = 8  # float32 numbers that an instruction takes at once,
LONGEST_VECTOR = 16  # and that one of a product of a matrix and a vector does
FEWEST = 5  # idle copies are added only from this many real ones on,
LARGEST_IDLE = 2**11  # and only where the state of a copy has at most this many bytes
# Random updates: below this, updating all copies at once is faster than skipping some.
SMALLEST_SKIP = 2**11  # bytes of state of a copy
# Weighted updates of trees: above this, to copy each out of the stack and back costs more.
LARGEST_TREE = 2**16  # bytes of state of a copy

_Tree = TypeVar("_Tree")


class Walk(NamedTuple):
    """How the copies of one booster are updated.

    The order is "together" (one batched update), "side by side" (the same with the copies along the
    last axis), or "one by one", for what is better not batched: random updates then skip what was
    not drawn, and a tree changes a few rows of its state in place, where a batch of trees would
    need a scatter, which no kernel can hold.
    """

    order: str
    idle: int  # how many idle copies join the real ones


class Layout(NamedTuple):
    """All that differs between a model and its layout."""

    walks: tuple[Walk, ...] = ()  # of the outermost boosters, in the order of the model's tree
    whole_vectors: int = (
        0  # to multiples of what the rows of large matrices are filled up, if at all
    )

    @property
    def skips(self) -> bool:
        """Whether copies are updated one by one, so that what is not drawn is skipped."""
        return any(walk.order == "one by one" for walk in self.walks)


def choose(model: Learner, state: State, *, kernel: bool, stages: bool = False) -> Layout:
    """Return the best layout for one kernel, for stages that are kernels, or for neither.

    Boosters stay as they are where model and state do not match up.
    """
    # A fleet has no such rows. With vectors of 8 numbers the sums of a run have the same last bits.
    whole_vectors = VECTOR if kernel else LONGEST_VECTOR if stages else 0
    boosters, states = _outermost(model, Boosted), _outermost(state, BoostedState)
    if len(boosters) != len(states) or any(state.t.ndim for state in states):
        return Layout((), whole_vectors)
    return Layout(
        tuple(
            _walk(booster, state, kernel) for booster, state in zip(boosters, states, strict=True)
        ),
        whole_vectors,
    )


def _walk(booster: Boosted, state: BoostedState, kernel: bool) -> Walk:
    leaves = jax.tree.leaves(state.learners)
    size = sum(leaf.nbytes for leaf in leaves) / booster.m
    trees = kernel and _outermost(booster.learner, PiecewiseLinear)
    alone = size <= LARGEST_TREE or booster.mode.most_repeats is not None
    if (trees and alone) or (booster.mode.needs_key and size >= SMALLEST_SKIP):
        return Walk("one by one", 0)
    if not kernel or len(booster.sizes) > 1 or booster.m < FEWEST or size > LARGEST_IDLE:
        return Walk("together", 0)
    longest = max((side for leaf in leaves for side in leaf.shape[1:]), default=0)
    order = "side by side" if longest <= LARGEST_SUM else "together"
    return Walk(order, -booster.m % VECTOR)


def lay_out(layout: Layout, model: Learner, state: State) -> tuple[Learner, State]:
    """Return the model and its state as the loop wants them."""
    if layout.whole_vectors:
        n = layout.whole_vectors
        model = _replace(model, (Newton, ForwardNewton), lambda one: _with_whole_vectors(one, n))
        state = _replace(state, (RootState, CovarianceState), lambda one: _filled_up(one, n))
    if layout.walks:
        walks, walks_of_states = iter(layout.walks), iter(layout.walks)
        model = _replace(model, Boosted, lambda booster: _laid_out(booster, next(walks)))
        state = _replace(state, BoostedState, lambda state: _spread(state, next(walks_of_states)))
    return model, state


def put_back(layout: Layout, state: State) -> State:
    """Return a state that was laid out as its model makes it."""
    if layout.walks:
        walks = iter(layout.walks)
        state = _replace(state, BoostedState, lambda state: _gathered(state, next(walks)))
    if layout.whole_vectors:
        state = _replace(state, (RootState, CovarianceState), _cut)
    return state


@model
class _LaidOutBooster(Boosted):
    """A booster in the engine's layout; its ``sizes`` count the idle copies."""

    order: str = static(default="together")
    idle: int = static(default=0)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> BoostedState:
        state = super().init(num_features, dtype, key=key)
        return _spread(state, Walk(self.order, 0))

    def info(self, state: BoostedState, sample: Sample) -> dict[str, Array]:
        real = self.m - self.idle
        return {name: values[:real] for name, values in super().info(state, sample).items()}

    def each_copy(self, f: OfCopy, learner: Learner, size: int, *rows: State) -> State:
        if self.order != "side by side":
            return super().each_copy(f, learner, size, *rows)
        varied, copy_with = copies.apart(learner)

        def call(varied: list[Array], rows: tuple[State, ...]) -> State:
            return f(copy_with(varied), *rows)

        with written_for("side by side"):
            varied = [jnp.moveaxis(leaf, 0, -1) for leaf in varied]
            return trailing.vmap(call, size)(varied, rows)

    def updated_copies(self, f: OfCopy, learner: Learner, size: int, *rows: State) -> State:
        states, _, repeats, _ = rows
        if self.order != "one by one":
            return super().updated_copies(f, learner, size, *rows)
        varied, copy_with = copies.apart(learner)

        def update(k: Array, states: State) -> State:
            values, *others = row_of((varied, states, *rows[1:]), k)
            return with_row(states, k, f(copy_with(values), *others))

        # A loop that changes the stacked states in place: what is not drawn is neither computed nor
        # copied. Under vmap the condition would become a choice between computed values.
        def visit(k: Array, states: State) -> State:
            drawn = row_of(repeats, k).astype(bool)
            return jax.lax.cond(drawn, lambda s: update(k, s), lambda s: s, states)

        return jax.lax.fori_loop(0, size, update if repeats is None else visit, states)


@model
class _OfReal(Learner):
    """A combiner that looks at the first ``count`` estimates, which are those of real copies."""

    combiner: Learner
    count: int = static()

    @property
    def needs_key(self) -> bool:
        return self.combiner.needs_key

    @property
    def takes_missing(self) -> bool:
        return True  # the estimates of idle copies must not decide whether a sample is good

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return self.combiner.init(self.count, dtype, key=key)

    def predict(self, state: State, x: ArrayLike) -> Array:
        return self.combiner.predict(state, jnp.asarray(x)[: self.count])

    def learn(self, state: State, sample: Sample) -> State:
        real = sample.with_input(sample.raw[: self.count], self.combiner.takes_missing)
        return self.combiner.learn(state, real)

    def coefficients(self, state: State, x: ArrayLike) -> Array:
        return self.combiner.coefficients(state, jnp.asarray(x)[: self.count])


def _laid_out(booster: Boosted, walk: Walk) -> Boosted:
    fields = {field.name: getattr(booster, field.name) for field in dataclasses.fields(booster)}
    if walk.idle:
        fields["learner"] = _with_idle_settings(booster.learner, walk.idle)
        fields["emphasis"] = _with_idle_settings(booster.emphasis, walk.idle)
        fields["combiner"] = _OfReal(booster.combiner, booster.m)
        fields["sizes"] = (booster.m + walk.idle,)
    return _LaidOutBooster(**fields, order=walk.order, idle=walk.idle)


def _with_idle_settings(model: _Tree, idle: int) -> _Tree:
    leaves, structure = jax.tree.flatten(model)
    pairs = zip(leaves, copies.differs_by_copy(model), strict=True)
    return structure.unflatten(
        [_with_idle(leaf, idle) if varies else leaf for leaf, varies in pairs]
    )


def _with_idle(leaf: ArrayLike, idle: int) -> Array:
    leaf = jnp.asarray(leaf)
    return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], idle, axis=0)]) if idle else leaf


def _spread(state: BoostedState, walk: Walk) -> BoostedState:
    def learners(leaf: Array) -> Array:
        leaf = _with_idle(leaf, walk.idle)
        return jnp.moveaxis(leaf, 0, -1) if walk.order == "side by side" else leaf

    return state._replace(
        learners=jax.tree.map(learners, state.learners),
        emphasis=jax.tree.map(lambda leaf: _with_idle(leaf, walk.idle), state.emphasis),
    )


def _gathered(state: BoostedState, walk: Walk) -> BoostedState:
    def real(leaf: Array) -> Array:
        return leaf[: leaf.shape[0] - walk.idle]

    def learners(leaf: Array) -> Array:
        return real(jnp.moveaxis(leaf, -1, 0) if walk.order == "side by side" else leaf)

    return state._replace(
        learners=jax.tree.map(learners, state.learners),
        emphasis=jax.tree.map(real, state.emphasis),
    )


class _Wide:
    """Mixed into a Newton learner: its states start with rows that are filled up."""

    vector: int

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> NewtonState:
        state = super().init(num_features, dtype, key=key)  # type: ignore[misc]
        return _filled_up(state, self.vector)


@model
class _WideNewton(_Wide, Newton):
    vector: int = static(default=VECTOR)


@model
class _WideForwardNewton(_Wide, ForwardNewton):
    vector: int = static(default=VECTOR)


def _with_whole_vectors(learner: Newton | ForwardNewton, vector: int) -> Newton | ForwardNewton:
    wide = _WideNewton if isinstance(learner, Newton) else _WideForwardNewton
    fields = {field.name: getattr(learner, field.name) for field in dataclasses.fields(learner)}
    return wide(**fields, vector=vector)


def _filled_up(state: NewtonState, vector: int) -> NewtonState:
    def fill(matrix: Array) -> Array:
        columns = matrix.shape[-1]
        beyond = 0 if columns <= LARGEST_SUM else -columns % vector
        return jnp.pad(matrix, [(0, 0)] * (matrix.ndim - 1) + [(0, beyond)]) if beyond else matrix

    return _with_matrix(state, fill)


def _cut(state: NewtonState) -> NewtonState:
    return _with_matrix(state, lambda matrix: matrix[..., : matrix.shape[-2]])


def _with_matrix(state: NewtonState, f: Callable[[Array], Array]) -> NewtonState:
    if isinstance(state, RootState):
        return state._replace(T=f(state.T))
    return state._replace(P=f(state.P))


def _outermost(tree: Any, kind: type) -> list[Any]:
    """Return the outermost nodes of a kind, in the order of the tree."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kind))
    return [node for node in nodes if isinstance(node, kind)]


def _replace(tree: _Tree, kind: type | tuple[type, ...], f: Callable[[Any], Any]) -> _Tree:
    """Return the tree with each of the outermost nodes of a kind replaced."""
    return jax.tree.map(
        lambda node: f(node) if isinstance(node, kind) else node,
        tree,
        is_leaf=lambda node: isinstance(node, kind),
    )
