"""Exported models: the bits of a jitted model, without jboost."""

import io
import json
import subprocess
import sys
import zipfile

import jax
import jax.export
import numpy as np
import pytest
from support.table import cases

import jboost as jb
from jboost.core.extras import MissingExtra
from jboost.core.step import step

KEY = jax.random.key(2)
XS, DS = (np.asarray(a, np.float32) for a in jb.streams.duffing(40))
MODELS = {
    "NLMS": jb.NLMS(0.5),
    "pipeline": jb.pipeline(jb.Scale(), jb.Bias(), jb.ScaleTarget(jb.Newton(0.99))),
    "random updates": jb.bsgd_ru(5, target_mse=0.1, step_size=0.1),
    "two targets": jb.targets(jb.NLMS(0.5), 2),
    "trees": jb.bpl_ru(2, target_mse=0.2, depth=1, forgetting=0.99),
    "auto": jb.auto("small"),
}
WITHOUT_JBOOST = """
import io, sys, zipfile
import jax, jax.export
import numpy as np

archive = zipfile.ZipFile("model.zip")
state = [*np.load(io.BytesIO(archive.read("state.npz"))).values()]
step = jax.export.deserialize(bytearray(archive.read("step.cpu.bin")))
rows = np.load("rows.npz")
for x, d in zip(rows["xs"], rows["ds"]):
    prediction, state = step.call(state, x, d)
    print(float(prediction).hex())
assert not [name for name in sys.modules if name.startswith("jboost")]
"""


def learned(model):
    ds = np.stack([DS, -DS], axis=1) if isinstance(model, type(MODELS["two targets"])) else DS
    return jb.run(model, XS[:30], ds[:30], KEY)[0], ds


def jitted(model, key):
    """Return the step as a jitted function, with the results that the exported one has."""

    def predict_then_learn(state, x, d):
        after, trace = step(model, state, x, d, key)
        return trace.prediction, after

    return jax.jit(predict_then_learn)


@pytest.mark.parametrize("model", cases(MODELS, ("pipeline", "random updates", "two targets")))
def test_a_round_trip_keeps_every_bit(model):
    pytest.importorskip("flatbuffers")
    state, ds = learned(model)
    artefact = jb.export(model, state, KEY, platforms=["cpu"])
    archive = zipfile.ZipFile(io.BytesIO(bytes(artefact)))
    leaves = [*np.load(io.BytesIO(archive.read("state.npz"))).values()]
    exported = {
        name: jax.export.deserialize(bytearray(archive.read(f"{name}.cpu.bin")))
        for name in ("predict", "step")
    }
    ours = jitted(model, KEY)
    predict = jax.jit(model.predict)
    for x, d in zip(XS[30:], ds[30:], strict=True):
        np.testing.assert_array_equal(exported["predict"].call(leaves, x), predict(state, x))
        prediction, leaves = exported["step"].call(leaves, x, d)
        expected, state = ours(state, x, d)
        np.testing.assert_array_equal(prediction, expected)
        for leaf, expected in zip(leaves, jax.tree.leaves(state), strict=True):
            assert leaf.dtype == expected.dtype
            np.testing.assert_array_equal(leaf, expected)
    _, same = exported["step"].call(leaves, XS[0], np.full_like(ds[0], np.nan))
    jax.tree.map(np.testing.assert_array_equal, same, leaves)  # no answer, nothing learned


def test_the_file_runs_where_there_is_no_jboost(tmp_path):
    pytest.importorskip("flatbuffers")
    model = MODELS["pipeline"]
    state, _ = learned(model)
    jb.export(model, state).save(tmp_path / "model.zip")
    np.savez(tmp_path / "rows.npz", xs=XS[30:], ds=DS[30:])
    printed = subprocess.run(
        [sys.executable, "-c", WITHOUT_JBOOST],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert printed.returncode == 0, printed.stderr
    ours = jitted(model, None)
    for x, d, line in zip(XS[30:], DS[30:], printed.stdout.split(), strict=True):
        prediction, state = ours(state, x, d)
        assert float(prediction) == float.fromhex(line)


def test_an_artefact_says_what_it_holds():
    pytest.importorskip("flatbuffers")
    model = jb.NLMS(0.5)
    state, _ = learned(model)
    artefact = jb.export(model, state)
    assert [*artefact.programs] == [
        f"{name}.{platform}" for platform in ("cpu", "cuda", "tpu") for name in ("predict", "step")
    ]
    assert artefact.programs["step.tpu"].platforms == ("tpu",)
    assert "stablehlo" in artefact.predict.mlir_module()
    archive = zipfile.ZipFile(io.BytesIO(bytes(artefact)))
    about = json.loads(archive.read("about.json"))
    assert about["x"] == ["float32", [3]] and about["d"] == ["float32", []]
    assert about["state"] == [["state.w", "float32", [3]]]
    names = {f"{name}.{kind}" for name in artefact.programs for kind in ("bin", "mlir")}
    assert {*archive.namelist()} == names | {"about.json", "state.npz"}


def test_what_cannot_be_exported_is_said(monkeypatch, tmp_path):
    model = jb.NLMS(0.5)
    state, _ = learned(model)
    with pytest.raises(ValueError, match=r"^platforms must be a tuple of some of 'cpu'"):
        jb.export(model, state, platforms=("cpu", "phone"))
    with pytest.raises(ValueError, match=r"^key is missing"):
        jb.export(MODELS["random updates"], learned(MODELS["random updates"])[0])
    many = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), state)
    with pytest.raises(ValueError, match=r"^state must be that of one stream"):
        jb.export(model, jax.tree.map(jax.numpy.asarray, many))
    with pytest.raises(ValueError, match=r"^state does not belong"):
        jb.export(jb.Newton(), state)
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(MissingExtra, match=r"jboost\[export\]"):
        jb.export(model, state, platforms=["cpu"]).save(tmp_path / "model.zip")
    assert [*tmp_path.iterdir()] == []
