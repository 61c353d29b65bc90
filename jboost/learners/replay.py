"""Replay: a network that learns from the latest rows again and again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jboost.core import (
    DType,
    Key,
    Learner,
    Network,
    Number,
    Sample,
    checks,
    draws,
    model,
    places,
    static,
)
from jboost.core.learner import Params, required_key
from jboost.core.numerics import dtype_of, known, usable
from jboost.learners.networks import Rectified, unravelled

B1, B2, EPSILON = 0.9, 0.999, 1e-8  # Adam's, as its authors chose them
HALVING = 2000.0  # steps: the step size falls as 1/√(1 + t/2000)
FARTHEST = 3.0  # errors larger than this count as this: targets have about unit size
AVERAGED = 100.0  # how many of the latest parameters are averaged; early on t/10 of them
HEAVIEST = 10.0  # the most that a row may weigh


class ReplayState(NamedTuple):
    """The state of a network that learns by replay. Rows, moments and counts start at 0."""

    theta: Array  # all parameters in one array, (p,), as the network starts them
    average: Array  # of the latest parameters, (p,), as the network starts them
    m: Array  # the running mean of gradients, (p,)
    v: Array  # the running mean of squared gradients, (p,)
    x: Array  # the latest inputs, (rows, r)
    d: Array  # their targets, (rows,)
    weight: Array  # their weights, (rows,)
    place: Array  # where the next row is kept
    filled: Array  # how many rows are kept
    steps: Array  # t, how many steps were taken
    words: Array  # of the key by which rows are drawn


@model
class Replay(Learner):
    """A network under Adam, which at each sample learns the newest row and some of the latest ones.

        g = mean of w e ∂f/∂θ over the newest row and n − 1 rows that are drawn from a ring
        θ ← θ − μ_t (Adam's direction for g + κ θ),    μ_t = μ/√(1 + t/2000)

    Here e = f(x) − d, within ±3. This is reuse of data in the paper's sense: each row is learned
    many times, but mixed with others, so that it is not learned by heart. The prediction is the
    mean of two: by θ, and by the average of the latest θ, which is calmer. Give it inputs and
    targets of about unit size: ``pipeline(Scale(), ScaleTarget(Replay()))``.

    Stability: Adam's steps are bounded by μ_t in each parameter, and the decay bounds θ. A step
    after which a parameter would not be finite is not taken. The weight of a sample counts up to
    10.

    Args:
      network: a :class:`jboost.networks.Rectified`, or any other network.
      rows: how many of the latest rows may be drawn, at least 1.
      batch: n ≥ 1, rows of a step.
      step_size: μ > 0.
      decay: κ ≥ 0.

    >>> import jax, numpy as np, jboost as jb
    >>> xs = np.random.default_rng(0).normal(size=(2000, 2)).astype(np.float32)
    >>> ds = np.sin(2 * xs[:, 0]) * xs[:, 1]
    >>> model = jb.Replay(jb.networks.Rectified((16,)))
    >>> bool(jb.mse(model, xs, ds, jax.random.key(0)) < 0.5 * jb.mse(jb.Newton(), xs, ds))
    True

    References: L.-J. Lin, Self-improving reactive agents, Machine Learning 1992; D. Kingma, J. Ba,
    Adam, ICLR 2015.
    """

    network: Network = Rectified()
    rows: int = static(default=2048)
    batch: int = static(default=32)
    step_size: Number = 0.01
    decay: Number = 0.1

    def __post_init__(self) -> None:
        network = checks.of_kind(Network, "a network such as jboost.networks.Rectified((64, 32))")
        count = checks.a_whole_number(at_least=1)
        checks.fields(self, network=network, rows=count, batch=count)
        checks.fields(self, step_size=checks.a_number(above=0), decay=checks.a_number(at_least=0))

    @property
    def needs_key(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ReplayState:
        dtype, key = dtype_of(dtype), required_key(key)
        theta, _ = ravel_pytree(self.network.init(num_features, dtype, key))
        zeros, rows, zero = jnp.zeros_like(theta), jnp.zeros(self.rows, dtype), jnp.int32(0)
        x = jnp.zeros((self.rows, num_features), dtype)
        words = jax.random.key_data(key).ravel()[:2]
        return ReplayState(theta, theta, zeros, zeros, x, rows, rows, zero, zero, zero, words)

    def predict(self, state: ReplayState, x: ArrayLike) -> Array:
        x, both = known(x, state.theta.dtype), jnp.stack([state.theta, state.average])
        f = lambda theta: self.network.apply(self._params(theta, len(x)), x)  # noqa: E731
        y = jnp.mean(jax.vmap(f)(both))
        return known(y, y.dtype)

    def learn(self, state: ReplayState, sample: Sample) -> ReplayState:
        dtype, counts = state.theta.dtype, sample.counts
        weight = jnp.minimum(sample.weight * jnp.asarray(sample.repeats, dtype), HEAVIEST)
        once = counts.astype(jnp.int32)
        ring, row = (state.x, state.d, state.weight), (sample.x, sample.d, weight)
        x, d, weights = places.put(ring, state.place, row, counts)
        steps, filled = state.steps + once, jnp.minimum(state.filled + once, self.rows)
        drawn = self._drawn(state.words, steps, filled)
        batch = (
            jnp.concatenate([sample.x[None], places.at(x, drawn)]),
            jnp.concatenate([sample.d[None], places.at(d, drawn)]),
            jnp.concatenate([weight[None], places.at(weights, drawn)]),
        )
        before = state.theta, state.average, state.m, state.v
        after = self._step(before, *batch, jnp.maximum(steps, 1).astype(dtype))
        learned = counts & jnp.all(usable(jnp.stack(after)))
        theta, average, m, v = (
            jnp.where(learned, new, old) for new, old in zip(after, before, strict=True)
        )
        place = jnp.where(state.place + once < self.rows, state.place + once, 0)
        ring = x, d, weights, place, filled, steps
        return ReplayState(theta, average, m, v, *ring, state.words)

    def _step(
        self, before: tuple[Array, Array, Array, Array], x: Array, d: Array, weight: Array, t: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Return θ, its average and Adam's two means after the t-th step."""
        theta, average, m, v = before
        y, gradients = self.network.apply_to_rows(self._params(theta, x.shape[1]), x)
        g = gradients(weight * jnp.clip(y - d, -FARTHEST, FARTHEST) / self.batch)
        g = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(g)])
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
        direction = (m / (1 - B1**t)) / (jnp.sqrt(v / (1 - B2**t)) + EPSILON)
        mu = jnp.asarray(self.step_size, theta.dtype) / jnp.sqrt(1 + t / HALVING)
        theta = theta - mu * (direction + jnp.asarray(self.decay, theta.dtype) * theta)
        share = jnp.maximum(1 / AVERAGED, 10 / (10 + t))
        return theta, average + share * (theta - average), m, v

    def _drawn(self, words: Array, steps: Array, filled: Array) -> Array:
        """Return the places of the rows that are learned beside the newest."""
        t = steps.astype(jnp.uint32), jnp.uint32(0)
        u = draws.uniform(jax.random.wrap_key_data(words), t, self.batch - 1, jnp.float32)
        at = (u * filled.astype(u.dtype)).astype(jnp.int32)
        return jnp.clip(at, 0, jnp.maximum(filled - 1, 0))

    def _params(self, theta: Array, num_features: int) -> Params:
        return unravelled(self.network, theta, num_features)
