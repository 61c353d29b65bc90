"""A learner whose estimate is piecewise linear: a tree of regions with a learner in each."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.draws import keys as keys_for
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of, known
from jboost.core.rows import row_of, with_row
from jboost.learners.newton import Newton
from jboost.learners.tree import shares, splits
from jboost.learners.tree.nodes import Path, TreeState, follow, nodes_of, with_path

DEEPEST = 12  # 8,192 learners; a deeper tree is more likely a mistake than a wish
FADE = 0.99  # a subtree's odds remember the last hundred samples of a region, so that they can turn

# The mean error of a node is over its last half, as its first samples tell of a learner that knew
# nothing yet, and later over WINDOW samples, as the learner still improves.
HALF, WINDOW = 2.0, 500.0
# An error beyond LARGEST_ERROR mean errors counts as that much, from the EARLIEST-th sample on.
LARGEST_ERROR, EARLIEST = 5.0, 20.0
SMALLEST = 1e-15  # of a standard deviation: 1/σ² stays finite in float32


@model
class PiecewiseLinear(Wrapper):
    """A binary tree of regions that is grown online, with a learner in each region.

    **Estimate.** The learner of a node corrects the estimate of its parent, so that a new region
    starts as its parent. With z = (x − μ)/ς, standardised by the samples of the parent, and σ, the
    deviation of a node's error (√(π/2) times its mean absolute error),

        f_1 = h_1(x, 1),    f_k = f_(k−1) + clip(h_k(s∘z, 1), ±3σ_(k−1))

    As in context trees, each node is mixed with its subtree by odds l, the fading sum of what the
    subtree gained over the node, in nats. So a split that does not help costs little:

        g_k = f_k + w_k (g_(k+1) − f_k),    w_k = 1/(1 + exp(−l_k)),
        l_k ← 0.99 l_k + ½ ((d − f_k)² − (d − g_(k+1))²)/σ_k²

    **Learning.** All nodes on the path of x learn, the deepest first. Each learns what its parent
    and its subtree leave, d − f_(k−1) − (g_k − f_k), where the learners below have learned the
    sample already (backfitting). With its own error σ² instead, a node that is split would add
    σ² r/n to the estimate by the noise in its slopes.

    **Inputs that do not matter.** A learner learns at x and estimates at μ + t∘(x − μ), which
    replaces a slope w_i by t_i w_i (the garrote; w may be a gradient). Let c_i = w_i (x_i − μ_i) be
    what input i adds, and e the error that node and subtree leave. The odds of an input sum what it
    gains, and v is the share, learned in the same way, of leaving inputs out at all. These odds do
    not fade, because a slope that is noise costs by far the most in its first samples:

        t_i = 1 − v (1 − s_i),    s_i = σ(l_i),
        l_i ← l_i + ½ ((e + t_i c_i)² − (e − (1 − t_i) c_i)²)/σ_k²

    **The first samples.** Above the root stands f_0 = h_0(0.03 x, 1), mixed with the tree as a node
    is with its subtree. With the default ridge its slopes are drawn to zero as if by 11 samples of
    unit power, which is better while there are about as many samples as inputs.

    **Splits.** A leaf is split, for good, at one of the quantiles of its samples: as soon as the
    changes of slope and level there gain more than ``evidence`` nats beyond the logarithm of the
    number of candidates (see :mod:`jboost.learners.tree.splits`). s is in [0.03, 1], and small for
    an input whose slope did not change. After a change of the stream the regions learn anew.

    Every region has a level, so x needs no constant. A step costs O(depth) updates of the learner
    and O(r² C) operations for the search; the state holds 2^depth (2r² + O(r² C)) numbers.
    Stability: that of the learner; a level adds at most 3σ (``experiments/bench/nonlinear.py``).

    Args:
      depth: how often a region may be split again, 1 to 12; there are at most 2^depth regions.
      learner: any learner whose estimate has a gradient. Each region starts a new one.
      evidence: in nats, at least 0. If there is nothing to split, a leaf is split all the same with
        a probability of a few times e^−evidence, as it is tested after every sample.
      cuts: C ≥ 1, the number of candidate cuts of an input.
      grace: how many samples of a region, at least 1, place its candidates before evidence counts.

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
        whole, example = checks.a_whole_number(at_least=1), "jb.Newton() or jb.SGD(0.1)"
        checks.fields(self, depth=whole, learner=partial(instance, example=example))
        checks.fields(self, evidence=checks.a_number(at_least=0), cuts=whole, grace=whole)
        if self.depth > DEEPEST:
            reason = f"at most {DEEPEST}, as every level doubles the state"
            raise ValueError(f"depth must be {reason}; got {self.depth}")

    @property
    def knows_leverage(self) -> bool:
        return False  # it is that of one learner

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> TreeState:
        dtype = dtype_of(dtype)
        N = 2 ** (self.depth + 1)
        start = partial(self.learner.init, num_features + 1, dtype)
        keys = self._keys(key, jnp.arange(N, dtype=jnp.int32))
        search = splits.start(num_features, self.cuts, dtype)
        return TreeState(
            learners=jax.vmap(lambda key: start(key=key), axis_size=N)(keys),
            mass=jnp.zeros(N, dtype),
            error=jnp.zeros(N, dtype),
            choice=jnp.full(N // 2, -1, jnp.int32),
            threshold=jnp.zeros(N // 2, dtype),
            centre=jnp.zeros((N // 2, num_features), dtype),
            scale=jnp.ones((N // 2, num_features), dtype),
            subtree_odds=jnp.zeros(N // 2, dtype),
            input_odds=jnp.full((N, num_features + 1), shares.START, dtype),
            search=jax.tree.map(lambda a: jnp.broadcast_to(a, (N // 2, *a.shape)), search),
        )

    def predict(self, state: TreeState, x: ArrayLike) -> Array:
        return follow(state, self.learner, jnp.asarray(x, state.mass.dtype)).estimate

    def learn(self, state: TreeState, sample: Sample) -> TreeState:
        once = sample.only_if(sample.weight > 0).replace(repeats=1)
        return sample.repeat(lambda state: self._learn_once(state, once), state, guard=False)

    def info(self, state: TreeState, sample: Sample) -> dict[str, Array]:
        """Report region, the number of the leaf that x is in, and regions, the number of leaves."""
        nodes, grown = nodes_of(state, known(sample.raw, state.mass.dtype))
        leaf = jnp.sum(grown.astype(jnp.int32)) - 1
        return {"region": nodes[leaf], "regions": 1 + jnp.sum(state.choice >= 0, dtype=jnp.int32)}

    def _keys(self, key: Key, nodes: Array) -> Array | None:
        return keys_for(key, nodes) if self.needs_key else None

    def _learn_once(self, state: TreeState, sample: Sample) -> TreeState:
        x, d = sample.raw, sample.d
        path = follow(state, self.learner, x)
        nodes = path.nodes
        m = jnp.where(path.grown, jnp.minimum(sample.weight, 1), 0)
        learners = self._learners_after(state, path, sample)

        n, error = state.mass[nodes], state.error[nodes]
        e = d - path.f
        limit = jnp.where(n > EARLIEST, LARGEST_ERROR * error, jnp.inf)
        share = m / jnp.maximum(jnp.minimum(n / HALF + m, WINDOW), SMALLEST)
        size = jnp.minimum(jnp.abs(e), limit)

        unit = jnp.where(error > 0, 1 / jnp.maximum(splits.SIGMA * error, SMALLEST), 0)
        gain = shares.gain(e[:-1], d - path.g, unit[:-1])
        odds = state.subtree_odds[nodes[:-1]]
        odds = shares.bounded(odds + m[1:] * (gain - (1 - FADE) * odds))

        input_odds = state.input_odds[nodes]
        left = jnp.concatenate([e[:1], d - path.g])[:, None]
        gain = shares.input_gains(input_odds, path.effects, left, unit[:, None])
        input_odds = shares.bounded(input_odds + m[:, None] * gain)
        all_input_odds = state.input_odds
        for k in range(self.depth + 2):  # a scatter takes longer than a whole step of a small tree
            all_input_odds = with_row(all_input_odds, nodes[k], input_odds[k])

        state = state._replace(
            learners=learners,
            mass=with_path(state.mass, nodes, n + m),
            error=with_path(state.error, nodes, error + share * (size - error)),
            subtree_odds=with_path(state.subtree_odds, nodes[:-1], odds),
            input_odds=all_input_odds,
        )
        return self._split(state, path, known(x, x.dtype), e * unit, m[0])

    def _learners_after(self, state: TreeState, path: Path, sample: Sample) -> State:
        """Return the learners after those on the path have learned, the deepest first."""
        d, keys = sample.d, self._keys(sample.key, path.nodes)
        # g_k − f_k, what the subtree of a node adds to it by its learners after this sample.
        learners, added = state.learners, jnp.zeros_like(path.estimate)
        for k in reversed(range(self.depth + 2)):
            learner, x, grown = row_of((path.learners, path.inputs, path.grown), k)
            left = d - path.f[k - 1] if k > 1 else d  # nodes 0 and 1 correct no other estimate
            share = sample.replace(key=None if keys is None else keys[k]).only_if(grown)
            share = share.with_input(x, self.takes_missing)
            learner = self.learner.learn(learner, share.with_target(left - added if k else left))
            learners = with_row(learners, path.nodes[k], learner)
            if k > 1:
                limit = path.limit[k - 1]
                h = jnp.clip(self.learner.predict(learner, path.reduced[k]), -limit, limit)
                added = jnp.where(grown, path.w[k - 1] * (h + added), 0)
        return learners

    def _split(self, state: TreeState, path: Path, x: Array, e: Array, mass: Array) -> TreeState:
        """Return the state with the evidence of e at the leaf of x, split if that suffices."""
        level = jnp.sum(path.grown.astype(jnp.int32)) - 1
        may_split = (level <= self.depth) & (mass > 0)
        level = jnp.minimum(level, self.depth)
        node = row_of(path.nodes, level)
        enough = jnp.asarray(self.evidence, x.dtype) + math.log(x.shape[0] * self.cuts)

        def look(search: splits.Search) -> tuple[splits.Search, splits.Cut]:
            search = splits.add(search, x, row_of(e, level), mass, self.grace)
            return search, splits.best(search)

        evidence, no_cut = row_of(state.search, node), splits.no_cut(x)
        search, cut = jax.lax.cond(may_split, look, lambda search: (search, no_cut), evidence)
        is_node = jnp.arange(state.choice.shape[0], dtype=jnp.int32) == node
        splits_here = (cut.evidence > enough) & is_node
        return state._replace(
            choice=jnp.where(splits_here, cut.number, state.choice),
            threshold=jnp.where(splits_here, cut.threshold, state.threshold),
            centre=jnp.where(splits_here[:, None], cut.centre[None, :], state.centre),
            scale=jnp.where(splits_here[:, None], cut.scale[None, :], state.scale),
            search=with_row(state.search, node, search),
        )
