"""auto: a model with nothing to tune.

    x, past answers → ┬ lines:    Newton at four memories
                      ├ products: of the best columns, by least squares of a short memory
                      ├ network:  perceptrons under Gauss–Newton, on the best columns
                      ├ kernel:   random Fourier features under least squares, of a growing memory
                      ├ replay:   a network that learns the latest rows again and again
                      ├ naive:    the last value, and what the seasons suggest
                      └ trees:    boosted trees of what the mix of all others leaves
                           → Refined, a convex mix and what least squares adds to it → d̂

Inputs and targets are scaled by the past of the stream, so the same settings suit streams of any
units. Streams differ in how smooth they are, how fast they change, how long they are and how much
their past tells. The experts span these differences, and the mix chooses among them.
"""

from typing import Any, NamedTuple

import jax
from jax import Array
from jax.typing import ArrayLike

from jboost.automatic.kernel import WithFourier
from jboost.automatic.mixture import NAIVE, Expert, mixture
from jboost.combiners.convex import BOA
from jboost.combiners.refined import Refined
from jboost.core import DType, Key, Learner, Sample, State, checks, model, static
from jboost.core.learner import instance
from jboost.learners.forest.boosted import BoostedTrees
from jboost.learners.networks import Perceptron, Rectified
from jboost.learners.newton import Newton
from jboost.learners.replay import Replay
from jboost.learners.trainers import GaussNewton
from jboost.transforms import Bias, Polynomial, Scale, Select
from jboost.transforms.past import Past
from jboost.transforms.pipelines import pipeline
from jboost.wrappers.memory import GrowingMemory


class Size(NamedTuple):
    """What an auto of some size has."""

    parameters: int  # of a network under Gauss–Newton
    memories: tuple[float, ...]  # the forgetting factors of these networks
    # Of the products of columns: the degree, the forgetting factor, the number of the scale of d.
    products: tuple[int, float, int]
    features: int  # random features of the kernel; 0 for no such expert
    replay: Replay | None
    trees: BoostedTrees | None


# experiments/bench/accuracy.py and auto_streams.py measure what these settings give.
SIZES = {
    "small": Size(60, (0.9995, 0.9995, 0.998, 0.99), (3, 0.99, 1), 0, None, None),
    "medium": Size(100, (0.9995, 0.998, 0.99), (2, 0.98, 0), 150, Replay(), BoostedTrees()),
    "large": Size(
        300, (0.9995, 0.998), (2, 0.98, 0), 400,
        Replay(Rectified((128, 64)), rows=16384, decay=0.03),
        BoostedTrees(trees=128, rows=16384, work=16384),
    ),
}  # fmt: skip
MEMORIES = (1.0, 0.999, 0.99, 0.95)  # forgetting factors of the lines
COLUMNS_OF_NETWORKS = 40
COLUMNS_OF_PRODUCTS = 8  # 44 products of up to two, 164 of up to three
# How targets are scaled: whatever they change by matters, so there is no floor.
TARGETS = (Scale(floor=False), Scale("held", clip=10.0, floor=False))


@model
class Seeded(Learner):
    """A learner that draws at random, but also runs without a key.

    The library's other models insist on a key. Here runs without a key use that of ``seed``, and
    draw the same numbers.

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
        checks.fields(self, learner=instance, seed=checks.a_whole_number(at_least=0))

    @property
    def takes_missing(self) -> bool:
        return self.learner.takes_missing

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return self.learner.init(num_features, dtype, key=self._key(key))

    def predict(self, state: State, x: ArrayLike) -> Array:
        return self.learner.predict(state, x)

    def learn(self, state: State, sample: Sample) -> State:
        return self.learner.learn(state, sample.replace(key=self._key(sample.key)))

    def predict_and_learn(self, state: State, sample: Sample) -> tuple[Array, State]:
        return self.learner.predict_and_learn(state, sample.replace(key=self._key(sample.key)))

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        return self.learner.info(state, sample.replace(key=self._key(sample.key)))

    def _key(self, key: Key) -> Array:
        return jax.random.key(self.seed) if key is None else key


def experts(size: str = "medium") -> dict[str, Expert]:
    """Return the experts of :func:`auto` that learn by themselves, by name.

    Experts of one kind are neighbours.
    """
    of = SIZES[checks.choice("size", size, tuple(SIZES))]
    by_name: dict[str, Expert] = {}
    for beta in MEMORIES:
        line = pipeline(Bias(), Newton(beta, ridge=0.1))
        by_name[f"line, memory {_memory(beta)}"] = Expert(line, past=True)
    network = Perceptron(parameters=of.parameters)
    for number, beta in enumerate(of.memories, 1):
        learner = GaussNewton(network, Newton(beta, ridge=1.0))
        name = f"network {number}, memory {_memory(beta)}"
        by_name[name] = Expert(pipeline(Select(COLUMNS_OF_NETWORKS), learner))
    if of.features:
        squares = Newton(0.995, ridge=1.0, max_variance=10.0)
        kernel = pipeline(WithFourier(of.features), GrowingMemory(squares, rate=0.25))
        by_name["kernel"] = Expert(kernel)
    if of.replay is not None:
        by_name["replayed network"] = Expert(of.replay, past=True)
    degree, beta, taught = of.products
    products = Select(COLUMNS_OF_PRODUCTS), Polynomial(degree), Bias(), Newton(beta, ridge=0.01)
    by_name["products of columns"] = Expert(pipeline(*products), taught=taught)
    return by_name


def names(size: str = "medium") -> list[str]:
    """Return the names of all estimates of :func:`auto`, in the order in which it reports them."""
    last = [] if SIZES[size].trees is None else ["trees"]
    return [*experts(size), *NAIVE, *last]


def auto(size: str = "medium", *, seed: int = 0) -> Seeded:
    """Make a learner with nothing to tune, for raw streams of any scale.

    Args:
      size: "small" has no trees and takes microseconds; "medium"; or "large", which remembers four
        times as many rows, for long streams. experiments/bench/accuracy.md has times and errors.
      seed: the seed of the draws where a run has no key: the networks start at random.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(300)
    >>> state, trace = jb.run(auto("small"), 1e3 * xs, 5 + 1e-3 * ds)
    >>> trace.prediction.shape
    (300,)
    """
    learners = [*experts(size).values()]
    targets = TARGETS[: 1 + max(expert.taught for expert in learners)]
    mixed = mixture(Scale(), targets, Past(), learners, BOA(), SIZES[size].trees, Refined())
    return Seeded(mixed, seed)


def _memory(forgetting: float) -> str:
    return "∞" if forgetting == 1 else f"{1 / (1 - forgetting):.0f}"
