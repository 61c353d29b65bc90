"""Checkpoints of earlier formats and releases: they load, and go on to the predictions kept.

The files are in tests/checkpoints/golden, written by the script there and never again. A file names
a class of the library by its name alone, so that modules may move. To rename a class, a field or a
part of a state breaks these tests: whoever does must let :mod:`jboost.checkpoints.description` read
the former name too. A model that is made of other parts today cannot go on from its former state:
such a file lies in ``golden/refused``, and loading it must say so.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.checkpoints import archive
from jboost.checkpoints.checkpoint import inspect, read, save

pytestmark = pytest.mark.core

GOLDEN = Path(__file__).parent / "golden"
RUNS = sorted(GOLDEN.glob("format*/*.run"))
# Another processor fuses other products and sums, and another XLA orders them otherwise: 5e-7 was
# met over 40 steps of float32, at targets of about 1. A state that was misread is off by 1e-2.
TOLERANCE = 1e-5


def cases() -> list[Any]:
    """To compile the large one takes longer than all the rest of this file."""
    return [
        pytest.param(run, id=f"{run.parent.name}-{run.stem}",
                     marks=[pytest.mark.slow] if run.stem == "auto" else [])
        for run in RUNS
    ]  # fmt: skip


def test_every_format_is_kept() -> None:
    assert {run.parent.name for run in RUNS} == {f"format{n + 1}" for n in range(archive.FORMAT)}
    assert all(run.stat().st_size < 200_000 for run in RUNS)


@pytest.mark.parametrize("run", RUNS, ids=[f"{run.parent.name}-{run.stem}" for run in RUNS])
def test_nothing_of_a_file_is_lost(run: Path, tmp_path: Path) -> None:
    assert f"format{inspect(run)['format']}" == run.parent.name
    kept = read(run)
    assert (kept.position, kept.extra) == (60, {"golden": run.stem})
    again = tmp_path / "again"
    save(again, *kept[:3], position=kept.position, extra=kept.extra)
    before, after = archive.read(run)[1], archive.read(again)[1]
    assert [*before] == [*after]
    for name, array in before.items():
        assert array.dtype == after[name].dtype and array.tobytes() == after[name].tobytes()
    if run.stem == "auto":  # to predict compiles in no time
        x = np.loadtxt(run.with_suffix(".csv"), delimiter=",", skiprows=1, dtype=np.float32)[0]
        first = jax.jit(kept.model.predict)(kept.state, x[:3])
        np.testing.assert_allclose(first, x[4], atol=TOLERANCE)


def test_a_state_of_other_parts_is_refused_with_a_sentence() -> None:
    """The auto of that file mixed other experts."""
    with pytest.raises(jb.CheckpointError) as refused:
        jb.load(GOLDEN / "refused" / "auto.run")
    sentence = str(refused.value)
    assert "its arrays are not those of a state of its model in this release" in sentence
    assert inspect(GOLDEN / "refused" / "auto.run")["position"] == 60


@pytest.mark.parametrize("run", cases())
def test_a_run_goes_on_as_it_did(run: Path) -> None:
    model, state, key = jb.load(run)
    table = np.loadtxt(run.with_suffix(".csv"), delimiter=",", skiprows=1, dtype=np.float32)
    assert table.shape == (40, 5)
    _, trace = jb.run(model, table[:, :3], table[:, 3], key, state)
    np.testing.assert_allclose(trace.prediction, table[:, 4], atol=TOLERANCE)
    fresh, _ = jb.run(model, table[:1, :3], table[:1, 3], key)  # what was learned is what counts
    unlearned = jax.jit(model.predict)(fresh, table[1, :3])
    assert abs(float(unlearned) - table[1, 4]) > 1000 * TOLERANCE


def test_what_is_kept_is_never_written_again(tmp_path: Path, monkeypatch: Any) -> None:
    spec = importlib.util.spec_from_file_location("make", GOLDEN / "make.py")
    assert spec is not None and spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert {run.stem for run in RUNS if run.parent.name == f"format{archive.FORMAT}"} == {
        *make.CASES
    }
    assert make.main() == 1  # all are there, and stay
    monkeypatch.setattr(make, "CASES", {"bsgd_ru": make.CASES["bsgd_ru"]})
    monkeypatch.setattr(make, "HERE", tmp_path)
    assert (make.main(), make.main()) == (0, 1)
    made = read(tmp_path / f"format{archive.FORMAT}" / "bsgd_ru.run")
    kept = read(GOLDEN / f"format{archive.FORMAT}" / "bsgd_ru.run")
    for one, other in zip(jax.tree.leaves(made.state), jax.tree.leaves(kept.state), strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)
