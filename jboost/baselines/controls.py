"""Trivial predictions, and the ensembles of Oza and Russell as aliases of :func:`jboost.boost`."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting.boost import boost
from jboost.boosting.booster import Boosted
from jboost.boosting.modes import PoissonReuse
from jboost.combiners.mean import Uniform
from jboost.core import DType, Key, Learner, Number, Sample, model
from jboost.core.numerics import Sum, dtype_of


class MeanState(NamedTuple):
    """The state of a running mean. Both sums are 0 at the start."""

    total: Sum  # Σ λ d
    weight: Sum  # Σ λ


@model
class RunningMean(Learner):
    """The weighted mean of the targets so far, 0 before the first. It does not look at x.

    >>> learner = RunningMean()
    >>> state = learner.update(learner.init(1), jnp.zeros(1), 3.0)
    >>> state = learner.update(state, jnp.zeros(1), 6.0, weight=0.5)
    >>> float(learner.predict(state, jnp.zeros(1)))
    4.0
    """

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> MeanState:
        return MeanState(Sum.zeros((), dtype_of(dtype)), Sum.zeros((), dtype_of(dtype)))

    def predict(self, state: MeanState, x: ArrayLike) -> Array:
        weight = state.weight.total
        return jnp.where(weight > 0, state.total.total / jnp.where(weight > 0, weight, 1), 0)

    def learn(self, state: MeanState, sample: Sample) -> MeanState:
        lam = sample.weight * jnp.asarray(sample.repeats).astype(sample.d.dtype)
        return sample.keep(MeanState(state.total.add(lam * sample.d), state.weight.add(lam)), state)


@model
class LastValue(Learner):
    """The newest target, which is the state, as the prediction of the next; 0 before the first.

    >>> learner = LastValue()
    >>> float(learner.predict(learner.update(learner.init(1), jnp.zeros(1), 3.0), jnp.zeros(1)))
    3.0
    """

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> Array:
        return jnp.zeros((), dtype_of(dtype))

    def predict(self, state: Array, x: ArrayLike) -> Array:
        return state

    def learn(self, state: Array, sample: Sample) -> Array:
        return sample.keep(sample.d, state)


def bagging(learner: Learner, m: int = 20) -> Boosted:
    """Online bagging (Oza and Russell 2001): Poisson(1) repeats of a sample, and the plain mean.

    A run needs a key. Linear learners gain little from it (``experiments/bench/baselines.py``).

    >>> import jboost as jb
    >>> bagging(jb.Newton(0.99), m=5).needs_key
    True
    """
    mode, combiner = PoissonReuse(), Uniform()
    return boost(learner, m, target_mse=0.0, dependence=0.0, mode=mode, combiner=combiner)


def poisson_boosting(learner: Learner, m: int = 20, *, target_mse: Number) -> Boosted:
    """Boosting by Poisson(λ) repeats and the plain mean, after Oza and Russell (2001).

    Their algorithm is for classification; here λ is that of :func:`jboost.boost`.

    >>> import jboost as jb
    >>> poisson_boosting(jb.SGD(0.1), m=5, target_mse=0.1).m
    5
    """
    return boost(learner, m, target_mse=target_mse, mode=PoissonReuse(), combiner=Uniform())
