"""The paper's six models under the paper's names: aliases of :func:`jboost.boost`.

Each also takes the arguments of :class:`Common`.
"""

from typing import TypedDict, Unpack

from jboost.boosting.boost import boost
from jboost.boosting.booster import Boosted
from jboost.boosting.modes import DataReuse, Mode, RandomUpdate, Weighted
from jboost.core import Learner, Number, checks
from jboost.learners.newton import AUTOMATIC, Newton
from jboost.learners.sgd import SGD


class Common(TypedDict, total=False):
    """The arguments of :func:`jboost.boost` that all six models take."""

    dependence: Number  # c ≥ 0, by default 1
    combiner: Learner | None  # a learner of the predictions, by default as for `jboost.boost`
    chain: str  # "prefix" or "scan", two ways to compute the same chain
    literal: bool  # whether to reproduce the printed recursion: no cap on P, no guard on SGD too


def _sgd(m: int, mode: Mode, target_mse: Number, step_size: Number, common: Common) -> Boosted:
    literal = checks.flag("literal", common.get("literal", False))
    learner = SGD(step_size, guard=not literal)
    return boost(learner, m, target_mse=target_mse, mode=mode, **common)


def _newton(
    m: int, mode: Mode, target_mse: Number, forgetting: Number, ridge: Number, common: Common
) -> Boosted:
    literal = checks.flag("literal", common.get("literal", False))
    cap = None if literal else AUTOMATIC
    learner = Newton(forgetting, ridge, max_variance=cap)
    return boost(learner, m, target_mse=target_mse, mode=mode, **common)


def bsgd_wu(
    m: int = 20, *, target_mse: Number, step_size: Number, **common: Unpack[Common]
) -> Boosted:
    """BSGD-WU: boosted SGD by weighted updates, the paper's eq. `blms`.

    >>> import jboost as jb
    >>> model = jb.bsgd_wu(target_mse=0.25, step_size=0.1)
    >>> bool(jb.mse(model, *jb.streams.duffing(2000)) < 0.3)
    True
    """
    return _sgd(m, Weighted(), target_mse, step_size, common)


def bsgd_dr(
    m: int = 20, *, target_mse: Number, step_size: Number, max_reuse: int = 5,
    **common: Unpack[Common],
) -> Boosted:  # fmt: skip
    """BSGD-DR: boosted SGD by data reuse, eq. `iterate`, with steps of step_size / max_reuse.

    >>> bsgd_dr(target_mse=0.25, step_size=0.1).learner
    SGD(step_size=0.02, guard=True)
    """
    mode = DataReuse(max_reuse)
    step_size = checks.number("step_size", step_size, above=0)
    return _sgd(m, mode, target_mse, step_size / mode.max_reuse, common)


def bsgd_ru(
    m: int = 20, *, target_mse: Number, step_size: Number, **common: Unpack[Common]
) -> Boosted:
    """BSGD-RU: boosted SGD by random updates. A run needs a key.

    >>> bsgd_ru(target_mse=0.25, step_size=0.1).needs_key
    True
    """
    return _sgd(m, RandomUpdate(), target_mse, step_size, common)


def bnm_wu(
    m: int = 20, *, target_mse: Number, forgetting: Number, ridge: Number, **common: Unpack[Common]
) -> Boosted:
    """BNM-WU: boosted Newton learners by weighted updates, eq. `w_rls`.

    >>> bnm_wu(m=3, target_mse=0.17, forgetting=0.999, ridge=0.01).m
    3
    """
    return _newton(m, Weighted(), target_mse, forgetting, ridge, common)


def bnm_dr(
    m: int = 20, *, target_mse: Number, forgetting: Number, ridge: Number, max_reuse: int = 5,
    **common: Unpack[Common],
) -> Boosted:  # fmt: skip
    """BNM-DR: boosted Newton learners by data reuse. They forget at every repeat.

    >>> bnm_dr(target_mse=0.17, forgetting=0.999, ridge=0.01).mode
    DataReuse(max_reuse=5)
    """
    return _newton(m, DataReuse(max_reuse), target_mse, forgetting, ridge, common)


def bnm_ru(
    m: int = 20, *, target_mse: Number, forgetting: Number, ridge: Number, **common: Unpack[Common]
) -> Boosted:
    """BNM-RU: boosted Newton learners by random updates. A run needs a key.

    >>> bnm_ru(target_mse=0.17, forgetting=0.999, ridge=0.01).needs_key
    True
    """
    return _newton(m, RandomUpdate(), target_mse, forgetting, ridge, common)
