"""A kept run with flags: the server says what is odd about an answer, and has the bits of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
from support.serving import Local, features, same_bits, stream

import jboost as jb
from jboost.cli import main
from jboost.serving import figures, members
from jboost.serving.metrics import Requests


@pytest.fixture
def run(tmp_path: Path, monkeypatch: Any) -> Path:
    """A run with intervals and flags over 300 rows."""
    xs, ds = stream(300)
    monkeypatch.chdir(tmp_path)
    table = np.column_stack([xs, ds]).astype(np.float64)
    np.savetxt("data.csv", table, "%.17g", ",", header="u,v,w,y", comments="")
    command = ["run", "data.csv", "--target", "y", "--model", "newton", "--intervals", "0.9"]
    assert main([*command, "--events", "e.jsonl", "--checkpoint", "odd.run"]) == 0
    return tmp_path / "odd.run"


def test_an_odd_answer_is_flagged(run: Path, tmp_path: Path) -> None:
    xs, ds = stream(400)
    ds[350] += 50
    xs[351:, 1] += 20  # a column moves
    member, account, _ = members.from_run(run)
    start = "odd", "y", member._replace(position=0), account, {"run": ""}
    local = Local(tmp_path / "served", start=start)
    for i in range(300, 400):
        assert "flags" not in local.ask(str(i), features(xs[i]))
        local.answer(str(i), float(ds[i]))
    watched = figures.Watcher(local.service, Requests()).page(local.stream)["last"]
    flags = {answer["id"]: answer["flags"] for answer in watched}
    assert {"outside", "anomaly"} <= {*flags["350"]} and not flags["349"]
    assert any("drift of v" in of for of in flags.values())
    assert not any("drift of u" in of or "drift of w" in of for of in flags.values())
    counts = {
        labels["flag"]: n for labels, n in figures.gauges(local.service)["jboost_flags_total"]
    }
    assert counts["anomaly"] >= 1 and counts["drift of v"] >= 1
    model, state, _ = jb.load(run)[:3]
    expected, _ = jb.run(model, xs[300:], ds[300:], state=state)
    assert same_bits(local.state, expected)
    local.stop()


def test_a_model_without_flags_has_none(tmp_path: Path) -> None:
    xs, ds = stream(3)
    local = Local(tmp_path)
    for x, d in zip(xs, ds, strict=True):
        local.answer(None, float(d), features(x))
    (answer, *_) = figures.Watcher(local.service, Requests()).page(local.stream)["last"]
    assert [*answer["flags"]] == []
    assert "jboost_flags_total" not in figures.gauges(local.service)
    local.stop()
