"""A tree of regions, grown online, with a learner in each: estimates that are piecewise linear.

| letter | name       | meaning                                                        |
|--------|------------|----------------------------------------------------------------|
| f_k    |            | the estimate of the k-th node on the path of x                 |
| g_k    |            | the estimate of what lies below: node k, mixed with its subtree |
| w_k    |            | the share of the subtree, σ(odds)                              |
| n      | `mass`     | how much a node has learned from                               |
| ε      | `error`    | the mean absolute error of f_k: of the last half, then WINDOW  |
| t      |            | the shares of a learner's inputs, by their odds, `worth`       |

Nodes are numbered as in a heap: 1 is the root, 2i and 2i + 1 the children of i; 0, above the root,
has a learner whose slopes are held small. All arrays are as large as the whole tree from the start.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import checks
from jboost.core.learner import Learner, State, Wrapper
from jboost.core.pytree import Number, model, static
from jboost.core.numerics import dtype_of, known
from jboost.core.sample import Sample
from jboost.learners.newton import Newton
from jboost.learners.tree import shares, splits

FADE = 0.99  # odds forget all but the last hundred samples of a region, so that they can turn
WINDOW = 500.0  # samples of a node's mean error: follows a learner that still improves
KEEN = 2.0  # and it is of the last half while they are few: the first are of no learner yet
EARLY = 20.0  # samples, before which a mean error is not one to clip by
RARE = 5.0  # mean errors; what is beyond counts as that much
REACH = 3.0  # standard deviations of the parent's error; a child corrects by no more
SMALLEST = 1e-15  # of a standard deviation: 1/σ² stays finite in float32

DEEPEST = 12  # 8,192 learners; a deeper tree is a mistake more often than a wish


class TreeState(NamedTuple):
    """Arrays by node: N = 2^(depth + 1) of them, of which the first N/2 may be split."""

    learners: State  # (N, …)
    mass: Array  # (N,)
    error: Array  # (N,)
    choice: Array  # (N/2,) which cut a node is split at, input · cuts + number; −1: it is a leaf
    threshold: Array  # (N/2,) where it is split: x > threshold goes right
    centre: Array  # (N/2, r) what is taken from its children's inputs, and
    scale: Array  # (N/2, r) what they are then multiplied by
    odds: Array  # (N/2,) for what lies below a node, in nats
    worth: Array  # (N, r + 1) the odds for each input of its learner, then for leaving any out
    search: splits.Search  # (N/2, …)


class _Look(NamedTuple):
    """The path of one input, from 0, above the root, to depth + 1."""

    nodes: Array
    active: Array  # whether the tree has grown that far
    inputs: Array  # (depth + 2, r + 1) what the learners of the path learn at, and
    taken: Array  # what they estimate at
    parts: Array  # (depth + 2, r) what each input adds there, were its share 1
    rows: State
    f: Array
    below: Array  # g_1 … g_(depth+1)
    estimate: Array  # g_0
    w: Array  # the shares w_0 … w_depth
    limit: Array  # of the corrections


@model
class PiecewiseLinear(Wrapper):
    """Regions of a binary tree over the inputs, split online where that helps, a learner in each.

    A node's learner corrects its parent, so that a new region starts as its parent and pays only
    for what is different in it. With z = (x − μ)/ς, standardised by the samples of the parent,

        f_1 = h_1(x, 1),    f_k = f_(k−1) + clip(h_k(s∘z, 1), ±3σ_(k−1))

    The estimate mixes them as context trees do, each node with its subtree by odds that are the
    faded gain, in nats, of the one over the other:

        g_k = f_k + w_k (g_(k+1) − f_k),    w_k = 1/(1 + exp(−l_k)),
        l_k ← 0.99 l_k + ½ ((d − f_k)² − (d − g_(k+1))²)/σ_k²

    so that a split that does not help, or no longer does, costs little. All nodes on the path of x
    learn, the deepest first, each what its parent and its subtree leave (backfitting):

        h_k learns d − f_(k−1) − (g_k − f_k)

    where g_k − f_k is by the learners below as they are after this sample. So the error of a node
    that is split is that of the estimate and no longer its own: a root that cannot follow d with
    an error of σ² would go on to add σ² r/n by the noise in its slopes, most of it in inputs that
    do not matter and that its children are not to look at. A subtree of a small share leaves nearly
    all of d, and as each learner meets what the one below did not take, they do not overshoot.

    Nor are all inputs of a learner taken whole. It learns at x and estimates at μ + t∘(x − μ), so
    that of a linear one with the slopes w each w_i is t_i w_i (the garrote). With its part
    c_i = w_i (x_i − μ_i), and e the error left by node and subtree, the odds of an input are what
    it gains, and so are those of leaving any out, which have the share v:

        t_i = 1 − v (1 − s_i),    s_i = σ(l_i),
        l_i ← l_i + ½ ((e + t_i c_i)² − (e − (1 − t_i) c_i)²)/σ_k²

    They are not faded, as a slope of noise costs the most by far in its first samples, but bounded,
    so that they can turn. Of r slopes whose noise adds σ² r/n those that matter remain, long before
    the root has the samples for all; and where all matter a little, v keeps them. (For learners
    that are not linear w is the gradient at what is taken.)

    Above the root is f_0 = h_0(0.03 x, 1), with which the tree is mixed like a node with its
    subtree: by the default ridge of 0.01 a line whose slopes are drawn to zero by as much as 11
    samples of unit power. It is better while there are about as many samples as inputs, where
    least squares passes through every sample, noise included.

    A leaf is split, for good, at the best of the quantiles of its own samples once the changes of
    slope and level there gain more than ``evidence`` nats beyond the logarithm of the number of
    places looked at (see :mod:`jboost.learners.tree.splits`); s, in [0.03, 1], is small for
    inputs whose slope did not change.

    Every region has a level of its own, so x needs no constant for that. A sample's mass is its
    weight, at most 1. With r inputs and C cuts a step costs O(depth) updates of the learner and
    O(r² C) for the search, and the state holds 2^depth (2r² + O(r² C)) numbers.

    On the first 8,192 samples of two real sets, scaled to [−1, 1], the mean squared error at depth
    5 is .079 on puma8nh (a linear learner with a constant: .136) and .0022 on mv (.041). A linear
    stream costs a little more than its learner alone. Splits are not taken back: after a change of
    the stream the regions learn anew, and only what lies below the leaves can be split.

    ``experiments/bench/nonlinear.py`` has what 29 inputs that do not matter add to the error of a
    tree that has only the three that do, on several kinds of streams; one stream may be far from
    the mean of its kind.

    Stability: that of the learner; what the tree adds is bounded by 3σ of the errors a level.

    Args:
      depth: how often a region may be split again, 1 to 12; at most 2^depth regions.
      learner: any learner whose estimate has a gradient. Its state starts afresh in each region.
      evidence: ≥ 0, in nats; a stream without anything to split is split at a leaf with a
        probability of a few times e^−evidence, as it is looked at after every sample.
      cuts: C ≥ 1, the candidates an input.
      grace: ≥ 1, how many samples place a region's candidates before evidence is counted.

    References: F. Willems, Y. Shtarkov, T. Tjalkens, The context-tree weighting method, 1995;
    L. Breiman, Better subset regression using the nonnegative garrote, 1995.

    >>> import jboost as jb, numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (1000, 2)).astype(np.float32)
    >>> d = np.abs(x[:, 1])
    >>> state, trace = jb.run(PiecewiseLinear(1), x, d)
    >>> int(state.choice[1]) // 7  # the input at which the root is split
    1
    >>> bool(np.mean((trace.prediction - d) ** 2) < 0.5 * jb.mse(Newton(), x, d))
    True
    """

    depth: int = static()
    learner: Learner = Newton()
    evidence: Number = 6.0
    cuts: int = static(default=7)
    grace: int = static(default=50)

    def __post_init__(self) -> None:
        depth = checks.whole("depth", self.depth, at_least=1)
        if depth > DEEPEST:
            raise ValueError(
                f"depth must be at most {DEEPEST}, as every level doubles the state; got {depth}"
            )
        advice = "a learner such as jb.Newton() or jb.SGD(0.1)"
        checks.instance("learner", self.learner, Learner, advice)
        evidence = checks.number("evidence", self.evidence, at_least=0)
        for name, value in (
            ("depth", depth),
            ("evidence", evidence),
            ("cuts", checks.whole("cuts", self.cuts, at_least=1)),
            ("grace", checks.whole("grace", self.grace, at_least=1)),
        ):
            object.__setattr__(self, name, value)

    @property
    def knows_leverage(self) -> bool:
        return False  # of many learners

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> TreeState:
        dtype = dtype_of(dtype)
        N = 2 ** (self.depth + 1)

        def make(key: Any) -> State:
            return self.learner.init(num_features + 1, dtype, key=key)

        keys = self._keys(key, jnp.arange(N, dtype=jnp.int32))
        search = splits.start(num_features, self.cuts, dtype)
        return TreeState(
            learners=jax.vmap(make, axis_size=N)(keys),
            mass=jnp.zeros(N, dtype),
            error=jnp.zeros(N, dtype),
            choice=jnp.full(N // 2, -1, jnp.int32),
            threshold=jnp.zeros(N // 2, dtype),
            centre=jnp.zeros((N // 2, num_features), dtype),
            scale=jnp.ones((N // 2, num_features), dtype),
            odds=jnp.zeros(N // 2, dtype),
            worth=jnp.full((N, num_features + 1), shares.DOUBT, dtype),
            search=jax.tree.map(lambda a: jnp.broadcast_to(a, (N // 2, *a.shape)), search),
        )

    def predict(self, state: TreeState, x: ArrayLike) -> Array:
        return self._look(state, x).estimate

    def learn(self, state: TreeState, sample: Sample) -> TreeState:
        told = sample.only_if(sample.weight > 0).replace(repeats=1)
        return sample.repeat(lambda state: self._learn_once(state, told), state, guard=False)

    def info(self, state: TreeState, sample: Sample) -> dict[str, Any]:
        """region: the number of the leaf that x is in; regions: how many leaves there are."""
        nodes, active = self._path(state, known(sample.x, state.mass.dtype))
        leaf = jnp.sum(active.astype(jnp.int32)) - 1
        return {"region": nodes[leaf], "regions": 1 + jnp.sum(state.choice >= 0, dtype=jnp.int32)}

    def _keys(self, key: Any, nodes: Array) -> Any:
        if key is None or not self.needs_key:
            return None
        return jax.vmap(jax.random.fold_in, (None, 0))(key, nodes)

    def _path(self, state: TreeState, x: Array) -> tuple[Array, Array]:
        """The nodes from 0 to a deepest one, and which of them the tree has grown to."""
        right = x[jnp.maximum(state.choice, 0) // self.cuts] > state.threshold
        node, grown = jnp.ones((), jnp.int32), jnp.ones((), bool)
        nodes, active = [jnp.zeros((), jnp.int32), node], [grown, grown]
        for _ in range(self.depth):
            grown = grown & (_row(state.choice, node) >= 0)
            node = 2 * node + _row(right, node).astype(jnp.int32)
            nodes.append(node)
            active.append(grown)
        return jnp.stack(nodes), jnp.stack(active)

    def _look(self, state: TreeState, x: Any) -> _Look:
        dtype = state.mass.dtype
        x = jnp.asarray(x, dtype)
        nodes, active = self._path(state, known(x, dtype))
        above = nodes[:-1]
        scaled = state.scale[above] * (x[None, :] - state.centre[above])
        scaled = jnp.concatenate([splits.FLOOR * x[None, :], scaled])
        mean = state.search.mean[1]
        middle = jnp.stack([splits.FLOOR * mean, mean, *[jnp.zeros_like(mean)] * self.depth])
        taken = middle + shares.taken(state.worth[nodes])[1] * (scaled - middle)
        level = jnp.ones((self.depth + 2, 1), dtype)
        inputs, taken = (jnp.concatenate([a, level], axis=1) for a in (scaled, taken))
        rows = jax.tree.map(lambda a: a[nodes], state.learners)
        h, slopes = jax.vmap(jax.value_and_grad(self.learner.predict, 1))(rows, taken)
        parts = slopes[:, :-1] * known(scaled - middle, dtype)
        limit = REACH * splits.SIGMA * state.error[above]
        correction = jnp.concatenate([h[1:2], jnp.clip(h[2:], -limit[1:], limit[1:])])
        f = jnp.cumsum(jnp.where(active[1:], correction, 0))
        f = jnp.concatenate([h[:1], f])
        w = jnp.where(active[1:], jax.nn.sigmoid(state.odds[above]), 0)
        below, estimate = [], f[-1]
        for k in reversed(range(self.depth + 1)):
            below.append(estimate)
            estimate = f[k] + w[k] * (estimate - f[k])
        below = jnp.stack(below[::-1])
        return _Look(nodes, active, inputs, taken, parts, rows, f, below, estimate, w, limit)

    def _learn_once(self, state: TreeState, sample: Sample) -> TreeState:
        x, d = sample.x, sample.d
        look = self._look(state, x)
        nodes, f = look.nodes, look.f
        m = jnp.where(look.active, jnp.minimum(sample.weight, 1), 0)
        learners = self._learners_after(state, look, sample)

        n, error = state.mass[nodes], state.error[nodes]
        e = d - f
        limit = jnp.where(n > EARLY, RARE * error, jnp.inf)
        share = m / jnp.maximum(jnp.minimum(n / KEEN + m, WINDOW), SMALLEST)
        size = jnp.minimum(jnp.abs(e), limit)

        unit = jnp.where(error > 0, 1 / jnp.maximum(splits.SIGMA * error, SMALLEST), 0)
        gain = shares.gain(e[:-1], d - look.below, unit[:-1])
        odds = state.odds[nodes[:-1]]
        odds = jnp.clip(odds + m[1:] * (gain - (1 - FADE) * odds), shares.LOW, shares.HIGH)

        worth = state.worth[nodes]
        without, with_it = shares.contrasts(worth, look.parts)
        left = jnp.concatenate([e[:1], d - look.below])[:, None]
        gain = shares.gain(left - without, left - with_it, unit[:, None])
        worth = jnp.clip(worth + m[:, None] * gain, shares.LOW, shares.HIGH)
        kept = state.worth  # a row at a time: a scatter takes longer than a small tree's step
        for k in range(self.depth + 2):
            kept = _put(kept, nodes[k], worth[k])

        state = state._replace(
            learners=learners,
            mass=_put_path(state.mass, nodes, n + m),
            error=_put_path(state.error, nodes, error + share * (size - error)),
            odds=_put_path(state.odds, nodes[:-1], odds),
            worth=kept,
        )
        return self._split(state, look, known(x, x.dtype), e * unit, m[0])

    def _learners_after(self, state: TreeState, look: _Look, sample: Sample) -> State:
        """Return the learners after those on the path have learned, the deepest first.

        ``under`` is g_k − f_k, what the subtree of a node adds to it, by the learners below as they
        are after this sample: of its error each leaves to the one above what it did not take.
        """
        d, keys = sample.d, self._keys(sample.key, look.nodes)
        learners, under = state.learners, jnp.zeros_like(look.estimate)
        for k in reversed(range(self.depth + 2)):
            row, x, on = (_at(a, k) for a in (look.rows, look.inputs, look.active))
            left = d - look.f[k - 1] if k > 1 else d  # the first two are estimates by themselves
            told = sample.replace(key=None if keys is None else keys[k]).only_if(on)
            told = told.with_input(x, self.takes_missing)
            row = self.learner.learn(row, told.with_target(left - under if k else left))
            learners = _put(learners, look.nodes[k], row)
            if k > 1:
                limit = look.limit[k - 1]
                h = jnp.clip(self.learner.predict(row, look.taken[k]), -limit, limit)
                under = jnp.where(on, look.w[k - 1] * (h + under), 0)
        return learners

    def _split(self, state: TreeState, look: _Look, x: Array, e: Array, mass: Array) -> TreeState:
        """One sample's evidence at the leaf, which is split if that is enough."""
        leaf = jnp.sum(look.active.astype(jnp.int32)) - 1
        may = (leaf <= self.depth) & (mass > 0)
        place = jnp.minimum(leaf, self.depth)
        node = _row(look.nodes, place)
        r = x.shape[0]
        enough = jnp.asarray(self.evidence, x.dtype) + math.log(r * self.cuts)

        def seek(search: splits.Search) -> tuple[Any, ...]:
            search = splits.add(search, x, _row(e, place), mass, self.grace)
            gain, cut, centre, scale = splits.best(search)
            return search, gain > enough, cut, search.cuts.reshape(-1)[cut], centre, scale

        def rest(search: splits.Search) -> tuple[Any, ...]:
            none, cut, zeros = jnp.zeros((), bool), jnp.zeros((), jnp.int32), jnp.zeros_like(x)
            return search, none, cut, jnp.zeros_like(mass), zeros, zeros

        old = _row(state.search, node)
        search, do, choice, threshold, centre, scale = jax.lax.cond(may, seek, rest, old)
        here = do & (jnp.arange(state.choice.shape[0], dtype=jnp.int32) == node)
        return state._replace(
            choice=jnp.where(here, choice, state.choice),
            threshold=jnp.where(here, threshold, state.threshold),
            centre=jnp.where(here[:, None], centre[None, :], state.centre),
            scale=jnp.where(here[:, None], scale[None, :], state.scale),
            search=_put(state.search, node, search),
        )


def _row(tree: Any, i: Array) -> Any:
    return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), tree)


def _at(tree: Any, k: int) -> Any:
    return jax.tree.map(lambda a: a[k], tree)


def _put(tree: Any, i: Array, row: Any) -> Any:
    return jax.tree.map(lambda a, b: jax.lax.dynamic_update_index_in_dim(a, b, i, 0), tree, row)


def _put_path(values: Array, nodes: Array, new: Array) -> Array:
    """``values`` with those of a path's nodes replaced, one a level: a choice, not a scatter."""
    levels = [new[:1], *(jnp.broadcast_to(new[k], (2 ** (k - 1),)) for k in range(1, len(new)))]
    on = [nodes[:1], *(jnp.broadcast_to(nodes[k], (2 ** (k - 1),)) for k in range(1, len(new)))]
    here = jnp.arange(values.shape[0], dtype=jnp.int32) == jnp.concatenate(on)
    return jnp.where(here, jnp.concatenate(levels), values)
