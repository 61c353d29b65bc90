"""explain: what each column of x adds to a prediction, so that all of it adds up.

Columns are put in place of their usual values, one after the other, and a column gets what the
prediction changes by. That depends on the order, so a few fixed orders are averaged, each with its
reverse.
"""

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import Learner, State, checks
from jboost.core.learner import float_dtype, instance
from jboost.core.numerics import as_array, cast, known
from jboost.core.step import Info
from jboost.core.surroundings import surroundings
from jboost.engine.plan import inside_a_transformation
from jboost.explanations.usual import usual_input
from jboost.learners.newton import Newton
from jboost.learners.sgd import Linear
from jboost.running.run import check_state

LINEAR = (Linear, Newton)  # whose estimate is wᵀx
BATCH = 64  # predictions that are made together
ALL_ORDERS = 3  # columns up to which all orders are taken: six


def explain(
    model: Learner, state: State, x: ArrayLike, *,
    groups: ArrayLike | None = None, pairs: int = 2,
) -> tuple[Array, Array]:  # fmt: skip
    """Return what a prediction would be without x, and what each column of x adds to it.

        d̂ = base + Σ_i parts_i

    ``base`` is the prediction for the usual input: the running mean of each column where the state
    has one (``Scale``, ``Impute``, ``auto``), else 0. What past answers tell is in it. A column's
    part is the mean change of the prediction when the column takes its value in place of the usual
    one. For a linear learner it is w_i (x_i − usual_i). For other models the columns change one
    after the other, in 2 × ``pairs`` fixed orders, each with its reverse, and the changes are
    averaged. These are the Shapley values wherever no more than two columns act together, and with
    up to three columns; else they are estimates of them, and add up all the same.

    It takes about 2 × ``pairs`` × r predictions. It works under ``jit`` and ``vmap``; over a run,
    pass :class:`Explained` as ``observe``.

    Args:
      model: any learner.
      state: its state, from ``init`` or a run.
      x: (r,) an input.
      groups: (r,) whole numbers from 0 on; columns of one number change together, and ``parts`` has
        an entry for each number. By default every column is a group.
      pairs: how many orders are taken, each with its reverse, at least 1.

    Returns:
      ``base``, a scalar, and ``parts``, (r,). For a model of q targets they are (q,) and (q, r).

    >>> import jboost as jb
    >>> state, _ = jb.run(jb.Newton(), *jb.streams.duffing(500))
    >>> x = jnp.array([1.0, 0.0, -2.0])
    >>> base, parts = explain(jb.Newton(), state, x)
    >>> bool(jnp.allclose(parts, state.w * x)), float(base)
    (True, 0.0)

    References: L. S. Shapley, A value for n-person games, 1953; E. Štrumbelj, I. Kononenko, An
    efficient explanation of individual classifications using game theory, JMLR 11, 2010.
    """
    instance("model", model)
    pairs = checks.whole("pairs", pairs, at_least=1, at_most=2**16)
    array = as_array("x", x, "(r,)")
    if array.ndim != 1 or not array.size:
        raise ValueError(f"x must have shape (r,), with r >= 1; got {array.shape}")
    r = len(array)
    numbers, count = (np.arange(r), r) if groups is None else _checked_groups(groups, r)
    traced = inside_a_transformation(model, state, array)
    if not traced:
        arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
        row = np.zeros((1, r), float_dtype(arrays))
        check_state(model, state, row, jax.random.key(0) if model.needs_key else None)
    values = cast(array, float_dtype(state))
    orders = _orders(count, pairs)
    compute = _parts if traced else _compiled
    return compute(model, state, values, jnp.asarray(numbers), jnp.asarray(orders))


