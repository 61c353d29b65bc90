"""Every model of the catalogue lowers for accelerators: a prediction, a step, and a whole run.

``jax.export`` lowers for CUDA and TPU without such a device. It refuses what a platform cannot do
before the compiler of the device would. Numbers of four bits, which few devices have, must not
occur.
"""

import re

import jax
import numpy as np
import pytest
from jax import export

import jboost as jb
from jboost import catalogue

PLATFORMS = ("cuda", "tpu")
MODELS = {
    **{name: lambda name=name: catalogue.named(name) for name in catalogue.CATALOGUE},
    "auto('small')": lambda: jb.auto("small"),
    "tree": lambda: jb.PiecewiseLinear(3),
    "boosted trees, Poisson": lambda: jb.boost(
        jb.PiecewiseLinear(2), 3, target_mse=0.1, mode=jb.PoissonReuse()
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_step_and_a_run_export_for_accelerators(name):
    model = MODELS[name]()
    xs, ds = (np.asarray(a, np.float32) for a in jb.streams.duffing(4))
    key = jax.random.key(0)
    words, state = jax.random.key_data(key), model.init(3, np.float32, key=key)

    def run(state, xs, ds, words):
        key = jax.random.wrap_key_data(words)
        state, trace = jb.run(model, xs, ds, key, state=state)
        return trace.prediction, state

    whole = export.export(jax.jit(run), platforms=PLATFORMS)(state, xs, ds, words)
    assert whole.platforms == PLATFORMS
    artefact = jb.export(model, state, key, platforms=PLATFORMS)
    assert len(artefact.programs) == 4
    for exported in (whole, *artefact.programs.values()):
        assert exported.out_avals[0].dtype == np.float32
        types = set(re.findall(r"tensor<(?:\d+x)*(\w+)>", exported.mlir_module()))
        assert types and types <= {"i1", "i8", "i32", "i64", "ui8", "ui32", "f32"}, types
