"""Any differentiable model, trained by the gradient under any optax optimiser."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core.learner import Learner
from jboost.core.pytree import model, static
from jboost.core.network import Network
from jboost.core.numerics import dtype_of, known, usable
from jboost.core.sample import Sample
from jboost.learners.networks import Function


class GradientState(NamedTuple):
    """The parameters and what the optimiser remembers."""

    params: Any
    optimizer: Any


@model
class Gradient(Learner):
    """Stochastic gradient steps on (d − f(x))²/2, for any differentiable f and optax optimiser.

        θ ← θ + λ · step of the optimiser for the gradient −(d − f(x)) ∂f/∂θ

    λ, the ``weight``, scales the step and not the loss: optimisers such as Adam divide by the size
    of past gradients, and λ with it. With ``optax.sgd(μ)`` and a linear f it is ``SGD(μ)``, but
    for that one's guard. A sample that would leave anything not finite is left out.

    An optimiser or a function made anew compiles anew: make them once. No file can hold them, so
    :func:`jboost.save` wants ``supply_model=True``.

    Stability: that of the optimiser; its steps see the raw size of the gradient.

    Args:
      apply: ``apply(params, x) -> scalar``, or a network such as
        :class:`jboost.networks.Perceptron`, which knows its own start.
      init_params: ``init_params(key, num_features) -> params``, ``init_params(key)``, or the
        params themselves (no key is needed then). In a booster every copy gets its own key.
      optimizer: an optax optimiser.

    >>> import jax, optax
    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(500)
    >>> def start(key, r):
    ...     return {"w": 0.5 * jax.random.normal(key, (8, r)), "v": jnp.zeros(8)}
    >>> def apply(params, x):
    ...     return params["v"] @ jnp.tanh(params["w"] @ x)
    >>> model = jb.Gradient(apply, start, optax.adam(0.01))
    >>> state, trace = jb.run(model, xs, ds, jax.random.key(0))
    >>> trace.prediction.shape
    (500,)
    """

    apply: Any
    init_params: Any = static(default=None)
    optimizer: Any = static(default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.apply, Network):
            if self.init_params is None:
                raise ValueError(
                    "init_params is missing: pass init_params(key, num_features) -> params, or the "
                    "params themselves"
                )
            object.__setattr__(self, "apply", Function(self.apply, self.init_params))
            object.__setattr__(self, "init_params", None)
        elif self.init_params is not None:
            raise ValueError("init_params must be left out: a network has a start of its own")
        if not all(hasattr(self.optimizer, name) for name in ("init", "update")):
            raise TypeError(
                "optimizer must be one of optax's, such as optax.adam(0.01); "
                f"got {self.optimizer!r:.100}"
            )

    @property
    def needs_key(self) -> bool:
        return self.apply.needs_key

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> GradientState:
        params = self.apply.init(num_features, dtype_of(dtype), start_key(self.apply, key))
        return GradientState(params, self.optimizer.init(params))

    def predict(self, state: GradientState, x: ArrayLike) -> Array:
        y = self.apply.apply(state.params, known(x, _dtype(state.params)))
        return jnp.where(usable(y), y, jnp.zeros((), y.dtype))

    def learn(self, state: GradientState, sample: Sample) -> GradientState:
        x, d, lam = sample.x, sample.d, sample.weight

        def once(state: GradientState) -> GradientState:
            y, slope = jax.value_and_grad(self.apply.apply)(state.params, x)
            gradient = jax.tree.map(lambda leaf: (y - d) * leaf, slope)
            with jax.numpy_dtype_promotion("standard"):  # optax leans on it
                step, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
            params = jax.tree.map(lambda p, s: p + lam.astype(p.dtype) * s, state.params, step)
            after = GradientState(params, optimizer)
            finite = [jnp.all(usable(leaf)) for leaf in jax.tree.leaves((slope, params))]
            finite += [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(optimizer)]
            learned = (lam > 0) & jnp.all(jnp.stack(finite))
            return jax.tree.map(lambda new, old: jnp.where(learned, new, old), after, state)

        return sample.repeat(once, state, guard=False)


def start_key(network: Network, key: Any) -> Any:
    """The key that a network's start is drawn from."""
    if key is None and network.needs_key:
        raise ValueError("key is missing: this model draws its start; pass key=jax.random.key(0)")
    return key


def _dtype(params: Any) -> Any:
    return jnp.result_type(*jax.tree.leaves(params))
