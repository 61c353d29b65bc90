"""The paper's six models under the paper's names, and boosted trees: aliases of `jboost.boost`.

Each also takes the arguments of :class:`Common`. By default a model is not the printed one, which
``literal=True`` is. They differ in this, and in nothing else:

| | ``literal=True``, as printed | by default |
|---|---|---|
| combiner | normalised SGD, ``NSGD(0.01, epsilon=0.0)`` | forward RLS, ``RLS_COMBINER`` |
| start of δ | δ₀ = 0; a learner can then stay at λ = 0 for ever | δ is at least 1e-6 |
| error inside δ | (d − y)²/4 with y clipped to [−1, 1] | min(1, (d − y)²/4) |
| step of SGD | μλ | 1/‖x‖² where μλ‖x‖² > 2 |
| matrix P of NM | grows without limit where no data come | diagonal at most 1/ridge and 1e4 |
| forgetting of NM | β | at least 1e-3^(1/r): r steps keep a thousandth of the past |

Both draw random updates from a hash of (key, t, k), where the paper says only that they are random.
Both compute P by its square root, which is the same in exact arithmetic. The paper gives no step of
the combiner; 0.01 is ours.
"""

from typing import TypedDict, Unpack

from jboost.boosting.boost import boost
from jboost.boosting.booster import Boosted
from jboost.boosting.modes import DataReuse, Mode, RandomUpdate, Weighted
from jboost.core import Learner, Number, checks
from jboost.learners.newton import AUTOMATIC, Newton
from jboost.learners.sgd import SGD
from jboost.learners.tree.piecewise import PiecewiseLinear


class Common(TypedDict, total=False):
    """The arguments of :func:`jboost.boost` that all these models take."""

    dependence: Number  # c ≥ 0, by default 1
    combiner: Learner | None  # a learner of the predictions, by default as for `jboost.boost`
    chain: str  # "prefix" or "scan", two ways to compute the same chain
    literal: bool  # whether to reproduce the printed recursion: see the table of this module


def _sgd(m: int, mode: Mode, target_mse: Number, step_size: Number, common: Common) -> Boosted:
    literal = checks.flag("literal", common.get("literal", False))
    learner = SGD(step_size, guard=not literal)
    return boost(learner, m, target_mse=target_mse, mode=mode, **common)


def _newton(
    m: int, mode: Mode, target_mse: Number, forgetting: Number, ridge: Number, common: Common
) -> Boosted:
    learner = _newton_learner(forgetting, ridge, common)
    return boost(learner, m, target_mse=target_mse, mode=mode, **common)


def _newton_learner(forgetting: Number, ridge: Number, common: Common) -> Newton:
    literal = checks.flag("literal", common.get("literal", False))
    return Newton(forgetting, ridge, max_variance=None if literal else AUTOMATIC)


def _trees(
    m: int, mode: Mode, target_mse: Number, depth: int, forgetting: Number, ridge: Number,
    common: Common,
) -> Boosted:  # fmt: skip
    tree = PiecewiseLinear(depth, _newton_learner(forgetting, ridge, common))
    return boost(tree, m, target_mse=target_mse, mode=mode, **common)


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
    SGD(step_size=0.02, guard=True, loss=None)
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


def bpl_wu(
    m: int = 5, *, target_mse: Number, depth: int = 4, forgetting: Number = 0.999,
    ridge: Number = 0.01, **common: Unpack[Common],
) -> Boosted:  # fmt: skip
    """BPL-WU: boosted piecewise linear trees by weighted updates.

    The paper's abstract names trees as an extension and has none of its own. The learners are
    :class:`jboost.PiecewiseLinear`; ``experiments/paper/trees.py`` compares them with one tree, of
    the same and of larger depths. Trees are costly: m is 5.

    >>> bpl_wu(3, target_mse=0.05, depth=2).m
    3
    """
    return _trees(m, Weighted(), target_mse, depth, forgetting, ridge, common)


def bpl_dr(
    m: int = 5, *, target_mse: Number, depth: int = 4, forgetting: Number = 0.999,
    ridge: Number = 0.01, max_reuse: int = 5, **common: Unpack[Common],
) -> Boosted:  # fmt: skip
    """BPL-DR: boosted piecewise linear trees by data reuse.

    >>> bpl_dr(target_mse=0.1, depth=2).mode
    DataReuse(max_reuse=5)
    """
    return _trees(m, DataReuse(max_reuse), target_mse, depth, forgetting, ridge, common)


def bpl_ru(
    m: int = 5, *, target_mse: Number, depth: int = 4, forgetting: Number = 0.999,
    ridge: Number = 0.01, **common: Unpack[Common],
) -> Boosted:  # fmt: skip
    """BPL-RU: boosted piecewise linear trees by random updates. A run needs a key.

    >>> bpl_ru(target_mse=0.1).learner.depth
    4
    """
    return _trees(m, RandomUpdate(), target_mse, depth, forgetting, ridge, common)
