"""The one idea of the library: everything is a Learner, and a Learner is a frozen pytree.

A learner holds settings only. What it has learned is its *state*, an immutable pytree that pure,
unbatched functions pass along:

    init(num_features, dtype)                          -> state
    predict(state, x)                                  -> estimate of d
    update(state, x, d, weight=, repeats=, key=)       -> state
    learn(state, sample)                               -> state

A subclass writes ``init``, ``predict`` and ``learn``. ``update`` is written once, here: it makes a
:class:`Sample` of its arguments and hands it to ``learn``. ``weight`` (a real number) and
``repeats`` (a whole number) are how a booster speaks to its learners.

A :class:`Wrapper` is a learner around another. A :class:`Transform` changes the inputs before a
learner sees them. A :class:`Network` is a differentiable model that a learner trains.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import checks, guards
from jboost.core.outline import as_html, outline
from jboost.core.pytree import DType, Key, Number
from jboost.core.sample import Sample

State = Any  # any pytree of arrays
Params = Any  # any pytree of float arrays
Gradients = Callable[[Array], Params]


class Learner(abc.ABC):
    """The protocol. Subclasses are final and decorated with :func:`jboost.model`.

    >>> import jax.numpy as jnp, jboost as jb
    >>> @jb.model
    ... class SignLMS(jb.Learner):
    ...     step_size: float
    ...
    ...     def init(self, num_features, dtype=None, *, key=None):
    ...         return jnp.zeros(num_features, dtype)
    ...
    ...     def predict(self, w, x):
    ...         return w @ jnp.where(jnp.isfinite(x), x, 0)  # a stream may hold NaN
    ...
    ...     def learn(self, w, sample):
    ...         def once(w):
    ...             e = sample.d - w @ sample.x
    ...             return w + self.step_size * sample.weight * jnp.sign(e) * sample.x
    ...
    ...         return sample.repeat(once, w)
    >>> learner = SignLMS(0.5)
    >>> learner.update(learner.init(2), jnp.array([1.0, -2.0]), 3.0).tolist()
    [0.5, -1.0]
    """

    # The fields that may hold a value for each learner of a booster inside this model.
    per_learner: ClassVar[tuple[str, ...]] = ()
    # Whether this combiner's first estimate is the mean of its inputs. Otherwise it learns what the
    # mean leaves over.
    starts_at_mean: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        guards.around(cls, "init", "predict")

    @property
    def needs_key(self) -> bool:
        """Whether ``init`` or ``learn`` draws at random."""
        return False

    @property
    def takes_missing(self) -> bool:
        """Whether a sample whose x has unusable entries can still be learned from."""
        return False

    @property
    def knows_leverage(self) -> bool:
        """Whether :meth:`leverage` can be asked for."""
        return False

    @property
    def ahead(self) -> int:
        """How many answers a forecaster forecasts at each row; 0 for any other learner."""
        return 0

    @abc.abstractmethod
    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        """Return the state before any data."""

    @abc.abstractmethod
    def predict(self, state: State, x: ArrayLike) -> Array:
        """Return the estimate of d, a scalar that is finite whatever x holds."""

    @abc.abstractmethod
    def learn(self, state: State, sample: Sample) -> State:
        """Return the state after a sample, learned ``sample.repeats`` times.

        A sample that is not good must leave the state as it was, bit for bit.
        """

    def predict_and_learn(self, state: State, sample: Sample) -> tuple[Array, State]:
        """Return the estimate of d and the state after the sample.

        A learner whose estimate and learning share much work may do that work once, here.
        """
        return self.predict(state, sample.raw), self.learn(state, sample)

    def sample(
        self, state: State, x: ArrayLike, d: ArrayLike, *,
        weight: Number = 1.0, repeats: ArrayLike = 1, key: Key = None,
    ) -> Sample:  # fmt: skip
        """Make the sample that ``learn`` takes, in the dtype of the state."""
        return Sample.of(x, d, float_dtype(state), self.takes_missing, weight, repeats, key)

    def update(
        self, state: State, x: ArrayLike, d: ArrayLike, *,
        weight: Number = 1.0, repeats: ArrayLike = 1, key: Key = None,
    ) -> State:  # fmt: skip
        """Return the state after learning (x, d) ``repeats`` times with importance ``weight``.

        A target that is not a usable number (NaN marks "no answer") leaves the state as it was, and
        so does an x with unusable entries, unless the learner takes missing ones. The key is that
        of the whole run. A weight above 1,000 counts as 1,000.
        """
        checks.refuse_complex("x", x)
        checks.refuse_complex("d", d)
        weight = checks.spending(weight, repeats)
        if key is not None:
            checks.key("key", key)
        try:
            sample = self.sample(state, x, d, weight=weight, repeats=repeats, key=key)
            return self.learn(state, sample)
        except Exception as error:
            guards.explain(self, state, error, x=x, d=d)
            raise

    def _repr_html_(self) -> str:
        return as_html(outline(self))  # a notebook shows it

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        """Return what a run may record about one step besides the prediction."""
        del state, sample
        return {}

    def due(self, state: State, sample: Sample) -> Array:
        """Return what was forecast of this row, 1 … H rows before; NaN where nothing was, (H,)."""
        raise TypeError(f"{type(self).__name__} does not forecast, as jboost.Forecast does")

    def coefficients(self, state: State, x: ArrayLike) -> Array:
        """Return the gradient of the estimate at x: the coefficients z if it is zᵀx."""
        return jax.grad(self.predict, argnums=1)(state, x)

    def leverage(self, state: State, x: ArrayLike) -> Array:
        """Return the variance of the estimate at x over that of the noise."""
        raise TypeError(f"{type(self).__name__} has no leverage, as a Newton learner has")


class Wrapper(Learner):
    """Base class of a learner around another one, whose state it keeps as ``state.learner``.

    It needs a key, takes missing inputs and knows its leverage exactly where the wrapped learner
    does. It predicts and reports what that learner does.
    """

    learner: Learner

    def __post_init__(self) -> None:
        instance("learner", self.learner)

    @property
    def needs_key(self) -> bool:
        return self.learner.needs_key

    @property
    def takes_missing(self) -> bool:
        return self.learner.takes_missing

    @property
    def knows_leverage(self) -> bool:
        return self.learner.knows_leverage

    def predict(self, state: State, x: ArrayLike) -> Array:
        return self.learner.predict(state.learner, x)

    def info(self, state: State, sample: Sample) -> dict[str, Any]:
        return self.learner.info(state.learner, sample)

    def leverage(self, state: State, x: ArrayLike) -> Array:
        return self.learner.leverage(state.learner, x)


class Transform(abc.ABC):
    """The protocol of what turns the input x into the x′ that a learner sees.

    Like a learner it is a frozen pytree of settings under :func:`jboost.model`, with a state. A
    subclass writes ``apply``. The other methods are right as they are for a fixed map that keeps
    the number of columns.
    """

    def __init_subclass__(cls) -> None:
        guards.around(cls, "init", "apply")

    @property
    def needs_key(self) -> bool:
        """Whether ``init`` draws at random."""
        return False

    @property
    def passes_missing(self) -> bool:
        """Whether an unusable entry of x spoils only its own place in x′."""
        return False

    @property
    def fills_missing(self) -> bool:
        """Whether x′ is usable whatever x holds."""
        return False

    def width(self, num_features: int) -> int:
        """Return the number of columns of x′."""
        return num_features

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> State:
        """Return the state before any data."""
        del num_features, dtype, key
        return ()

    @abc.abstractmethod
    def apply(self, state: State, x: ArrayLike) -> Array:
        """Return x′, whose entries are finite or NaN whatever x holds.

        It may use all of x, which is known before the prediction, and the targets before it.
        """

    def learn(self, state: State, sample: Sample) -> State:
        """Return the state after a good sample. Its d is usable; entries of its x may be missing.

        A pipeline calls this once for a sample that counts, whatever its weight and repeats.
        """
        del sample
        return state

    def update(self, state: State, x: ArrayLike, d: ArrayLike = 0.0) -> State:
        """Return the state after the input x and its target, as :meth:`Learner.update` does."""
        checks.refuse_complex("x", x)
        checks.refuse_complex("d", d)
        try:
            sample = Sample.of(x, d, float_dtype(state), takes_missing=True)
            return sample.keep(self.learn(state, sample), state)
        except Exception as error:
            guards.explain(self, state, error, x=x, d=d)
            raise


class Network(abc.ABC):
    """The protocol of a differentiable model f(params, x), under :func:`jboost.model`.

    :class:`jboost.Gradient` trains it by the gradient, :class:`jboost.GaussNewton` by least
    squares.
    """

    def __init_subclass__(cls) -> None:
        guards.around(cls, "init")

    @property
    def needs_key(self) -> bool:
        """Whether ``init`` draws at random."""
        return True

    @abc.abstractmethod
    def init(self, num_features: int, dtype: DTypeLike, key: Key) -> Params:
        """Return the parameters to start from."""

    @abc.abstractmethod
    def apply(self, params: Params, x: Array) -> Array:
        """Return f(x), a scalar."""

    def apply_to_rows(self, params: Params, xs: Array) -> tuple[Array, Gradients]:
        """Return f of each row, and a function that adds up their gradients.

        That function takes a weight for each row, and returns the sum of the weighted gradients of
        f in the parameters.
        """
        ys, pull = jax.vjp(lambda params: jax.vmap(lambda x: self.apply(params, x))(xs), params)
        return ys, lambda weights: pull(weights)[0]


def instance(name: str, value: object, example: str = "SGD(step_size=0.1)") -> Learner:
    """Refuse an argument that is not a learner, and say how to write one."""
    if isinstance(value, Learner) and not jax.tree_util.all_leaves([value]):
        if value.ahead and name != "model":
            raise TypeError(
                f"{name} must estimate the answer of its row; got a forecaster of {value.ahead} "
                f"answers. Put the other way round: Forecast(learner, horizon={value.ahead})"
            )
        return value  # and not a class that lacks @model, which is no pytree
    raise TypeError(
        f"{name} must be a learner such as {example}; got {checks.shown(value)}. A class of your "
        "own becomes one by subclassing jboost.Learner, with init, predict and learn, under "
        "@jboost.model"
    )


def float_dtype(state: State) -> DTypeLike:
    """Return the dtype of a state's floats."""
    dtypes = (leaf.dtype for leaf in jax.tree.leaves(state))
    floats = (dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating))
    return next(floats, jnp.result_type(float))


def required_key(key: Key) -> Array:
    """Return the key of a model that draws, or say that it is missing."""
    if key is None:
        raise ValueError("key is missing: this model draws at random; pass key=jax.random.key(0)")
    return key
