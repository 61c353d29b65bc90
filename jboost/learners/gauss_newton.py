"""Any differentiable model, trained by recursive least squares on its linearisation."""

import itertools
from typing import NamedTuple

import jax
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Network, Sample, checks, model
from jboost.core.learner import required_key
from jboost.core.numerics import dtype_of, known
from jboost.core.products import dot
from jboost.learners.networks import Perceptron
from jboost.learners.newton import Newton, NewtonState


class GaussNewtonState(NamedTuple):
    """The state of a network that least squares trains."""

    newton: NewtonState  # as Newton starts, but w holds all parameters θ as the network starts them


@model
class GaussNewton(Learner):
    """Newton's method on a network: at every sample f is replaced by its tangent at θ.

        J = ∂f/∂θ at x,    θ, P ← Newton's update for the input J and the target d − f(x) + Jᵀθ

    For a linear f this is :class:`jboost.Newton`; in general it is the extended Kalman filter. It
    costs O(p²) operations a sample, p the number of parameters.

    It is measured in ``experiments/bench/nonlinear.py``. Inputs of about unit size are better left
    without :class:`jboost.Scale`, whose units still move in the first samples.

    S. Singhal, L. Wu, Training multilayer perceptrons with the extended Kalman algorithm, 1988.

    Args:
      network: a :class:`jboost.networks.Perceptron`, or any other network.
      newton: the least squares. A ``forgetting`` just below 1 also forgets the tangents of long
        ago; ``ridge`` ties the parameters to their start.

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model = jb.GaussNewton(jb.networks.Perceptron(8))
    >>> bool(jb.mse(model, xs, ds, jax.random.key(0)) < 0.3 * jb.mse(jb.Newton(0.99), xs, ds))
    True
    """

    network: Network = Perceptron(parameters=150)
    newton: Newton = Newton(forgetting=0.9995, ridge=1.0)

    def __post_init__(self) -> None:
        network = checks.of_kind(Network, "a network such as jboost.networks.Perceptron(20)")
        newton = checks.of_kind(Newton, "a Newton(forgetting=0.9995, ridge=1.0)")
        checks.fields(self, network=network, newton=newton)

    @property
    def needs_key(self) -> bool:
        return self.network.needs_key

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> GaussNewtonState:
        dtype = dtype_of(dtype)
        key = required_key(key) if self.needs_key else None
        theta, _ = ravel_pytree(self.network.init(num_features, dtype, key))
        return GaussNewtonState(self.newton.init(len(theta), dtype)._replace(w=theta))

    def predict(self, state: GaussNewtonState, x: ArrayLike) -> Array:
        theta = state.newton.w
        return known(self._f(theta, known(x, theta.dtype)), theta.dtype)

    def learn(self, state: GaussNewtonState, sample: Sample) -> GaussNewtonState:
        x, d, once_only = sample.x, sample.d, sample.replace(repeats=1)

        def once(state: GaussNewtonState) -> GaussNewtonState:
            theta = state.newton.w
            y, J = jax.value_and_grad(self._f)(theta, x)
            tangent = once_only.with_input(J).with_target(d - y + dot(J, theta))
            return GaussNewtonState(self.newton.learn(state.newton, tangent))

        return sample.repeat(once, state, guard=False)

    @property
    def knows_leverage(self) -> bool:
        return True

    def leverage(self, state: GaussNewtonState, x: ArrayLike) -> Array:
        """Return JᵀP J with J = ∂f/∂θ at x."""
        theta = state.newton.w
        J = jax.grad(self._f)(theta, known(x, theta.dtype))
        return self.newton.leverage(state.newton, J)

    def _f(self, theta: Array, x: Array) -> Array:
        """Return f(x) for parameters in one array, which is cut into the network's arrays."""
        like = jax.eval_shape(lambda: self.network.init(x.shape[0], theta.dtype, jax.random.key(0)))
        leaves, structure = jax.tree.flatten(like)
        ends = itertools.accumulate(leaf.size for leaf in leaves)
        params = [
            theta[end - leaf.size : end].reshape(leaf.shape)
            for end, leaf in zip(ends, leaves, strict=True)
        ]
        return self.network.apply(structure.unflatten(params), x)
