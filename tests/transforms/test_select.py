"""The few columns that matter: found, kept, and nothing lost where there are few."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

import jboost as jb
from jboost.transforms import Select

T, R = 800, 50
RELEVANT = [7, 23, 41]


def stream(seed=0):
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(T, R)).astype(np.float32)
    ds = xs[:, RELEVANT] @ [1.0, -0.7, 0.5] + 0.3 * rng.normal(size=T)
    return xs, ds.astype(np.float32)


@jax.jit
def chosen(select, xs, ds):
    """The columns after every sample, (T, most)."""

    def step(state, sample):
        state = select.update(state, *sample)
        return state, state.columns

    return jax.lax.scan(step, select.init(xs.shape[1], xs.dtype), (xs, ds))[1]


def test_the_relevant_columns_are_found_and_exchanges_are_rare():
    exchanges = []
    for seed in range(5):
        columns = np.asarray(chosen(Select(5), *stream(seed)))
        assert set(RELEVANT) <= set(columns[-1].tolist())
        assert set(RELEVANT) <= set(columns[200].tolist())
        exchanges.append(int((np.diff(columns, axis=0) != 0).sum()))
    assert max(exchanges) <= 12  # five have to go; the rest are draws between columns of no use


def test_neither_the_units_nor_the_offset_of_the_target_matter():
    xs, ds = stream()
    near, far = (chosen(Select(5), xs, d) for d in (ds, np.float32(1e-3 * ds + 5.0)))
    assert (near[-1] == far[-1]).mean() >= 0.6 and set(RELEVANT) <= set(far[300].tolist())


def test_once_found_it_is_as_good_as_knowing_them():
    xs, ds = stream()
    selected, knowing, all_columns = (
        np.mean((jb.run(model, x, ds)[1].prediction - ds)[200:] ** 2)
        for model, x in (
            (jb.pipeline(Select(5), jb.Newton(0.99)), xs),
            (jb.Newton(0.99), xs[:, RELEVANT]),
            (jb.Newton(0.99), xs),
        )
    )
    assert selected < 1.15 * knowing and selected < 0.9 * all_columns


def test_with_few_columns_nothing_is_left_out():
    xs, ds = stream()
    few = xs[:, :4]
    with_it, without = jb.pipeline(Select(4), jb.NLMS(0.1)), jb.NLMS(0.1)
    chex.assert_trees_all_equal(jb.mse(with_it, few, ds), jb.mse(without, few, ds))
    assert Select(4).width(3) == 3 and Select(4).width(9) == 4


def test_constants_and_duplicates_do_no_harm():
    xs, ds = stream()
    xs[:, :3] = 0.0  # what Scale makes of constants
    xs[:, 40] = xs[:, 41]
    columns = np.asarray(chosen(Select(5), xs, ds))[-1]
    assert {7, 23, 40, 41} <= set(columns.tolist())
    assert len(set(columns.tolist())) == 5


def test_gaps_and_absurd_values_spoil_only_themselves():
    xs, ds = stream()
    select = Select(5)
    state = select.init(R, jnp.float32)
    x = jnp.asarray(xs[0]).at[1].set(jnp.inf).at[30].set(jnp.nan)
    seen = np.asarray(select.apply(state, x))
    assert np.isnan(seen[1]) and np.isfinite(seen[[0, 2, 3, 4]]).all()
    update = jax.jit(select.update)
    after = update(state, x.at[2].set(1e14), jnp.float32(1e14))
    chex.assert_tree_all_finite(update(after, x.at[2].set(-1e14), jnp.float32(-1e14)))
    gaps = np.where(np.random.default_rng(1).random(xs.shape) < 0.2, np.nan, xs)
    columns = np.asarray(chosen(select, gaps.astype(np.float32), ds))[-1]
    assert set(RELEVANT) <= set(columns.tolist())
