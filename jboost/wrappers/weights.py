"""Which samples count: weights that come with the data, and a budget for answers that cost."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.draws import uniform
from jboost.core.learner import instance, required_key
from jboost.core.numerics import LARGEST, dtype_of, known, real, usable
from jboost.wrappers.intervals import check_leverage
from jboost.wrappers.robust import Median

MEMORY = 100  # samples over which the mean uncertainty is taken
LARGEST_DOUBT = 10.0  # an uncertainty counts as at most so many times the usual one


@model
class WeightColumn(Wrapper):
    """A learner whose samples bring their weight along, in a column of x that it does not see.

    The weight multiplies the ``weight`` of an update. A sample whose weight is 0, negative or not
    usable is left out; a weight above 1,000 counts as 1,000. The state is the learner's, so a run
    may go on with the learner alone.

    Args:
      learner: any learner, of the other columns.
      column: the number of the column of weights; −1 is the last.

    >>> import numpy as np, jboost as jb
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
        checks.fields(self, learner=instance, column=checks.a_whole_number(at_least=-(2**31)))

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        self._check(num_features)
        return self.learner.init(num_features - 1, dtype, key=key)

    def predict(self, state: State, x: ArrayLike) -> Array:
        return self.learner.predict(state, self._split(x)[0])

    def learn(self, state: State, sample: Sample) -> State:
        x, weight = self._split(sample.raw)
        weighted = sample.with_input(x, self.takes_missing).weighted(weight)
        return self.learner.learn(state, weighted.only_if(usable(weight) & (weight > 0)))

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        x, _ = self._split(sample.raw)
        return self.learner.info(state, sample.with_input(x, self.takes_missing))

    def leverage(self, state: State, x: ArrayLike) -> Array:
        return self.learner.leverage(state, self._split(x)[0])

    def _split(self, x: ArrayLike) -> tuple[Array, Array]:
        """Return the columns that the learner sees, and the weight."""
        x = real(x)
        self._check(x.shape[0])
        column = self.column % x.shape[0]
        return jnp.concatenate([x[:column], x[column + 1 :]]), x[column]

    def _check(self, num_features: int) -> None:
        if num_features < 2 or not -num_features <= self.column < num_features:
            raise ValueError(
                "x must have a column of weights and at least one more; "
                f"got num_features={num_features}, the weights in column {self.column}"
            )


class BudgetState(NamedTuple):
    """The state of a learner on a budget. All numbers are 0 at the start."""

    t: Array  # the number of samples so far; it wraps at 2³²
    wraps: Array  # how often t has wrapped
    used: Array  # the number of answers asked for; it wraps at 2³²
    doubt: Array  # ū, the mean of recent uncertainties
    usual: Median  # of all uncertainties
    learner: State


