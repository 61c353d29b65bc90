"""The protocol of differentiable models f(params, x) that a learner can train.

    init(num_features, dtype, key) -> params, any pytree of float arrays
    apply(params, x)               -> the estimate, a scalar

:class:`jboost.Gradient` trains a network by the gradient, :class:`jboost.GaussNewton` by least
squares.
"""

import abc
from typing import Any

from jax import Array
from jax.typing import DTypeLike

from jboost.core.pytree import Key

Params = Any  # any pytree of float arrays


class Network(abc.ABC):
    """The protocol. Subclasses are final and decorated with :func:`jboost.model`."""

    @property
    def needs_key(self) -> bool:
        """Whether ``init`` draws at random."""
        return True

    @abc.abstractmethod
    def init(self, num_features: int, dtype: DTypeLike, key: Key) -> Params:
        """Return the parameters to start from."""

    @abc.abstractmethod
    def apply(self, params: Params, x: Array) -> Array:
        """Return f(x), a scalar."""
