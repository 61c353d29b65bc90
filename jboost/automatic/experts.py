"""auto: a model with nothing to tune.

    x → ┬ lines:     NLMS at two steps, Newton at four memories
        ├ networks:  four perceptrons under Gauss–Newton, on the best columns
        └ cubic:     products of the best columns under Newton, of targets in units that hold
             → Refined, a convex mix and what least squares adds to it → d̂

Inputs and targets are scaled by the past of the stream, so the same settings suit streams of any
units. Streams differ in how smooth they are, how fast they change and how long they are. The
experts span these differences, and the mix chooses among them.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.automatic.mixture import RAW, Expert, mixture
from jboost.combiners.convex import BOA
from jboost.combiners.refined import Refined
from jboost.core import DType, Key, Learner, Sample, State, Transform, Wrapper, checks, model, static
from jboost.core.numerics import dtype_of, real
from jboost.learners.forest.boosted import BoostedTrees
from jboost.learners.replay import Replay
from jboost.core.learner import instance
from jboost.learners.networks import Perceptron
from jboost.learners.newton import Newton
from jboost.learners.sgd import NLMS
from jboost.learners.trainers import GaussNewton
from jboost.transforms import Bias, Polynomial, RandomFourier, Scale, Select
from jboost.transforms.pipelines import pipeline

# experiments/bench/accuracy.py and auto_streams.py measure what these settings give.
SIZES = {"small": 60, "medium": 150, "large": 300}  # parameters of a network
STEPS = (0.03, 0.3)  # step sizes of the lines under NLMS
MEMORIES = (1.0, 0.999, 0.99, 0.95)  # forgetting factors of the lines under Newton
MEMORIES_OF_NETWORKS = (0.9995, 0.9995, 0.998, 0.99)  # likewise; the networks start differently
COLUMNS_OF_NETWORKS = 40
COLUMNS_OF_PRODUCTS = 8  # 164 products of up to three
TARGETS = (Scale(), Scale("held", clip=10.0))  # how targets are scaled
MOVING, HOLDING = 0, 1  # the numbers of these scales


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

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        return self.learner.info(state, sample.replace(key=self._key(sample.key)))

    def _key(self, key: Key) -> Array:
        return jax.random.key(self.seed) if key is None else key


def experts(size: str | int = "medium") -> dict[str, Expert]:
    """Return the experts of :func:`auto` by name."""
    by_name: dict[str, Expert] = {}
    for beta in MEMORIES:
        line = pipeline(Bias(), Newton(beta, ridge=0.1))
        by_name[f"line, memory {_memory(beta)}"] = Expert(line, "past")
    if isinstance(size, str):
        size = SIZES[checks.choice("size", size, tuple(SIZES))]
    network = Perceptron(parameters=checks.whole("size", size, at_least=1))
    learner = GaussNewton(network, Newton(0.9995, ridge=1.0))
    by_name["network"] = Expert(pipeline(Select(COLUMNS_OF_NETWORKS), learner))
    fourier = pipeline(Kernel(200), Lengthening(Newton(0.995, ridge=1.0, max_variance=10.0, storage="covariance")))
    by_name["kernel"] = Expert(fourier)
    by_name["replay"] = Expert(Replay(), "past")
    return by_name


def auto(size: str | int = "medium", *, seed: int = 0, last: bool = True) -> Seeded:
    """Make a learner with nothing to tune, for raw streams of any scale."""
    learners = [*experts(size).values()]
    last = BoostedTrees() if last else None
    refined = Refined()
    return Seeded(mixture(Scale(), TARGETS, learners, BOA(), last, refined), seed)


@model
class Kernel(Transform):
    count: int = static(default=200)

    @property
    def needs_key(self): return True
    def width(self, n): return n + 1 + self.count
    def init(self, num_features, dtype=None, *, key=None):
        return RandomFourier(self.count).init(num_features, dtype, key=key)
    def apply(self, state, x):
        x = real(x)
        r = x.shape[0]
        f = (2 * (r + 1) / self.count) ** 0.5 * jnp.cos(state.W @ x / r**0.5 + state.b)
        return jnp.concatenate([x, jnp.ones(1, x.dtype), f])


class LengtheningState(NamedTuple):
    count: Array
    learner: State


@model
class Lengthening(Wrapper):
    learner: Learner
    rate: float = 0.25
    def init(self, num_features, dtype=None, *, key=None):
        s = self.learner.init(num_features, dtype, key=key)
        return LengtheningState(jnp.zeros((), dtype_of(dtype)), s)
    def learn(self, state, sample):
        memory = 1 / (1 - self.learner.forgetting) + self.rate * state.count
        learner = dataclasses.replace(self.learner, forgetting=1 - 1 / memory)
        return LengtheningState(state.count + sample.counts, learner.learn(state.learner, sample))


def _memory(forgetting: float) -> str:
    return "∞" if forgetting == 1 else f"{1 / (1 - forgetting):.0f}"
