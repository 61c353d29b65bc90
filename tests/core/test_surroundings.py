"""Stages: computed by themselves, handed only what they need, and the same numbers everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost import engine
from jboost.core.surroundings import stage, written_for

WHERE = ["anywhere", "stages", "kernel"]


def staged():
    """Return a function with a stage; a new one, because JAX traces a function only once."""

    def whole(x, y, unused):
        def compute():
            jnp.where(x > 0, unused, 0)  # nothing depends on it
            return {"sum": x + y, "twice": 2 * x}

        return stage(compute)

    return whole


@pytest.mark.parametrize("where", WHERE)
def test_a_stage_computes_what_its_function_does(where):
    with written_for(where):
        result = jax.jit(staged())(1.5, 2.0, 7.0)
    assert {name: float(value) for name, value in result.items()} == {"sum": 3.5, "twice": 3.0}


@pytest.mark.parametrize("where", WHERE[1:])
def test_a_stage_is_handed_only_what_it_needs(where):
    """XLA would abort the process over a value that a kernel does not use."""
    with written_for(where):
        program = jax.make_jaxpr(staged())(1.5, 2.0, 7.0)
    calls = [equation for equation in program.eqns if "jaxpr" in equation.params]
    assert [len(call.invars) for call in calls] == [2]


def test_anywhere_else_a_stage_leaves_no_trace():
    program = str(jax.make_jaxpr(staged())(1.5, 2.0, 7.0))
    assert "metadata" not in program and "name=run" not in program


def test_the_stages_of_a_large_model_agree_with_the_plain_form():
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(150, 3)).astype(np.float32)
    ds = np.sign(xs[:, 0]) + 0.1 * rng.normal(size=150).astype(np.float32)
    trees = jb.BoostedTrees(rows=16384, depth=4)  # a state of more than a megabyte
    in_stages = jb.run(trees, xs, ds)[1].prediction
    form = engine.last().form
    engine.use("plain")
    try:
        plain = jb.run(trees, xs, ds)[1].prediction
    finally:
        engine.use("auto")
    assert form in ("stages", "plain")  # plain where JAX is of another version
    np.testing.assert_allclose(in_stages, plain, rtol=1e-4, atol=1e-4)
