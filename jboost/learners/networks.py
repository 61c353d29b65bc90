"""The networks of the library: two perceptrons, and any function that a user writes."""

import inspect
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jboost.core import Key, Network, checks, model, static
from jboost.core.learner import Gradients, Params, required_key
from jboost.core.numerics import as_array, dtype_of
from jboost.core.products import dot, matmul, matvec


@model
class Perceptron(Network):
    """A line and h smooth steps: a network with one hidden layer.

        f(x) = b + aᵀx + Σ_j v_j tanh(w_jᵀx + c_j),    j = 1 … h

    It starts near 0 (a = b = 0, v small) with random w, made for inputs of variance 1.

    Args:
      hidden: the number h ≥ 1 of steps. Give either this or ``parameters``.
      parameters: about how many numbers to learn: with r inputs h = max(3, parameters/(r + 2)).

    >>> net = Perceptron(2)
    >>> params = net.init(3, jnp.float32, jax.random.key(0))
    >>> params["w"].shape, net.apply(params, jnp.ones(3)).shape
    ((2, 3), ())
    """

    hidden: int | None = static(default=None)
    parameters: int | None = static(default=None)

    def __post_init__(self) -> None:
        if (self.hidden is None) == (self.parameters is None):
            hidden, parameters = checks.shown(self.hidden), checks.shown(self.parameters)
            got = f"hidden={hidden} and parameters={parameters}"
            raise ValueError(f"a Perceptron needs hidden or parameters, and only one; got {got}")
        count = checks.or_none(checks.a_whole_number(at_least=1))
        checks.fields(self, hidden=count, parameters=count)

    def init(self, num_features: int, dtype: DTypeLike, key: Key) -> Params:
        h = self.hidden or max(3, (self.parameters or 0) // (num_features + 2))
        # All numbers in one draw: a draw compiles for longer than the rest of this function.
        drawn = jax.random.normal(required_key(key), (h, num_features + 2), jnp.float32)
        start = {
            "w": drawn[:, :num_features] / num_features**0.5,
            "c": 0.5 * drawn[:, num_features],
            "v": 0.1 * drawn[:, num_features + 1] / h**0.5,
            "a": jnp.zeros(num_features, jnp.float32),
            "b": jnp.zeros((), jnp.float32),
        }
        return jax.tree.map(lambda leaf: leaf.astype(dtype_of(dtype)), start)

    def apply(self, params: Params, x: Array) -> Array:
        # Cut off at ±1, tanh is rounded by itself, also where only the estimate is computed.
        steps = jnp.clip(jnp.tanh(matvec(params["w"], x) + params["c"]), -1, 1)
        return params["b"] + dot(params["a"], x) + dot(params["v"], steps)


@model
class Rectified(Network):
    """Layers of rectified linear units, and a line on top.

        h₀ = x,    h_i = max(0, W_iᵀh_{i−1} + b_i),    f(x) = vᵀh_n + c

    It starts with W_i of variance 2/(width of h_{i−1}), a small v and no constants, made for inputs
    of variance 1.

    Args:
      hidden: the widths of h₁ … h_n, each at least 1.

    >>> net = Rectified((4, 2))
    >>> params = net.init(3, jnp.float32, jax.random.key(0))
    >>> [layer["W"].shape for layer in params], net.apply(params, jnp.ones(3)).shape
    ([(3, 4), (4, 2), (2, 1)], ())
    """

    hidden: tuple[int, ...] = static(default=(64, 32))

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple | list) or not self.hidden:
            wish = "a tuple of widths such as (64, 32)"
            raise TypeError(f"hidden must be {wish}; got {checks.shown(self.hidden)}")
        widths = [checks.whole("hidden", width, at_least=1) for width in self.hidden]
        checks.assign(self, hidden=tuple(widths))

    def init(self, num_features: int, dtype: DTypeLike, key: Key) -> Params:
        widths = (num_features, *self.hidden, 1)
        sizes = [a * b for a, b in itertools.pairwise(widths)]
        drawn = jax.random.normal(required_key(key), (sum(sizes),), jnp.float32)
        starts = itertools.accumulate(sizes, initial=0)
        layers = []
        for (a, b), start in zip(itertools.pairwise(widths), starts, strict=False):
            W = (2 / a) ** 0.5 * drawn[start : start + a * b].reshape(a, b)
            layers.append({"W": W, "b": jnp.zeros(b, jnp.float32)})
        layers[-1]["W"] = 0.1 * layers[-1]["W"]
        return jax.tree.map(lambda leaf: leaf.astype(dtype_of(dtype)), layers)

    def apply(self, params: Params, x: Array) -> Array:
        return self.apply_to_rows(params, x[None])[0][0]

    def apply_to_rows(self, params: Params, xs: Array) -> tuple[Array, Gradients]:
        *layers, top = params
        hs = [xs]  # what each layer sees
        for layer in layers:
            hs.append(jnp.maximum(matmul(hs[-1], layer["W"]) + layer["b"][None], 0))
        y = jnp.sum(hs[-1] * top["W"][:, 0][None], axis=1) + top["b"]

        def gradients(weights: Array) -> Params:
            last = jnp.sum(hs[-1] * weights[:, None], axis=0)[:, None]
            found = [{"W": last, "b": jnp.sum(weights, keepdims=True)}]
            c = weights[:, None] * top["W"][:, 0][None]  # of what the layers put out
            for i in reversed(range(len(layers))):
                c = jnp.where(hs[i + 1] > 0, c, 0)
                found.append({"W": matmul(hs[i].T, c), "b": jnp.sum(c, axis=0)})
                if i > 0:
                    c = matmul(c, layers[i]["W"].T)
            return found[::-1]

        return y, gradients


