"""The paper's six models under its own names: aliases of :func:`jboost.boost`.

All take, besides what is in their signature:

* ``dependence``: c ≥ 0, by default 1;
* ``combiner``: a learner on the predictions, by default as for :func:`jboost.boost`;
* ``chain``: "prefix" or "scan", two forms of the same chain;
* ``literal``: the printed recursion to the letter, for reproduction: δ₀ = 0 and y clipped inside
  δ, no floor under δ, no cap on P, no guard on SGD's step, and the normalised SGD combiner.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

from jboost.boosting.booster import Boosted, boost
from jboost.boosting.modes import DataReuse, Mode, RandomUpdate, Weighted
from jboost.core import checks
from jboost.core.learner import Learner
from jboost.core.pytree import Number
from jboost.learners.newton import Newton
from jboost.learners.sgd import SGD


class Settings(TypedDict, total=False):
    """What the six models share."""

    dependence: Number
    combiner: Learner | None
    chain: str
    literal: bool


def _bsgd(mode: Mode, m: int, target_mse: Number, step_size: Number, settings: Settings) -> Boosted:
    learner = SGD(step_size=step_size, guard=not settings.get("literal", False))
    return boost(learner, m, target_mse=target_mse, mode=mode, **settings)


def _bnm(
    mode: Mode, m: int, target_mse: Number, forgetting: Number, ridge: Number, settings: Settings
) -> Boosted:
    learner = Newton(forgetting=forgetting, ridge=ridge)
    if settings.get("literal", False):
        learner = Newton(forgetting=forgetting, ridge=ridge, max_variance=None)
    return boost(learner, m, target_mse=target_mse, mode=mode, **settings)


def bsgd_wu(
    m: int = 20, *, target_mse: Number, step_size: Number, **settings: Unpack[Settings]
) -> Boosted:
    """BSGD-WU: boosted SGD by weighted updates, the paper's eq. `blms`.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> bool(jb.mse(jb.bsgd_wu(target_mse=0.25, step_size=0.1), xs, ds) < 0.3)
    True
    """
    return _bsgd(Weighted(), m, target_mse, step_size, settings)


def bsgd_dr(
    m: int = 20,
    *,
    target_mse: Number,
    step_size: Number,
    max_reuse: int = 5,
    **settings: Unpack[Settings],
) -> Boosted:
    """BSGD-DR: boosted SGD by data reuse, eq. `iterate`; its learners run at step_size / max_reuse.

    >>> bsgd_dr(target_mse=0.25, step_size=0.1).learner
    SGD(step_size=0.02, guard=True)
    """
    mode = DataReuse(max_reuse)
    step_size = checks.number("step_size", step_size, above=0)
    return _bsgd(mode, m, target_mse, step_size / mode.max_reuse, settings)


def bsgd_ru(
    m: int = 20, *, target_mse: Number, step_size: Number, **settings: Unpack[Settings]
) -> Boosted:
    """BSGD-RU: boosted SGD by random updates; a run needs a key.

    >>> bsgd_ru(target_mse=0.25, step_size=0.1).needs_key
    True
    """
    return _bsgd(RandomUpdate(), m, target_mse, step_size, settings)


def bnm_wu(
    m: int = 20,
    *,
    target_mse: Number,
    forgetting: Number,
    ridge: Number,
    **settings: Unpack[Settings],
) -> Boosted:
    """BNM-WU: boosted Newton learners by weighted updates, eq. `w_rls`.

    >>> bnm_wu(m=3, target_mse=0.17, forgetting=0.999, ridge=0.01).m
    3
    """
    return _bnm(Weighted(), m, target_mse, forgetting, ridge, settings)


def bnm_dr(
    m: int = 20,
    *,
    target_mse: Number,
    forgetting: Number,
    ridge: Number,
    max_reuse: int = 5,
    **settings: Unpack[Settings],
) -> Boosted:
    """BNM-DR: boosted Newton learners by data reuse, forgetting at every repeat.

    >>> bnm_dr(target_mse=0.17, forgetting=0.999, ridge=0.01).mode
    DataReuse(max_reuse=5)
    """
    return _bnm(DataReuse(max_reuse), m, target_mse, forgetting, ridge, settings)


def bnm_ru(
    m: int = 20,
    *,
    target_mse: Number,
    forgetting: Number,
    ridge: Number,
    **settings: Unpack[Settings],
) -> Boosted:
    """BNM-RU: boosted Newton learners by random updates; a run needs a key.

    >>> bnm_ru(target_mse=0.17, forgetting=0.999, ridge=0.01).needs_key
    True
    """
    return _bnm(RandomUpdate(), m, target_mse, forgetting, ridge, settings)
