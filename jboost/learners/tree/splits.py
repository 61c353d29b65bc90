"""Where to split a region of the inputs: a running score test for a change of slope.

A region has errors e of its estimate (in units of their spread), C candidate cuts on each of the r
inputs, and r + 1 regressors: z_0 = 1 and the standardised inputs z_1 … z_r. If the estimate is as
good on one side of a cut as on the other, e z_i has mean zero on both sides. The sums

    S_i = Σ e z_i,   V_i = Σ e² z_i²,   W_i = Σ e² z_i

are taken to the right of each cut (R), to its left (L) and over all samples, slopes (i ≥ 1) about
the level of their side: S_i ← S_i − S_0 W_i/V_0, V_i ← V_i − W_i²/V_0. The gain of a cut is how
much the log-likelihood grows, in nats, if a regressor has one coefficient on each side:

    G_i = ½ (S_R²/V_R + S_L²/V_L − S²/V)

If nothing changes at the cut, 2G is χ² with one degree of freedom, so that the probability of G > g
is below e^−g. A region stores O(r² C) numbers, and a sample costs as many operations.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

SIGMA = math.sqrt(math.pi / 2)  # standard deviation of a normal over its mean absolute deviation
LARGEST = 4.0  # standard deviations at which errors and inputs are clipped, because of outliers
FEW = 8.0  # samples after which a spread is known well enough to clip by
LEAST_POWER = 5.0  # of V on each side, about as many samples: with less 2G is not yet χ²
STRIDE = 3.0  # steps of a cut over spread/√n: it can cross the spread within a few samples
# Cuts of two inputs that part the samples into the same two groups have the same evidence, up to
# rounding. Where it differs by less than this share, the first cut is taken in every compiled form.
SAME = 1e-4
SMALLEST_SCALE = 0.03  # of an input whose slope did not change: see `_standardisation`


class Search(NamedTuple):
    """The evidence for the cuts of one region. All of it is 0 at the start."""

    mass: Array  # the weight of the samples so far
    mean: Array  # (r,) the mean of each input
    spread: Array  # (r,) the mean absolute deviation of each input
    cuts: Array  # (r, C) where the candidate cuts are
    score: Array  # (r C + 1, r + 1) the sums S right of each cut; the last row is over all samples
    power: Array  # (r C + 1, r + 1) the sums V
    cross: Array  # (r C + 1, r + 1) the sums W


class Cut(NamedTuple):
    """The best cut of a region, and the units of the inputs of the two regions it makes."""

    evidence: Array  # the nats that the cut gains beyond what chance would
    number: Array  # its input times C, plus its number among the cuts of that input
    threshold: Array  # where it is
    centre: Array  # (r,) what the new regions subtract from their inputs
    scale: Array  # (r,) what they multiply them by afterwards


def start(num_features: int, num_cuts: int, dtype: DTypeLike) -> Search:
    """Return the search of a region without samples."""
    inputs = jnp.zeros(num_features, dtype)
    sums = jnp.zeros((num_features * num_cuts + 1, num_features + 1), dtype)
    cuts = jnp.zeros((num_features, num_cuts), dtype)
    return Search(jnp.zeros((), dtype), inputs, inputs, cuts, sums, sums, sums)


def no_cut(x: Array) -> Cut:
    """Return the cut of a region that is not to be split."""
    nothing = jnp.full((), -jnp.inf, x.dtype)
    zero, zeros = jnp.zeros((), x.dtype), jnp.zeros_like(x)
    return Cut(nothing, jnp.zeros((), jnp.int32), zero, zeros, zeros)


def add(search: Search, x: Array, e: Array, mass: Array, grace: int) -> Search:
    """Return the search with one more sample.

    The first ``grace`` samples move the cuts towards quantiles of the inputs: a cut q for the level
    p moves by (p − 1[x < q]) spread/√n (Robbins and Monro). Then the cuts stay, as the sums of a
    side must all be over the same side, and the samples are evidence.
    """
    n, mean, spread, q, S, V, W = search
    deviation = SIGMA * spread
    limit = jnp.where((n < FEW) | (spread == 0), jnp.inf, LARGEST * deviation)
    dx = jnp.clip(x - mean, -limit, limit)
    share = mass / jnp.maximum(n + mass, jnp.finfo(x.dtype).tiny)
    new_spread = spread + share * (jnp.abs(dx) - spread)

    C = q.shape[1]
    p = (jnp.arange(1, C + 1, dtype=x.dtype) / (C + 1))[None, :]
    step = (STRIDE * SIGMA * mass / jnp.sqrt(n + 1)) * new_spread[:, None]
    moved = q + step * (p - (x[:, None] < q).astype(x.dtype))
    placing = n < grace
    q = jnp.where(placing, jnp.where(n == 0, x[:, None], moved), q)

    level = jnp.ones(1, x.dtype)
    varies = _varies(search)
    z = jnp.where(varies, dx / jnp.where(varies, deviation, 1), 0)
    z = jnp.concatenate([level, jnp.clip(z, -LARGEST, LARGEST)])
    e = jnp.clip(e, -LARGEST, LARGEST)
    right = jnp.concatenate([(x[:, None] > q).astype(x.dtype).reshape(-1), level])
    right = right[:, None] * jnp.where(placing, 0, mass)
    terms = e * z, e * e * z * z, e * e * z
    S, V, W = (total + right * term[None, :] for total, term in zip((S, V, W), terms, strict=True))
    return Search(n + mass, mean + share * dx, new_spread, q, S, V, W)


def best(search: Search) -> Cut:
    """Return the cut with the most evidence Σ_i max(0, G_i − c_i), where c are the `prices`.

    It is a sum, because a true cut shows in several regressors, and a cut of an input that is only
    correlated with the true one mostly shows in a single regressor. Of cuts with the same evidence
    the first is taken.
    """
    sums = search.score, search.power, search.cross
    S, V = _about_level(*(a[-1:] for a in sums))
    S_R, V_R = _about_level(*(a[:-1] for a in sums))
    S_L, V_L = _about_level(*(a[-1:] - a[:-1] for a in sums))
    G = (_ratio(S_R, V_R) + _ratio(S_L, V_L) - _ratio(S, V)) / 2
    G = jnp.where((V_R > LEAST_POWER) & (V_L > LEAST_POWER), G, 0)
    c = jnp.asarray(prices(*search.cuts.shape), G.dtype)
    excess = jnp.sum(jnp.maximum(G - c, 0), axis=1)
    most = excess >= (1 - SAME) * jnp.max(excess)
    number = jnp.argmax(most.astype(excess.dtype)).astype(jnp.int32)
    threshold = search.cuts.reshape(-1)[number]
    centre, scale = _standardisation(search, G[number, 1:], c[number, 1:])
    return Cut(excess[number], number, threshold, centre, scale)


def prices(r: int, C: int) -> np.ndarray:
    """Return the price c_i of each regressor at each cut, (r C, r + 1).

    e^−c_i is the probability, before any data, that the coefficient of regressor i changes. Half of
    it is for a function of the input that is cut (a step, a hinge, a curve): c = ln 4 for the level
    and for the slope of that input. The other half, c = ln 2(r − 1) each, is for the other slopes.
    """
    c = np.full((r, r + 1), math.log(2 * max(r - 1, 1)))
    c[:, 0] = c[np.arange(r), 1 + np.arange(r)] = math.log(4)
    return np.repeat(c, C, axis=0)


def _standardisation(search: Search, G: Array, c: Array) -> tuple[Array, Array]:
    """Return the centre and the scale of the inputs of two new regions.

    The new learners see s (x − centre)/deviation with s² = max(0.03², 1 − c/G), which is 1 for an
    input whose slope changed and small for the others: Stein's positive-part shrinkage, with the
    noise of the largest of e^c gains. A linear learner of ridge v learns the change of a slope as
    if v/s² earlier samples had shown no change, whatever the units of x: at most 11 samples with
    the default ridge of 0.01, so that an input that does matter is learned within some dozens.
    """
    s = jnp.sqrt(jnp.maximum(1 - c / jnp.maximum(G, c), SMALLEST_SCALE**2))
    # A constant input is left as it is: it acts as a level, which every region has anyway.
    varies = _varies(search)
    scale = jnp.where(varies, s / jnp.where(varies, SIGMA * search.spread, 1), 1)
    return jnp.where(varies, search.mean, 0), scale


def _varies(search: Search) -> Array:
    """Return whether the spread of each input is more than rounding."""
    return search.spread > 8 * jnp.finfo(search.spread.dtype).eps * jnp.abs(search.mean)


def _about_level(S: Array, V: Array, W: Array) -> tuple[Array, Array]:
    """Return S and V with the slopes taken about the level."""
    share = jnp.concatenate([jnp.zeros_like(W[:, :1]), W[:, 1:] / jnp.maximum(V[:, :1], 1)], axis=1)
    return S - share * S[:, :1], V - share * W


def _ratio(S: Array, V: Array) -> Array:
    return S * S / jnp.maximum(V, 1)
