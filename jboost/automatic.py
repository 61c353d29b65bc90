"""A model with nothing to tune: the library's parts, put together.

    x → Impute → ┬ lines:     NLMS at two steps, Newton at four memories
                 ├ networks:  perceptrons under Gauss–Newton at three memories, on the best columns
                 └ cubic:     products of the best columns under Newton, in units that hold
                      → Refined, a convex mix and what least squares adds to it → d̂

Every expert scales its inputs and targets by the stream's own past, so that the same settings suit
streams of any units; what differs from stream to stream (how smooth it is, how fast it changes, how
long it is) is spanned by the experts and left to the mix. All of it is a booster with dependence 0.
"""

from typing import Any

import jax
from jax import Array
from jax.typing import ArrayLike

from jboost.boosting.boost import boost
from jboost.combiners.refined import Refined
from jboost.combiners.scaled import ScaleAlike
from jboost.core import DType, Key, Learner, Sample, State, checks, model, static
from jboost.learners.gauss_newton import GaussNewton
from jboost.learners.networks import Perceptron
from jboost.learners.newton import Newton
from jboost.learners.sgd import NLMS
from jboost.transforms import Bias, Impute, Polynomial, Scale, ScaleTarget, Select
from jboost.transforms.pipelines import pipeline

SIZES = {"small": 60, "medium": 150, "large": 300}  # parameters of a network
STEPS = (0.03, 0.3)
MEMORIES = (1.0, 0.999, 0.99, 0.95)  # of the lines
MEMORIES_OF_NETWORKS = (0.9995, 0.9995, 0.998, 0.99)
COLUMNS_OF_NETWORKS = 40
COLUMNS_OF_PRODUCTS = 8  # 164 products of up to three


@model
class Seeded(Learner):
    """A learner that draws, with a key of its own where none is given.

    The library's other models want an explicit key. This one is for a model that must run as it
    is: with no key, two runs are the same run; with keys, they are runs of different draws.

    Args:
      learner: any learner.
      seed: names the key that is taken where none is given.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(100)
    >>> model = Seeded(jb.boost(jb.SGD(0.1), 3, target_mse=0.1, mode=jb.RandomUpdate()))
    >>> jb.run(model, xs, ds)[1].prediction.shape
    (100,)
    """

    learner: Learner
    seed: int = static(default=0)

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        object.__setattr__(self, "seed", checks.whole("seed", self.seed, at_least=0))

    @property
    def takes_missing(self) -> bool:
        return self.learner.takes_missing

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return self.learner.init(num_features, dtype, key=self._key(key))

    def predict(self, state: State, x: ArrayLike) -> Array:
        return self.learner.predict(state, x)

    def learn(self, state: State, sample: Sample) -> State:
        return self.learner.learn(state, sample.replace(key=self._key(sample.key)))

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        """What the learner reports."""
        return self.learner.info(state, sample.replace(key=self._key(sample.key)))

    def _key(self, key: Any) -> Any:
        return jax.random.key(self.seed) if key is None else key


def experts(size: str | int = "medium") -> dict[str, Learner]:
    """The experts of :func:`auto` by name, in their order: those of one kind are neighbours."""
    made: dict[str, Learner] = {}
    for step in STEPS:
        made[f"line, step {step}"] = _scaled(Bias(), NLMS(step))
    for beta in MEMORIES:
        made[f"line, memory {_memory(beta)}"] = _scaled(Bias(), Newton(beta, ridge=0.1))
    network = Perceptron(parameters=_parameters(size))
    for number, beta in enumerate(MEMORIES_OF_NETWORKS):
        name = f"network {number + 1}, memory {_memory(beta)}"
        learner = GaussNewton(network, Newton(beta, ridge=1.0))
        made[name] = _scaled(Select(COLUMNS_OF_NETWORKS), learner)
    held = Scale("held", clip=10.0)
    # The target's units inside: around the pipeline they would hide the first samples from its own.
    learner = ScaleTarget(Newton(0.99, ridge=0.01), held)
    made["cubic"] = pipeline(held, Select(COLUMNS_OF_PRODUCTS), Polynomial(3), Bias(), learner)
    return made


def auto(size: str | int = "medium", *, seed: int = 0) -> Seeded:
    """A learner with nothing to tune, for raw streams of any scale.

    Args:
      size: "small", "medium", "large", or about how many parameters each of its networks has.
      seed: names the draw of the networks' starts where a run is given no key.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(300)
    >>> state, trace = jb.run(auto("small"), 1e3 * xs, 5 + 1e-3 * ds)
    >>> trace.prediction.shape
    (300,)
    """
    mixed = boost(
        list(experts(size).values()),
        target_mse=0.1,
        dependence=0.0,
        combiner=ScaleAlike(Refined()),
    )
    return Seeded(pipeline(Impute(), mixed), seed)


def _scaled(*parts: Any) -> Learner:
    return ScaleTarget(pipeline(Scale(), *parts))


def _parameters(size: str | int) -> int:
    if isinstance(size, str):
        return SIZES[checks.choice("size", size, tuple(SIZES))]
    return checks.whole("size", size, at_least=1)


def _memory(forgetting: float) -> str:
    return "∞" if forgetting == 1 else f"{1 / (1 - forgetting):.0f}"
