"""Where to split a region of the inputs: a running score test for a change of slope.

A region has errors e of its estimate (in units of their spread), C candidate cuts on each of the r
inputs, and r + 1 regressors: z_0 = 1 and the standardised inputs z_1 … z_r. Were the estimate as
good on both sides of a cut, no e z would have a mean on either side. With the sums

    S_i = Σ e z_i,   V_i = Σ e² z_i²,   W_i = Σ e² z_i

on the right (R), on the left (L) and in all, slopes are taken about the level of their side,

    S_i ← S_i − S_0 W_i/V_0,   V_i ← V_i − W_i²/V_0       for i ≥ 1,

and the gain of a cut for one regressor is, in nats, what a level or slope of its own on each side
adds to the log-likelihood beyond what one for both would:

    G_i = ½ (S_R²/V_R + S_L²/V_L − S²/V)

Without a change 2G is χ² with one degree of freedom, so that the chance of G > g is below e^−g. The
sums are O(r² C) numbers a region, and a sample costs as many operations.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

SIGMA = math.sqrt(math.pi / 2)  # a normal's standard deviation, over its mean absolute deviation
LARGEST = 4.0  # standard deviations; beyond, an outlier would count for more than its surprise
FEW = 8.0  # samples before which a spread is not yet one to clip by
LEAST = 5.0  # of V on each side, about as many samples: below, 2G is not yet χ²
STRIDE = 3.0  # of a cut's steps, over spread/√n: cuts cross a spread within the first few samples
FLOOR = 0.03  # of the scales: see `scales`


class Search(NamedTuple):
    """Evidence of one region: its mass, its inputs' location and spread, cuts (r, C), the sums."""

    mass: Array
    mean: Array
    spread: Array
    cuts: Array
    score: Array  # S, and
    power: Array  # V, and
    cross: Array  # W: (r C + 1, r + 1), right of each cut, then in all


def start(num_features: int, num_cuts: int, dtype: Any) -> Search:
    """A region without samples."""
    inputs = jnp.zeros(num_features, dtype)
    sums = jnp.zeros((num_features * num_cuts + 1, num_features + 1), dtype)
    cuts = jnp.zeros((num_features, num_cuts), dtype)
    return Search(jnp.zeros((), dtype), inputs, inputs, cuts, sums, sums, sums)


def add(search: Search, x: Array, e: Array, mass: Array, grace: int) -> Search:
    """One sample more. The first ``grace`` place the cuts at quantiles, later ones are evidence.

    A cut for the quantile level p moves by (p − 1[x < q]) spread/√n (Robbins and Monro), then rests
    so that both sums of a side are over the same side.
    """
    n, mean, spread, q, S, V, W = search
    deviation = SIGMA * spread
    limit = jnp.where((n < FEW) | (spread == 0), jnp.inf, LARGEST * deviation)
    dx = jnp.clip(x - mean, -limit, limit)
    share = mass / jnp.maximum(n + mass, jnp.finfo(x.dtype).tiny)
    new_spread = spread + share * (jnp.abs(dx) - spread)

    C = q.shape[1]
    level = (jnp.arange(1, C + 1, dtype=x.dtype) / (C + 1))[None, :]
    step = (STRIDE * SIGMA * mass / jnp.sqrt(n + 1)) * new_spread[:, None]
    moved = q + step * (level - (x[:, None] < q).astype(x.dtype))
    placing = n < grace
    q = jnp.where(placing, jnp.where(n == 0, x[:, None], moved), q)

    one = jnp.ones(1, x.dtype)
    real = _varies(search)
    z = jnp.where(real, dx / jnp.where(real, deviation, 1), 0)
    z = jnp.concatenate([one, jnp.clip(z, -LARGEST, LARGEST)])
    e = jnp.clip(e, -LARGEST, LARGEST)
    right = jnp.concatenate([(x[:, None] > q).astype(x.dtype).reshape(-1), one])
    right = right[:, None] * jnp.where(placing, 0, mass)
    return Search(
        n + mass,
        mean + share * dx,
        new_spread,
        q,
        S + right * (e * z)[None, :],
        V + right * (e * e * z * z)[None, :],
        W + right * (e * e * z)[None, :],
    )


def best(search: Search) -> tuple[Array, Array, Array, Array]:
    """(excess, cut, centre, scale): of the best cut, and its children's inputs.

    A region that behaves differently on two sides of an input mostly does so in several regressors,
    while the shadow of that difference on another input is in one. So the evidence of a cut is

        Σ max(0, G_i − c_i),    c_i = ln 4 for level and the slope of its own input,
                                      ln 2(r − 1) for the slopes of the others

    where Σ e^−c_i = 1: half of what is expected is a function of the one input that is cut (steps,
    hinges, curves), and half, shared by the r − 1 others, that it changes what they do.
    """
    sums = search.score, search.power, search.cross
    S, V = _about_level(*(a[-1:] for a in sums))
    S_R, V_R = _about_level(*(a[:-1] for a in sums))
    S_L, V_L = _about_level(*(a[-1:] - a[:-1] for a in sums))
    G = (_ratio(S_R, V_R) + _ratio(S_L, V_L) - _ratio(S, V)) / 2
    G = jnp.where((V_R > LEAST) & (V_L > LEAST), G, 0)
    c = jnp.asarray(_prices(*search.cuts.shape), G.dtype)
    excess = jnp.sum(jnp.maximum(G - c, 0), axis=1)
    cut = jnp.argmax(excess).astype(jnp.int32)
    return excess[cut], cut, *_standard(search, G[cut, 1:], c[cut, 1:])


def _prices(r: int, C: int) -> np.ndarray:
    """c_i by cut and regressor: (r C, r + 1)."""
    c = np.full((r, r + 1), math.log(2 * max(r - 1, 1)))
    c[:, 0] = c[np.arange(r), 1 + np.arange(r)] = math.log(4)
    return np.repeat(c, C, axis=0)


def _standard(search: Search, G: Array, c: Array) -> tuple[Array, Array]:
    """Two new regions see s (x − centre)/deviation: s is 1 where the slope changed, else little.

        s² = max(FLOOR², 1 − c/G)

    is the positive-part shrinkage of Stein, with the noise that the largest of as many as c counts
    has. Of a standardised input n samples have the power s² n, so that a linear learner of ridge v
    learns the change of a slope as if v/s² samples had said that there is none, in whatever units
    x is. The floor makes of the default 0.01 eleven: an input that did not seem to matter costs
    next to nothing and yet is learned within some dozens of samples if it does.
    """
    s = jnp.sqrt(jnp.maximum(1 - c / jnp.maximum(G, c), FLOOR**2))
    # A constant is a level, which every region has: it is left as it is.
    varies = _varies(search)
    scale = jnp.where(varies, s / jnp.where(varies, SIGMA * search.spread, 1), 1)
    return jnp.where(varies, search.mean, 0), scale


def _varies(search: Search) -> Array:
    """Whether an input's spread is more than round-off."""
    return search.spread > 8 * jnp.finfo(search.spread.dtype).eps * jnp.abs(search.mean)


def _about_level(S: Array, V: Array, W: Array) -> tuple[Array, Array]:
    share = jnp.concatenate([jnp.zeros_like(W[:, :1]), W[:, 1:] / jnp.maximum(V[:, :1], 1)], axis=1)
    return S - share * S[:, :1], V - share * W


def _ratio(S: Array, V: Array) -> Array:
    return S * S / jnp.maximum(V, 1)
