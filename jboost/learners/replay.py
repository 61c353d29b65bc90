"""Replay: a network that learns each row many times, from a ring of the latest rows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import DType, Key, Learner, Number, Sample, checks, draws, model, static
from jboost.core.learner import required_key
from jboost.core.numerics import dtype_of, known

FIRST, SECOND, TINY = 0.9, 0.999, 1e-8  # Adam's memories, and what it adds to a root
SLOWER = 2000.0  # steps after which the step size has fallen by √2
FARTHEST = 3.0  # errors beyond this count as this
LEAST_SHARE, AT_FIRST = 0.01, 10.0  # of the newest weights in their average: max(.01, 10/(10 + t))
HEAVIEST = 10.0  # the most that a row may weigh


class ReplayState(NamedTuple):
    params: Array  # all weights of the network, (p,)
    average: Array  # their running average, (p,)
    mean: Array  # Adam's mean of gradients, (p,)
    square: Array  # and of their squares, (p,)
    x: Array  # the ring, (rows, r)
    d: Array
    weight: Array
    place: Array
    filled: Array
    steps: Array
    words: Array


@model
class Replay(Learner):
    """TODO"""

    rows: int = static(default=2048)
    batch: int = static(default=32)
    hidden: tuple[int, int] = static(default=(64, 32))
    step_size: Number = 0.01
    decay: Number = 0.1

    @property
    def needs_key(self) -> bool:
        return True

    def init(self, num_features: int, dtype: DType = None, *, key: Key = None) -> ReplayState:
        dtype = dtype_of(dtype)
        params = []
        sizes = (num_features, *self.hidden, 1)
        total = sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))
        drawn = jax.random.normal(required_key(key), (total,), jnp.float32).astype(dtype)
        scale = np.concatenate([
            np.full((a + 1) * b, 0.0) + np.repeat([(2 / a) ** 0.5, 0.0], [a * b, b])
            for a, b in zip(sizes, sizes[1:])
        ])
        scale[-(sizes[-2] + 1):] *= 0.1
        params = drawn * jnp.asarray(scale, dtype)
        zeros = jnp.zeros_like(params)
        zero = jnp.zeros((), jnp.int32)
        ring = jnp.zeros(self.rows, dtype)
        return ReplayState(
            params, params, zeros, zeros, jnp.zeros((self.rows, num_features), dtype), ring, ring,
            zero, zero, zero, jax.random.key_data(key).ravel()[:2],
        )

    def apply(self, params: Array, x: Array) -> Array:
        sizes, at = (x.shape[-1], *self.hidden, 1), 0
        for number, (a, b) in enumerate(zip(sizes, sizes[1:])):
            W = params[at : at + a * b].reshape(a, b)
            c = params[at + a * b : at + a * b + b]
            at += (a + 1) * b
            x = x @ W + c
            if number < len(sizes) - 2:
                x = jnp.maximum(x, 0)
        return x[..., 0]

    def predict(self, state: ReplayState, x: ArrayLike) -> Array:
        x = known(x, state.params.dtype)
        y = jax.vmap(self.apply, (0, None))(jnp.stack([state.params, state.average]), x)
        y = jnp.mean(y)
        return known(y, y.dtype)

    def learn(self, state: ReplayState, sample: Sample) -> ReplayState:
        dtype, counts = state.params.dtype, sample.counts
        x, d = sample.x, sample.d
        weight = jnp.minimum(sample.weight * jnp.asarray(sample.repeats, dtype), HEAVIEST)
        once = counts.astype(jnp.int32)
        at = jnp.where(counts, state.place, self.rows)
        ring_x = state.x.at[at].set(x, mode="drop")
        ring_d = state.d.at[at].set(d, mode="drop")
        ring_w = state.weight.at[at].set(weight, mode="drop")
        filled = jnp.minimum(state.filled + once, self.rows)
        steps = state.steps + once
        t = (steps.astype(jnp.uint32), jnp.zeros((), jnp.uint32))
        u = draws.uniform(jax.random.wrap_key_data(state.words), t, self.batch - 1, dtype)
        others = jnp.minimum((u * filled).astype(jnp.int32), jnp.maximum(filled - 1, 0))
        xs = jnp.concatenate([x[None], ring_x[others]])
        ds = jnp.concatenate([d[None], ring_d[others]])
        ws = jnp.concatenate([weight[None], ring_w[others]])

        y, back = jax.vjp(lambda params: self.apply(params, xs), state.params)
        (gradient,) = back(ws * jnp.clip(y - ds, -FARTHEST, FARTHEST) / self.batch)
        n = steps.astype(dtype)
        mean = FIRST * state.mean + (1 - FIRST) * gradient
        square = SECOND * state.square + (1 - SECOND) * gradient**2
        first, second = 1 - FIRST**n, 1 - SECOND**n
        direction = (mean / first) / (jnp.sqrt(square / second) + TINY)
        step = jnp.asarray(self.step_size, dtype) / jnp.sqrt(1 + n / SLOWER)
        params = state.params - step * (direction + jnp.asarray(self.decay, dtype) * state.params)
        average = state.average + jnp.maximum(LEAST_SHARE, AT_FIRST / (AT_FIRST + n)) * (
            params - state.average
        )
        new = params, average, mean, square
        learned = counts & jnp.all(jnp.isfinite(params)) 
        new = [jnp.where(learned, a, b) for a, b in zip(new, state[:4], strict=True)]
        return ReplayState(
            *new, ring_x, ring_d, ring_w, (state.place + once) % self.rows, filled, steps, state.words
        )
