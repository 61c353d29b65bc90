"""Any differentiable model, trained by recursive least squares on its linearisation."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike, DTypeLike

from jboost.core import checks
from jboost.core.learner import Learner, State
from jboost.core.pytree import model
from jboost.core.network import Network
from jboost.core.numerics import dtype_of, known, usable
from jboost.core.products import dot
from jboost.core.sample import Sample
from jboost.learners.gradient import start_key
from jboost.learners.networks import Perceptron
from jboost.learners.newton import Newton


class GaussNewtonState(NamedTuple):
    """The least squares of the parameters; its w is all of them, in one row."""

    newton: State


@model
class GaussNewton(Learner):
    """Newton's method on a network: at every sample f is replaced by its tangent at θ.

        J = ∂f/∂θ at x,    θ, P ← Newton's update for the input J and the target d − f(x) + Jᵀθ

    For a linear f this is :class:`jboost.Newton`; in general it is the extended Kalman filter. It
    costs O(p²) operations a sample, p the number of parameters.

    On the first 8,192 rows of the paper's sets, raw, inside ``Scale`` and ``ScaleTarget``, with
    the defaults (``experiments/bench/nonlinear.py``, mean over four keys), then 300 random features
    under Newton (ℓ = 5), then a line: kin8nm .026 .039 .082, puma8nh .076 .085 .136, compactiv
    .0051 .0115 .0117, california .039 .058 .073, protein .221 .218 .244, mv .0019 .0018 .041, ypmsd
    .056 .076 .058, onp .0009 for all. A start in units that still move costs: on the Duffing map it
    has .035 behind ``Scale`` and .005 without.

    S. Singhal, L. Wu, Training multilayer perceptrons with the extended Kalman algorithm, NIPS
    1988.

    Args:
      network: a :class:`jboost.networks.Perceptron`, or any other network.
      newton: the least squares, of which ``forgetting`` just below 1 also unlearns the tangents of
        long ago, and ``ridge`` ties the parameters to their start.

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model = jb.GaussNewton(jb.networks.Perceptron(8))
    >>> bool(jb.mse(model, xs, ds, jax.random.key(0)) < 0.3 * jb.mse(jb.Newton(0.99), xs, ds))
    True
    """

    network: Network = Perceptron(parameters=150)
    newton: Newton = Newton(forgetting=0.9995, ridge=1.0)

    def __post_init__(self) -> None:
        wanted = "a network such as jboost.networks.Perceptron(20)"
        checks.instance("network", self.network, Network, wanted)
        checks.instance("newton", self.newton, Newton, "a Newton(forgetting=0.9995, ridge=1.0)")

    @property
    def needs_key(self) -> bool:
        return self.network.needs_key

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> GaussNewtonState:
        dtype = dtype_of(dtype)
        params = self.network.init(num_features, dtype, start_key(self.network, key))
        theta, _ = ravel_pytree(params)
        return GaussNewtonState(self.newton.init(len(theta), dtype)._replace(w=theta))

    def predict(self, state: GaussNewtonState, x: ArrayLike) -> Array:
        theta = state.newton.w
        y = self._f(theta, known(x, theta.dtype))
        return jnp.where(usable(y), y, jnp.zeros((), y.dtype))

    def learn(self, state: GaussNewtonState, sample: Sample) -> GaussNewtonState:
        x, d, told = sample.x, sample.d, sample.replace(repeats=1)

        def once(state: GaussNewtonState) -> GaussNewtonState:
            theta = state.newton.w
            y, J = jax.value_and_grad(self._f)(theta, x)
            tangent = told.with_input(J).with_target(d - y + dot(J, theta))
            return GaussNewtonState(self.newton.learn(state.newton, tangent))

        return sample.repeat(once, state, guard=False)

    @property
    def knows_leverage(self) -> bool:
        return True

    def leverage(self, state: GaussNewtonState, x: ArrayLike) -> Array:
        """JᵀP J, J = ∂f/∂θ at x."""
        theta = state.newton.w
        J = jax.grad(self._f)(theta, known(x, theta.dtype))
        return self.newton.leverage(state.newton, J)

    def _f(self, theta: Array, x: Array) -> Array:
        """f with its parameters in one row."""
        like = jax.eval_shape(lambda: self.network.init(x.shape[0], theta.dtype, jax.random.key(0)))
        leaves, structure = jax.tree.flatten(like)
        ends = [0]
        for leaf in leaves:
            ends.append(ends[-1] + leaf.size)
        parts = [
            theta[start:end].reshape(leaf.shape)
            for start, end, leaf in zip(ends[:-1], ends[1:], leaves, strict=True)
        ]
        return self.network.apply(structure.unflatten(parts), x)
