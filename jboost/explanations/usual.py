"""The usual input of a model: what its state knows of the columns of x without seeing x.

A scaler, or what fills gaps, knows the running mean of each column. The models between x and that
scaler are walked through, as they may move, add or drop columns.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.automatic.experts import Seeded
from jboost.automatic.mixture import Mixture
from jboost.boosting.booster import Boosted
from jboost.core import Learner, State, Transform
from jboost.core.learner import float_dtype
from jboost.transforms import Bias, Calendar, Impute, Lags, Past, Polynomial, Scale, Volterra
from jboost.transforms.pipelines import Pipeline
from jboost.transforms.units import Held, Moments, Units
from jboost.wrappers.targets import Separate, Shared
from jboost.wrappers.weights import WeightColumn

APPENDING = (Bias, Lags, Past, Polynomial, Volterra)  # x′ begins with x
GONE = -1  # the number of a column that a transform has replaced by others
Numbers = np.ndarray  # (r,), the numbers that the columns of x have now


def usual_input(model: Learner, state: State, num_features: int) -> Array:
    """Return (r,) the running mean of each column of x, where the state has one, else 0.

    With ``Scale("range")`` it is the middle of the range. A column of times that a ``Calendar``
    turns into cycles has no mean: it is NaN, a missing time, whose cycles count as their means.

    >>> import jboost as jb
    >>> model = jb.pipeline(jb.Impute(), jb.SGD(0.1))
    >>> state = model.update(model.init(2), jnp.array([3.0, 4.0]), 1.0)
    >>> usual_input(model, state, 2).tolist()
    [3.0, 4.0]
    """
    times: set[int] = set()
    found = _of_learner(model, state, np.arange(num_features), times)
    usual = jnp.zeros(num_features, float_dtype(state)) if found is None else found
    return usual.at[np.array(sorted(times), int)].set(jnp.nan) if times else usual


def _of_learner(model: object, state: State, numbers: Numbers, times: set[int]) -> Array | None:
    """Return the means of the columns with these numbers, or None where the state has none.

    The columns of x that a ``Calendar`` turns into cycles are added to ``times``.
    """
    if getattr(model, "ahead", 0):  # what it forecasts does not depend on the next row's x
        return None
    if isinstance(model, Mixture):
        return _mean(state.inputs, numbers)
    if isinstance(model, Seeded):  # its state is that of its learner
        return _of_learner(model.learner, state, numbers, times)
    if isinstance(model, Boosted):
        each = zip(model.groups, state.learners, strict=True)
        means = [_of_copies(learner, states, numbers, times) for learner, states in each]
        return next((mean for mean in means if mean is not None), None)
    if isinstance(model, Separate):
        return _of_copies(model.learner, state, numbers, times)
    if isinstance(model, Shared):
        return _of_learner(model.learner, state, numbers, times)
    if isinstance(model, WeightColumn):
        seen = _without(numbers, model.column % len(numbers))
        return _of_learner(model.learner, state, seen, times)
    if isinstance(model, Pipeline):
        for transform, its_state in zip(model.transforms, state.transforms, strict=True):
            if isinstance(transform, Scale | Impute):
                return _mean(its_state, numbers)
            if isinstance(transform, Calendar):
                times |= {*np.flatnonzero(numbers == transform.column).tolist()}
            numbers = _after(transform, numbers)
    inner = getattr(model, "learner", None)
    if inner is None or not hasattr(state, "learner"):
        return None
    return _of_learner(inner, state.learner, numbers, times)


def _of_copies(learner: Learner, states: State, numbers: Numbers, times: set[int]) -> Array | None:
    """Return the means, averaged over copies of a learner that may have seen other samples."""
    means = jax.vmap(lambda state: _of_learner(learner, state, numbers, times))(states)
    return None if means is None else means.mean(axis=0)


def _mean(units: Units, numbers: Numbers) -> Array:
    moments = units.moments if isinstance(units, Held) else units
    mean = moments.mean.total if isinstance(moments, Moments) else moments.frame[0]
    return jnp.where(jnp.asarray(numbers == GONE), 0, mean[jnp.asarray(np.maximum(numbers, 0))])


def _after(transform: Transform, numbers: Numbers) -> Numbers:
    """Return the numbers of the columns behind a transform."""
    if isinstance(transform, APPENDING):
        return numbers
    if isinstance(transform, Calendar):
        return _without(numbers, transform.column)
    return np.full_like(numbers, GONE)


def _without(numbers: Numbers, column: int) -> Numbers:
    """Return the numbers of the columns once the column of this number is taken out."""
    left = np.where(numbers > column, numbers - 1, numbers)
    return np.where(numbers == column, GONE, left)
