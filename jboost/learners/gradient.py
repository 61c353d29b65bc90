"""Any differentiable model, trained by the gradient under any optax optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Network, Sample, checks, model, static
from jboost.core.learner import Params, required_key
from jboost.core.numerics import dtype_of, known, usable
from jboost.learners.networks import Function

if TYPE_CHECKING:  # importing jboost takes longer with optax than without
    import optax


class GradientState(NamedTuple):
    """The state of a network that an optimiser trains."""

    params: Params  # the parameters θ; the network decides where they start
    optimizer: optax.OptState  # what the optimiser remembers, as it starts for those parameters


@model
class Gradient(Learner):
    """Stochastic gradient steps on (d − f(x))²/2, for any differentiable f and optax optimiser.

        θ ← θ + λ · step of the optimiser for the gradient −(d − f(x)) ∂f/∂θ

    The weight λ scales the step and not the loss, because an optimiser such as Adam divides by the
    size of past gradients and would cancel a factor of the loss. With ``optax.sgd(μ)`` and a linear
    f the learner is ``SGD(μ, guard=False)``. A sample is not learned if a parameter or a number of
    the optimiser would no longer be finite.

    A new optimiser or a new function compiles a new program, so make each of them once. A
    checkpoint cannot hold functions: :func:`jboost.save` needs ``supply_model=True``. Stability:
    that of the optimiser; its steps see the raw size of the gradient.

    Args:
      apply: ``apply(params, x) -> scalar``, or a network such as
        :class:`jboost.networks.Perceptron`, which starts by itself.
      init_params: ``init_params(key, num_features) -> params``, ``init_params(key)``, or the
        params themselves, which need no key. Every copy in a booster is given another key.
      optimizer: an optax optimiser.

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

    def __post_init__(self) -> None:
        if not isinstance(self.apply, Network):
            if self.init_params is None:
                advice = "init_params(key, num_features) -> params, or the params themselves"
                raise ValueError(f"init_params is missing: pass {advice}")
            checks.assign(self, apply=Function(self.apply, self.init_params), init_params=None)
        elif self.init_params is not None:
            raise ValueError("init_params must be left out: a network starts by itself")
        if not all(hasattr(self.optimizer, name) for name in ("init", "update")):
            example = "one of optax's, such as optax.adam(0.01)"
            raise TypeError(f"optimizer must be {example}; got {self.optimizer!r:.100}")

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
        return known(y, y.dtype)

    def learn(self, state: GradientState, sample: Sample) -> GradientState:
        take_step, x, d, lam = self.optimizer.update, sample.x, sample.d, sample.weight

        def once(state: GradientState) -> GradientState:
            y, slope = jax.value_and_grad(self._network.apply)(state.params, x)
            gradient = jax.tree.map(lambda leaf: (y - d) * leaf, slope)
            with jax.numpy_dtype_promotion("standard"):  # optax relies on it
                step, optimizer = take_step(gradient, state.optimizer, state.params)
            params = jax.tree.map(lambda p, s: p + lam.astype(p.dtype) * s, state.params, step)
            finite = [jnp.all(usable(leaf)) for leaf in jax.tree.leaves((slope, params))]
            finite += [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(optimizer)]
            learned = (lam > 0) & jnp.all(jnp.stack(finite))
            after = GradientState(params, optimizer)
            return jax.tree.map(lambda new, old: jnp.where(learned, new, old), after, state)

        return sample.repeat(once, state, guard=False)