@model
class Budget(Wrapper):
    """A learner that asks for a part of the answers, chosen before it sees them.

        ask with probability min(1, ρ u/ū),    ρ the rate, u = uncertainty(state, x)

    where ū is the mean of u over about the last hundred samples, and u counts as at most ten times
    its running median, so that a wild sample does not silence the next ones. ``uncertainty`` is a
    function ≥ 0 of the learner's state and x, or "leverage" (of a Newton learner, also in a
    pipeline or a wrapper). Without it every sample has the probability ρ. Where u varies so much
    that min(1, ·) cuts often, less than a part ρ is asked for. A draw is a function of the key and
    of the sample's number, so a run cut anywhere and resumed is the same run.

    In a run over recorded data, answers that were not asked for are not looked at. Live,
    ``wants(state, x, key)`` says whether to get the answer. Where it says no, call ``update`` all
    the same, with any number for d, so that the next sample has another draw. Besides the
    learner's reports, ``info`` has ``asked``: whether the answer is asked for.

    Args:
      learner: any learner.
      rate: ρ in (0, 1].
      uncertainty: "leverage", a function of the learner's state and x that is ≥ 0, or None.

    >>> import jax, jboost as jb
    >>> xs, ds = jb.streams.stationary(jax.random.key(0), 2000)
    >>> model = Budget(jb.Newton(), rate=0.1)
    >>> state, trace = jb.run(model, xs, ds, key=jax.random.key(1))
    >>> int(state.used), bool(jb.ase(trace.prediction, ds)[-1] < 0.1)
    (171, True)
    """

    learner: Learner
    rate: Number
    uncertainty: str | Callable[[State, Array], Array] | None = static(default=None)

    def __post_init__(self) -> None:
        checks.fields(self, learner=instance, rate=checks.a_number(above=0, at_most=1))
        if isinstance(self.uncertainty, str) and self.uncertainty == "leverage":
            check_leverage("uncertainty='leverage'", self.learner, "a function of (state, x)")
        elif self.uncertainty is not None and not callable(self.uncertainty):
            raise TypeError(
                "uncertainty must be 'leverage', a function of (state, x) or None; "
                f"got {checks.shown(self.uncertainty)}"
            )

    @property
    def needs_key(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> BudgetState:
        dtype, zero = dtype_of(dtype), jnp.zeros((), jnp.uint32)
        learner = self.learner.init(num_features, dtype, key=key)
        return BudgetState(zero, zero, zero, jnp.zeros((), dtype), Median.zeros(dtype), learner)

    def wants(self, state: BudgetState, x: ArrayLike, key: Key) -> Array:
        """Return whether the answer to x is asked for."""
        return self._draw(state, x, key)[0]

    def learn(self, state: BudgetState, sample: Sample) -> BudgetState:
        asked, u = self._draw(state, sample.raw, sample.key)
        # A learner is far more uncertain at its start than later: those u must fade quickly.
        gain = jnp.maximum(4 / (state.t.astype(u.dtype) + 4), 1 / MEMORY)
        doubt = _tamed(state, state.doubt)
        after = state._replace(
            t=state.t + 1,
            wraps=state.wraps + (state.t + 1 == 0).astype(jnp.uint32),
            used=state.used + asked.astype(jnp.uint32),
            doubt=doubt + gain * (_tamed(state, u) - doubt),
            usual=state.usual.after(u),
        )
        learner = self.learner.learn(state.learner, sample.only_if(asked))
        return sample.keep(after, state)._replace(learner=learner)

    def info(self, state: BudgetState, sample: Sample) -> dict[str, Any]:
        asked, _ = self._draw(state, sample.raw, sample.key)
        return super().info(state, sample) | {"asked": asked}

    def _draw(self, state: BudgetState, x: ArrayLike, key: Key) -> tuple[Array, Array]:
        """Return whether to ask, and u."""
        dtype = state.doubt.dtype
        chance, u = jnp.asarray(self.rate, dtype), jnp.ones((), dtype)
        leverage, uncertainty = self.learner.leverage, self.uncertainty
        uncertainty = leverage if isinstance(uncertainty, str) else uncertainty
        if uncertainty is not None:
            doubt = _tamed(state, state.doubt)
            u = jnp.asarray(uncertainty(state.learner, known(x, dtype)), dtype)
            u = jnp.minimum(jnp.where(u >= 0, u, doubt), LARGEST**2)
            positive = doubt > 0
            chance = jnp.where(
                positive, chance * _tamed(state, u) / jnp.where(positive, doubt, 1), chance
            )
        key = jax.random.fold_in(required_key(key), 1)  # the learner draws with the key itself
        return uniform(key, (state.t, state.wraps), 1, dtype)[0] < chance, u


def _tamed(state: BudgetState, u: Array) -> Array:
    """Return an uncertainty, at most ``LARGEST_DOUBT`` times the usual one."""
    most = jnp.where(state.usual.s > 0, LARGEST_DOUBT * state.usual.s, jnp.inf)
    return jnp.minimum(u, most)
