"""A learner that tunes its own floats while the stream runs.

Beside the learner's state S goes its derivative G = ∂S/∂φ in the natural coordinates φ of the tuned
floats, carried forward by the chain rule through every update. So at each sample the estimate has a
slope h = ∂d̂/∂φ, and the error is, to first order, that of a linear model in φ with input h:
recursive least squares finds the φ that would have done better. This is the recursive prediction
error method of system identification.

| letter | name               | meaning                                                        |
|--------|--------------------|----------------------------------------------------------------|
| φ      |                    | natural coordinates of the tuned floats (log μ, logit β)       |
| G      | `slopes`           | ∂S/∂φ, one derivative of the whole state per number            |
| h      |                    | ∂d̂/∂φ                                                          |
| σ²     | `power` / `mass`   | mean square of the errors so far, with forgetting              |
| Δ      | `trust`            | the largest move of a coordinate at one sample                 |
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, State, Wrapper, checks, model, static
from jboost.core.numerics import dtype_of, usable
from jboost.learners.newton import Newton, NewtonState
from jboost.settings import leaves
from jboost.settings import spaces as _spaces
from jboost.settings.surrogates import relaxed

# SGD on ten streams, each started 10 times too low and too high: among moves Δ of 0.2 to 0.5 the
# last has the least worst case, 2.8 % above the best step on nine of them; ridges of 0.01 to 0.1
# hardly differ. The tenth, and streams that had no part in this, are in
# experiments/guides/tuning.md.
TUNER = Newton(forgetting=0.999, ridge=0.03)


class SelfTuningState(NamedTuple):
    """The learner's state, φ, G (None for whole numbers), the least squares, σ² as a quotient."""

    learner: State
    phi: Array
    slopes: State
    tuner: NewtonState
    power: Array
    mass: Array


