"""A model to differentiate in place of a model that has no useful derivative itself.

A booster that spends λ in whole numbers repeats an update n times, and n has no derivative in λ.
Let S(n) be the state of a learner after n updates on a sample, and ρ the mean of n:

| mode         | ρ   | dS/dρ: the update that a little more λ brings |
|--------------|-----|-----------------------------------------------|
| RandomUpdate | λ   | S(1) − S(0)                                   |
| DataReuse    | K λ | S(n) − S(n − 1)                               |
| PoissonReuse | λ   | S(n + 1) − S(n)                               |

For the two random modes dS/dρ is the derivative of the mean of S(n) in λ (for Poisson, its average
over n). There are two surrogates:

* "straight-through" runs the model itself, with its whole numbers and its draws. Derivatives take
  S(n) + (ρ − n)·dS/dρ in place of S(n). The gradient, averaged over keys, is the gradient of the
  mean error, up to the curvature of the later errors within one update.
* "expected" runs a smooth model, in which every learner's state moves to the mean of S(n), or, for
  data reuse, to a point on the line between S(n − 1) and S(n). It does not draw. Its gradient is
  exact, but it is the gradient of the smooth model's error.

A Newton learner that stores P itself is replaced by the one that stores a square root of P, which
computes the same function: rounding makes the derivative of P unsymmetric, and the unsymmetric part
grows as β^−t (to 1e26 after 10,000 steps at β = 0.99).
"""

import dataclasses
from functools import partial
from typing import TypeVar

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
    """Return the surrogate of a model. Under "straight-through" it makes the same predictions.

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

        relax = partial(relaxed, surrogate=surrogate)
        return jax.tree.map(lambda n: relax(n) if is_inner(n) else n, model, is_leaf=is_inner)
    learner, combiner = relaxed((model.learner, model.combiner), surrogate)
    mode = model.mode
    if isinstance(mode, (DataReuse, RandomUpdate, PoissonReuse)):
        wrap = partial(_RealRepeats, mode=mode, surrogate=surrogate)
        learner = tuple(map(wrap, learner)) if isinstance(learner, tuple) else wrap(learner)
        mode = _RealMode(mode, surrogate)
    elif not isinstance(mode, Weighted):
        advice = "use Weighted, DataReuse, RandomUpdate or PoissonReuse"
        raise TypeError(f"no gradient is known for the mode {type(mode).__name__}: {advice}")
    return dataclasses.replace(model, learner=learner, mode=mode, combiner=combiner)


@model
class _RealMode(Mode):
    """A mode that returns ρ repeats, or under "straight-through" n with the derivative of ρ."""

    mode: Mode
    surrogate: str = static()

    @property
    def needs_key(self) -> bool:  # type: ignore[override]  (it depends on the mode inside)
        return self.mode.needs_key and self.surrogate == "straight-through"

    def spend(self, lam: Array, uniform: Array | None) -> tuple[ArrayLike, ArrayLike]:
        mean = self.mode.max_reuse * lam if isinstance(self.mode, DataReuse) else lam
        if self.surrogate == "expected":
            return 1.0, mean  # these modes have weight 1
        weight, n = self.mode.spend(lam, uniform)
        return weight, jnp.asarray(n, lam.dtype) + (mean - jax.lax.stop_gradient(mean))


@model
class _RealRepeats(Wrapper):
    """A learner that repeats an update a real number of times: on a line between two S(n)."""

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
        def after(n: ArrayLike) -> State:
            return self.learner.learn(state, sample.replace(repeats=n, most_repeats=None))

        runs_itself, repeats = self.surrogate == "straight-through", jnp.asarray(sample.repeats)
        n = jnp.ceil(jax.lax.stop_gradient(repeats)).astype(jnp.int32)
        reuse = isinstance(self.mode, DataReuse)
        if reuse or (runs_itself and isinstance(self.mode, PoissonReuse)):
            low = jnp.maximum(n - 1, 0) if reuse else n
            below, above = after(low), after(low + 1)
        else:
            low, below, above = jnp.zeros_like(n), state, after(1)
        if runs_itself:  # the value is S(n), the derivative that of the line
            base = jax.tree.map(lambda a, b: jnp.where(n == low, a, b), below, above)
            rest = repeats - jax.lax.stop_gradient(repeats)
        else:
            base, rest = below, repeats - low.astype(repeats.dtype)

        def move(base: Array, below: Array, above: Array) -> Array:
            if not jnp.issubdtype(base.dtype, jnp.floating):
                return base if runs_itself else above
            return base + rest.astype(base.dtype) * (above - below)

        return jax.tree.map(move, base, below, above)
