"""BoostedTrees: gradient boosting on a stream that never refits."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, checks, draws, model, static
from jboost.core.numerics import dtype_of, known, usable
from jboost.learners.forest.bins import bins_of, edges_of
from jboost.learners.forest.growth import Trees, best_splits, leaves, right_of

START = 32  # rows before the first tree is grown
RARELY = 2048  # rows between two times at which the columns are binned, once there are as many
TURNS = 16  # samples over which the columns are binned
HEAVIEST = 10.0  # the most that a row may weigh
TOGETHER = 4  # nodes whose splits are searched at once
FADING = 0.95  # of the gains of the columns, from tree to tree


class Ring(NamedTuple):
    """The latest rows, by the place in which they are kept; all 0 at the start."""

    x: Array  # (rows, r), missing entries as NaN
    bins: Array  # the bins of x, (rows, r), uint8
    target: Array  # d, (rows,)
    weight: Array  # (rows,); 0 where there is no row yet
    fitted: Array  # what all trees say of the row, (rows,)
    old: Array  # what the tree that is being replaced says of the row, (rows,)
    leaf: Array  # the leaf of the row in each tree, (M, rows), uint8
    node: Array  # the node of the row in the tree that is being grown, (rows,), uint8


class Growth(NamedTuple):
    """The tree that is being grown, and how far its growth has come; all 0 at the start."""

    tree: Trees  # its nodes so far
    histogram: Array  # of the nodes of this level, (2^(D−1), bins, columns, 3)
    columns: Array  # the columns that it may look at, (columns,)
    level: Array  # the depth whose nodes are being split
    next: Array  # the place of the next row to look at
    turn: Array  # the number of the tree that it will replace
    drawn: Array  # how often columns were drawn


class TreesState(NamedTuple):
    """The state of boosted trees."""

    trees: Trees  # (M, …)
    mean: Array  # of the first targets
    edges: Array  # between the bins of each column, (r, bins − 2)
    ring: Ring
    growth: Growth
    gains: Array  # how much each column gained in recent trees, (r,)
    place: Array  # where the next row is kept
    filled: Array  # how many rows are kept
    wait: Array  # how many rows are still to come before the columns are binned
    turn: Array  # which columns are binned next; TURNS where none are
    words: Array  # of the key that columns are drawn by


@model
class BoostedTrees(Learner):
    """Gradient boosting on a stream.

    Args:
      trees: M.
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

    @property
    def takes_missing(self) -> bool:
        return True

    def _slice(self, num_features: int) -> tuple[int, int]:
        """Return how many rows a step looks at, and in how many steps it sees all."""
        rows = min(self.rows, max(1, self.work // min(self.columns, num_features)))
        return rows, -(-self.rows // rows)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> TreesState:
        dtype, r, M = dtype_of(dtype), num_features, self.trees
        nodes = 2**self.depth - 1
        columns = min(self.columns, r)
        B = self._slice(r)[0] * self._slice(r)[1]

        def tree(*axes: int) -> Trees:
            return Trees(
                jnp.zeros((*axes, nodes), jnp.int32),
                jnp.full((*axes, nodes), jnp.inf, dtype),
                jnp.zeros((*axes, nodes + 1), dtype),
            )

        zero, zeros = jnp.zeros((), jnp.int32), jnp.zeros(B, dtype)
        x, bins = jnp.zeros((B, r), dtype), jnp.zeros((B, r), jnp.uint8)
        histogram = jnp.zeros((2 ** (self.depth - 1), self.bins, columns, 3), dtype)
        words = jnp.zeros(2, jnp.uint32) if key is None else jax.random.key_data(key).ravel()[:2]
        leaf, node = jnp.zeros((M, B), jnp.uint8), jnp.zeros(B, jnp.uint8)
        return TreesState(
            trees=tree(M),
            mean=jnp.zeros((), dtype),
            edges=jnp.full((r, self.bins - 2), -jnp.inf, dtype),
            ring=Ring(x, bins, zeros, zeros, zeros, zeros, leaf, node),
            growth=Growth(
                tree(), histogram, jnp.arange(columns, dtype=jnp.int32), zero, zero, zero, zero
            ),
            gains=jnp.zeros(r, dtype),
            place=zero,
            filled=zero,
            wait=jnp.full((), START, jnp.int32),
            turn=jnp.full((), TURNS, jnp.int32),
            words=words,
        )

    def predict(self, state: TreesState, x: ArrayLike) -> Array:
        return self._prediction(state, self._clean(state, x))[0]

    def learn(self, state: TreesState, sample: Sample) -> TreesState:
        x = jax.lax.stop_gradient(self._clean(state, sample.raw))
        d = jax.lax.stop_gradient(sample.d)
        weight = jnp.minimum(sample.weight * jnp.asarray(sample.repeats, d.dtype), HEAVIEST)
        weight = jax.lax.stop_gradient(weight)
        settings = jax.lax.stop_gradient(self)
        state = jax.lax.stop_gradient(state)
        return settings._once(state, x, d, weight, sample.counts)

    def _clean(self, state: TreesState, x: ArrayLike) -> Array:
        x = jnp.asarray(x, state.mean.dtype)
        return jnp.where(usable(x), x, jnp.nan)

    def _prediction(self, state: TreesState, x: Array) -> tuple[Array, Array, Array]:
        """Return the estimate, and the leaf of each tree with its value."""
        leaf = leaves(state.trees, x)
        values = state.trees.values[jnp.arange(self.trees, dtype=jnp.int32), leaf]
        return state.mean + jnp.sum(values), leaf, values

    def _once(
        self, state: TreesState, x: Array, d: Array, weight: Array, counts: Array
    ) -> TreesState:
        state = self._remember(state, x, d, weight, counts)
        starts = counts & (state.turn >= TURNS) & (state.wait <= 0)
        starts &= (state.growth.level == 0) & (state.growth.next == 0)
        state = state._replace(
            turn=jnp.where(starts, 0, state.turn),
            wait=jnp.where(starts, jnp.minimum(state.filled, RARELY), state.wait),
        )
        binning = state.turn < TURNS
        state = self._bin(state, binning & counts)
        return self._grow(state, ~binning & (state.filled >= START) & counts)

    def _remember(
        self, state: TreesState, x: Array, d: Array, weight: Array, counts: Array
    ) -> TreesState:
        """Return the state with leaves that have followed d, and the row in the ring."""
        trees, ring, growth, p = state.trees, state.ring, state.growth, state.place
        y, leaf, values = self._prediction(state, x)
        mu = jnp.asarray(self.follow, d.dtype) * jnp.minimum(weight, 1) / self.trees
        early = state.filled < START
        follows = jnp.where(counts & ~early, mu * (d - y), 0)
        tree = jnp.arange(self.trees, dtype=jnp.int32)
        trees = trees._replace(values=trees.values.at[tree, leaf].add(follows))
        mean = state.mean + jnp.where(counts & early, (d - state.mean) / (state.filled + 1), 0)
        # The pass over the rows at level 0 also ends the growth of the tree before.
        unseen = p >= growth.next
        before = (growth.turn - 1) % self.trees
        replaced = jnp.where(unseen & (growth.level == 0), before, growth.turn)

        def down(_: int, node: Array) -> Array:
            code = growth.tree.codes[node]
            return 2 * node + 1 + right_of(code, growth.tree.thresholds[node], x[code // 2])

        depth = growth.level - unseen.astype(jnp.int32)
        node = jax.lax.fori_loop(0, depth, down, jnp.zeros((), jnp.int32))
        nodes = growth.tree.thresholds.shape[-1]
        node = jnp.where(depth < 0, (leaf[before] + nodes - 1) // 2, node)
        row = Ring(
            x, bins_of(x, state.edges), d, weight, jnp.sum(values), values[replaced],
            leaf.astype(jnp.uint8), node.astype(jnp.uint8),
        )  # fmt: skip

        at = jnp.where(counts, p, len(ring.target))  # beyond the ring nothing is written
        ring = Ring(
            *[array.at[at].set(value, mode="drop") for array, value in zip(ring[:-2], row[:-2], strict=True)],
            leaf=ring.leaf.at[:, at].set(row.leaf, mode="drop"),
            node=ring.node.at[at].set(row.node, mode="drop"),
        )
        B, once = len(ring.target), counts.astype(jnp.int32)
        return state._replace(
            trees=trees, mean=mean, ring=ring, place=(p + once) % B,
            filled=jnp.minimum(state.filled + once, B), wait=state.wait - once,
        )  # fmt: skip

    def _bin(self, state: TreesState, binning: Array) -> TreesState:
        """Return the state after new edges and bins of a few columns."""
        r = state.edges.shape[0]
        share = -(-r // TURNS)

        def bin_column(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            edges, bins = carry
            j = jnp.minimum(state.turn * share + i, r - 1)
            column = jax.lax.dynamic_slice_in_dim(state.ring.x, j, 1, axis=1)[:, 0]
            new = edges_of(column, state.filled, self.bins - 2)
            edges = edges.at[j].set(new)
            bins = jax.lax.dynamic_update_slice_in_dim(
                bins, bins_of(column, new[None, :])[:, None], j, axis=1
            )
            return edges, bins

        count = jnp.where(binning, share, 0)
        edges, bins = jax.lax.fori_loop(0, count, bin_column, (state.edges, state.ring.bins))
        turn = jnp.where(binning, state.turn + 1, state.turn)
        turn = jnp.where(turn * share >= r, TURNS, turn)
        return state._replace(edges=edges, ring=state.ring._replace(bins=bins), turn=turn)

    def _grow(self, state: TreesState, growing: Array) -> TreesState:
        """Return the state after a look at a slice of the rows."""
        ring, growth = state.ring, state.growth
        r = ring.x.shape[1]
        size, _ = self._slice(r)
        start, level = growth.next, growth.level
        nodes = growth.tree.thresholds.shape[-1]
        before = (growth.turn - 1) % self.trees

        def rows(array: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(array, start, size)

        def leaf_of(turn: Array) -> Array:
            return jax.lax.dynamic_slice(ring.leaf, (turn, start), (1, size))[0]

        def put(array: Array, values: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(array, values, start, 0)

        def down(node: Array) -> Array:
            code = growth.tree.codes[node]
            value = x[jnp.arange(size, dtype=jnp.int32), code // 2]
            return 2 * node + 1 + right_of(code, growth.tree.thresholds[node], value)

        x, now = rows(ring.x), rows(ring.node).astype(jnp.int32)
        slices = rows(ring.fitted), rows(ring.old), rows(ring.node), leaf_of(before)
        replaced = leaf_of(growth.turn).astype(jnp.int32)

        def rest():
            return *slices, jnp.zeros_like(weight)

        def first():
            """The last step down the tree before, whose growth has ended, and a new start."""
            fitted, old, _, _ = slices
            leaf = down(now) - nodes
            fitted = fitted + state.trees.values[before, leaf] - old
            old = state.trees.values[growth.turn, replaced]
            return fitted, old, jnp.zeros(size, jnp.uint8), leaf.astype(jnp.uint8), weight

        def deeper():
            fitted, old, _, leaf = slices
            return fitted, old, down(now).astype(jnp.uint8), leaf, weight

        target, weight, bins = rows(ring.target), rows(ring.weight), rows(ring.bins)
        which = jnp.where(growing, 1 + (level > 0), 0)
        fitted, old, node, leaf, weight = jax.lax.switch(which, [rest, first, deeper])
        ring = ring._replace(
            fitted=put(ring.fitted, fitted),
            old=put(ring.old, old),
            node=put(ring.node, node),
            leaf=jax.lax.dynamic_update_slice(ring.leaf, leaf[None], (before, start)),
        )
        node = node.astype(jnp.int32)

        residual = target - state.mean - fitted
        sums = jnp.stack([weight * residual, weight * old, weight], axis=-1)  # (rows, 3)
        if growth.columns.shape[0] < r:
            bins = bins[:, growth.columns]
        _, count, columns, _ = growth.histogram.shape
        column = jnp.arange(columns, dtype=jnp.int32)[None, :]
        corner = (node - (2**level - 1)) * (count * columns)
        at = corner[:, None] + bins.astype(jnp.int32) * columns + column
        many = jnp.broadcast_to(sums[:, None, :], (size, columns, 3)).reshape(-1, 3)
        flat = growth.histogram.reshape(-1, 3).at[at.ravel()].add(many, mode="promise_in_bounds")
        histogram = flat.reshape(growth.histogram.shape)
        next = jnp.where(growing, start + size, start)
        growth = growth._replace(histogram=histogram, next=next)
        state = state._replace(ring=ring, growth=growth)
        return self._split(state, growing & (next >= state.filled))

    def _split(self, state: TreesState, done: Array) -> TreesState:
        """Return the state after all nodes of a level are split; the last level ends the tree."""
        growth, dtype = state.growth, state.mean.dtype
        ridge, least, rate, keep = (
            jnp.asarray(setting, dtype)
            for setting in (self.ridge, self.least, self.rate, self.keep)
        )
        together = min(TOGETHER, 2 ** (self.depth - 1))

        def split(i: Array, carry):
            tree, gains = carry
            i = i * together
            best = best_splits(
                jax.lax.dynamic_slice_in_dim(growth.histogram, i, together), ridge, least
            )
            node = 2**growth.level - 1 + i
            column = growth.columns[best.column]
            edge = state.edges[column, jnp.clip(best.bin - 1, 0, self.bins - 3)]
            threshold = jnp.where(best.bin > 0, edge, -jnp.inf)
            threshold = jnp.where(best.bin < self.bins - 1, threshold, jnp.inf)
            res, old, n = best.sums[..., 0], best.sums[..., 1], best.sums[..., 2]
            values = (rate * res + keep * old) / (n + ridge)

            def put(array: Array, values: Array, place: Array) -> Array:
                return jax.lax.dynamic_update_slice_in_dim(array, values, place, 0)

            tree = Trees(
                put(tree.codes, 2 * column + best.missing, node),
                put(tree.thresholds, threshold, node),
                put(tree.values, values.ravel(), 2 * i),
            )
            return tree, gains.at[column].add(best.gain)

        count = jnp.where(done, -(-(2**growth.level) // together), 0)
        tree, gains = jax.lax.fori_loop(0, count, split, (growth.tree, state.gains))
        # The histogram is cleared once the loop before has read it.
        count = count + jnp.minimum(0, tree.codes[0])
        empty = jnp.zeros((together, *growth.histogram.shape[1:]), dtype)

        def clear(i: Array, histogram: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(histogram, empty, i * together, 0)

        histogram = jax.lax.fori_loop(0, count, clear, growth.histogram)
        ended = done & (growth.level + 1 >= self.depth)
        turn = growth.turn
        trees = jax.tree.map(
            lambda all, one: all.at[jnp.where(ended, turn, self.trees)].set(one, mode="drop"),
            state.trees,
            tree,
        )
        columns, drawn = growth.columns, growth.drawn + ended.astype(jnp.int32)
        gains = jnp.where(ended, FADING * gains, gains)
        if len(columns) < len(gains):
            columns = jax.lax.cond(
                ended, lambda: self._draw(state, gains, len(columns), drawn), lambda: columns
            )
        growth = Growth(
            tree, histogram, columns,
            jnp.where(ended, 0, growth.level + done), jnp.where(done, 0, growth.next),
            jnp.where(ended, (turn + 1) % self.trees, turn), drawn,
        )  # fmt: skip
        return state._replace(trees=trees, growth=growth, gains=gains)

    def _draw(self, state: TreesState, gains: Array, count: int, drawn: Array) -> Array:
        """Return the columns of the next tree: half by their gain, half at random."""
        best = jax.lax.top_k(gains, count // 2)[1]
        t = (drawn.astype(jnp.uint32), jnp.zeros((), jnp.uint32))
        key = jax.random.wrap_key_data(state.words)
        u = draws.uniform(key, t, len(gains), gains.dtype).at[best].set(-1)
        others = jax.lax.top_k(u, count - count // 2)[1]
        return jnp.concatenate([best, others]).astype(jnp.int32)
