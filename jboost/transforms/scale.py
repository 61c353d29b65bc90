"""Scale: columns of any units in units of their own, by what the stream has shown so far."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Number, Sample, Transform, checks, model, static
from jboost.core.numerics import dtype_of, known, usable
from jboost.transforms.units import SETTLED, Held, Moments, Range, Units

# The least deviation of a column, over the size of its mean. Where values differ by less than that,
# they are mostly the same value, and to blow up what they differ by makes a model depend on it. On
# 18 raw streams the floor changes the errors of Newton and NLMS by at most 0.6 %.
FLOOR = 0.003
FLOOR_FROM = 8  # values of a column: the first ones do not tell how much it changes

KINDS: dict[str, type[Units]] = {"moments": Moments, "range": Range, "held": Held}


@model
class Scale(Transform):
    """Scales every column by its past and present values.

    | kind      | x′                                                                    |
    |-----------|-----------------------------------------------------------------------|
    | "moments" | (x − m)/s within ±c, with the running mean m and deviation s          |
    | "range"   | −1 at the smallest value so far, 1 at the largest, linear in between  |
    | "held"    | as "moments", in units that hold until they are clearly wrong         |

    The classes of :mod:`.units` have the formulas. A value beyond c units (deviations, or half
    widths) counts as one at c, so that a single absurd value cannot spoil the scale. The present x
    is counted before it is scaled: the first of all is 0, the second within ±1. A column that never
    changed is 0. A missing entry stays missing (NaN), which a learner takes as 0.

    A column that hardly changes is not blown up: with ``floor``, s counts as at least 0.3 % of
    |m|, except in a "range" and for the first 8 values.

    Inputs that wander take m along, and what a learner knows of them is then wrong by as much. A
    target that wanders with them should take m along too: see :class:`ScaleTarget`. Where the
    learned coefficients must stay exact, as those of a cubic (``Polynomial(3)``), use "held". With
    many columns "moments" suits smaller steps of SGD.

    Args:
      forgetting: γ in (0, 1], for "held" above 7/8; about 1/(1 − γ) samples are remembered.
      clip: c > 1.
      floor: whether s has that least value.

    >>> import jax.numpy as jnp
    >>> scale = Scale("range")
    >>> state = scale.init(2)
    >>> for x in ([1e6, 5.0], [3e6, 5.0], [2.5e6, 5.0]):
    ...     print(scale.apply(state, jnp.array(x)))
    ...     state = scale.update(state, jnp.array(x))
    [0. 0.]
    [1. 0.]
    [0.5 0. ]
    """

    kind: str = static(default="moments")
    forgetting: Number = 1.0
    clip: Number = 5.0
    floor: bool = static(default=True)

    def __post_init__(self) -> None:
        rules = {"kind": checks.one_of(*KINDS), "clip": checks.a_number(above=1)}
        checks.fields(self, **rules, floor=checks.flag)
        # With a memory shorter than the samples it takes to settle, x′ would be NaN for ever.
        least = 1 - 1 / SETTLED if self.kind == "held" else 0
        checks.fields(self, forgetting=checks.a_number(above=least, at_most=1))

    @property
    def passes_missing(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> Units:
        return KINDS[self.kind].zeros((num_features,), dtype_of(dtype))

    def apply(self, state: Units, x: ArrayLike) -> Array:
        units = self.after(state, x)
        x = jnp.asarray(x, units.frame[1].dtype)
        return jnp.where(usable(x), self.scaled(units, known(x, x.dtype)), jnp.nan)

    def after(self, state: Units, x: ArrayLike) -> Units:
        return state.after(x, self.forgetting, self.clip)

    def scaled(self, state: Units, x: Array) -> Array:
        """Return usable values in the present units."""
        scaled = state.scaled(x, jnp.asarray(self.clip, x.dtype))
        return scaled * self._shrunk(state) if self._has_floor else scaled

    def unscaled(self, state: Units, scaled: Array) -> Array:
        """Return the values that lie where ``scaled`` says, within ±c units."""
        if self._has_floor:
            scaled = scaled / self._shrunk(state)
        return state.unscaled(scaled, jnp.asarray(self.clip, scaled.dtype))

    @property
    def _has_floor(self) -> bool:
        return self.floor and self.kind != "range"

    def _shrunk(self, state: Units) -> Array:
        """Return s over the larger of s and its floor: 1 for a column that changes enough."""
        m, s = state.frame
        moments = state.moments if isinstance(state, Held) else state
        counted = isinstance(moments, Moments) and (s > 0) & (moments.changes > FLOOR_FROM)
        return jnp.where(counted, s / jnp.maximum(s, FLOOR * jnp.abs(m)), 1)

    def learn(self, state: Units, sample: Sample) -> Units:
        return self.after(state, sample.x)
