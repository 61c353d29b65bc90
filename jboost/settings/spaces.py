"""The coordinate in which a setting is moved: it has no bounds, and a step is alike everywhere.

| range of the value | natural coordinate  | what a step of 0.1 means                |
|--------------------|---------------------|-----------------------------------------|
| (0, ∞)             | log v               | 10 % more                               |
| (a, b)             | log (v − a)/(b − v) | near an edge: 10 % more distance from it |
| (−∞, ∞)            | v                   | 0.1 more                                |
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import Learner, checks
from jboost.settings import leaves


class Space(NamedTuple):
    """An open interval: low < value < high.

    >>> space = Space(0.0, 1.0)
    >>> round(float(space.value(space.natural(jnp.array(0.99)))), 4)
    0.99
    """

    low: float = -math.inf
    high: float = math.inf

    def natural(self, value: Array) -> Array:
        """Return the coordinate of a value, from −∞ to ∞."""
        if self.low == -math.inf and self.high == math.inf:
            return value
        above = jnp.log(value - self.low) if self.low > -math.inf else jnp.zeros_like(value)
        return above if self.high == math.inf else above - jnp.log(self.high - value)

    def value(self, natural: Array) -> Array:
        """Return the value at a coordinate."""
        if self.low == -math.inf and self.high == math.inf:
            return natural
        if self.high == math.inf:
            return self.low + jnp.exp(natural)
        if self.low == -math.inf:
            return self.high - jnp.exp(-natural)
        # The distance to the nearer edge is computed, so that 1 − β keeps its digits.
        share = 1 / (1 + jnp.exp(jnp.abs(natural)))
        width = self.high - self.low
        return jnp.where(natural < 0, self.low + width * share, self.high - width * share)


POSITIVE = Space(low=0.0)

# By the name of a field, or of a class and its field where the class allows less.
SPACES = {
    **dict.fromkeys(("dependence", "epsilon", "length_scale", "max_variance"), POSITIVE),
    **dict.fromkeys(("rate", "ridge", "step_size", "target_mse"), POSITIVE),
    **dict.fromkeys(("forgetting", "guarantee"), Space(0.0, 1.0)),
    "NLMS.step_size": Space(0.0, 2.0),
}


def by_name(ranges: object) -> dict[str, Iterable[float]]:
    """Check the argument ``spaces``: (low, high) by name, or None."""
    try:
        return {} if ranges is None else dict(ranges)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        advice = "a dict of (low, high) by name, such as {'step_size': (0, 1)}"
        raise TypeError(f"spaces must be {advice}; got {checks.shown(ranges)}") from None


def of(
    model: Learner, places: Mapping[str, int], ranges: Mapping[str, Iterable[float]] | None
) -> dict[str, Space]:
    """Return the space of each named setting: that in ``ranges``, or else its entry in SPACES.

    >>> import jboost as jb
    >>> of(jb.NLMS(0.5), {"step_size": 0}, None)
    {'step_size': Space(low=0.0, high=2.0)}
    """
    ranges = by_name(ranges)
    if stray := [name for name in ranges if name not in places]:
        names = ", ".join(places)
        raise ValueError(f"spaces must be for names in wrt ({names}); got one for {stray[0]!r}")
    spaces = {}
    for name, index in places.items():
        cls, field = leaves.owner(model, index)
        space = ranges.get(name, SPACES.get(f"{cls}.{field}", SPACES.get(field)))
        if space is None:
            advice = f"pass spaces={{{name!r}: (low, high)}}"
            raise ValueError(f"spaces must say between which values {name} may move: {advice}")
        try:
            low, high = map(float, space)
        except (TypeError, ValueError, OverflowError):
            low = high = math.nan
        if not low < high:
            got = checks.shown(space)
            raise ValueError(f"spaces[{name!r}] must be (low, high), low < high; got {got}")
        spaces[name] = Space(low, high)
    return spaces


def start(name: str, space: Space, value: ArrayLike, dtype: DTypeLike) -> Array:
    """Return the coordinate of the value that a search starts from; it must not be on an edge."""
    value = jnp.asarray(value, dtype)
    inside = (value > space.low) & (value < space.high)
    if not checks.is_traced(inside) and not inside.all():
        bounds = f"{space.low:g} < {name} < {space.high:g}"
        raise ValueError(f"{name} must start inside its range, {bounds}; got {value}")
    return space.natural(value)
