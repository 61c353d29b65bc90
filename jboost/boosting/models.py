"""The paper's six models under the paper's names: aliases of :func:`jboost.boost`.

Besides the arguments in its signature each model takes

* ``dependence``: c ≥ 0, by default 1;
* ``combiner``: a learner of the predictions, by default as for :func:`jboost.boost`;
* ``chain``: "prefix" or "scan", two ways to compute the same chain;
* ``literal``: whether to follow the printed recursion to the letter, in order to reproduce it:
  δ₀ = 0, y clipped inside δ, no floor under δ, no cap on P, no guard on SGD's step, and the
  normalised SGD combiner.
"""

from typing import TypedDict, Unpack

from jboost.boosting.boost import boost
from jboost.boosting.booster import Boosted
from jboost.boosting.modes import DataReuse, RandomUpdate, Weighted
from jboost.core import Learner, Number, checks
from jboost.learners.newton import AUTOMATIC, Newton
from jboost.learners.sgd import SGD


class BoosterArguments(TypedDict, total=False):
    """The arguments of :func:`jboost.boost` that all six models take."""

    dependence: Number
    combiner: Learner | None
    chain: str
    literal: bool


def _sgd(step_size: Number, booster: BoosterArguments) -> SGD:
    return SGD(step_size, guard=not booster.get("literal", False))


def _newton(forgetting: Number, ridge: Number, booster: BoosterArguments) -> Newton:
    cap = None if booster.get("literal", False) else AUTOMATIC
    return Newton(forgetting, ridge, max_variance=cap)


def bsgd_wu(
    m: int = 20, *, target_mse: Number, step_size: Number, **booster: Unpack[BoosterArguments]
) -> Boosted:
    """BSGD-WU: boosted SGD by weighted updates, the paper's eq. `blms`.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> bool(jb.mse(jb.bsgd_wu(target_mse=0.25, step_size=0.1), xs, ds) < 0.3)
    True
    """
    learner = _sgd(step_size, booster)
    return boost(learner, m, target_mse=target_mse, mode=Weighted(), **booster)


def bsgd_dr(
    m: int = 20,
    *,
    target_mse: Number,
    step_size: Number,
    max_reuse: int = 5,
    **booster: Unpack[BoosterArguments],
) -> Boosted:
    """BSGD-DR: boosted SGD by data reuse, eq. `iterate`, with steps of step_size / max_reuse.

    >>> bsgd_dr(target_mse=0.25, step_size=0.1).learner
    SGD(step_size=0.02, guard=True)
    """
    mode = DataReuse(max_reuse)
    step_size = checks.number("step_size", step_size, above=0)
    learner = _sgd(step_size / mode.max_reuse, booster)
    return boost(learner, m, target_mse=target_mse, mode=mode, **booster)


def bsgd_ru(
    m: int = 20, *, target_mse: Number, step_size: Number, **booster: Unpack[BoosterArguments]
) -> Boosted:
    """BSGD-RU: boosted SGD by random updates. A run needs a key.

    >>> bsgd_ru(target_mse=0.25, step_size=0.1).needs_key
    True
    """
    learner = _sgd(step_size, booster)
    return boost(learner, m, target_mse=target_mse, mode=RandomUpdate(), **booster)


def bnm_wu(
    m: int = 20,
    *,
    target_mse: Number,
    forgetting: Number,
    ridge: Number,
    **booster: Unpack[BoosterArguments],
) -> Boosted:
    """BNM-WU: boosted Newton learners by weighted updates, eq. `w_rls`.

    >>> bnm_wu(m=3, target_mse=0.17, forgetting=0.999, ridge=0.01).m
    3
    """
    learner = _newton(forgetting, ridge, booster)
    return boost(learner, m, target_mse=target_mse, mode=Weighted(), **booster)


def bnm_dr(
    m: int = 20,
    *,
    target_mse: Number,
    forgetting: Number,
    ridge: Number,
    max_reuse: int = 5,
    **booster: Unpack[BoosterArguments],
) -> Boosted:
    """BNM-DR: boosted Newton learners by data reuse. They forget at every repeat.

    >>> bnm_dr(target_mse=0.17, forgetting=0.999, ridge=0.01).mode
    DataReuse(max_reuse=5)
    """
    learner = _newton(forgetting, ridge, booster)
    return boost(learner, m, target_mse=target_mse, mode=DataReuse(max_reuse), **booster)


def bnm_ru(
    m: int = 20,
    *,
    target_mse: Number,
    forgetting: Number,
    ridge: Number,
    **booster: Unpack[BoosterArguments],
) -> Boosted:
    """BNM-RU: boosted Newton learners by random updates. A run needs a key.

    >>> bnm_ru(target_mse=0.17, forgetting=0.999, ridge=0.01).needs_key
    True
    """
    learner = _newton(forgetting, ridge, booster)
    return boost(learner, m, target_mse=target_mse, mode=RandomUpdate(), **booster)
