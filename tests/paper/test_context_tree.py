"""The context tree of the experiments against all prunings written out, and against its bound."""

import itertools

import jax
import numpy as np
import pytest

import jboost as jb
from experiments.paper.context_tree import ContextTree, regret_bound

RIDGE, A = 1.0, 1.0


@pytest.fixture(autouse=True)
def double():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def stream(T=60):
    rng = np.random.default_rng(2)
    xs = rng.uniform(-1, 1, (T, 2))
    return xs, np.clip(np.where(xs[:, 0] > 0, xs[:, 1], -0.5) + 0.1 * rng.normal(size=T), -A, A)


def boxes(depth):
    """The boxes of a full tree by node: (number of an input, side) of every cut above it."""
    found = {1: ()}
    for node in range(2, 2 ** (depth + 1)):
        level = node.bit_length() - 2
        found[node] = (*found[node // 2], (level % 2, node % 2, level // 2))
    return found


def inside(x, cuts):
    low, high = [-1.0, -1.0], [1.0, 1.0]
    for i, right, _ in cuts:
        middle = (low[i] + high[i]) / 2
        if (x[i] > middle) != bool(right):
            return False
        low[i], high[i] = (middle, high[i]) if right else (low[i], middle)
    return True


def prunings(node, depth):
    """All sets of leaves below a node, each with its number of nodes above the full depth."""
    if node.bit_length() - 1 == depth:
        return [((node,), 0)]
    below = itertools.product(prunings(2 * node, depth), prunings(2 * node + 1, depth))
    return [((node,), 1), *(((*a, *b), 1 + m + n) for (a, m), (b, n) in below)]


def test_it_is_the_mixture_of_all_prunings():
    xs, ds = stream()
    depth, cuts = 2, boxes(2)
    z = np.c_[xs, np.ones(len(xs))]
    R = {n: RIDGE * np.eye(3) for n in cuts}
    p = {n: np.zeros(3) for n in cuts}
    loss, expected = dict.fromkeys(cuts, 0.0), []
    every = prunings(1, depth)
    for x, row, d in zip(xs, z, ds, strict=True):
        here = {n for n in cuts if inside(x, cuts[n])}
        y = {
            n: np.clip(row @ np.linalg.solve(R[n] + np.outer(row, row), p[n]), -A, A) for n in here
        }
        weights = [
            0.5**size * np.exp(-sum(loss[n] for n in leaves) / (8 * A**2)) for leaves, size in every
        ]
        estimates = [next(y[n] for n in leaves if n in here) for leaves, _ in every]
        expected.append(np.average(estimates, weights=weights))
        for n in here:
            loss[n] += (d - y[n]) ** 2
            R[n], p[n] = R[n] + np.outer(row, row), p[n] + row * d
    model = ContextTree(jb.ForwardNewton(1.0, ridge=RIDGE, max_variance=None), A, depth)
    done = jb.run(model, xs, ds)[1].prediction
    np.testing.assert_allclose(done, expected, atol=1e-9)


def test_the_bound_holds_and_is_the_least_over_all_prunings():
    xs, ds = stream(400)
    depth, cuts = 2, boxes(2)
    z, bounds = np.c_[xs, np.ones(len(xs))], []
    for leaves, size in prunings(1, depth):
        total = 8 * A**2 * np.log(2) * size
        for n in leaves:
            rows = np.array([inside(x, cuts[n]) for x in xs])
            # Ridge regression as least squares on three more rows.
            X = np.r_[z[rows], np.sqrt(RIDGE) * np.eye(3)]
            d = np.r_[ds[rows], np.zeros(3)]
            total += np.square(d - X @ np.linalg.lstsq(X, d, rcond=None)[0]).sum()
            total += A**2 * np.log(np.linalg.det(X.T @ X / RIDGE))
        bounds.append(total)
    found = regret_bound(xs, ds, depth, RIDGE, A)
    assert found["bound"] == pytest.approx(min(bounds), rel=1e-9)
    model = ContextTree(jb.ForwardNewton(1.0, ridge=RIDGE, max_variance=None), A, depth)
    prediction = np.asarray(jb.run(model, xs, ds)[1].prediction)
    assert np.square(prediction - ds).sum() <= found["bound"]