@model
class Function(Network):
    """A network that the user's function computes; see :class:`jboost.Gradient`.

    Args:
      function: ``function(params, x) -> scalar``.
      start: ``start(key, num_features) -> params``, ``start(key)``, or the params themselves.

    >>> net = Function(lambda params, x: params["w"] @ x, {"w": jnp.array([1.0, 2.0])})
    >>> float(net.apply(net.init(2, jnp.float32, None), jnp.ones(2)))
    3.0
    """

    function: Callable[[Params, Array], Array] = static()
    start: Callable[..., Params] | Params = static()

    def __post_init__(self) -> None:
        checks.function("function", self.function, "(params, x)")
        check_start("start", self.start)
        if not callable(self.start):  # a function can be compared, as a static field must be
            params = self.start
            checks.assign(self, start=lambda: params)

    @property
    def needs_key(self) -> bool:
        return _required(self.start) > 0

    def init(self, num_features: int, dtype: DTypeLike, key: Key) -> Params:
        params = _numbers("init_params", self.start(*(key, num_features)[: _required(self.start)]))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype_of(dtype)), params)

    def apply(self, params: Params, x: Array) -> Array:
        y = jnp.asarray(self.function(params, x))
        if y.size != 1:
            raise ValueError(f"apply must return one number; got an array of shape {y.shape}")
        return y.reshape(())


def unravelled(network: Network, theta: Array, num_features: int) -> Params:
    """Return all parameters of a network, which lie in one array, as the network has them."""
    like = jax.eval_shape(lambda: network.init(num_features, theta.dtype, jax.random.key(0)))
    leaves, structure = jax.tree.flatten(like)
    ends = itertools.accumulate(leaf.size for leaf in leaves)
    params = [
        theta[end - leaf.size : end].reshape(leaf.shape)
        for end, leaf in zip(ends, leaves, strict=True)
    ]
    return structure.unflatten(params)


def check_start(name: str, start: Callable[..., Params] | Params) -> None:
    """Refuse an argument of this name that can be no start of a :class:`Function`."""
    if not callable(start):
        _numbers(name, start)
    elif (count := _required(start)) > 2:
        forms = "a function of (key, num_features) or of (key), or the params themselves"
        raise TypeError(f"{name} must be {forms}; got one that takes {count} arguments")


def _numbers(name: str, params: Params) -> Params:
    """Return parameters as arrays; ``name`` serves the message of an error."""
    if not jax.tree.leaves(params):
        raise ValueError(f"{name} must have numbers to learn; got {checks.shown(params)}")
    return jax.tree.map(lambda leaf: as_array(name, leaf, "any"), params)


def _required(function: Callable[..., object]) -> int:
    """Return how many positional arguments a function needs; those with a default do not count."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return 2
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in positional)
