"""The state in which a model starts, computed as one kernel."""

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.engine import use
from jboost.engine.start import size_at_start, start

KEY = jax.random.key(5)


def bits(state):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize(
    "model", [jb.auto("small"), jb.Replay(), jb.Newton()], ids=["auto", "replay", "newton"]
)
def test_a_start_has_the_same_bits_in_both_forms(model):
    fast = start(model, 3, np.float32, KEY)
    use("plain")
    try:
        plain = start(model, 3, np.float32, KEY)
    finally:
        use("auto")
    assert bits(fast) == bits(plain)
    assert jax.tree.structure(fast) == jax.tree.structure(model.init(3, np.float32, key=KEY))


def test_a_run_leaves_the_state_that_it_began_with():
    """Large states are changed in place: a run works on a copy."""
    model = jb.BoostedTrees(trees=4, depth=3, rows=96, bins=10)
    xs = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    use("plain")
    try:
        state, _ = jb.run(model, xs, xs[:, 0])
        before = bits(state)
        jb.run(model, xs, xs[:, 1], state=state)
    finally:
        use("auto")
    assert bits(state) == before


TRACED = []


@jb.model
class Noted(jb.SGD):
    """Notes when its start is traced."""

    def init(self, num_features, dtype=None, *, key=None):
        TRACED.append(num_features)
        return super().init(num_features, dtype, key=key)


@pytest.mark.parametrize("form", ["auto", "plain"])
def test_the_size_of_a_start_is_known_without_a_second_trace(form):
    use(form)
    try:
        size = size_at_start(Noted(0.1), 5, np.float32)
        traced = len(TRACED)
        state = start(Noted(0.1), 5, np.float32, None)
    finally:
        use("auto")
    assert size == sum(leaf.nbytes for leaf in jax.tree.leaves(state)) == 20
    assert traced == len(TRACED)
    TRACED.clear()
