"""Inputs of any units in units of their own, by what the stream has shown so far."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Number, Sample, Transform, checks, model, static
from jboost.core.numerics import dtype_of, known, usable
from jboost.transforms.held import SETTLED, Held
from jboost.transforms.moments import Moments, standardised


class Range(NamedTuple):
    """The smallest and the largest value of every column, and whether there was one."""

    some: Array
    low: Array
    high: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Range:
        return cls(jnp.zeros(shape, bool), jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def after(self, x: Any, forgetting: Any, clip: Any) -> Range:
        """The range after one more value of each column; unusable ones change nothing."""
        dtype = self.low.dtype
        gamma, c = jnp.asarray(forgetting, dtype), jnp.asarray(clip, dtype)
        seen = usable(jnp.asarray(x, dtype))
        x = known(x, dtype)
        middle, half = self.frame
        near = jnp.where(half > 0, jnp.clip(x, middle - c * half, middle + c * half), x)
        fading = (1 - gamma) * half
        low = jnp.where(self.some, jnp.minimum(self.low + fading, near), x)
        high = jnp.where(self.some, jnp.maximum(self.high - fading, near), x)
        after = Range(jnp.ones_like(self.some), low, high)
        return jax.tree.map(lambda new, old: jnp.where(seen, new, old), after, self)

    @property
    def frame(self) -> tuple[Array, Array]:
        """The middle, and half of the width."""
        half = (self.high - self.low) / 2
        return self.low + half, half

    def place(self, x: Array, clip: Any) -> Array:
        """Where x lies: −1 at the low end, 1 at the high one."""
        del clip
        middle, half = self.frame
        return standardised(x - middle, half, jnp.ones_like(half))

    def value(self, place: Array, clip: Any) -> Array:
        """What lies there."""
        del clip
        middle, half = self.frame
        return middle + half * jnp.clip(place, -1, 1)


Seen = Moments | Range | Held
KINDS: dict[str, type[Any]] = {"moments": Moments, "range": Range, "held": Held}


@model
class Scale(Transform):
    """Every column in units of its own, by its past and its present value.

    | kind      | x′                                                                    |
    |-----------|-----------------------------------------------------------------------|
    | "moments" | (x − m)/s within ±c, with the running mean m and deviation s          |
    | "range"   | −1 at the smallest value so far, 1 at the largest, linear in between  |
    | "held"    | as "moments", in units that hold until they are clearly wrong         |

    A value beyond c units (deviations, half widths) counts as one at c, so that a single absurd one
    cannot spoil the scale; :mod:`jboost.transforms.moments` has the formulas of the first kind. The
    present x is counted before it is placed, which is what makes the first samples sensible: the
    first of all is 0, the second within ±1. A column that never changed is 0. A missing entry stays
    missing (NaN), which a learner takes as 0.

    On the first 8,192 rows of the paper's eight sets, raw, before ``Bias`` and ``ScaleTarget``,
    Newton has less error behind "moments" on compactiv (.012, behind "range" .050), california
    (.073, .084) and protein (.244, .255), and the same within 2 % on the others. SGD with a step
    of .01 is alike, but for ypmsd (.089, .059): 90 columns of variance 1 want a smaller step.
    Without the present x Newton loses up to 9 %, with c = 10 compactiv is at .029.

    Inputs that wander take m along, and what a learner knows of them is then off by as much. A
    target that wanders with them should do the same: see :class:`ScaleTarget`. Where what is
    learned must stay exact, :mod:`jboost.transforms.held` keeps the units: a learner behind it
    starts with the ninth sample, and a cubic one (``Polynomial(3)``) then has no error on the
    Duffing map, where with moving units it has a fifth of the variance.

    Args:
      kind: "moments", "range" or "held".
      forgetting: γ in (0, 1], for "held" above 7/8; about 1/(1 − γ) samples are remembered.
      clip: c > 1.

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

    def __post_init__(self) -> None:
        checks.choice("kind", self.kind, tuple(KINDS))
        # With less memory than the samples it takes to settle there would never be an x′.
        least = 1 - 1 / SETTLED if self.kind == "held" else 0
        forgetting = checks.number("forgetting", self.forgetting, above=least, at_most=1)
        object.__setattr__(self, "forgetting", forgetting)
        object.__setattr__(self, "clip", checks.number("clip", self.clip, above=1))

    @property
    def passes_missing(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> Seen:
        del key
        return KINDS[self.kind].zeros((num_features,), dtype_of(dtype))

    def apply(self, state: Seen, x: ArrayLike) -> Array:
        seen = self.after(state, x)
        dtype = seen.frame[1].dtype
        x = jnp.asarray(x, dtype)
        return jnp.where(usable(x), seen.place(known(x, dtype), self._c(dtype)), jnp.nan)

    def undo(self, state: Seen, scaled: Array) -> Array:
        """The value that lies where ``scaled`` says, or at the end of what is known."""
        return state.value(scaled, self._c(scaled.dtype))

    def after(self, state: Seen, x: ArrayLike) -> Seen:
        """Return what is known after one more value of each column."""
        return state.after(x, self.forgetting, self.clip)

    def learn(self, state: Seen, sample: Sample) -> Seen:
        return self.after(state, sample.x)

    def _c(self, dtype: Any) -> Array:
        return jnp.asarray(self.clip, dtype)
