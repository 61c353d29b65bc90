"""Stochastic gradient descent on a linear model, plain and normalised: O(r) a step."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, State, checks, losses, model, static
from jboost.core.losses import Loss
from jboost.core.numerics import dtype_of, geometric, known
from jboost.core.products import dot

# A step that would make a coefficient larger is not taken: so estimates of inputs up to 1e15 stay
# below float32's 3e38 for thousands of features.
LARGEST_COEFFICIENT = 1e20


class LinearState(NamedTuple):
    """The state of a linear model."""

    w: Array  # the coefficients, (r,), 0 at the start


class Linear(Learner):
    """Base class of learners whose estimate is wᵀx with coefficients that start at zero.

    With a ``loss`` other than the squared one the estimate is ``loss.mean(wᵀx)``.
    """

    loss: Loss | None = None

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        return LinearState(jnp.zeros(num_features, dtype_of(dtype)))

    def predict(self, state: State, x: ArrayLike) -> Array:
        y = dot(state.w, known(x, state.w.dtype))
        return y if self.loss is None else self.loss.mean(y)

    def _stepped(self, state: LinearState, sample: Sample, mu: Array, s: Array) -> LinearState:
        """Return the state after ``sample.repeats`` steps of size μ along the error, s = ‖x‖²."""
        w, x = state.w, sample.x
        _, n = geometric(mu * s, sample.repeats, sample.most_repeats)
        e = sample.d - dot(w, x)
        return LinearState(w + (mu * n * e) * x)

    def _descended(
        self, loss: Loss, state: LinearState, sample: Sample, mu: Array, s: Array, guard: bool
    ) -> LinearState:
        """Return the state after ``sample.repeats`` steps of size μ down a loss, s = ‖x‖²."""
        x, d, present = sample.x, sample.d, s > 0

        def once(state: LinearState) -> LinearState:
            v = dot(state.w, x)
            rate = mu * loss.residual(v, d)
            if guard:
                moved = loss.step(v, d, mu * s)
                rate = jnp.where(present & (mu > 0), moved / jnp.where(present, s, 1), 0)
            w = state.w + rate * x
            return LinearState(jnp.where(jnp.abs(w) < LARGEST_COEFFICIENT, w, state.w))

        return sample.repeat(once, state)


@model
class SGD(Linear):
    """Stochastic gradient descent (least mean squares), the paper's eq. `blms`.

        w ← w + μ λ (d − wᵀx) x,    repeated n times

    λ is the weight of the sample. n repeats are one step of size (1 − (1 − μλs)ⁿ)/s, s = ‖x‖².

    Stability: a step makes the error on its sample smaller while μλ‖x‖² < 2.

    Args:
      step_size: μ > 0; a scalar, or (m,) inside a booster of m learners.
      guard: whether a sample with μλ‖x‖² > 2 gets the step 1/‖x‖², which sets its error to zero,
        so that no input makes the learner diverge. Without it this is the printed recursion.
      loss: one of :mod:`jboost.losses`, whose residual takes the place of the error d − wᵀx;
        ``losses.absolute()`` is sign-error LMS. None is the squared loss.

    >>> learner = SGD(step_size=0.5)
    >>> state = learner.update(learner.init(2), jnp.array([1.0, 0.0]), 1.0)
    >>> state.w.tolist()
    [0.5, 0.0]
    """

    step_size: Number
    guard: bool = static(default=True)
    loss: Loss | None = None

    def __post_init__(self) -> None:
        step_size = checks.a_number(above=0)
        checks.fields(self, step_size=step_size, guard=checks.flag, loss=losses.rule)

    def learn(self, state: LinearState, sample: Sample) -> LinearState:
        s = dot(sample.x, sample.x)
        mu = jnp.asarray(self.step_size, s.dtype) * sample.weight
        if self.loss is not None:
            return self._descended(self.loss, state, sample, mu, s, self.guard)
        return self._stepped(state, sample, guarded(mu, s) if self.guard else mu, s)


@model
class NLMS(Linear):
    """Normalised least mean squares: SGD whose step does not depend on the scale of x.

        w ← w + μ λ (d − wᵀx) x / (ε + ‖x‖²),    repeated n times

    As a combiner of the learners' predictions it is the paper's normalised SGD for z, under the
    name ``NSGD``. Stability: 0 < μ < 2; μ = 1 with ε = 0 fits the newest sample exactly, and so
    does a weight that would make the step longer than 2. An ε near 1 % of the power of the targets
    keeps inputs near zero from moving the coefficients far.

    Args:
      step_size: 0 < μ < 2; a scalar, or (m,) inside a booster of m learners.
      epsilon: ε ≥ 0.
      loss: as for :class:`SGD`.

    >>> learner = NLMS(step_size=1.0, epsilon=0.0)
    >>> state = learner.update(learner.init(2), jnp.array([0.0, 100.0]), 1.0)
    >>> float(learner.predict(state, jnp.array([0.0, 100.0])))
    1.0
    """

    step_size: Number
    epsilon: Number = 1e-2
    loss: Loss | None = None

    def __post_init__(self) -> None:
        step_size, epsilon = checks.a_number(above=0, below=2), checks.a_number(at_least=0)
        checks.fields(self, step_size=step_size, epsilon=epsilon, loss=losses.rule)

    def learn(self, state: LinearState, sample: Sample) -> LinearState:
        s = dot(sample.x, sample.x)
        power = jnp.asarray(self.epsilon, s.dtype) + s
        excited = power > 0
        mu = jnp.asarray(self.step_size, s.dtype) * jnp.where(excited, sample.weight, 0)
        if self.loss is not None:
            mu = mu / jnp.where(excited, power, 1)
            return self._descended(self.loss, state, sample, mu, s, guard=True)
        mu = guarded(mu / jnp.where(excited, power, 1), s)
        w = self._stepped(state, sample, mu, s).w
        return LinearState(jnp.where(jnp.abs(w) < LARGEST_COEFFICIENT, w, state.w))


def guarded(mu: Array, s: Array) -> Array:
    """Return the step μ, or the one that sets the error to zero where μ‖x‖² > 2; s = ‖x‖²."""
    stable = mu * s <= 2
    # 1 instead of s where it is not used: the derivative of 1/s near 0 would be infinite.
    exact = 1 / jnp.where(stable, 1, jnp.maximum(s, jnp.finfo(s.dtype).tiny))
    return jnp.where(stable, mu, exact)
