"""SelfTuning: a learner that tunes its own settings while the stream runs."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.learner import instance
from jboost.core.numerics import dtype_of, usable
from jboost.learners.newton import Newton, NewtonState
from jboost.settings import leaves
from jboost.settings import spaces as _spaces
from jboost.settings.surrogates import relaxed

# Chosen with SGD on ten streams, from steps 10 times too small and 10 times too large: among Δ from
# 0.2 to 0.5 the last has the best worst case, and ridges from 0.01 to 0.1 hardly differ.
# experiments/guides/tuning.md has the figures, also for streams that this choice did not use.
TUNER, TRUST = Newton(forgetting=0.999, ridge=0.03), 0.5
Ranges = Mapping[str, Iterable[float]] | Iterable[tuple[str, Iterable[float]]]  # low, high by name


class SelfTuningState(NamedTuple):
    """The state of a learner that tunes itself."""

    learner: State  # S
    phi: Array  # φ, at the start that of the given settings
    slopes: State  # G, of the structure of S; None in place of whole numbers
    tuner: NewtonState  # P; its coefficients are 0 between samples
    power: Array  # the sum of the squared errors, with forgetting; 0 at the start
    mass: Array  # the sum of the weights, with forgetting; 0 at the start


@model
class SelfTuning(Wrapper):
    """A learner whose chosen settings follow the stream, from wherever they start.

        φ ← φ + clip(P h e/σ², ±Δ),    P⁻¹ ← β P⁻¹ + h hᵀ/σ²,    S, G ← update and its derivative

    φ are the natural coordinates (log μ, logit β) of the settings ``wrt``. Beside the learner's
    state S, the wrapper carries G = ∂S/∂φ by the chain rule through every update. So each estimate
    has a slope h = ∂d̂/∂φ, and to first order its error e is that of a linear model in φ with the
    input h. Recursive least squares find the φ that would have done better. σ² is the mean square
    of the errors so far, with forgetting. This is the recursive prediction error method.

    The scales of inputs and targets do not matter. With n tuned numbers, a step takes about 1 + n
    times the time of the learner's, and the state about 1 + n times the memory.

    Stability: P is capped, and no sample moves φ by more than Δ. Where the estimate does not depend
    on φ, φ stays. SGD cuts steps with μ‖x‖² > 2, so a step more than about 10 times too large is
    not noticed: start too low rather than too high.

    ``weight`` is that of the sample, for the learner and for tuning. ``repeats`` means that many
    updates; inside the learner they are differentiated as :mod:`jboost.settings.surrogates` says.
    Besides the learner's reports, ``info`` has the tuned settings by name.

    Args:
      learner: any learner.
      wrt: names of its settings, as for :func:`jboost.hypergradient`.
      tuner: the least squares that move φ; its forgetting is the memory of tuning.
      trust: Δ > 0, the largest move of a coordinate at one sample.
      spaces: (low, high) by name, for settings whose range is not known.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(5000)
    >>> low = jb.SGD(step_size=0.001)
    >>> bool(jb.mse(SelfTuning(low), xs, ds) < jb.mse(low, xs, ds))
    True

    Reference: L. Ljung and T. Söderström, Theory and Practice of Recursive Identification, MIT
    Press, 1983, chapter 3.
    """

    learner: Learner
    wrt: str | Iterable[str] = static(default=("step_size",))
    tuner: Newton = TUNER
    trust: Number = TRUST
    spaces: Ranges = static(default=())

    def __post_init__(self) -> None:
        checks.fields(
            self,
            learner=instance,
            tuner=checks.of_kind(Newton, "least squares, such as Newton(0.999, 0.1)"),
            trust=checks.a_number(above=0),
        )
        # Static fields must be hashable: tuples take the place of lists and dictionaries.
        numbers, ranges = leaves.places(self.learner, self.wrt), _spaces.by_name(self.spaces)
        _spaces.of(self.learner, numbers, ranges)
        ends = tuple((name, tuple(ends)) for name, ends in ranges.items())
        checks.assign(self, wrt=tuple(numbers), spaces=ends)
        self._start(jnp.result_type(float))  # refuses wrong names, ranges and values at once

    @property
    def _tuned(self) -> list[tuple[str, int, _spaces.Space, ArrayLike]]:
        """The tuned settings: name, number among the learner's leaves, space and given value."""
        numbers = leaves.places(self.learner, self.wrt)
        spaces = _spaces.of(self.learner, numbers, dict(self.spaces))
        values = leaves.take(self.learner, numbers.values())
        return [(n, numbers[n], spaces[n], value) for n, value in zip(numbers, values, strict=True)]

    def _start(self, dtype: DTypeLike) -> Array:
        """Return φ of the given values."""
        starts = (_spaces.start(name, space, v, dtype) for name, _, space, v in self._tuned)
        return jnp.concatenate([jnp.ravel(coordinate) for coordinate in starts])

    def _values(self, phi: Array) -> dict[str, Array]:
        """Return the tuned settings at φ by name, each in its own shape."""
        tuned = self._tuned
        ends = np.cumsum([jnp.size(value) for *_, value in tuned])
        pairs = zip(tuned, jnp.split(phi, ends[:-1]), strict=True)
        return {
            name: space.value(coordinate).reshape(jnp.shape(value))
            for (name, _, space, value), coordinate in pairs
        }

    def _at(self, phi: Array) -> Learner:
        """Return the learner with its settings at φ, made differentiable."""
        numbers = [number for _, number, *_ in self._tuned]
        tuned = leaves.put(self.learner, numbers, self._values(phi).values())
        return relaxed(tuned, "straight-through")

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> SelfTuningState:
        dtype = dtype_of(dtype)
        phi = self._start(dtype)

        def floats(phi: Array) -> tuple[list[Array], State]:
            state = self._at(phi).init(num_features, dtype, key=key)
            return _floats(state), state

        slopes, state = jax.jacfwd(floats, has_aux=True)(phi)
        floats_first = [jnp.moveaxis(slope, -1, 0) for slope in slopes]
        slopes = _with_floats(state, floats_first, others=False)
        tuner, zero = self.tuner.init(phi.size, dtype), jnp.zeros((), dtype)
        return SelfTuningState(state, phi, slopes, tuner, zero, zero)

    def predict(self, state: SelfTuningState, x: ArrayLike) -> Array:
        return self._at(state.phi).predict(state.learner, x)

    def learn(self, state: SelfTuningState, sample: Sample) -> SelfTuningState:
        once = partial(self._learn_once, sample.replace(repeats=1))
        return sample.repeat(once, state, guard=False)

    def info(self, state: SelfTuningState, sample: Sample) -> dict[str, Any]:
        return self._at(state.phi).info(state.learner, sample) | self._values(state.phi)

    def _learn_once(self, sample: Sample, state: SelfTuningState) -> SelfTuningState:
        phi, dtype = state.phi, state.phi.dtype

        def step(phi: Array, floats: list[Array]) -> tuple[tuple[Array, list[Array]], State]:
            before, learner = _with_floats(state.learner, floats, others=True), self._at(phi)
            after = learner.learn(before, sample)
            return (learner.predict(before, sample.raw), _floats(after)), after

        def along(direction: Array, slopes: list[Array]) -> Any:
            values = (phi, _floats(state.learner))
            return jax.jvp(step, values, (direction, slopes), has_aux=True)

        along_all = jax.vmap(along, out_axes=(None, 0, None))
        directions, slopes = jnp.eye(phi.size, dtype=dtype), jax.tree.leaves(state.slopes)
        (y, _), (h, slopes), after = along_all(directions, slopes)

        good, lam = sample.good, jnp.minimum(sample.weight, 1)  # no sample decides a setting
        e = jnp.where(good, sample.d - y.astype(dtype), 0)
        beta = jnp.asarray(self.tuner.forgetting, dtype)
        power, mass = beta * state.power + lam * e * e, beta * state.mass + lam
        moves = (power > 0) & (lam > 0)
        sigma = jnp.sqrt(jnp.where(moves, power / jnp.where(moves, mass, 1), 1))
        # The tuner's coefficients are the move from the present φ: they start at zero every time.
        tuner = self.tuner.update(state.tuner, h.astype(dtype) / sigma, e / sigma, weight=lam)
        most = jnp.asarray(self.trust, dtype)
        sound = [jnp.where(usable(slope), slope, 0) for slope in slopes]
        slopes = _with_floats(after, sound, others=False)
        moved, rested = phi + jnp.clip(tuner.w, -most, most), tuner._replace(w=jnp.zeros_like(phi))
        new = SelfTuningState(after, moved, slopes, rested, power, mass)
        old = state._replace(learner=after)  # the learner itself leaves out a sample that is bad
        chosen = jax.tree.map(partial(jnp.where, good & moves), new, old)
        slopes = jax.tree.map(partial(jnp.where, good), new.slopes, old.slopes)
        return chosen._replace(slopes=slopes)


def _is_float(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _floats(state: State) -> list[Array]:
    """Return the leaves of a state that have derivatives."""
    return [leaf for leaf in jax.tree.leaves(state) if _is_float(leaf)]


def _with_floats(state: State, floats: list[Array], *, others: bool) -> State:
    """Return the state with other values for those leaves; without ``others``, the rest is None."""
    values = iter(floats)

    def value(leaf: Array) -> Array | None:
        return next(values) if _is_float(leaf) else leaf if others else None

    return jax.tree.map(value, state)