@model
class SelfTuning(Wrapper):
    """A learner whose chosen floats follow the stream, from wherever they start.

        φ ← φ + clip(P h e/σ², ±Δ),    P⁻¹ ← β P⁻¹ + h hᵀ/σ²,    S, G ← update and its derivative

    The step does not depend on the scales of inputs and targets. A step costs about 1 + n of the
    learner's own, and so does the state, n being the count of tuned numbers.

    Stability: P is capped, and no sample moves φ by more than Δ. Where the estimate does not depend
    on φ it stays: SGD cuts steps with μ‖x‖² > 2, so that one far too large (beyond about 10 times)
    is not found to be so. Start too low rather than too high.

    ``weight`` is the learner's, and that of the sample in tuning; ``repeats`` is that many updates.
    Whole numbers of repeats inside are differentiated as :mod:`jboost.settings.surrogates` says.

    Args:
      learner: any learner.
      wrt: names of its floats, as for :func:`jboost.hypergradient`.
      tuner: the least squares that move φ, a ``Newton``; its forgetting is the memory of tuning.
      trust: Δ > 0.
      spaces: (low, high) by name, for floats whose range is not known.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(5000)
    >>> low = jb.SGD(step_size=0.001)
    >>> bool(jb.mse(SelfTuning(low), xs, ds) < jb.mse(low, xs, ds))
    True

    Reference: L. Ljung and T. Söderström, Theory and Practice of Recursive Identification, MIT
    Press, 1983, chapter 3.
    """

    learner: Learner
    wrt: Any = static(default=("step_size",))
    tuner: Newton = TUNER
    trust: Number = 0.5
    spaces: Any = static(default=())

    def __post_init__(self) -> None:
        checks.instance("learner", self.learner, Learner, "a learner such as SGD(step_size=0.1)")
        checks.instance("tuner", self.tuner, Newton, "least squares, such as Newton(0.999, 0.1)")
        wrt: Iterable[str] = (self.wrt,) if isinstance(self.wrt, str) else self.wrt
        given: Mapping[str, Any] = dict(self.spaces)
        object.__setattr__(self, "wrt", tuple(wrt))
        object.__setattr__(self, "trust", checks.number("trust", self.trust, above=0))
        object.__setattr__(self, "spaces", tuple((k, tuple(v)) for k, v in given.items()))
        self._start(jnp.result_type(float))  # names, ranges and values, while a user can hear of it

    @property
    def _chosen(self) -> tuple[dict[str, int], dict[str, _spaces.Space]]:
        places = leaves.places(self.learner, self.wrt)
        return places, _spaces.of(self.learner, places, dict(self.spaces))

    def _start(self, dtype: Any) -> Array:
        places, known = self._chosen
        values = leaves.take(self.learner, places.values())
        parts = [
            jnp.ravel(_spaces.start(name, known[name], value, dtype))
            for name, value in zip(places, values, strict=True)
        ]
        return jnp.concatenate(parts)

    def _values(self, phi: Array) -> dict[str, Array]:
        """The tuned floats at φ, by name, each in its own shape."""
        places, known = self._chosen
        values, first = {}, 0
        for (name, space), leaf in zip(
            known.items(), leaves.take(self.learner, places.values()), strict=True
        ):
            shape, size = jnp.shape(leaf), jnp.size(leaf)
            values[name] = space.value(phi[first : first + size]).reshape(shape)
            first += size
        return values

    def _at(self, phi: Array) -> Learner:
        places, _ = self._chosen
        tuned = leaves.put(self.learner, places.values(), self._values(phi).values())
        return relaxed(tuned, "straight-through")

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> SelfTuningState:
        dtype = dtype_of(dtype)
        phi = self._start(dtype)

        def floats(phi: Array) -> tuple[list[Array], State]:
            state = self._at(phi).init(num_features, dtype, key=key)
            return _floats(state), state

        slopes, state = jax.jacfwd(floats, has_aux=True)(phi)
        return SelfTuningState(
            learner=state,
            phi=phi,
            slopes=_slopes(state, [jnp.moveaxis(slope, -1, 0) for slope in slopes]),
            tuner=self.tuner.init(phi.size, dtype),
            power=jnp.zeros((), dtype),
            mass=jnp.zeros((), dtype),
        )

    def predict(self, state: SelfTuningState, x: ArrayLike) -> Array:
        return self._at(state.phi).predict(state.learner, x)

    def learn(self, state: SelfTuningState, sample: Sample) -> SelfTuningState:
        told = sample.replace(repeats=1)
        return sample.repeat(lambda state: self._learn_once(state, told), state, guard=False)

    def info(self, state: SelfTuningState, sample: Sample) -> dict[str, Any]:
        """What the learner reports, and the tuned floats by name."""
        own = self._at(state.phi).info(state.learner, sample)
        return own | self._values(state.phi)

    def _learn_once(self, state: SelfTuningState, sample: Sample) -> SelfTuningState:
        phi, dtype = state.phi, state.phi.dtype

        def step(phi: Array, floats: list[Array]) -> tuple[tuple[Array, list[Array]], State]:
            own, learner = _with_floats(state.learner, floats), self._at(phi)
            after = learner.learn(own, sample)
            return (learner.predict(own, sample.x), _floats(after)), after

        def along(direction: Array, slopes: list[Array]) -> Any:
            values = (phi, _floats(state.learner))
            return jax.jvp(step, values, (direction, slopes), has_aux=True)

        directions = jnp.eye(phi.size, dtype=dtype)
        (y, _), (h, slopes), after = jax.vmap(along, out_axes=(None, 0, None))(
            directions, jax.tree.leaves(state.slopes)
        )

        ok, lam = sample.good, sample.weight
        e = jnp.where(ok, sample.d - y.astype(dtype), 0)
        beta = jnp.asarray(self.tuner.forgetting, dtype)
        power, mass = beta * state.power + lam * e * e, beta * state.mass + lam
        some = (power > 0) & (lam > 0)
        sigma = jnp.sqrt(jnp.where(some, power / jnp.where(some, mass, 1), 1))
        # Its coefficients are the move from where φ is, so they begin at zero every time.
        tuner = self.tuner.update(state.tuner, h.astype(dtype) / sigma, e / sigma, weight=lam)
        most = jnp.asarray(self.trust, dtype)
        new = SelfTuningState(
            learner=after,
            phi=phi + jnp.clip(tuner.w, -most, most),
            slopes=_slopes(after, [jnp.where(usable(slope), slope, 0) for slope in slopes]),
            tuner=tuner._replace(w=jnp.zeros_like(phi)),
            power=power,
            mass=mass,
        )
        old = state._replace(learner=after)  # what a learner does with such a sample is its own
        chosen = jax.tree.map(lambda a, b: jnp.where(ok & some, a, b), new, old)
        return chosen._replace(slopes=_where(ok, new.slopes, old.slopes))


def _where(ok: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(ok, a, b), new, old)


def _is_float(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _floats(state: State) -> list[Array]:
    """The leaves of a state that have derivatives."""
    return [leaf for leaf in jax.tree.leaves(state) if _is_float(leaf)]


def _with_floats(state: State, floats: list[Array]) -> State:
    """The state with other values for those leaves."""
    rest = iter(floats)
    return jax.tree.map(lambda leaf: next(rest) if _is_float(leaf) else leaf, state)


def _slopes(state: State, slopes: list[Array]) -> State:
    """Derivatives in the places of those leaves."""
    rest = iter(slopes)
    return jax.tree.map(lambda leaf: next(rest) if _is_float(leaf) else None, state)
