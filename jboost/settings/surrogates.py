"""The model to differentiate in place of a model, where that has no useful derivative itself.

Where a booster spends λ in whole numbers: a number of repeats n has no derivative in λ. Yet more λ
means more updates, and what one of them does is known: with S(n) the state of a learner after n
updates on a sample, and ρ the mean of n,

| mode         | ρ   | dS/dρ: the update that a little more λ brings |
|--------------|-----|-----------------------------------------------|
| RandomUpdate | λ   | S(1) − S(0)                                   |
| DataReuse    | K λ | S(n) − S(n − 1)                               |
| PoissonReuse | λ   | S(n + 1) − S(n)                               |

For the two random modes this is the derivative of the mean of S(n) in λ, exactly (for Poisson once
more averaged over n). Two uses of it:

* "straight-through": the run itself, with its whole numbers and its draws; derivatives take
  S(n) + (ρ − n)·dS/dρ in place of S(n). Averaged over keys, the gradient is that of the mean error
  up to the curvature of the later errors within one update.
* "expected": another, smooth run, in which every learner's state moves to the mean of S(n)
  (for data reuse: on the line between S(n − 1) and S(n)). No draws, an exact gradient, but of the
  relaxed model's error.

Derivatives in anything that does not act through λ are not touched.

And where Newton learners keep P itself: rounding makes the derivative of P unsymmetric, and that
part grows as β^−t (1e26 after 10,000 steps at β = 0.99). The square-root form is the same function.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.boosting.booster import Boosted
from jboost.boosting.modes import DataReuse, Mode, PoissonReuse, RandomUpdate, Weighted
from jboost.core.learner import Learner, State, Wrapper
from jboost.core.model import model, static
from jboost.core.sample import Sample
from jboost.learners.newton import LeastSquares

SURROGATES = ("straight-through", "expected")

_Model = TypeVar("_Model")


def relaxed(model: _Model, surrogate: str) -> _Model:
    """The model made differentiable; under "straight-through" its numbers are the model's own.

    >>> import jboost as jb
    >>> model = jb.bsgd_ru(3, target_mse=0.2, step_size=0.1)
    >>> relaxed(model, "expected").needs_key
    False
    """
    if isinstance(model, LeastSquares) and model.storage == "covariance":
        return dataclasses.replace(model, storage="root")
    if not isinstance(model, Boosted):

        def inside(node: Any) -> bool:
            return isinstance(node, (Boosted, LeastSquares)) and node is not model

        return jax.tree.map(
            lambda node: relaxed(node, surrogate) if inside(node) else node, model, is_leaf=inside
        )
    learner, combiner = (relaxed(part, surrogate) for part in (model.learner, model.combiner))
    if isinstance(model.mode, Weighted):
        return dataclasses.replace(model, learner=learner, combiner=combiner)
    if not isinstance(model.mode, (DataReuse, RandomUpdate, PoissonReuse)):
        raise TypeError(
            "no gradient is known for the mode "
            f"{type(model.mode).__name__}: use Weighted, DataReuse, RandomUpdate or PoissonReuse"
        )
    mode = _Relaxed(model.mode, surrogate)
    own = learner if isinstance(learner, tuple) else (learner,)
    own = tuple(_Between(one, model.mode, surrogate) for one in own)
    learner = own if isinstance(learner, tuple) else own[0]
    return dataclasses.replace(model, learner=learner, mode=mode, combiner=combiner)


@model
class _Relaxed(Mode):
    """Repeats as a real number ρ: its value n or the mean of n, its derivative that of the mean."""

    mode: Mode
    surrogate: str = static()

    @property
    def needs_key(self) -> bool:
        return self.mode.needs_key and self.surrogate == "straight-through"

    def spend(self, lam: Array, uniform: Array | None) -> tuple[Any, Any]:
        mean = self.mode.max_reuse * lam if isinstance(self.mode, DataReuse) else lam
        if self.surrogate == "expected":
            return 1.0, mean
        weight, n = self.mode.spend(lam, uniform)
        return weight, n.astype(lam.dtype) + (mean - jax.lax.stop_gradient(mean))


@model
class _Between(Wrapper):
    """A learner that takes ρ: S at the whole number below or above, and the line between two."""

    learner: Learner
    mode: Mode
    surrogate: str = static()

    def init(
        self, num_features: int, dtype: DTypeLike | None = None, *, key: Array | None = None
    ) -> State:
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
