"""BoostedTrees: gradient boosting on a stream that never refits.

A step does the same amount of work whatever the number of rows so far:

    1. The leaves that x reaches follow its target, and the row takes its place in the ring.
    2. A slice of the rows in the ring is added to the histograms of the nodes of one level of the
       tree that is being grown. When all rows are in, the nodes are split. A tree is complete after
       D such levels, and replaces the oldest one.
    3. Now and then, instead of 2, a few columns are cut into bins anew.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import (
    DType,
    Key,
    Learner,
    Number,
    Sample,
    checks,
    model,
    places,
    static,
)  # fmt: skip
from jboost.core.numerics import dtype_of, usable
from jboost.core.places import at, put_rows
from jboost.core.surroundings import stage
from jboost.learners.forest.bins import bins_of, edges_of
from jboost.learners.forest.columns import drawn_columns
from jboost.learners.forest.histograms import DOUBLINGS, with_rows
from jboost.learners.forest.memory import Growth, Ring, Schedule
from jboost.learners.forest.splits import best_splits
from jboost.learners.forest.trees import (
    ABSENT,
    BEYOND,
    Trees,
    children,
    followed,
    leaves,
    node_of,
)

START = 32  # rows before the first tree is grown
LONGEST_WAIT = 2048  # rows between two times at which columns are cut; at first it doubles
TURNS = 16  # steps in which all columns are cut
HEAVIEST = 10.0  # the most that a row may weigh
FADING = 0.95  # of the gains of the columns, from tree to tree
DEEPEST, MOST_BINS = 8, 256  # leaves and bins are kept as bytes


class TreesState(NamedTuple):
    """The state of boosted trees."""

    trees: Trees  # (M, …), trees that add nothing at the start
    mean: Array  # of the first targets, 0 at the start
    edges: Array  # between the bins of each column, (r, bins − 2), below all values at the start
    gains: Array  # how much each column gained in recent trees, (r,), 0 at the start
    ring: Ring
    growth: Growth
    schedule: Schedule
    words: Array  # of the key by which columns are drawn


@model
class BoostedTrees(Learner):
    """Gradient boosting of trees on a stream, with a state of fixed size.

        d̂ = c + Σ_m v_m(leaf of x in tree m),    m = 1 … M

    The trees are grown in turn, from the rows in a ring of the latest B rows. The splits of tree m
    are those that best explain r_i + o_i, where r_i is what all trees leave of row i and o_i what
    the former tree m said of it. A leaf with the rows I then adds

        v = Σ_I w_i (η r_i + κ o_i) / (Σ_I w_i + ridge)

    so that each growth moves the trees by η towards the target. Between growths the leaves that x
    reaches follow the target: v ← v + μ (d − d̂)/M. Growth is spread over the samples: each adds
    ``work`` entries (rows × columns) to histograms, so a step always takes about as long. Early
    on, when there are few rows, trees are grown within a few samples.

    Missing entries of x go to the side of each split that suits them better. Columns are cut at
    quantiles, or between all their values where these are few. Units of x and of d do not matter.
    The weight of a sample counts up to 10. The error has no useful derivative in the settings:
    gradients through it are 0.

    Args:
      trees: M ≥ 1.
      depth: D, 1 to 8: a tree has 2^D leaves.
      rows: B ≥ 1, rounded up to whole slices.
      bins: into how many bins a column is cut, 4 to 256; one is for missing values.
      columns: how many columns a tree may look at. If x has more, half of them are those that
        gained most in recent trees and half are drawn.
      work: entries that a sample adds to histograms, at least 1: more of them grow trees faster.
      rate: η, above 0 and at most 1.
      keep: κ, 0 to 1; below 1 old trees fade.
      ridge: above 0; draws the leaves towards 0.
      least: the least weight of the rows on a side of a split, at least 0.
      follow: μ, 0 to 1.

    >>> import numpy as np, jboost as jb
    >>> xs = np.random.default_rng(0).uniform(-1, 1, (2000, 3)).astype(np.float32)
    >>> ds = np.sign(xs[:, 0]) * (xs[:, 1] > 0.3)
    >>> trees = jb.BoostedTrees(trees=16, depth=3, rows=512, work=1024)
    >>> bool(jb.mse(trees, xs, ds) < 0.3 * jb.mse(jb.Newton(), xs, ds))
    True

    References: J. H. Friedman, Greedy function approximation: a gradient boosting machine, Annals
    of Statistics 2001; histograms as in G. Ke et al., LightGBM, NIPS 2017.
    """

    trees: int = static(default=64)
    depth: int = static(default=6)
    rows: int = static(default=4096)
    bins: int = static(default=64)
    columns: int = static(default=16)
    work: int = static(default=8192)
    rate: Number = 0.12
    keep: Number = 0.9
    ridge: Number = 3.0
    least: Number = 5.0
    follow: Number = 0.1

    def __post_init__(self) -> None:
        count, positive = checks.a_whole_number(at_least=1), checks.a_number(above=0)
        share = checks.a_number(at_least=0, at_most=1)
        checks.fields(self, trees=count, rows=count, columns=count, work=count)
        checks.fields(self, depth=checks.a_whole_number(at_least=1, at_most=DEEPEST))
        checks.fields(self, bins=checks.a_whole_number(at_least=4, at_most=MOST_BINS))
        checks.fields(self, rate=checks.a_number(above=0, at_most=1), keep=share, follow=share)
        checks.fields(self, ridge=positive, least=checks.a_number(at_least=0))

    @property
    def takes_missing(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> TreesState:
        dtype, r = dtype_of(dtype), num_features
        slice_ = self._slice(r)
        count = -(-self.rows // slice_) * slice_
        zero, wait = jnp.zeros((), jnp.int32), jnp.full((), START, jnp.int32)
        words = jnp.zeros(2, jnp.uint32) if key is None else jax.random.key_data(key).ravel()[:2]
        return TreesState(
            trees=Trees.zeros(self.trees, depth=self.depth, dtype=dtype),
            mean=jnp.zeros((), dtype),
            edges=jnp.full((r, self.bins - 2), ABSENT, dtype),
            gains=jnp.zeros(r, dtype),
            ring=Ring.zeros(count, r, self.trees, dtype),
            growth=Growth.zeros(self.depth, self.bins, min(self.columns, r), dtype),
            schedule=Schedule(zero, zero, wait, jnp.full((), TURNS, jnp.int32)),
            words=words,
        )

    def predict(self, state: TreesState, x: ArrayLike) -> Array:
        return self._estimate(state, _or_absent(x, state))[0]

    def learn(self, state: TreesState, sample: Sample) -> TreesState:
        return self.predict_and_learn(state, sample)[1]

    def predict_and_learn(self, state: TreesState, sample: Sample) -> tuple[Array, TreesState]:
        return stage(lambda: self._once(state, sample))

    def _once(self, state: TreesState, sample: Sample) -> tuple[Array, TreesState]:
        weight = jnp.minimum(sample.weight * jnp.asarray(sample.repeats, sample.d.dtype), HEAVIEST)
        row = _or_absent(sample.raw, state), sample.d, weight
        # Loops of a length that depends on the stream have no reverse derivative.
        self, state, row = jax.lax.stop_gradient((self, state, row))
        counts = sample.counts
        y, *reached = self._estimate(state, row[0])
        state = self._remember(state, *row, counts, y, *reached)
        schedule, growth = state.schedule, state.growth
        between_trees = (growth.level == 0) & (growth.place == 0)
        due = counts & between_trees & (schedule.turn >= TURNS) & (schedule.wait <= 0)
        schedule = schedule._replace(
            turn=jnp.where(due, 0, schedule.turn),
            wait=jnp.where(due, jnp.minimum(schedule.filled, LONGEST_WAIT), schedule.wait),
        )
        cuts = counts & (schedule.turn < TURNS)
        state = self._cut_columns(state._replace(schedule=schedule), cuts)
        return y, self._grow(state, counts & ~cuts & (schedule.filled >= START))

    def _before(self, turn: Array) -> Array:
        """Return the number of the tree whose turn came before."""
        return jnp.where(turn > 0, turn, self.trees) - 1

    def _slice(self, num_features: int) -> int:
        """Return how many rows a step looks at."""
        return min(self.rows, max(1, self.work // min(self.columns, num_features)))

    def _estimate(self, state: TreesState, x: Array) -> tuple[Array, Array, Array]:
        """Return the estimate, and the leaf of x in each tree with its value."""
        leaf = leaves(state.trees, x)
        values = at(state.trees.values, jnp.arange(self.trees, dtype=jnp.int32), leaf)
        return state.mean + jnp.sum(values), leaf, values

    def _remember(
        self, state: TreesState, x: Array, d: Array, weight: Array, counts: Array,
        y: Array, leaf: Array, values: Array,
    ) -> TreesState:  # fmt: skip
        """Return the state with the row in its ring, and with leaves that have followed d."""
        trees, growth, schedule = state.trees, state.growth, state.schedule
        count = len(state.ring.target)
        early = schedule.filled < START
        mu = jnp.asarray(self.follow, d.dtype) * jnp.minimum(weight, 1) / self.trees
        change = jnp.where(counts & ~early, mu * (d - y), 0)
        trees = trees._replace(values=followed(trees.values, leaf, change))
        share = 1 / (schedule.filled + 1).astype(d.dtype)
        mean = state.mean + jnp.where(counts & early, share * (d - state.mean), 0)

        # The row joins the growth as if it had been there from the start of the level. The pass
        # over level 0 also ends the growth before: until then a row's node is the parent of its
        # leaf in the tree before, and `old` what that tree said.
        place, before = schedule.place, self._before(growth.turn)
        steps = growth.level - (place >= growth.place).astype(jnp.int32)
        parent = (at(leaf, before) + 2**self.depth - 2) >> 1
        node = jnp.where(steps < 0, parent, node_of(growth.tree, x, steps))
        old = at(values, jnp.where(steps < 0, before, growth.turn))
        row = Ring(
            x, bins_of(x, state.edges), d, weight, jnp.sum(values), old,
            node.astype(jnp.uint8), leaf.astype(jnp.uint8),
        )  # fmt: skip
        once = counts.astype(jnp.int32)
        schedule = schedule._replace(
            place=jnp.where(place + once < count, place + once, 0),
            filled=jnp.minimum(schedule.filled + once, count),
            wait=schedule.wait - once,
        )
        ring = state.ring.put(place, row, counts)
        return state._replace(trees=trees, mean=mean, ring=ring, schedule=schedule)

    def _cut_columns(self, state: TreesState, cuts: Array) -> TreesState:
        """Return the state with new edges and bins of the columns whose turn it is."""
        ring, schedule, r = state.ring, state.schedule, state.edges.shape[0]
        share = -(-r // TURNS)

        def cut(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            edges, bins = carry
            j = jnp.minimum(schedule.turn * share + i, r - 1)
            column = jax.lax.dynamic_slice_in_dim(ring.x, j, 1, axis=1)
            # Adds 0. What does not depend on j would be computed at every step, cut or not.
            filled = schedule.filled + jnp.minimum(j, 0)
            new = edges_of(column[:, 0], filled, self.bins - 2)
            into = bins_of(column, new[None, None])
            bins = jax.lax.dynamic_update_slice_in_dim(bins, into, j, axis=1)
            return put_rows(edges, new[None], j), bins

        count = jnp.where(cuts, share, 0)
        edges, bins = jax.lax.fori_loop(0, count, cut, (state.edges, ring.bins))
        turn = jnp.where(cuts, schedule.turn + 1, schedule.turn)
        turn = jnp.where(turn * share >= r, TURNS, turn)
        schedule = schedule._replace(turn=turn)
        return state._replace(edges=edges, ring=ring._replace(bins=bins), schedule=schedule)

    def _grow(self, state: TreesState, grows: Array) -> TreesState:
        """Return the state after a slice of the rows was added to the histograms."""
        ring, growth, values = state.ring, state.growth, state.trees.values
        size, start = self._slice(ring.x.shape[1]), growth.place
        before = self._before(growth.turn)
        rows = ring.rows(start, size, before)
        old_leaf = ring.leaves(start, size, growth.turn).astype(jnp.int32)

        def down() -> Array:
            node = rows.node.astype(jnp.int32)
            code = at(growth.tree.codes, node)
            entries = at(ring.x, start + jnp.arange(size, dtype=jnp.int32), code >> 1)
            return children(node, code, at(growth.tree.thresholds, node), entries)

        def rest() -> tuple[Array, ...]:
            return rows.fitted, rows.old, rows.node, rows.leaf, jnp.zeros_like(rows.weight)

        def start_tree() -> tuple[Array, ...]:
            leaf = down() - (2**self.depth - 1)  # the last step down the tree before
            fitted = rows.fitted + at(at(values, before), leaf) - rows.old
            old, node = at(at(values, growth.turn), old_leaf), jnp.zeros_like(rows.node)
            return fitted, old, node, leaf.astype(jnp.uint8), rows.weight

        def go_on() -> tuple[Array, ...]:
            return rows.fitted, rows.old, down().astype(jnp.uint8), rows.leaf, rows.weight

        # The branches also make XLA read the slices before it writes them, in place.
        branch = jnp.where(grows, 1 + (growth.level > 0).astype(jnp.int32), 0)
        fitted, old, node, leaf, w = jax.lax.switch(branch, [rest, start_tree, go_on])
        ring = ring._replace(
            fitted=put_rows(ring.fitted, fitted, start),
            old=put_rows(ring.old, old, start),
            node=put_rows(ring.node, node, start),
            leaf=jax.lax.dynamic_update_slice(
                ring.leaf, leaf[None], (before, start), allow_negative_indices=False
            ),
        )
        residual = rows.target - state.mean - fitted
        sums = jnp.stack([w * residual, w * old, w], axis=-1)
        number = node.astype(jnp.int32) - (_nodes(growth.level) - 1)  # among those of the level
        count = jnp.where(grows, jnp.minimum(size, state.schedule.filled - start), 0)
        histogram = with_rows(
            growth.histogram, number, ring.bins, start, count, growth.columns, sums
        )
        place = jnp.where(grows, start + size, start)
        growth = growth._replace(histogram=histogram, place=place)
        all_seen = grows & (place >= state.schedule.filled)
        return self._split(state._replace(ring=ring, growth=growth), all_seen)

    def _split(self, state: TreesState, splits: Array) -> TreesState:
        """Return the state after the nodes of a level were split; the last level ends the tree."""
        growth, turn, dtype = state.growth, state.growth.turn, state.mean.dtype
        settings = self.rate, self.keep, self.ridge, self.least
        rate, keep, ridge, least = (jnp.asarray(setting, dtype) for setting in settings)
        together = growth.histogram.shape[2]

        def split(i: Array, carry: tuple[Trees, Array]) -> tuple[Trees, Array]:
            tree, gains = carry
            best = best_splits(at(growth.histogram, i), ridge, least)
            i = i * together
            column = at(growth.columns, best.column)
            edge = at(state.edges, column, jnp.clip(best.bin - 1, 0, self.bins - 3))
            threshold = jnp.where(best.bin > 0, edge, ABSENT)
            threshold = jnp.where(best.bin < self.bins - 1, threshold, BEYOND)
            residual, old, weight = jnp.moveaxis(best.sums, -1, 0)
            values = (rate * residual + keep * old) / (weight + ridge)
            first = _nodes(growth.level) - 1 + i
            tree = Trees(
                put_rows(tree.codes, 2 * column + best.missing, first),
                put_rows(tree.thresholds, threshold, first),
                put_rows(tree.values, values.ravel(), 2 * i),
            )
            chosen = column[:, None] == jnp.arange(len(gains), dtype=jnp.int32)[None]
            return tree, gains + jnp.sum(jnp.where(chosen, best.gain[:, None], 0), axis=0)

        def clear(i: Array, histogram: Array) -> Array:
            return put_rows(histogram, jnp.zeros((1, *histogram.shape[1:]), dtype), i)

        count = jnp.where(splits, jnp.maximum(_nodes(growth.level) >> DOUBLINGS, 1), 0)
        tree, gains = jax.lax.fori_loop(0, count, split, (growth.tree, state.gains))
        count = count + jnp.minimum(tree.codes[0], 0)  # adds 0, once the histogram was read
        histogram = jax.lax.fori_loop(0, count, clear, growth.histogram)

        ends = splits & (growth.level + 1 == self.depth)
        trees = places.put(state.trees, turn, tree, ends)
        gains = jnp.where(ends, FADING * gains, gains)
        drawn = growth.drawn + ends.astype(jnp.int32)
        columns = growth.columns
        if len(columns) < len(gains):
            varies = jnp.max(state.edges, axis=1) > ABSENT
            draw = lambda: drawn_columns(gains, varies, len(columns), state.words, drawn)  # noqa: E731
            columns = jax.lax.cond(ends, draw, lambda: columns)
        growth = Growth(
            tree, histogram, columns,
            level=jnp.where(ends, 0, growth.level + splits.astype(jnp.int32)),
            place=jnp.where(splits, 0, growth.place),
            turn=jnp.where(ends, jnp.where(turn + 1 < self.trees, turn + 1, 0), turn),
            drawn=drawn,
        )  # fmt: skip
        return state._replace(trees=trees, growth=growth, gains=gains)


def _or_absent(x: ArrayLike, state: TreesState) -> Array:
    x = jnp.asarray(x, state.mean.dtype)
    return jnp.where(usable(x), x, ABSENT)


def _nodes(level: Array) -> Array:
    return jax.lax.shift_left(jnp.ones_like(level), level)
