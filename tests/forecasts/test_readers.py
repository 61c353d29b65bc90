"""Readers of known columns: what they learn, and how it is put right for each horizon."""

import chex
import jax.numpy as jnp
import numpy as np

import jboost as jb
from jboost.core import Sample
from jboost.forecasts import by_horizon, readers, ring, with_known
from jboost.learners.newton import Newton

H, T = 4, 1500


def stream():
    """A column that moves the answer in steps, and a drift that only earlier answers tell."""
    rng = np.random.default_rng(0)
    x, drift = rng.uniform(-1, 1, T), np.zeros(T)
    for t in range(1, T):
        drift[t] = 0.9 * drift[t - 1] + 0.3 * rng.normal()
    steps = 4.0 * ((x > -0.6) & (x < 0.1)) + 2.0 * (x > 0.7)
    return x, (steps + drift).astype(np.float32)


def forecaster(known):
    return jb.Forecast(horizon=H, longest=16, known=known)


def test_steps_of_a_known_column_are_learned_and_the_latest_answers_put_them_right():
    x, ds = stream()
    model = forecaster((0,))
    xs = with_known(x[:, None], (0,), H).astype(np.float32)
    _, trace = jb.run(model, xs, ds)
    mae = by_horizon(trace.due[T // 2 :], ds[T // 2 :]).mae
    # The drift of one step has a mean absolute error of 0.24, that of four steps of 0.41; the best
    # parabola in x leaves 1.62.
    assert mae[0] < 0.5 and mae[0] < 0.85 * mae[-1] and mae[-1] < 0.75


def test_there_are_readers_only_where_columns_beside_the_time_are_known():
    clock = jb.Calendar(0, "hours", "2024-01-01")
    timed = jb.Forecast(horizon=H, known=(0,), calendar=clock)
    given = jb.Forecast(jb.Newton(), H, known=(1,))
    for model, has in ((forecaster((0,)), True), (timed, False), (given, False)):
        assert (set(readers.NAMES) <= {*model.experts}) == has
        width = 2 + len(model.known) * H
        assert (model.init(width, jnp.float32).readers != ()) == has


def test_what_is_not_known_of_a_row_to_come_counts_as_at_the_present_row():
    x, ds = stream()
    model, xs = forecaster((0,)), with_known(stream()[0][:, None], (0,), H).astype(np.float32)
    state, _ = jb.run(model, xs[:900], ds[:900])
    unknown, as_now = xs[900].copy(), xs[900].copy()
    unknown[1:], as_now[1:] = np.nan, x[900]
    after = [model.update(state, row, ds[900]).forecast for row in (unknown, as_now)]
    np.testing.assert_allclose(*after, rtol=1e-4, atol=1e-4)


def test_each_horizon_is_put_right_by_least_squares_of_its_own(x64):
    """Against one recursion per horizon on the inputs of the rows at which it was forecast."""
    rng, rows, horizon = np.random.default_rng(1), 30, 2
    squares = Newton(0.99, ridge=1.0)
    state = readers.start(squares, 1, horizon, jnp.dtype("float64"))
    shown, e = rng.normal(size=(rows, horizon, readers.SHOWN)), rng.normal(size=(rows, horizon))
    fading = rng.normal(size=(rows, *state.fading.shape))
    at, valid = jnp.zeros((), jnp.int32), np.zeros(horizon, bool)
    learners = [squares.init(state.squares.w.shape[1], jnp.float64) for _ in range(horizon)]
    zero, one = jnp.zeros(1), jnp.ones(())
    sample = Sample.of(zero, one, jnp.float64)

    def inputs(t, h):
        x = np.concatenate([[1.0], fading[t].ravel(), shown[t, h]])
        return np.pad(x, (0, -len(x) % 8))

    for t in range(rows):
        due = np.stack([shown[max(t - h - 1, 0), h] for h in range(horizon)])
        late = at, jnp.array(due), jnp.array(e[t]), jnp.array(valid), sample
        state = readers.answered(squares, state, *late)
        for h in range(horizon):
            if t > h:
                learners[h] = squares.update(learners[h], inputs(t - h - 1, h), e[t, h])
        state = state._replace(fading=jnp.array(fading[t]))
        at = ring.advanced(at, jnp.ones_like(at), horizon)
        state = readers.remembered(state, at, jnp.array(True))
        valid = np.append(True, valid[:-1])
    expected = [squares.predict(learners[h], inputs(rows - 1, h)) for h in range(horizon)]
    found = readers.put_right(squares, state, jnp.array(shown[-1]))
    chex.assert_trees_all_close(np.array(found), np.array(expected), rtol=1e-8)
