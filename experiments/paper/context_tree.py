"""A context tree over a fixed partition, with a linear learner in each node, and its regret bound.

The inputs lie in [−1, 1]^r. A node halves its box along one input, the inputs in turn. All nodes
of the path of x estimate d, each by forward least squares with a level, clipped to [−A, A]. The
estimates are mixed over all prunings of the tree at once (Willems, Shtarkov, Tjalkens 1995; Kozat,
Singer, Zeitler 2007), where L_n is the squared loss of node n so far and η = 1/(8A²):

    P_n = exp(−η L_n) in a leaf of the full tree,  else ½ exp(−η L_n) + ½ P_left P_right

For |d| ≤ A the squared loss is η-exp-concave, and a pruning with Γ nodes above the full depth and
leaves n, on whose samples X_n, d_n least squares with ridge v loses F_n, bounds the total loss:

    L ≤ Σ_n [F_n + A² ln det(I + X_nᵀX_n/v)] + 8 A² ln(2) Γ

(The bracket is Vovk's bound of the forward algorithm.) :func:`regret_bound` is its least value.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray

import jboost as jb
from jboost.core import DType, Key, Sample
from jboost.core.learner import State

Floats = NDArray[np.float64]


class ContextState(NamedTuple):
    """Arrays with a row for each node; 1 is the root, 2i and 2i + 1 are the children of i."""

    learners: State  # the states of the linear learners
    loss: Array  # L_n, 0 at the start
    evidence: Array  # ln P_n, 0 at the start


@jb.model
class ContextTree(jb.Learner):
    """A mixture of all prunings of a fixed tree of ``depth``, with ``learner`` in each node.

    With ``hard`` the leaf of the full tree alone estimates and learns: one of N linear filters, as
    in the paper's commented-out figure. ``bound`` is A.
    """

    learner: jb.Learner
    bound: float
    depth: int = jb.static(default=3)
    hard: bool = jb.static(default=False)

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ContextState:
        del key
        N = 2 ** (self.depth + 1)
        one = self.learner.init(num_features + 1, dtype)
        stacked = jax.tree.map(lambda a: jnp.broadcast_to(a, (N, *a.shape)), one)
        zeros = jnp.zeros(N, jnp.result_type(float) if dtype is None else dtype)
        return ContextState(stacked, zeros, zeros)

    def predict(self, state: ContextState, x: ArrayLike) -> Array:
        nodes, z = self._path(jnp.asarray(x, state.loss.dtype))
        return jnp.sum(self._shares(state, nodes) * self._estimates(state, nodes, z))

    def learn(self, state: ContextState, sample: Sample) -> ContextState:
        return sample.repeat(lambda state: self._learn_once(state, sample), state)

    def _learn_once(self, state: ContextState, sample: Sample) -> ContextState:
        nodes, z = self._path(sample.x)
        y = self._estimates(state, nodes, z)
        learned = nodes[-1:] if self.hard else nodes
        rows = jax.tree.map(lambda a: a[learned], state.learners)
        rows = jax.vmap(lambda row: self.learner.update(row, z, sample.d))(rows)
        learners = jax.tree.map(lambda a, new: a.at[learned].set(new), state.learners, rows)
        loss = state.loss.at[nodes].add(jnp.square(sample.d - y))
        evidence = state.evidence
        for k in reversed(range(self.depth + 1)):
            n = nodes[k]
            own = -self._rate * loss[n]
            if k < self.depth:
                below = evidence[2 * n] + evidence[2 * n + 1]
                own = jnp.logaddexp(own, below) - jnp.log(2.0).astype(own.dtype)
            evidence = evidence.at[n].set(own)
        return ContextState(learners, loss, evidence)

    @property
    def _rate(self) -> Array:
        return 1 / (8 * jnp.square(jnp.asarray(self.bound)))

    def _path(self, x: Array) -> tuple[Array, Array]:
        """The nodes from the root to the leaf of x, and x with a level."""
        node, low, high = jnp.ones((), jnp.int32), jnp.full_like(x, -1), jnp.full_like(x, 1)
        nodes = [node]
        for k in range(self.depth):
            i = k % x.shape[0]
            middle = (low[i] + high[i]) / 2
            right = x[i] > middle
            node = 2 * node + right.astype(jnp.int32)
            low = low.at[i].set(jnp.where(right, middle, low[i]))
            high = high.at[i].set(jnp.where(right, high[i], middle))
            nodes.append(node)
        return jnp.stack(nodes), jnp.concatenate([x, jnp.ones(1, x.dtype)])

    def _estimates(self, state: ContextState, nodes: Array, z: Array) -> Array:
        rows = jax.tree.map(lambda a: a[nodes], state.learners)
        y = jax.vmap(lambda row: self.learner.predict(row, z))(rows)
        A = jnp.asarray(self.bound, y.dtype)
        return jnp.clip(y, -A, A)

    def _shares(self, state: ContextState, nodes: Array) -> Array:
        """How much each node of the path counts: how probable it is as the leaf of a pruning."""
        if self.hard:
            return jnp.zeros(self.depth + 1, state.loss.dtype).at[-1].set(1)
        half = jnp.log(2.0).astype(state.loss.dtype)
        stop = jnp.exp(-self._rate * state.loss[nodes] - half - state.evidence[nodes])
        stop = jnp.minimum(stop.astype(state.loss.dtype), 1).at[-1].set(1)
        return stop * jnp.concatenate([jnp.ones(1, stop.dtype), jnp.cumprod(1 - stop[:-1])])


def regret_bound(
    xs: Floats, ds: Floats, depth: int, ridge: float, A: float
) -> dict[str, float | int]:
    """The least right side of the bound over all prunings, with the leaves of that pruning.

    ``best_loss`` is the loss of the least squares of these leaves, in hindsight.
    """
    T, r = xs.shape
    z, leaf = np.c_[xs, np.ones(T)], np.ones(T, int)
    low, high = -np.ones((T, r)), np.ones((T, r))
    paths = [leaf]
    for k in range(depth):
        i = k % r
        middle = (low[:, i] + high[:, i]) / 2
        right = xs[:, i] > middle
        low[:, i], high[:, i] = (
            np.where(right, middle, low[:, i]),
            np.where(right, high[:, i], middle),
        )
        leaf = 2 * leaf + right
        paths.append(leaf)
    cost = np.zeros(2 ** (depth + 1))
    fit, leaves = np.zeros_like(cost), np.ones_like(cost)
    unit = 8 * A**2 * np.log(2)
    for k in reversed(range(depth + 1)):
        for n in range(2**k, 2 ** (k + 1)):
            at = paths[k] == n
            X, d = z[at], ds[at]
            R = X.T @ X + ridge * np.eye(r + 1)
            w = np.linalg.solve(R, X.T @ d)
            loss = float(np.square(d - X @ w).sum() + ridge * w @ w)
            alone = loss + A**2 * float(np.linalg.slogdet(R / ridge)[1])
            fit[n], cost[n] = loss, alone
            if k < depth:
                cost[n] += unit
                split = unit + cost[2 * n] + cost[2 * n + 1]
                if split < cost[n]:
                    cost[n], fit[n] = split, fit[2 * n] + fit[2 * n + 1]
                    leaves[n] = leaves[2 * n] + leaves[2 * n + 1]
    return {"bound": float(cost[1]), "best_loss": float(fit[1]), "leaves": int(leaves[1])}
