"""Which samples count, and how much: weights that come with the data, and a budget for labels.

:class:`WeightColumn` takes each sample's weight from a column of its x. :class:`Budget` learns some
of the samples only, as where every answer must be paid for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import (
    DType,
    Key,
    Learner,
    Number,
    Sample,
    State,
    Wrapper,
    checks,
    draws,
    model,
    static,
)
from jboost.core.learner import required_key
from jboost.core.numerics import dtype_of, known, real, usable

MEMORY = 100  # samples


@model
class WeightColumn(Wrapper):
    """A learner whose samples bring their weight along, in a column of x that it does not see.

    The weight multiplies the ``weight`` of an update. A sample whose weight is 0 is left out: it
    leaves the state as it was, bit for bit; one whose weight is negative or not usable is too.
    Nothing else changes, and the state is the learner's own: a run may go on with or without it.

    Args:
      learner: any learner, on the other columns.
      column: the place of the weights; by default −1, the last.

    >>> import numpy as np
    >>> import jboost as jb
    >>> xs, ds = map(np.asarray, jb.streams.duffing(500))
    >>> weights = np.where(np.arange(500) < 250, 1.0, 0.0)
    >>> state, _ = jb.run(WeightColumn(jb.Newton()), np.column_stack([xs, weights]), ds)
    >>> half, _ = jb.run(jb.Newton(), xs[:250], ds[:250])
    >>> bool((state.w == half.w).all())
    True
    """

    learner: Learner
    column: int = static(default=-1)

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        object.__setattr__(self, "column", checks.whole("column", self.column, at_least=-(2**31)))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return self.learner.init(num_features - 1, dtype, key=key)

    def predict(self, state: State, x: ArrayLike) -> Array:
        return self.learner.predict(state, self._split(x)[0])

    def learn(self, state: State, sample: Sample) -> State:
        x, weight = self._split(sample.x)
        told = sample.with_input(x, self.takes_missing).only_if(usable(weight) & (weight > 0))
        weight = told.weight * known(weight, weight.dtype)
        return self.learner.learn(state, told.replace(weight=weight))

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        x, _ = self._split(sample.x)
        return self.learner.info(state, sample.with_input(x, self.takes_missing))

    def leverage(self, state: State, x: ArrayLike) -> Array:
        return self.learner.leverage(state, self._split(x)[0])

    def _split(self, x: Any) -> tuple[Array, Array]:
        """The learner's columns, and the weight."""
        x = real(x)
        n = x.shape[0]
        if n < 2 or not -n <= self.column < n:
            raise ValueError(
                "x must have a column of weights and at least one more; "
                f"got {n} columns, the weights in column {self.column}"
            )
        place = self.column % n
        return jnp.concatenate([x[:place], x[place + 1 :]]), x[place]


class BudgetState(NamedTuple):
    """Samples so far as two words; labels used; the mean ū of recent uncertainties; the learner."""

    t: Array
    wraps: Array
    used: Array
    doubt: Array
    learner: State


@model
class Budget(Wrapper):
    """A learner that asks for a part of the answers, chosen before it sees them.

        ask with probability min(1, ρ u/ū),    ρ the rate, u = uncertainty(state, x)

    where ū is the mean of u over the last hundred samples or so. Without ``uncertainty`` every
    sample has probability ρ. With it doubtful samples have more; where u varies so much that
    min(1, ·) cuts often, fewer than a part ρ are asked for. A draw is a function of the key and the
    sample's number, so a cut run goes on unchanged.

    ``state.used`` is how many labels were asked for. In a run over recorded data the others are not
    looked at. Live, ``wants(state, x, key)`` says whether to get the answer: where not, call
    ``update`` all the same, with any number for d, so that the next sample has its own draw.

    Args:
      learner: any learner.
      rate: ρ in (0, 1].
      uncertainty: "leverage" (of a Newton learner, also in a pipeline or a wrapper), or a function
        of the learner's state and x, ≥ 0.

    >>> import jax
    >>> import jboost as jb
    >>> xs, ds = jb.streams.stationary(jax.random.key(0), 2000)
    >>> model = Budget(jb.Newton(), rate=0.1)
    >>> state, trace = jb.run(model, xs, ds, key=jax.random.key(1))
    >>> int(state.used), bool(jb.ase(trace.prediction, ds)[-1] < 0.1)
    (171, True)
    """

    learner: Learner
    rate: Number
    uncertainty: str | Callable[[State, Any], Array] | None = static(default=None)

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        object.__setattr__(self, "rate", checks.number("rate", self.rate, above=0, at_most=1))
        if not (self.uncertainty in (None, "leverage") or callable(self.uncertainty)):
            raise TypeError(
                "uncertainty must be 'leverage', a function of (state, x) or None; "
                f"got {self.uncertainty!r}"
            )
        if self.uncertainty == "leverage" and not self.learner.knows_leverage:
            raise TypeError(
                "uncertainty='leverage' wants a Newton learner, as such or in a pipeline; "
                f"got {self.learner!r}. Pass a function of (state, x) for any other"
            )

    @property
    def needs_key(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> BudgetState:
        dtype, zero = dtype_of(dtype), jnp.zeros((), jnp.uint32)
        learner = self.learner.init(num_features, dtype, key=key)
        return BudgetState(zero, zero, zero, jnp.zeros((), dtype), learner)

    def wants(self, state: BudgetState, x: Any, key: Any) -> Array:
        """Whether the answer to x is asked for."""
        return self._look(state, x, key)[0]

    def learn(self, state: BudgetState, sample: Sample) -> BudgetState:
        wanted, u = self._look(state, sample.x, sample.key)
        t = state.t + 1
        # What a learner doubts at its start is far more than later, and must not be remembered.
        gain = jnp.maximum(4 / (state.t.astype(u.dtype) + 4), 1 / MEMORY)
        after = state._replace(
            t=t,
            wraps=state.wraps + (t == 0).astype(jnp.uint32),
            used=state.used + wanted.astype(jnp.uint32),
            doubt=state.doubt + gain * (u - state.doubt),
        )
        learner = self.learner.learn(state.learner, sample.only_if(wanted))
        return sample.keep(after, state)._replace(learner=learner)

    def info(self, state: BudgetState, sample: Sample) -> dict[str, Any]:
        """Report what the learner reports, and ``asked``: whether the answer is asked for."""
        wanted, _ = self._look(state, sample.x, sample.key)
        return self.learner.info(state.learner, sample) | {"asked": wanted}

    def _look(self, state: BudgetState, x: Any, key: Any) -> tuple[Array, Array]:
        """Whether to ask, and u."""
        dtype = state.doubt.dtype
        chance, u = jnp.asarray(self.rate, dtype), jnp.ones((), dtype)
        if self.uncertainty is not None:
            doubt = self.uncertainty
            doubt = self.learner.leverage if isinstance(doubt, str) else doubt
            u = jnp.asarray(doubt(state.learner, known(x, dtype)), dtype)
            some = (state.doubt > 0) & (u >= 0)
            chance = jnp.where(some, chance * u / jnp.where(some, state.doubt, 1), chance)
        own = jax.random.fold_in(
            required_key(key), 1
        )  # apart from what the learner draws with the key
        return draws.uniform(own, (state.t, state.wraps), 1, dtype)[0] < chance, u
