"""A model to differentiate in place of a model that has no useful derivative itself.

First, boosters that spend λ in whole numbers. A number of repeats n has no derivative in λ. But a
larger λ means more updates, and we know what an update does. Let S(n) be the state of a learner
after n updates on a sample, and ρ the mean of n:

| mode         | ρ   | dS/dρ: the update that a little more λ brings |
|--------------|-----|-----------------------------------------------|
| RandomUpdate | λ   | S(1) − S(0)                                   |
| DataReuse    | K λ | S(n) − S(n − 1)                               |
| PoissonReuse | λ   | S(n + 1) − S(n)                               |

For the two random modes this is exactly the derivative of the mean of S(n) in λ (for Poisson, once
it is averaged over n). There are two surrogates:

* "straight-through" runs the model itself, with its whole numbers and its draws. Derivatives take
  S(n) + (ρ − n)·dS/dρ in place of S(n). The gradient, averaged over keys, is the gradient of the
  mean error up to the curvature of the later errors within one update.
* "expected" runs another, smooth model, in which every learner's state moves to the mean of S(n);
  for data reuse, to a point on the line between S(n − 1) and S(n). It has no draws and an exact
  gradient, but of the error of the smooth model.

Derivatives in settings that do not act through λ stay as they are.

Second, Newton learners that store P itself. Rounding makes the derivative of P unsymmetric, and the
unsymmetric part grows as β^−t (to 1e26 after 10,000 steps at β = 0.99). Such a learner is replaced
by the one that stores a square root of P, which computes the same function.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting.booster import Boosted
from jboost.boosting.modes import DataReuse, Mode, PoissonReuse, RandomUpdate, Weighted
from jboost.core import DType, Key, Learner, Sample, State, Wrapper, model, static
from jboost.learners.newton import LeastSquares

SURROGATES = ("straight-through", "expected")

_Model = TypeVar("_Model")


def relaxed(model: _Model, surrogate: str) -> _Model:
    """The surrogate of a model. Under "straight-through" it makes the same predictions.

    >>> import jboost as jb
    >>> model = jb.bsgd_ru(3, target_mse=0.2, step_size=0.1)
    >>> relaxed(model, "expected").needs_key
    False
    """
    if isinstance(model, LeastSquares) and model.storage == "covariance":
        return dataclasses.replace(model, storage="root")
    if not isinstance(model, Boosted):

        def is_inner(node: object) -> bool:
            return isinstance(node, (Boosted, LeastSquares)) and node is not model

        def relax_inner(node: object) -> object:
            return relaxed(node, surrogate) if is_inner(node) else node

        return jax.tree.map(relax_inner, model, is_leaf=is_inner)
    learner, combiner = relaxed((model.learner, model.combiner), surrogate)
    if isinstance(model.mode, Weighted):
        return dataclasses.replace(model, learner=learner, combiner=combiner)
    if not isinstance(model.mode, (DataReuse, RandomUpdate, PoissonReuse)):
        raise TypeError(
            f"no gradient is known for the mode {type(model.mode).__name__}: use Weighted, "
            "DataReuse, RandomUpdate or PoissonReuse"
        )
    mode = _Relaxed(model.mode, surrogate)
    if isinstance(learner, tuple):
        learner = tuple(_Between(member, model.mode, surrogate) for member in learner)
    else:
        learner = _Between(learner, model.mode, surrogate)
    return dataclasses.replace(model, learner=learner, mode=mode, combiner=combiner)


@model
class _Relaxed(Mode):
    """A mode whose repeats are a real number with the derivative of ρ, the mean of n.

    Under "straight-through" the number is n, under "expected" it is ρ.
    """

    mode: Mode
    surrogate: str = static()

    @property
    def needs_key(self) -> bool:
        return self.mode.needs_key and self.surrogate == "straight-through"

    def spend(self, lam: Array, uniform: Array | None) -> tuple[Any, Any]:
        mean = self.mode.max_reuse * lam if isinstance(self.mode, DataReuse) else lam
        if self.surrogate == "expected":
            return 1.0, mean  # these modes have weight 1
        weight, n = self.mode.spend(lam, uniform)
        return weight, n.astype(lam.dtype) + (mean - jax.lax.stop_gradient(mean))


@model
class _Between(Wrapper):
    """A learner that takes ρ: S at the whole number below or above, and the line between two."""

    learner: Learner
    mode: Mode
    surrogate: str = static()

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return self.learner.init(num_features, dtype, key=key)

    def predict(self, state: State, x: ArrayLike) -> Array:
        return self.learner.predict(state, x)

    def leverage(self, state: State, x: ArrayLike) -> Array:
        return self.learner.leverage(state, x)

    def learn(self, state: State, sample: Sample) -> State:
        repeats = jnp.asarray(sample.repeats)

        def after(n: ArrayLike) -> State:
            return self.learner.learn(state, sample.replace(repeats=n, most_repeats=None))

        n = jnp.ceil(jax.lax.stop_gradient(repeats)).astype(jnp.int32)
        if isinstance(self.mode, DataReuse):
            low = jnp.maximum(n - 1, 0)
            below, above = after(low), after(low + 1)
        elif isinstance(self.mode, PoissonReuse) and self.surrogate == "straight-through":
            low = n
            below, above = after(low), after(low + 1)
        else:
            low, below, above = jnp.zeros_like(n), state, after(1)
        base, rest = below, repeats - low.astype(repeats.dtype)
        if self.surrogate == "straight-through":
            base = jax.tree.map(lambda a, b: jnp.where(n == low, a, b), below, above)
            rest = repeats - jax.lax.stop_gradient(repeats)

        def between(base: Array, below: Array, above: Array) -> Array:
            if not jnp.issubdtype(base.dtype, jnp.floating):
                return base if self.surrogate == "straight-through" else above
            return base + rest.astype(base.dtype) * (above - below)

        return jax.tree.map(between, base, below, above)
