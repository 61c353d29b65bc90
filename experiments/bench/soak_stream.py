"""The stream of the soak: every hazard there is a name for, made spell by spell from a seed.

Spell i is a function of (seed, i) alone: a stream of any length takes the memory of one spell, can
be begun anywhere, and knows exactly which of its samples are damaged.

| hazard                    | where                                                                |
|---------------------------|----------------------------------------------------------------------|
| unexciting input          | "frozen": one x throughout; "zero": x = 0                            |
| silent direction, return  | "silent": one of two mixed sources is 0, then back                   |
| collinear, constant, rare | a column twice, a difference of two, a constant, a 1 in 1e4 samples  |
| any units                 | columns of sizes from 1e-6 to 1e6, or all of size 1                  |
| damage                    | 1e-4 of the samples hold NaN, ±Inf or 1e30, half of them in d        |
| hostile weights           | 1e-3 of the samples weigh from 0 to 1e14, or have no weight at all   |
| targets that jump         | "jump": 64 samples at + J, and five single ones at − J               |
| λ ≈ 0, λ = 1              | "quiet" and "loud": noise far below and far above the hoped-for MSE  |
| change                    | other coefficients every 64 spells, where asked for                  |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LENGTH = 4096  # of a spell: also a length that the compiled loop knows
COLUMNS = ("a", "b", "c", "e", "a − e", "constant", "rare", "b again")
UNITS = np.array([1e-6, 1e6, 1e-3, 1e3, 1.0, 1e2, 1e-2, 1e4], np.float32)
DAMAGE = np.array([np.nan, np.inf, -np.inf, 1e30], np.float32)
DAMAGED = 1e-4  # of the samples
WEIGHTS = np.array([0, 1e-3, 30, 1e8, 1e14, -1, np.nan, np.inf], np.float32)
WEIGHTED = 1e-3  # of the samples; the others have weight 1
RARE = 1e-4
NOISE = {"quiet": 1e-3, "loud": 3.0}  # elsewhere .3: a variance near the hoped-for MSE of .1
USUAL_NOISE = 0.3
JUMPS = slice(1000, 1064)
SPIKES = slice(2000, 4000, 400)

# First each hazard once, within 16 spells; then long silence, quiet and frozen input.
CYCLE = (
    *("plain", "plain", "frozen", "plain", "silent", "silent", "silent", "plain"),
    *("quiet", "loud", "zero", "plain", "jump", "plain", "plain", "plain"),
    *(["silent"] * 24 + ["plain"] + ["quiet"] * 8 + ["plain"] + ["frozen"] * 8 + ["plain"] * 6),
)


class Spell(NamedTuple):
    """LENGTH samples, and what was done to them.

    x: (n, 8) float32. d: (n,) float32. weight: (n,) float32.
    bad_x, bad_d: (n,), whether x or d was damaged. A weight that is NaN or infinite damages x.
    calm: (n,), whether the target is neither damaged nor off by a jump.
    """

    x: NDArray[np.float32]
    d: NDArray[np.float32]
    weight: NDArray[np.float32]
    bad_x: NDArray[np.bool_]
    bad_d: NDArray[np.bool_]
    calm: NDArray[np.bool_]


def spell(seed: int, i: int, units: bool, jump: float, changes: bool = True) -> Spell:
    """The i-th LENGTH samples of the stream: with UNITS or without, and jumps of that size."""
    rng, kind, n = np.random.default_rng([seed, 1, i]), CYCLE[i % len(CYCLE)], LENGTH
    s = rng.standard_normal((n, 4), np.float32)
    if kind == "frozen":
        s[:] = s[0]
    if kind == "silent":
        s[:, 2] = 0
    a, e = s[:, 0], s[:, 3]
    b, c = 0.6 * s[:, 1] + 0.8 * s[:, 2], 0.6 * s[:, 2] - 0.8 * s[:, 1]
    rare = rng.random(n) < RARE
    x = np.column_stack([a, b, c, e, a - e, np.ones(n), rare, b]).astype(np.float32)
    if kind == "zero":
        x[:] = 0
    epoch = i // len(CYCLE) if changes else 0
    w = np.random.default_rng([seed, 0, epoch]).standard_normal(len(COLUMNS))
    d = x @ w + NOISE.get(kind, USUAL_NOISE) * rng.standard_normal(n)
    calm = np.ones(n, bool)
    if kind == "jump":
        d[JUMPS] += jump
        d[SPIKES] -= jump
        calm[JUMPS] = calm[SPIKES] = False
    if units:
        x *= UNITS
    d = d.astype(np.float32)
    rows = np.flatnonzero(rng.random(n) < DAMAGED)
    what, in_d = rng.choice(DAMAGE, len(rows)), rng.random(len(rows)) < 0.5
    place = rng.integers(0, len(COLUMNS), len(rows))
    x[rows[~in_d], place[~in_d]] = what[~in_d]
    d[rows[in_d]] = what[in_d]
    bad_x, bad_d = np.zeros((2, n), bool)
    bad_x[rows[~in_d]], bad_d[rows[in_d]] = True, True
    weight = np.where(rng.random(n) < WEIGHTED, rng.choice(WEIGHTS, n), np.float32(1))
    return Spell(x, d, weight, bad_x | ~np.isfinite(weight), bad_d, calm & ~bad_d)


def spells(
    seed: int, count: int, units: bool, jump: float, changes: bool = True
) -> Iterator[Spell]:
    """The first spells of the stream, one after the other."""
    return (spell(seed, i, units, jump, changes) for i in range(count))
