"""How a booster spends λ: as a weight, as a number of repeats, or as a probability.

A mode turns λ into the weight and the repeats of the sample that each learner is given.
"""

import abc
from typing import ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import checks, model, static

LARGEST_POISSON = 12  # P(n > 12) at mean 1 is 6e-11, far below the 2⁻²⁴ grid of a uniform draw


class Mode(abc.ABC):
    """Base class of the modes. Subclasses are decorated with :func:`jboost.model`."""

    needs_key: ClassVar[bool] = False  # whether `spend` looks at the uniform draws

    @property
    def most_repeats(self) -> int | None:
        """The largest number of repeats that ``spend`` returns; None where there is no bound."""
        return None

    @abc.abstractmethod
    def spend(self, lam: Array, uniform: Array | None) -> tuple[ArrayLike, ArrayLike]:
        """Return the weight and the repeats of each learner, from its λ and its uniform draw."""


@model
class Weighted(Mode):
    """Weighted updates (WU): each learner learns the sample once, with weight λ.

    >>> Weighted().spend(jnp.array([0.3]), None)[1]
    1
    """

    def spend(self, lam: Array, uniform: Array | None) -> tuple[ArrayLike, ArrayLike]:
        return lam, 1


@model
class DataReuse(Mode):
    """Data reuse (DR): each learner learns the sample ceil(K λ) times.

    Args:
      max_reuse: K, a whole number of at least 1.

    >>> DataReuse(max_reuse=5).spend(jnp.array([1.0, 0.3, 0.0]), None)[1].tolist()
    [5, 2, 0]
    """

    max_reuse: int = static(default=5)

    def __post_init__(self) -> None:
        checks.fields(self, max_reuse=checks.a_whole_number(at_least=1))

    @property
    def most_repeats(self) -> int:
        return self.max_reuse

    def spend(self, lam: Array, uniform: Array | None) -> tuple[ArrayLike, ArrayLike]:
        return 1.0, jnp.ceil(self.max_reuse * lam).astype(jnp.int32)


@model
class RandomUpdate(Mode):
    """Random updates (RU): each learner learns the sample with probability λ.

    >>> RandomUpdate().spend(jnp.array([1.0, 0.3]), jnp.array([0.99, 0.5]))[1].tolist()
    [True, False]
    """

    needs_key: ClassVar[bool] = True

    @property
    def most_repeats(self) -> int:
        return 1

    def spend(self, lam: Array, uniform: Array | None) -> tuple[ArrayLike, ArrayLike]:
        assert uniform is not None
        return 1.0, uniform < lam


@model
class PoissonReuse(Mode):
    """Oza's data reuse: each learner learns the sample n ~ Poisson(λ) times.

    >>> PoissonReuse().spend(jnp.array([1.0, 1.0]), jnp.array([0.3, 0.99]))[1].tolist()
    [0, 4]
    """

    needs_key: ClassVar[bool] = True

    @property
    def most_repeats(self) -> int:
        return LARGEST_POISSON

    def spend(self, lam: Array, uniform: Array | None) -> tuple[ArrayLike, ArrayLike]:
        assert uniform is not None
        term = cumulative = jnp.exp(-lam)
        n = jnp.zeros(lam.shape, jnp.int32)
        for j in range(1, LARGEST_POISSON + 1):
            n += (uniform >= cumulative).astype(n.dtype)
            term = term * lam / j
            cumulative = cumulative + term
        return 1.0, n
