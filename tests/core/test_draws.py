"""The counter hash behind random updates, and the modes: how λ is spent."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.core import draws

M = 20


def uniforms(seed, T, m=M, start=0, wraps=0):
    t = jnp.arange(start, start + T, dtype=jnp.uint32)
    key = jax.random.key(seed)
    rows = jax.vmap(lambda t: draws.uniform(key, (t, jnp.uint32(wraps)), m, jnp.float32))(t)
    return np.asarray(rows, np.float64)


def chi_square_score(counts, expected):
    """How many standard deviations the χ² statistic is from its mean."""
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = counts.size - 1
    return (statistic - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_uniform_and_independent_over_time_learners_and_keys(seed):
    T = 50_000
    u, other = uniforms(seed, T), uniforms(seed + 1, T)
    assert u.min() >= 0 and u.max() < 1
    # Distribution: of one learner, and of all.
    for sample in (u[:, 0], u[:, 7], u.ravel()):
        counts = np.histogram(sample, 256, (0, 1))[0]
        assert abs(chi_square_score(counts, sample.size / 256)) < 5
    # Pairs fill the square evenly: consecutive steps, neighbouring learners, neighbouring keys.
    pairs = [
        (u[:-1, 3], u[1:, 3]),
        (u[:, 3], u[:, 4]),
        (u[:, 0], other[:, 0]),
        (u[:-1, 1], u[1:, 0]),
    ]
    for a, b in pairs:
        counts = np.histogram2d(a, b, 32, ((0, 1), (0, 1)))[0].ravel()
        assert abs(chi_square_score(counts, a.size / 1024)) < 5
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(a.size)
    # Every one of the 24 bits is fair, and so is the change of each from one step to the next.
    bits = (u.ravel() * 2**24).astype(np.int64)
    steps = (u * 2**24).astype(np.int64)
    flips = (steps[1:] ^ steps[:-1]).ravel()
    for words in (bits, flips):
        for bit in range(24):
            share = ((words >> bit) & 1).mean()
            assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(words.size)
    # Serial correlation at many lags at once.
    centred = u[:, 5] - 0.5
    spectrum = np.abs(np.fft.rfft(centred)) ** 2 / (centred.size / 12)
    assert spectrum[1:].max() < np.log(spectrum.size) + 12  # exponential variables: log n + Gumbel


def test_few_collisions():
    u = uniforms(3, 2**15, m=1).ravel()
    n, grid = u.size, 2**24
    expected = n - grid * (1 - np.exp(-n / grid))
    assert abs((n - np.unique(u).size) - expected) < 6 * np.sqrt(expected) + 1


def test_a_draw_depends_on_key_step_and_learner_alone():
    u = uniforms(0, 64)
    np.testing.assert_array_equal(uniforms(0, 32, start=32), u[32:])
    np.testing.assert_array_equal(uniforms(0, 64, m=5), u[:, :5])
    assert (uniforms(0, 64, wraps=1) != u).mean() > 0.99  # beyond 2³² steps nothing repeats


def test_counters_pass_two_to_the_32():
    model = jb.bsgd_ru(3, target_mse=0.2, step_size=0.1)
    xs, ds = jb.streams.duffing(8)
    state, _ = jb.run(model, xs, ds, jax.random.key(0))
    late = state._replace(t=jnp.uint32(2**32 - 3))
    after, _ = jb.run(model, xs, ds, jax.random.key(0), late)
    assert int(after.t) == 5 and int(after.wraps) == 1


def test_poisson_reuse_is_poisson():
    lam = jnp.array([1.0, 0.5, 0.01, 0.0])
    u = jnp.asarray(uniforms(9, 200_000, m=4), jnp.float32)
    n = np.asarray(jax.vmap(lambda u: jb.PoissonReuse().spend(lam, u)[1])(u))
    for k, mean in enumerate([1.0, 0.5, 0.01, 0.0]):
        tolerance = 5 * np.sqrt(max(mean, 1e-12) / len(n))
        assert abs(n[:, k].mean() - mean) <= tolerance
        assert abs(n[:, k].var() - mean) <= 5 * np.sqrt((mean + 2 * mean**2) / len(n)) + 1e-12
    assert (n[:, 3] == 0).all() and n.max() >= 6


def test_poisson_reuse_inverts_the_distribution(x64):
    """The smallest n with u < P(N ≤ n), to the last number that a draw of 24 bits can be."""
    u = np.concatenate([np.linspace(0, 0.999, 200), 1 - 2.0 ** -np.arange(25)])
    u, lam = (a.ravel() for a in np.meshgrid(u, [1.0, 0.5, 0.01, 0.0]))
    weight, n = jb.PoissonReuse().spend(jnp.asarray(lam), jnp.asarray(u))
    terms = [np.exp(-lam) * lam**k / math.factorial(k) for k in range(20)]
    np.testing.assert_array_equal(n, sum(u >= below for below in np.cumsum(terms, axis=0)))
    assert weight == 1 and n.reshape(4, -1)[:, -1].tolist() == [10, 8, 3, 0]


def test_random_updates_and_reuse_by_hand():
    lam, u = jnp.array([0.0, 0.25, 0.5, 1.0]), jnp.array([0.0, 0.25, 0.499, 0.999])
    weight, learned = jb.RandomUpdate().spend(lam, u)
    assert weight == 1 and learned.tolist() == [False, False, True, True]  # never where λ = 0
    assert jb.RandomUpdate().needs_key and jb.PoissonReuse().needs_key
    assert not jb.Weighted().needs_key and not jb.DataReuse().needs_key
    weight, n = jb.DataReuse().spend(lam, None)
    assert weight == 1 and n.tolist() == [0, 2, 3, 5]
    assert type(jb.DataReuse(3.0).max_reuse) is int  # it is structure: 3.0 would compile again
    for most in (1, 7, 127, 128, 1000):
        _, n = jb.DataReuse(most).spend(lam, None)
        assert jb.DataReuse(most).most_repeats == most  # it bounds the work of the repeats
        assert n.tolist() == [0, math.ceil(most / 4), math.ceil(most / 2), most]
