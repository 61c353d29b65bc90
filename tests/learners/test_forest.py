"""Boosted trees against plain loops over rows, and what they promise of any stream."""

import functools
import itertools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import forest

import jboost as jb
from jboost.fleets.fleet import Fleet
from jboost.learners.forest import bins, splits
from jboost.learners.forest.trees import ABSENT, BEYOND

KEY = jax.random.key(0)
SMALL = jb.BoostedTrees(trees=4, depth=3, rows=96, bins=10, columns=5, work=160, least=3.0)


def stream(seed, rows, r):
    """Steps and products; column 1 has four values, column 2 one, and a tenth is missing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, r))
    x[:, 1] = rng.integers(0, 4, rows)
    x[:, 2] = 7.0
    d = np.sign(x[:, 0]) + x[:, 1] * (x[:, 3] > 0.5) + 0.2 * rng.normal(size=rows) + 3
    x[rng.random((rows, r)) < 0.1] = np.nan
    return x, d, rng


def shown(state, info):
    tree = state.growth.tree
    return {"columns": state.growth.columns, "codes": tree.codes, "thresholds": tree.thresholds}


def split_of(codes, thresholds, node):
    """Return the column, the threshold and the side of missing values of a node."""
    return int(codes[node]) // 2, thresholds[node], bool(codes[node] % 2)


@pytest.mark.parametrize(
    ("settings", "rows", "r"),
    [
        ({}, 420, 5),  # several slices, the ring full four times
        ({"work": 10_000, "depth": 2, "least": 0.0, "keep": 1.0}, 200, 4),  # one slice for all
        ({"columns": 4, "work": 64, "trees": 3}, 260, 20),  # more columns than a tree looks at
        ({"rows": 50, "work": 35, "depth": 1, "follow": 0.0}, 260, 5),  # 50 rows: 8 slices of 7
    ],
    ids=["slices", "one slice", "drawn columns", "stumps"],
)
def test_every_prediction_is_that_of_plain_loops(x64, settings, rows, r):
    model = jb.WeightColumn(jb.BoostedTrees(**vars(SMALL) | settings))
    x, d, rng = stream(0, rows, r)
    weight = rng.choice([0.0, 0.5, 1.0, 1.0, 30.0], rows)
    d[rng.random(rows) < 0.03] = np.nan
    state, trace = jb.run(model, np.column_stack([x, weight]), d, KEY, observe=shown)
    observed = jax.tree.map(np.asarray, trace.observed)
    oracle = forest.Forest(model.learner, r)
    limit = min(model.learner.columns, r)
    columns, expected, ended = list(range(limit)), np.zeros(rows), 0
    for t in range(rows):
        expected[t] = oracle.predict(x[t])
        codes, thresholds = observed["codes"][t], observed["thresholds"][t]
        oracle.learn(x[t], d[t], weight[t], columns, functools.partial(split_of, codes, thresholds))
        if oracle.ended > ended and limit < r:
            ended = oracle.ended
            columns = [int(j) for j in observed["columns"][t]]
            gained = oracle.gains[columns]
            assert len({*columns}) == limit
            assert min(gained[: limit // 2]) >= np.delete(oracle.gains, columns).max()
    assert oracle.ended > 2 * model.learner.trees and oracle.gains.max() > 0
    np.testing.assert_allclose(trace.prediction, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.gains, oracle.gains, rtol=1e-8)
    late = slice(rows // 2, None)
    assert np.nanvar((expected - d)[late]) < 0.9 * np.nanvar(d[late])


def histograms(rng, nodes=3, bins=7, columns=4):
    counts = rng.integers(0, 6, (nodes, bins, columns)).astype(float)
    counts[:, :, 1:] = rng.permuted(np.repeat(counts[:, :, :1], columns - 1, axis=2), axis=1)
    sums = rng.normal(size=(nodes, bins, columns, 2)) * counts[..., None]
    sums += (sums[:, :, :1] - sums).sum(axis=1, keepdims=True) / bins  # the rows are the same ones
    return np.concatenate([sums, counts[..., None]], axis=-1)


def by_bin(many):
    return jnp.moveaxis(jnp.asarray(many), 1, 0)


@pytest.mark.parametrize(("least", "missing"), [(0.0, True), (8.0, True), (8.0, False)])
def test_the_best_split_is_the_best_of_all(x64, least, missing):
    rng = np.random.default_rng(1)
    for _ in range(10):
        many = histograms(rng)
        if not missing:
            many[:, 0] = 0
            many[..., 2] = many[:, :, :1, 2]  # all columns count the same rows
        found = splits.best_splits(by_bin(many), jnp.asarray(3.0), jnp.asarray(least))
        for node, histogram in enumerate(many):
            total, gains = histogram[:, 0].sum(axis=0), {}
            for number, column, right in itertools.product(range(7), range(4), range(2)):
                left = histogram[right : number + 1, column].sum(axis=0)
                sides = left, total - left
                allowed = min(side[2] for side in sides) >= least
                terms = [(side[0] + side[1]) ** 2 / (side[2] + 3) for side in (*sides, total)]
                gains[column, number, right] = (terms[0] + terms[1] - terms[2]) * allowed
            best = max(0.0, *gains.values())
            assert float(found.gain[node]) == pytest.approx(best, rel=2e-4, abs=1e-9)
            if best > 1e-9:
                choice = tuple(int(field[node]) for field in found[:3])
                assert gains[choice] == pytest.approx(best, rel=2e-4)
                column, number, right = choice
                left = histogram[right : number + 1, column].sum(axis=0)
                np.testing.assert_allclose(found.sums[node], [left, total - left], atol=1e-9)


def test_rows_that_no_split_may_part_stay_together():
    for histogram in (np.zeros((1, 7, 4, 3)), np.ones((1, 7, 4, 3))):
        found = splits.best_splits(by_bin(histogram), jnp.asarray(3.0), jnp.asarray(8.0))
        assert float(found.gain[0]) == 0 and int(found.bin[0]) == 6
        np.testing.assert_array_equal(found.sums[0, 1], np.zeros(3))


def edges_of(column, filled, count):
    column = np.where(np.isnan(column), ABSENT, column)
    found = np.asarray(bins.edges_of(jnp.asarray(column), jnp.asarray(filled), count))
    return np.where(found == ABSENT, -np.inf, found)


def test_a_column_of_many_values_is_cut_at_its_quantiles(x64):
    values = np.random.default_rng(2).permutation(np.arange(512.0))
    cuts = edges_of(values, 512, 7)
    np.testing.assert_array_equal(
        cuts, np.quantile(np.arange(512.0), np.arange(1, 8) / 8, method="hazen")
    )
    into = np.asarray(bins.bins_of(jnp.asarray(values), jnp.asarray(cuts)[None]))
    np.testing.assert_array_equal(np.bincount(into), [0] + [64] * 8)


@pytest.mark.parametrize("share", [0.02, 0.9])
def test_a_column_of_few_values_has_a_bin_for_each(share):
    """Even where one of them is nearly all there is, or nearly never there."""
    rng = np.random.default_rng(3)
    values = np.where(rng.random(400) < share, 1.0, rng.integers(2, 7, 400))
    values[rng.random(400) < 0.2] = np.nan
    cuts = edges_of(values, 400, 14)
    assert {*cuts} <= {-np.inf, 1.5, 2.5, 3.5, 4.5, 5.5}
    absent = np.where(np.isnan(values), ABSENT, values)
    into = np.asarray(bins.bins_of(jnp.asarray(absent), jnp.asarray(cuts)[None]))
    numbers = [{*into[values == v]} for v in range(1, 7)]
    assert all(len(bin_) == 1 for bin_ in numbers) and len(set.union(*numbers)) == 6
    assert {*into[np.isnan(values)]} == {0}


@pytest.mark.parametrize(("filled", "length"), [(0, 30), (1, 30), (29, 40), (600, 700), (700, 700)])
def test_edges_are_those_of_a_sorted_list(x64, filled, length):
    rng = np.random.default_rng(4)
    for column in (
        rng.normal(size=length),
        np.round(rng.normal(size=length), 1),
        np.full(length, 7.0),
        np.where(rng.random(length) < 0.5, 0.0, rng.normal(size=length)),
    ):
        column[rng.random(length) < 0.1] = np.nan
        np.testing.assert_array_equal(edges_of(column, filled, 6), forest.edges(column, filled, 6))


X, D, _ = stream(5, 300, 5)
X, D = X.astype(np.float32), D.astype(np.float32)


@pytest.fixture(scope="module")
def whole():
    return jb.run(SMALL, X, D)


def test_any_cut_gives_the_same_bits(whole, tmp_path):
    """In pieces, through a file, and row by row."""
    state, predictions = None, []
    for rows in (slice(0, 40), slice(40, 41), slice(41, 250)):
        state, trace = jb.run(SMALL, X[rows], D[rows], state=state)
        predictions.append(trace.prediction)
        jb.save(tmp_path / "trees", SMALL, state)
        model, state, _ = jb.load(tmp_path / "trees")
        assert jax.tree.structure(model) == jax.tree.structure(SMALL)
    for row in range(250, len(D)):
        state, trace = jb.run(SMALL, X[row : row + 1], D[row : row + 1], state=state)
        predictions.append(trace.prediction)
    np.testing.assert_array_equal(np.concatenate(predictions), whole[1].prediction)
    chex.assert_trees_all_equal(state, whole[0])


def test_a_bad_sample_changes_no_bit(whole):
    state, update = whole[0], jax.jit(SMALL.update)
    for _ in range(7):  # at every stage of a growth
        for d, weight in ((np.nan, 1.0), (np.inf, 1.0), (1e30, 1.0), (1.0, 0.0), (1.0, -1.0)):
            after = update(state, X[0], np.float32(d), weight=np.float32(weight))
            chex.assert_trees_all_equal(after, state)
        state = update(state, X[0], D[0])


def test_its_state_is_finite_whatever_comes():
    rng = np.random.default_rng(6)
    x = X * 10.0 ** rng.integers(-20, 20, X.shape)
    x[rng.random(x.shape) < 0.05] = np.inf
    d = D * 10.0 ** rng.integers(-20, 15, D.shape)
    with np.errstate(over="ignore"):
        state, trace = jb.run(SMALL, x.astype(np.float32), d.astype(np.float32))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert np.isfinite(trace.prediction).all()


def test_float32_is_enough(whole, x64):
    _, trace = jb.run(SMALL, X.astype(float), D.astype(float))
    near, far = np.asarray(trace.prediction), np.asarray(whole[1].prediction)
    assert near.dtype == np.float64
    errors = [np.mean((prediction - D)[50:] ** 2) for prediction in (near, far)]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)
    assert errors[0] < 0.7 * D[50:].var()


def test_units_do_not_matter(whole):
    units = np.float32([2**-20, 2**10, 1, 2**20, 4])  # powers of two: no rounding is another
    _, trace = jb.run(SMALL, units * X, 1024 * D)
    np.testing.assert_allclose(trace.prediction / 1024, whole[1].prediction, rtol=1e-6)


def test_leaves_follow_a_change():
    """Of a stream whose level jumps, long before the trees are grown anew."""
    model = jb.BoostedTrees(**vars(SMALL) | {"work": 5, "rows": 200, "trees": 8, "depth": 2})
    still = jb.BoostedTrees(**vars(model) | {"follow": 0.0})
    d = np.where(np.arange(300) < 240, 0.0, 10.0).astype(np.float32)
    following, resting = (np.asarray(jb.run(m, X, d)[1].prediction) for m in (model, still))
    np.testing.assert_allclose(following[280], 10 * (1 - 0.9**40), rtol=0.01)
    assert abs(resting[280]) < 3


def test_missing_entries_go_where_they_tell_something():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(400, 2)).astype(np.float32)
    missing = rng.random(400) < 0.4
    x[missing, 0] = np.nan
    d = np.where(missing, 5.0, -1.0).astype(np.float32)
    prediction = np.asarray(jb.run(SMALL, x, d)[1].prediction)
    assert np.mean((prediction - d)[200:] ** 2) < 0.01 * d.var()


def test_every_stream_of_a_fleet_has_trees_of_its_own(whole):
    fleet = Fleet(SMALL, 5)
    ids = np.tile([2, 0], 150)
    other = np.float32(-2) * D
    xs, ds = np.repeat(X, 2, axis=0), np.stack([D, other], axis=1).ravel()
    state = fleet.init()
    ids = np.tile([2, 0], len(D))
    state, trace = fleet.run(state, ids, xs, ds)
    np.testing.assert_allclose(trace.prediction[::2], whole[1].prediction, rtol=1e-4, atol=1e-4)
    fresh = SMALL.init(5)
    new = jax.tree.map(lambda leaf: leaf[0], fleet.states(state, [1]))
    chex.assert_trees_all_equal(new, fresh)


def test_it_can_be_boosted_and_repeated():
    """A sample that counts three times weighs three times as much."""
    one, three = (SMALL.update(SMALL.init(5), X[0], D[0], repeats=n) for n in (1, 3))
    assert (float(one.ring.weight[0]), float(three.ring.weight[0])) == (1, 3)
    assert int(three.schedule.filled) == 1
    model = jb.boost(SMALL, 3, target_mse=0.1, mode=jb.DataReuse(3))
    prediction = np.asarray(jb.run(model, X, D)[1].prediction)
    assert np.mean((prediction - D)[100:] ** 2) < 0.7 * D.var()


def test_gradients_through_it_are_none():
    slopes = jax.grad(lambda model: jb.mse(model, X[:60], D[:60]))(SMALL)
    assert all(float(slope) == 0 for slope in jax.tree.leaves(slopes))


def test_empty_trees_say_the_mean():
    state, _ = jb.run(SMALL, X[:20], D[:20])
    assert float(SMALL.predict(state, X[30])) == pytest.approx(D[:20].mean(), rel=1e-5)
    assert np.all(np.asarray(state.trees.thresholds) == np.float32(BEYOND))
    assert math.isclose(float(state.mean), D[:20].mean(), rel_tol=1e-5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"depth": 9}, "depth must be"), ({"bins": 3}, "bins must be"), ({"ridge": 0}, "ridge must")],
)
def test_errors_say_what_is_wanted(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        jb.BoostedTrees(**settings)