class Explained(NamedTuple):
    """An ``observe`` for a run of this model: what each column adds to each prediction.

    ``trace.observed`` is then (base, parts), of shapes (T,) and (T, r): base + parts.sum(axis=1) is
    ``trace.prediction``. It makes a run as much slower as :func:`explain` takes predictions.

    >>> import jboost as jb
    >>> model = jb.pipeline(jb.Scale(), jb.NLMS(0.1))
    >>> _, trace = jb.run(model, *jb.streams.duffing(300), observe=Explained(model))
    >>> base, parts = trace.observed
    >>> parts.shape, bool(abs(base + parts.sum(axis=1) - trace.prediction).max() < 1e-5)
    ((300, 3), True)
    """

    model: Learner
    groups: tuple[int, ...] | None = None  # as for :func:`explain`
    pairs: int = 1  # likewise

    def __call__(self, state: State, info: Info) -> tuple[Array, Array]:
        del state  # it has learned the sample
        groups = None if self.groups is None else np.array(self.groups)
        return explain(self.model, info.before(), info.x, groups=groups, pairs=self.pairs)

    def __hash__(self) -> int:
        return hash((id(self.model), self.groups, self.pairs))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explained):
            return False
        same = self.groups, self.pairs
        return self.model is other.model and same == (other.groups, other.pairs)


def _parts(
    model: Learner, state: State, x: Array, groups: Array, orders: Array
) -> tuple[Array, Array]:
    """Return base and parts; ``orders`` has the place of each group in each order, (orders, G)."""
    usual, count = usual_input(model, state, len(x)), orders.shape[1]
    prediction = model.predict(state, x)
    loss = getattr(model, "loss", None)
    if isinstance(model, LINEAR) and not (loss is not None and loss.has_link):
        moved = model.coefficients(state, x) * (known(x, x.dtype) - usual)
        parts = jax.ops.segment_sum(moved, groups, count)
        return prediction - parts.sum(), parts
    base = model.predict(state, usual)

    def predict(step: Array) -> Array:
        """Return the prediction at a step: so many groups of an order have their values."""
        order, changed = orders[step // max(inner, 1)], step % max(inner, 1) + 1
        return model.predict(state, jnp.where(order[groups] < changed, x, usual))

    def gains(order: Array, between: Array) -> Array:
        """Return what each group adds where they change in this order, (G, …)."""
        reached = jnp.concatenate([base[None], between, prediction[None]])
        return reached[order + 1] - reached[order]

    inner, steps = count - 1, jnp.arange(len(orders) * (count - 1), dtype=jnp.int32)
    # One after the other in a kernel, where batches do not pay; else calls would cost the most.
    batch = min(BATCH, len(steps)) if surroundings() == "anywhere" else 0
    between = jax.lax.map(predict, steps, batch_size=batch or None)
    between = between.reshape(len(orders), inner, *prediction.shape)
    parts = jnp.moveaxis(jax.vmap(gains)(orders, between).mean(axis=0), 0, -1)
    return prediction - parts.sum(axis=-1), parts  # what rounding leaves is in the base


_compiled = jax.jit(_parts)


@lru_cache(64)
def _orders(count: int, pairs: int) -> np.ndarray:
    """Return the places of each of ``count`` groups in each order, (orders, count), int32."""
    if count <= ALL_ORDERS:
        return np.array([*itertools.permutations(range(count))], np.int32)
    numbers, orders = np.arange(count), []
    for pair in range(pairs):
        # The first order is that of the columns. The others are those of the fractions of multiples
        # of irrational numbers, which mix well, and are the same everywhere.
        keys = numbers if pair == 0 else (numbers + 1) * math.sqrt(pair + 0.5) % 1
        order = np.argsort(np.argsort(keys, kind="stable"), kind="stable")
        orders += [order, count - 1 - order]
    return np.array(orders, np.int32)


def _checked_groups(groups: ArrayLike, r: int) -> tuple[np.ndarray, int]:
    """Return the groups of the columns, and how many there are."""
    numbers = checks.array_of(groups)
    wanted_form = f"groups must be {r} whole numbers, one per column, from 0 on without a gap"
    if numbers is None or numbers.dtype.kind not in "iu" or numbers.shape != (r,):
        raise ValueError(f"{wanted_form}; got {checks.shown(groups)}")
    if {*np.unique(numbers).tolist()} != {*range(int(numbers.max()) + 1)}:
        raise ValueError(f"{wanted_form}; got {checks.shown(groups)}")
    return numbers.astype(np.int32), int(numbers.max()) + 1
