"""The function that makes a booster, and checks what it is made of."""

from collections.abc import Callable, Sequence

from jboost.boosting import copies
from jboost.boosting.booster import RLS_COMBINER, Boosted
from jboost.boosting.emphasis import Emphasis
from jboost.boosting.modes import Mode, Weighted
from jboost.combiners.mean import NSGD, Uniform, from_mean
from jboost.core import Learner, Number, checks
from jboost.core.learner import instance
from jboost.core.losses import Loss
from jboost.learners.sgd import SGD
from jboost.transforms.maps import Bias
from jboost.transforms.pipelines import pipeline

MOST_LEARNERS = 2**20


def boost(
    learner: Learner | Sequence[Learner] | Callable[[int], Learner],
    m: int | None = None,
    *,
    target_mse: Number,
    dependence: Number | None = None,
    mode: Mode | None = None,
    combiner: Learner | None = None,
    guarantee: Number | None = None,
    chain: str = "prefix",
    literal: bool = False,
    loss: Loss | None = None,
) -> Boosted:
    """Boost m copies of a learner, or a list of different ones: the paper's Algorithms 1 and 2.

    At every sample learner k gets the importance λ^(k) = min{1, δ^(c·l^(k))}. The total loss
    l^(k) = Σ_{j<k} [σ_m² − (e^(j))²] says how well the learners before it did, and δ is the
    weighted MSE/4 of learner k so far. The estimates are combined as d̂ = zᵀy. With
    ``dependence=0`` every λ is 1: the ordinary mixture of experts.

    Put the booster inside ``ScaleTarget`` where targets are not of about unit size.

    Args:
      learner: a learner, a list of learners (then m is its length), or a function of k = 0 … m − 1
        that returns a learner. A learner whose floats have shape (m,) is m different learners.
        Copies of a learner that draws at its start, as behind ``RandomFourier``, draw differently.
      m: the number of learners, from 1 to a million.
      target_mse: σ_m² ≥ 0, the modified desired MSE; about the MSE that is hoped for.
      dependence: c ≥ 0, by default 1.
      mode: how λ is spent, by default ``Weighted()``.
      combiner: a learner of the m predictions, which is made to start at their mean; by default
        ``ForwardNewton(0.999, ridge=1.0, max_variance=100.0, shrink=True)``, in literal models
        ``NSGD(step_size=0.01, epsilon=0.0)``.
      guarantee: σ² in (0, 1) for Algorithm 1, λ = min{1, (σ²)^(l/2)}; not with ``dependence``.
      chain: "prefix" sums the chain at once, "scan" walks it with an inner ``lax.scan``.
      literal: whether to follow the printed recursion: δ₀ = 0, y clipped inside δ, no floor of δ.
      loss: one of :mod:`jboost.losses`, that of the learners: its deviance, twice the loss, takes
        the place of e² in the chain, and σ_m² is the deviance that is hoped for. The default
        combiner is then ``pipeline(Bias(), SGD(0.005, loss=loss))``: learners of a quantile that
        give weight to large errors lean outward, and it brings their mean back. For Poisson it is
        ``Uniform()``.

    >>> import jax, jboost as jb
    >>> model = jb.boost([jb.SGD(0.1), jb.Newton(0.999)], target_mse=0.2, mode=jb.RandomUpdate())
    >>> jb.run(model, *jb.streams.duffing(1000), key=jax.random.key(0))[1].prediction.shape
    (1000,)
    """
    learners, sizes = _grouped(learner, m)
    literal = checks.flag("literal", literal)
    if guarantee is not None and dependence is not None:
        why = f"guarantee={checks.shown(guarantee)} is Algorithm 1, whose exponent is l/2"
        raise ValueError(f"{why}: give no dependence; got dependence={checks.shown(dependence)}")
    c = 1.0 if dependence is None else dependence
    emphasis = Emphasis(target_mse, c, guarantee, chain, literal, loss)
    if combiner is None:
        combiner = NSGD(step_size=0.01, epsilon=0.0) if literal else _combiner(emphasis.loss)
    mode = Weighted() if mode is None else mode
    boosted = Boosted(
        learner=learners[0] if len(learners) == 1 else learners,
        emphasis=emphasis,
        mode=checks.instance("mode", mode, Mode, "Weighted(), RandomUpdate() or another mode"),
        combiner=from_mean(instance("combiner", combiner, "NSGD(step_size=0.01)")),
        sizes=sizes,
    )
    for group, size in zip(learners, sizes, strict=True):
        copies.check(group, size)
    copies.check(emphasis, boosted.m)
    return boosted


def _combiner(loss: Loss | None) -> Learner:
    """Return the default combiner of estimates under a loss."""
    if loss is None:
        return RLS_COMBINER
    return Uniform() if loss.has_link else pipeline(Bias(), SGD(step_size=0.005, loss=loss))


def _grouped(
    learner: Learner | Sequence[Learner] | Callable[[int], Learner], m: int | None
) -> tuple[tuple[Learner, ...], tuple[int, ...]]:
    """Return the groups of alike learners, each as one learner, and how many are in each."""
    if callable(learner) and not isinstance(learner, type):
        m = checks.whole("m", m, at_least=1, at_most=MOST_LEARNERS)
        learner = [learner(k) for k in range(m)]
    if not isinstance(learner, (list, tuple)):
        if m is None:
            raise ValueError("m, the number of copies of the learner, is missing; got None")
        m = checks.whole("m", m, at_least=1, at_most=MOST_LEARNERS)
        return (instance("learner", learner),), (m,)
    if not learner:
        raise ValueError("learner must be a Learner or a list of at least one; got an empty list")
    if m is not None and checks.whole("m", m, at_least=1) != len(learner):
        raise ValueError(f"m must be the length of the list of learners, {len(learner)}; got {m}")
    groups = copies.groups_of_alike([instance("learner", member) for member in learner])
    return tuple(map(copies.stack, groups)), tuple(map(len, groups))
