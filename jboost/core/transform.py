"""What stands before a learner: a Transform turns the input x into the x′ that the learner sees.

Like a learner it is a frozen pytree of settings, and what it has seen is its state:

    init(num_features, dtype)    -> state
    width(num_features)          -> how many columns x′ has
    apply(state, x)              -> x′
    learn(state, sample)         -> state

All are pure and unbatched. ``apply`` may use all of the x that it is given, which is known before
the prediction; of the targets it knows those that ``learn`` has seen.
"""

import abc

from jax import Array
from jax.typing import ArrayLike

from jboost.core.learner import State, float_dtype
from jboost.core.pytree import DType, Key
from jboost.core.sample import Sample


class Transform(abc.ABC):
    """The protocol. Subclasses are final and decorated with :func:`jboost.model`.

    A subclass writes ``apply``. The other methods are right as they are for a fixed map that keeps
    the number of columns.
    """

    @property
    def needs_key(self) -> bool:
        """Whether ``init`` draws at random."""
        return False

    @property
    def passes_missing(self) -> bool:
        """Whether an unusable entry of x spoils only its own place in x′."""
        return False

    @property
    def fills_missing(self) -> bool:
        """Whether x′ is usable whatever x holds."""
        return False

    def width(self, num_features: int) -> int:
        """Return the number of columns of x′."""
        return num_features

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        """Return the state before any data."""
        del num_features, dtype, key
        return ()

    @abc.abstractmethod
    def apply(self, state: State, x: ArrayLike) -> Array:
        """Return x′, whose entries are finite or NaN whatever x holds."""

    def learn(self, state: State, sample: Sample) -> State:
        """Return the state after a good sample. Its d is usable; entries of its x may be missing.

        A pipeline calls this once for a sample, whatever its weight and repeats, and only where the
        sample counts.
        """
        del sample
        return state

    def update(self, state: State, x: ArrayLike, d: ArrayLike = 0.0) -> State:
        """Return the state after the input x and its target, as :meth:`Learner.update` does."""
        sample = Sample.of(x, d, dtype=float_dtype(state), takes_missing=True)
        return sample.keep(self.learn(state, sample), state)
