"""What is refused at the doors of a model: absurd sizes, and calls that cannot succeed."""

from __future__ import annotations

import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from support import memory

import jboost as jb
from jboost.core import guards

pytestmark = pytest.mark.core


@pytest.mark.skipif(not memory.TOLD, reason="needs a limit of memory")
def test_absurd_sizes_are_refused_in_little_memory():
    """Every transform, learner, wrapper and metric, built by a user and claimed by a file."""
    done = subprocess.run(
        [sys.executable, "-m", "support.sizes"],
        capture_output=True, text=True, check=False, env=os.environ | memory.ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("tried ") and lines[:-1] == []


def test_a_large_state_is_refused_with_its_size(monkeypatch):
    monkeypatch.setattr(guards, "LARGEST_STATE", 1000)
    jb.SGD(0.1).init(250)
    with pytest.raises(ValueError, match=r"this SGD with num_features=251 would take 1,004 bytes"):
        jb.SGD(0.1).init(251)
    with pytest.raises(ValueError, match=r"state of this Newton .* would take 1,0\d\d bytes"):
        jb.run(jb.Newton(), np.ones((2, 16)), np.ones(2))


@jb.model
class Concrete(jb.Learner):
    """A learner whose ``init`` needs the value of its key, and which fails to predict."""

    def init(self, num_features, dtype=None, *, key=None):
        return jnp.full(num_features, float(jnp.float32(2)), dtype)

    def predict(self, state, x):
        raise RuntimeError("the author's own error")

    def learn(self, state, sample):
        return state


def test_the_errors_of_an_author_are_kept():
    learner = Concrete()
    assert learner.init(2).tolist() == [2, 2]  # though it cannot be traced
    with pytest.raises(RuntimeError, match="the author's own error"):
        learner.predict(learner.init(2), jnp.ones(2))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1.0, 2.0], r"state does not belong to this SGD and x of shape \(2,\): state.w has"),
        (["a", "b", "c"], r"x must hold real numbers, an array of shape \(r,\); got \['a'"),
        ([[1.0, 2.0], [1.0]], r"x must hold real numbers"),
        ([], r"x must be an array of shape \(r,\); got shape \(0,\)"),
    ],
)
def test_what_made_a_call_fail(x, message):
    learner = jb.SGD(0.1)
    for call in (learner.predict, lambda state, x: learner.update(state, x, 1.0)):
        with pytest.raises((TypeError, ValueError), match=message):
            call(learner.init(3), x)
