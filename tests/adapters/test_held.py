"""A model held packed has the bits of a run: predictions, what is observed, and the state."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.adapters import held as helds
from jboost.adapters.held import Held
from jboost.reports.accounts import Watch
from jboost.reports.horizons import observed
from jboost.running.run import initial

R = 3
NEWTON = jb.Newton(0.99, 0.1)
CASES = {
    "booster": (jb.bsgd_wu(20, target_mse=0.1, step_size=0.1), Watch()),
    "random updates": (jb.bnm_ru(5, target_mse=0.1, forgetting=0.99, ridge=0.1), Watch()),
    "intervals": (jb.Intervals(jb.Flags(NEWTON)), Watch(intervals=True, flags=True)),
    "forecast": (jb.Forecast(NEWTON, horizon=3), observed),
}
EVERY = pytest.mark.parametrize(("model", "observe"), CASES.values(), ids=CASES)


def stream(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    xs = rng.normal(size=(n, R)).astype(np.float32)
    return xs, (xs @ [1.0, -2.0, 0.5] + 3 + rng.normal(size=n)).astype(np.float32)


def key_for(model: Any) -> Any:
    return jax.random.key(1) if model.needs_key else None


def held_of(model: Any, observe: Any) -> Held:
    key = key_for(model)
    return Held(model, R, initial(model, R, np.dtype(np.float32), key), key, observe)


def assert_alike(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


@EVERY
def test_blocks_have_the_bits_of_a_run(model: Any, observe: Any) -> None:
    xs, ds = stream(70)
    xs[9, 1], ds[12] = np.nan, np.inf
    state, trace = jb.run(model, xs, ds, key_for(model), observe=observe)
    held, traces = held_of(model, observe), []
    for start, stop in ((0, 1), (1, 7), (7, 48), (48, 70)):
        after, of_rows = held.run(xs[start:stop], ds[start:stop])
        again, _ = held.run(xs[start:stop], ds[start:stop])  # what is held does not change
        assert_alike(after.state, again.state)
        traces.append(of_rows)
        held = after
    found = jax.tree.map(lambda *arrays: np.concatenate(arrays), *traces)
    assert_alike(found, jax.tree.map(np.array, trace._replace(skipped=None)))
    assert_alike(held.state, state)


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"forecast"})
)  # which counts every row as a step
def test_rows_without_an_answer_change_nothing(name: str) -> None:
    xs, ds = stream(20)
    held, _ = held_of(*CASES[name]).run(xs[:19], ds[:19])
    _, expected = held.run(xs[19:], ds[19:])
    after, found = held.run(np.repeat(xs[19:], 5, axis=0), np.full(5, np.nan, np.float32))
    np.testing.assert_array_equal(found.prediction, np.repeat(expected.prediction, 5))
    assert_alike(after.state, held.state)


def test_more_rows_than_a_program_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    xs, ds = stream(50)
    model, observe = CASES["intervals"]
    after, trace = held_of(model, observe).run(xs, ds)
    monkeypatch.setattr(helds, "LONGEST_TRACE", 16)
    in_four, found = held_of(model, observe).run(xs, ds)
    assert_alike(found, trace)
    assert_alike(in_four.state, after.state)
