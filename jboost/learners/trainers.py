"""Any differentiable model, trained by the gradient or by least squares on its linearisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Network, Sample, checks, losses, model, static
from jboost.core.learner import Params, required_key
from jboost.core.losses import Loss
from jboost.core.numerics import dtype_of, known, usable
from jboost.core.products import dot
from jboost.learners.networks import Function, Perceptron, check_start, unravelled
from jboost.learners.newton import Newton, NewtonState

if TYPE_CHECKING:  # importing jboost takes longer with optax than without
    import optax

MOST_STEPS = 10.0  # a heavy sample takes at most so many steps of an optimiser at once


class GradientState(NamedTuple):
    """The state of a network that an optimiser trains."""

    params: Params  # the parameters θ; the network decides where they start
    optimizer: optax.OptState  # what the optimiser remembers, as it starts for those parameters


@model
class Gradient(Learner):
    """Stochastic gradient steps on (d − f(x))²/2, for any differentiable f and optax optimiser.

        θ ← θ + λ · step of the optimiser for the gradient −(d − f(x)) ∂f/∂θ

    λ scales the step and not the loss, because an optimiser such as Adam divides by the size of
    past gradients. With ``optax.sgd(μ)`` and a linear f this is ``SGD(μ, guard=False)``. A λ > 1
    lengthens the step at most tenfold, and not beyond the point at which the tangent of f at x has
    no error left. Stability: that of the optimiser. A sample is not learned if a parameter would no
    longer be finite.

    A new optimiser or a new function compiles a new program, so make each of them once. A
    checkpoint cannot hold functions: :func:`jboost.save` needs ``supply_model=True``.

    Args:
      apply: ``apply(params, x) -> scalar``, or a network, which starts by itself.
      init_params: ``init_params(key, num_features) -> params``, ``init_params(key)``, or the
        params themselves, which need no key. Every copy in a booster is given another key.
      optimizer: an optax optimiser.
      loss: one of :mod:`jboost.losses` in place of (d − f(x))²/2: the estimate is its ``mean`` of
        f(x), its residual takes the place of d − f(x). None is the squared loss.

    >>> import jax, optax, jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> def start(key, r):
    ...     return {"w": 0.5 * jax.random.normal(key, (8, r)), "v": jnp.zeros(8)}
    >>> def apply(params, x):
    ...     return params["v"] @ jnp.tanh(params["w"] @ x)
    >>> model = jb.Gradient(apply, start, optax.adam(0.01))
    >>> jb.run(model, xs, ds, jax.random.key(0))[1].prediction.shape
    (500,)
    """

    apply: Network | Callable[[Params, Array], Array]
    init_params: Callable[..., Params] | Params = static(default=None)
    optimizer: optax.GradientTransformation = static(default=None)
    loss: Loss | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.apply, Network):
            checks.function("apply", self.apply, "(params, x), or a network")
            if self.init_params is None:
                advice = "init_params(key, num_features) -> params, or the params themselves"
                raise ValueError(f"init_params is missing: pass {advice}")
            check_start("init_params", self.init_params)
            checks.assign(self, apply=Function(self.apply, self.init_params), init_params=None)
        elif self.init_params is not None:
            raise ValueError("init_params must be left out: a network starts by itself")
        if not all(hasattr(self.optimizer, name) for name in ("init", "update")):
            example = "one of optax's, such as optax.adam(0.01)"
            raise TypeError(f"optimizer must be {example}; got {checks.shown(self.optimizer)}")
        checks.fields(self, loss=losses.rule)

    @property
    def needs_key(self) -> bool:
        return self._network.needs_key

    @property
    def _network(self) -> Network:
        assert isinstance(self.apply, Network)  # since __post_init__
        return self.apply

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> GradientState:
        key = required_key(key) if self.needs_key else None
        params = self._network.init(num_features, dtype_of(dtype), key)
        return GradientState(params, self.optimizer.init(params))

    def predict(self, state: GradientState, x: ArrayLike) -> Array:
        dtype = jnp.result_type(*jax.tree.leaves(state.params))
        y = self._network.apply(state.params, known(x, dtype))
        y = known(y, y.dtype)
        return y if self.loss is None else self.loss.mean(y)

    def learn(self, state: GradientState, sample: Sample) -> GradientState:
        take_step, x, d, lam = self.optimizer.update, sample.x, sample.d, sample.weight

        def slope_of_loss(y: Array) -> Array:
            return y - d if self.loss is None else -self.loss.residual(y, d)

        def once(state: GradientState) -> GradientState:
            y, slope = jax.value_and_grad(self._network.apply)(state.params, x)
            gradient = jax.tree.map(lambda leaf: slope_of_loss(y) * leaf, slope)
            with jax.numpy_dtype_promotion("standard"):  # optax relies on it
                step, optimizer = take_step(gradient, state.optimizer, state.params)
            along = jax.tree.map(lambda s, leaf: jnp.sum(s * leaf), step, slope)
            gap = d - y if self.loss is None else self.loss.gap(y, d)
            length = _length(lam, gap, sum(jax.tree.leaves(along)))
            params = jax.tree.map(lambda p, s: p + length.astype(p.dtype) * s, state.params, step)
            finite = [jnp.all(usable(leaf)) for leaf in jax.tree.leaves((slope, params))]
            finite += [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(optimizer)]
            learned = (lam > 0) & jnp.all(jnp.stack(finite))
            after = GradientState(params, optimizer)
            return jax.tree.map(lambda new, old: jnp.where(learned, new, old), after, state)

        return sample.repeat(once, state, guard=False)


def _length(lam: Array, e: Array, change: ArrayLike) -> Array:
    """Return how many steps a weight λ stands for; one step changes f(x) by about ``change``."""
    change = jnp.asarray(change, e.dtype)
    moves = change != 0
    to_no_error = jnp.where(moves, e / jnp.where(moves, change, 1), 1)
    return jnp.minimum(lam, jnp.clip(to_no_error, 1, MOST_STEPS))


class GaussNewtonState(NamedTuple):
    """The state of a network that least squares trains."""

    newton: NewtonState  # as Newton starts, but w holds all parameters θ as the network starts them


@model
class GaussNewton(Learner):
    """Newton's method on a network: at every sample f is replaced by its tangent at θ.

        J = ∂f/∂θ at x,    θ, P ← Newton's update for the input J and the target d − f(x) + Jᵀθ

    With a loss of residual ρ and curvature h the target is ρ/h + Jᵀθ, and the weight is h times
    that of the sample: iteratively reweighted least squares, one step a sample.

    For a linear f this is :class:`jboost.Newton`; in general it is the extended Kalman filter (S.
    Singhal, L. Wu, Training multilayer perceptrons with the extended Kalman algorithm, 1988). It
    costs O(p²) operations a sample, p the number of parameters. Inputs of about unit size are
    better left without :class:`jboost.Scale`, whose units still move in the first samples; see
    ``experiments/bench/nonlinear.py``.

    Args:
      network: a :class:`jboost.networks.Perceptron`, or any other network.
      newton: the least squares. A ``forgetting`` just below 1 also forgets the tangents of long
        ago; ``ridge`` ties the parameters to their start.
      loss: one of :mod:`jboost.losses`; None is the squared loss. Targets should be of about unit
        size, as inside ``ScaleTarget`` (but for counts).

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model = jb.GaussNewton(jb.networks.Perceptron(8))
    >>> bool(jb.mse(model, xs, ds, jax.random.key(0)) < 0.3 * jb.mse(jb.Newton(0.99), xs, ds))
    True
    """

    network: Network = Perceptron(parameters=150)
    newton: Newton = Newton(forgetting=0.9995, ridge=1.0)
    loss: Loss | None = None

    def __post_init__(self) -> None:
        network = checks.of_kind(Network, "a network such as jboost.networks.Perceptron(20)")
        newton = checks.of_kind(Newton, "a Newton(forgetting=0.9995, ridge=1.0)")
        checks.fields(self, network=network, newton=newton, loss=losses.rule)

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
        y = known(self._f(theta, known(x, theta.dtype)), theta.dtype)
        return y if self.loss is None else self.loss.mean(y)

    def learn(self, state: GaussNewtonState, sample: Sample) -> GaussNewtonState:
        x, d, once_only = sample.x, sample.d, sample.replace(repeats=1)

        def once(state: GaussNewtonState) -> GaussNewtonState:
            theta = state.newton.w
            y, J = jax.value_and_grad(self._f)(theta, x)
            if self.loss is None:
                tangent = once_only.with_input(J).with_target(d - y + dot(J, theta))
            else:
                h = self.loss.curvature(y, d)
                step = self.loss.residual(y, d) / h
                tangent = once_only.weighted(h).with_input(J).with_target(step + dot(J, theta))
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
        """Return f(x) for all parameters in one array."""
        return self.network.apply(unravelled(self.network, theta, x.shape[0]), x)
